"""`Uncopied`: what holds live sandboxes says so where it is copied or pickled."""

from typing import NoReturn

from sandbox.errors import SandboxError


class Uncopied:
    """Something that `copy` and `pickle` refuse: what it holds is there once, in this process."""

    def __reduce__(self) -> NoReturn:
        raise SandboxError(
            f'A {type(self).__name__} can be neither copied nor pickled: what it holds is '
            'there once, and in this process alone; nothing was changed.',
            hint=f'Make another {type(self).__name__} where it is used; a policy can be pickled.',
        )
