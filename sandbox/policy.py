"""`SandboxPolicy`: what a sandbox may use and do. A frozen value that can only be tightened."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, Literal, Self

from sandbox.egress.allowlist import Allowlist
from sandbox.errors import PolicyError

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

_MAX_MODULES, _MAX_MODULE_NAME = 64, 200
_MODULE = re.compile(r'[^\W\d]\w*(\.[^\W\d]\w*)*')
_MAX_PACKAGES, _MAX_REQUIREMENT = 64, 200
_RELEASE = r'(===?|[!<>~]=|[<>]) *[\w.*+!-]+'
_REQUIREMENT = re.compile(
    rf'[a-z\d]([\w.-]*[a-z\d])?(\[[\w., -]+\])? *({_RELEASE}( *, *{_RELEASE})*)?',
    re.ASCII | re.IGNORECASE,
)
# pip takes these for files of the folder that it runs in, and builds what it finds there.
_ARCHIVE = re.compile(r'\.(zip|whl|tar(\.\w+)?|t[bglx]z) *(\[|$)', re.ASCII | re.IGNORECASE)
_RUNTIMES = ('default', 'runsc')

Variant = Literal['minimal', 'analysis']
VARIANTS: tuple[Variant, ...] = ('minimal', 'analysis')
DEFAULT_VARIANT: Variant = 'minimal'

_INTEGERS: dict[str, int] = {  # name -> smallest valid value
    'memory': 64 * MIB,
    'pids': 16,
    'disk': MIB,
    'tmp': MIB,
    'shm': MIB,
    'output_chars': 1_000,
    'max_outputs': 1,
    'spill_bytes': 0,
    'output_bytes': 64 * KIB,
    'image_bytes': KIB,
    'max_message_bytes': 64 * KIB,
    'model_text_chars': 200,
    'max_file_bytes': 0,
    'max_files': 1,
    'uid': 1,
}
HOST_SIDE = frozenset(
    (
        *('timeout', 'start_timeout', 'interrupt_grace', 'output_chars', 'spill_bytes'),
        *('max_outputs', 'output_bytes', 'image_bytes', 'model_text_chars'),
        *('max_file_bytes', 'max_files'),
    )
)
"""Fields that the host enforces, so that they can still change once a sandbox runs."""

_LARGEST = (1 << 53) - 1
"""The largest number that JSON and all who read it agree on."""

_SECONDS = ('timeout', 'start_timeout', 'interrupt_grace', 'orphan_grace')


@dataclass(frozen=True)
class SandboxPolicy:
    """Limits of one sandbox. Validated when made, comparable, hashable, and never changed.

    Attributes:
        cpus: Processor time, in cores.
        memory: Memory of all processes and in-memory files together, in bytes; no swap.
        pids: Processes and threads.
        disk: Size of the workspace, in bytes. It lives in memory and counts there, too.
        tmp: Size of `/tmp`, in bytes.
        shm: Size of `/dev/shm`, in bytes.
        network: `'none'`; an `Allowlist` of hosts that are reached through a checking proxy; or
            `'full'` to let the code reach whatever the host's network lets it.
        runtime: `'default'`, the engine's own, or `'runsc'`, gVisor, where the engine has it; it
            goes with `network='none'` only. Elsewhere it is refused.
        variant: Which of the project's images, where a back end has images: `'analysis'` has the
            usual libraries for data, plots and fonts; `'minimal'` has NumPy, pandas and matplotlib.
        packages: What is installed besides, such as `('humanize==4.9.0', 'networkx')`. An image
            with it has to be built before; see `sandbox.image.build_image`. Only the Docker back
            end has images; where code finds the interpreter's own packages, this is refused.
        timeout: Default wall clock of one cell, in seconds.
        start_timeout: How long a sandbox and its kernel may take to become ready, in seconds.
        interrupt_grace: How long a cell may take to end after an interrupt, in seconds; then its
            kernel is killed.
        orphan_grace: A sandbox whose owner is gone ends itself after this time, in seconds.
        output_chars: Characters kept of each stream and of each plain text; head and tail.
        spill_bytes: Text over `output_chars` goes to files of the session, in `.outputs`: of one
            cell, and of all cells together, at most this many bytes. 0 keeps none.
        max_outputs: Outputs kept of one cell.
        output_bytes: Bytes kept of the rich representations of one cell (html, images, json...).
        image_bytes: Largest image that is kept, in bytes.
        max_message_bytes: Largest kernel message that is read, in bytes; a larger one is counted
            and left out.
        model_text_chars: Length of `ExecutionResult.text`, what a model is shown.
        max_file_bytes: Largest file that goes in or out, in bytes.
        max_files: Files and folders that a listing names, and that are looked at after a cell.
        preload: Modules to import in the process that kernels are forked from, such as
            `('numpy', 'pandas', 'matplotlib.pyplot')`. Kernels that start later, after a restart or
            in a pool, find them loaded. It costs their memory, and time in the background.
        env: Environment variables for the kernel. Nothing of the host's environment is passed on.
        uid: User and group id of the code inside the sandbox; never root, and in a container never
            the user that the host program runs as.

    Raises:
        PolicyError: A value is of the wrong type or out of range.
    """

    cpus: float = 1.0
    memory: int = GIB
    pids: int = 128
    disk: int = 512 * MIB
    tmp: int = 128 * MIB
    shm: int = 256 * MIB
    network: Literal['none', 'full'] | Allowlist = 'none'
    runtime: Literal['default', 'runsc'] = 'default'
    variant: Variant = DEFAULT_VARIANT
    packages: tuple[str, ...] = ()
    timeout: float = 60.0
    start_timeout: float = 60.0
    interrupt_grace: float = 2.0
    orphan_grace: float = 30.0
    output_chars: int = 100_000
    spill_bytes: int = 32 * MIB
    max_outputs: int = 256
    output_bytes: int = 16 * MIB
    image_bytes: int = 8 * MIB
    max_message_bytes: int = 16 * MIB
    model_text_chars: int = 8_000
    max_file_bytes: int = 512 * MIB
    max_files: int = 10_000
    preload: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, hash=False)
    uid: int = 65_532

    def __post_init__(self) -> None:
        for name, least in _INTEGERS.items():
            _check_integer(name, getattr(self, name), least)
        for name in ('cpus', *_SECONDS):
            _check_positive(name, getattr(self, name))
            object.__setattr__(self, name, float(getattr(self, name)))
        if not isinstance(self.network, Allowlist) and self.network not in ('none', 'full'):
            raise PolicyError(
                f'network={self.network!r} is not supported.',
                hint="Use 'none', 'full' or an Allowlist(['pypi.org', '*.example.org:443']).",
            )
        if self.runtime not in _RUNTIMES:
            raise PolicyError(
                f'runtime={self.runtime!r} is not supported.',
                hint=f'Use one of {", ".join(map(repr, _RUNTIMES))}.',
            )
        if self.variant not in VARIANTS:
            raise PolicyError(
                f'variant={self.variant!r} is not supported.',
                hint=f'Use one of {", ".join(map(repr, VARIANTS))}.',
            )
        _check_packages(self.packages)
        _check_preload(self.preload)
        _check_env(self.env)
        object.__setattr__(self, 'env', MappingProxyType(dict(self.env)))

    def enforced_by(self, backend: Any) -> dict[str, str]:
        """Return for every field `'enforced'`, or why it does not hold on this machine.

        Where a field does not hold, a back end refuses to start, unless it was told to accept that
        (`BubblewrapBackend(accept_unenforced=...)`) or isolates nothing at all (`'local'`).

        Args:
            backend: Name of a back end, or a back end.

        Raises:
            ValueError: There is no such back end.
            BackendUnavailable: With `'auto'`, nothing can be used here.
        """
        from sandbox.backends import get_backend

        gaps = get_backend(backend).unenforced(self)
        return {each.name: gaps.get(each.name, 'enforced') for each in fields(self)}

    def __reduce__(self) -> tuple[object, ...]:
        # A read-only mapping cannot be pickled.
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return (_rebuild, ({**values, 'env': dict(self.env)},))

    def tighten(self, **changes: Any) -> Self:
        """Return a policy with the given fields made stricter.

        Numbers may only go down; the network may only reach less: from `'full'` to an `Allowlist`,
        to a smaller one, to `'none'`; the runtime may become `'runsc'`, and the variant
        `'minimal'`; variables may only be taken out of the environment, modules out of `preload`,
        and packages out of `packages`; and the user id stays.

        Args:
            **changes: Fields and their new values.

        Raises:
            PolicyError: A field is unknown, a value is invalid, or a change would loosen it.
        """
        known = {f.name for f in fields(self)}
        if unknown := sorted(changes.keys() - known):
            raise PolicyError(f'a policy has no field {", ".join(map(repr, unknown))}.')
        tighter = replace(self, **changes)
        for name in changes:
            old, new = getattr(self, name), getattr(tighter, name)
            if not _at_most(name, new, old):
                raise PolicyError(
                    f'{name}={new!r} would loosen the policy, which has {old!r}; it is unchanged.',
                    hint='A policy can only be tightened. Make a new SandboxPolicy to allow more.',
                )
        return tighter


def _rebuild(values: dict[str, Any]) -> SandboxPolicy:
    return SandboxPolicy(**values)


def _at_most(name: str, new: Any, old: Any) -> bool:
    if name == 'network':
        return _reaches_no_more(new, old)
    if name == 'runtime':
        return bool(new in (old, 'runsc'))
    if name == 'variant':
        return bool(new in (old, 'minimal'))
    if name in ('preload', 'packages'):
        return set(new) <= set(old)
    if name == 'env':
        return bool(new.items() <= old.items())
    if name == 'uid':
        return bool(new == old)
    return bool(new <= old)


def _reaches_no_more(new: Any, old: Any) -> bool:
    if new == 'none' or old == 'full':
        return True
    return isinstance(new, Allowlist) and isinstance(old, Allowlist) and old.covers(new)


def _check_integer(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise PolicyError(f'{name} must be a whole number, not {value!r}.')
    if value < least:
        raise PolicyError(f'{name} must be at least {least:,}, not {value:,}.')
    if value > _LARGEST:
        raise PolicyError(f'{name} must be at most {_LARGEST:,}, not {value:,}.')


def _check_positive(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PolicyError(f'{name} must be a number, not {value!r}.')
    if not math.isfinite(value) or value <= 0:
        raise PolicyError(f'{name} must be positive and finite, not {value!r}.')


def _check_preload(names: object) -> None:
    if not isinstance(names, tuple) or len(names) > _MAX_MODULES:
        raise PolicyError(f'preload must be a tuple of at most {_MAX_MODULES} names of modules.')
    for name in names:
        if not isinstance(name, str) or len(name) > _MAX_MODULE_NAME or not _MODULE.fullmatch(name):
            raise PolicyError(f'preload names no module with {name!r}.')


def _check_packages(packages: object) -> None:
    if not isinstance(packages, tuple) or len(packages) > _MAX_PACKAGES:
        raise PolicyError(f'packages must be a tuple of at most {_MAX_PACKAGES} requirements.')
    for text in packages:
        short = isinstance(text, str) and len(text) <= _MAX_REQUIREMENT
        if not short or not _REQUIREMENT.fullmatch(text) or _ARCHIVE.search(text):
            raise PolicyError(
                f'packages names no package of an index with {text!r}.',
                hint="Write it as in 'humanize==4.9.0' or 'networkx>=3,<4': neither addresses, "
                'nor paths, nor archives, nor options of pip.',
            )


def _check_env(env: object) -> None:
    if not isinstance(env, Mapping):
        raise PolicyError(f'env must map names to texts, not {type(env).__name__}.')
    for name, value in env.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise PolicyError(f'env must map names to texts; {name!r} does not.')
        if not name or '=' in name or '\0' in name or '\0' in value:
            raise PolicyError(f'env has an invalid variable: {name!r}.')
