"""What each back end makes of the fields of a policy."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Protocol, runtime_checkable

from sandbox.backends.base import OWN_PACKAGES, Backend
from sandbox.policy import HOST_SIDE, SandboxPolicy

ENFORCED = 'enforced'

_OF_THE_HOST = HOST_SIDE | {'max_message_bytes', 'preload', 'variant'}
"""Fields that the session enforces from outside, whatever the sandbox is made of; and `variant`,
which only chooses between images where there are any."""

_PLAIN_PROCESS = 'a plain process of this user has no such limit'
_NO_PROCESS = 'answers are scripted, and nothing runs'


@runtime_checkable
class Candid(Protocol):
    """A back end that says what it cannot enforce."""

    def unenforced(self, policy: SandboxPolicy) -> Mapping[str, str]:
        """Return the fields that do not hold on this machine, each with the reason."""
        ...


def unenforced(policy: SandboxPolicy, backend: Backend) -> Mapping[str, str]:
    """Return the fields that do not hold with a back end, each with the reason.

    Of a back end that does not say anything, only what the session itself does can be promised.
    """
    if isinstance(backend, Candid):
        return backend.unenforced(policy)
    names = {field.name for field in fields(policy)} - _OF_THE_HOST
    if backend.name == 'local':
        gaps = dict.fromkeys(names - {'env', 'orphan_grace', 'packages'}, _PLAIN_PROCESS)
        return gaps | ({'packages': OWN_PACKAGES} if policy.packages else {})
    if backend.name == 'fake':
        return dict.fromkeys(names, _NO_PROCESS)
    return dict.fromkeys(names, f'the back end {backend.name!r} does not say')


def enforced_by(policy: SandboxPolicy, backend: Backend) -> dict[str, str]:
    """Return for every field `'enforced'`, or the reason why it does not hold.

    Raises:
        BackendUnavailable: The back end has to choose, and nothing can be used here.
    """
    gaps = unenforced(policy, backend)
    return {field.name: gaps.get(field.name, ENFORCED) for field in fields(policy)}
