"""The guest's filter of system calls as a program for the Linux kernel.

Docker reads `seccomp.json` itself; where no engine does, it is assembled here: a few instructions
of classic BPF for each run of allowed numbers, and a comparison for each condition on an argument.
The system call's number is in the accumulator throughout, except while arguments are looked at.
"""

import functools
import json
import platform
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from sandbox.backends import syscalls
from sandbox.image_names import guest_folder

_ARCHITECTURES = {'x86_64': 0xC000003E, 'aarch64': 0xC00000B7}
_X32 = 0x40000000
"""Numbers from here on are calls of a third, nearly unused interface of x86-64 processors."""

_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in the kernel's struct seccomp_data
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_EQUAL, _GREATER, _AT_LEAST = 0x15, 0x25, 0x35
_LOW = 0xFFFFFFFF


class _Step(NamedTuple):
    code: int
    value: int
    if_true: int = 0  # how many instructions to skip
    if_false: int = 0


@functools.cache
def guest_filter() -> bytes:
    """Return the program for the guest's own profile."""
    return assemble(json.loads((guest_folder() / 'seccomp.json').read_text(encoding='utf-8')))


def assemble(profile: Mapping[str, Any], machine: str = platform.machine()) -> bytes:
    """Return the program for a profile in Docker's format, as an array of `struct sock_filter`.

    Only what our own profile uses is understood: to allow a call always, to allow it under
    conditions (`SCMP_CMP_EQ`, `SCMP_CMP_MASKED_EQ`), and to refuse it with an error number.

    Args:
        profile: The profile.
        machine: The machine that it is for, as `platform.machine()` says it.

    Raises:
        ValueError: The machine is unknown, or the profile asks for something else.
    """
    if machine not in _ARCHITECTURES:
        raise ValueError(f'there is no table of system calls for {machine!r}')
    known = syscalls.numbers(machine)
    if profile['defaultAction'] != 'SCMP_ACT_ERRNO':
        raise ValueError('a profile must refuse by default')
    refusal = _Step(_RETURN, _ERRNO | profile['defaultErrnoRet'])
    steps = [
        _Step(_LOAD, _ARCHITECTURE),
        _Step(_EQUAL, _ARCHITECTURES[machine], if_true=1),
        _Step(_RETURN, _KILL),
        _Step(_LOAD, _NUMBER),
    ]
    if machine == 'x86_64':
        steps += [_Step(_AT_LEAST, _X32, if_false=1), refusal]
    always: set[int] = set()
    for rule in profile['syscalls']:
        here = [known[name] for name in rule['names'] if name in known]
        if rule['action'] == 'SCMP_ACT_ALLOW' and not rule.get('args'):
            always.update(here)
        else:
            steps += [step for number in here for step in _special(number, rule)]
    steps += [step for run in _runs(always) for step in _allowed(*run)]
    steps.append(refusal)
    return b''.join(
        struct.pack('=HBBI', step.code, step.if_true, step.if_false, step.value) for step in steps
    )


def _runs(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last of every run of successive numbers."""
    first = last = -1
    for number in sorted(numbers):
        if first >= 0 and number == last + 1:
            last = number
            continue
        if first >= 0:
            yield first, last
        first = last = number
    if first >= 0:
        yield first, last


def _allowed(first: int, last: int) -> list[_Step]:
    return [
        _Step(_AT_LEAST, first, if_false=2),
        _Step(_GREATER, last, if_true=1),
        _Step(_RETURN, _ALLOW),
    ]


def _special(number: int, rule: Mapping[str, Any]) -> list[_Step]:
    """Return the steps for one call under one rule; they fall through where it does not apply."""
    if rule['action'] == 'SCMP_ACT_ALLOW':
        answer = _Step(_RETURN, _ALLOW)
    elif rule['action'] == 'SCMP_ACT_ERRNO':
        answer = _Step(_RETURN, _ERRNO | rule['errnoRet'])
    else:
        raise ValueError(f'a profile may not ask for {rule["action"]!r}')
    tests = [test for argument in rule.get('args') or [] for test in _tests(argument)]
    body: list[_Step] = []
    for at, test in enumerate(tests):
        # Past the remaining tests and the answer, to where the number is loaded again.
        otherwise = len(tests) - at if test.code == _EQUAL else 0
        body.append(test._replace(if_false=otherwise))
    body.append(answer)
    if tests:
        body.append(_Step(_LOAD, _NUMBER))
    return [_Step(_EQUAL, number, if_false=len(body)), *body]


def _tests(argument: Mapping[str, Any]) -> Iterator[_Step]:
    """Yield loads and comparisons of one 64-bit argument; a comparison that fails ends the rule."""
    if argument['op'] == 'SCMP_CMP_EQ':
        mask, value = (1 << 64) - 1, argument['value']
    elif argument['op'] == 'SCMP_CMP_MASKED_EQ':
        mask, value = argument['value'], argument['valueTwo']
    else:
        raise ValueError(f'a profile may not compare by {argument["op"]!r}')
    at = _ARGUMENTS + 8 * argument['index']
    for offset, shift in ((at, 0), (at + 4, 32)):  # both machines are little-endian
        half = mask >> shift & _LOW
        if half == 0:
            continue
        yield _Step(_LOAD, offset)
        if half != _LOW:
            yield _Step(_AND, half)
        yield _Step(_EQUAL, value >> shift & _LOW)
