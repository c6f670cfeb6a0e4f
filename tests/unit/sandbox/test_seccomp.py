"""The filter of system calls: its program is run here, one call at a time, by a small machine."""

import json
import platform
import struct
from pathlib import Path

import pytest

from sandbox.backends import seccomp, syscalls
from sandbox.image import guest_folder

ALLOW, KILL = 0x7FFF0000, 0x80000000
EPERM, ENOSYS = 0x00050000 | 1, 0x00050000 | 38
ARCHITECTURES = {'x86_64': 0xC000003E, 'aarch64': 0xC00000B7}
PROFILE = json.loads((guest_folder() / 'seccomp.json').read_text(encoding='utf-8'))


def answer(program: bytes, number: int, arguments: tuple[int, ...] = (), architecture: int = 0):
    """Run a program as the Linux kernel would."""
    padded = (*arguments, *[0] * (6 - len(arguments)))
    data = struct.pack('<IIQ6Q', number, architecture or ARCHITECTURES['x86_64'], 0, *padded)
    steps = list(struct.iter_unpack('=HBBI', program))
    accumulator = at = 0
    while True:
        code, if_true, if_false, value = steps[at]
        at += 1
        if code == 0x20:
            (accumulator,) = struct.unpack_from('<I', data, value)
        elif code == 0x54:
            accumulator &= value
        elif code == 0x06:
            return value
        else:
            holds = {
                0x15: accumulator == value,
                0x25: accumulator > value,
                0x35: accumulator >= value,
            }[code]
            at += if_true if holds else if_false


@pytest.fixture(params=ARCHITECTURES)
def machine(request: pytest.FixtureRequest) -> str:
    return request.param


def test_a_call_is_allowed_if_and_only_if_the_profile_allows_it(machine):
    program = seccomp.assemble(PROFILE, machine)
    plain = {
        name
        for rule in PROFILE['syscalls']
        if rule['action'] == 'SCMP_ACT_ALLOW' and not rule.get('args')
        for name in rule['names']
    }
    special = {name for rule in PROFILE['syscalls'] if rule.get('args') for name in rule['names']}
    known = syscalls.numbers(machine)
    for name, number in known.items():
        if name not in special | {'clone3'}:
            got = answer(program, number, architecture=ARCHITECTURES[machine])
            assert got == (ALLOW if name in plain else EPERM), name
    for unknown in set(range(1024)) - set(known.values()):
        assert answer(program, unknown, architecture=ARCHITECTURES[machine]) == EPERM


@pytest.mark.parametrize(
    ('name', 'arguments', 'expected'),
    [
        ('clone', (0x11,), ALLOW),
        ('clone', (0x3D0F00,), ALLOW),  # a thread
        *(('clone', (flag | 0x11,), EPERM) for flag in (1 << 28, 1 << 29, 1 << 30, 0x20000)),
        ('clone3', (), ENOSYS),
        ('socket', (1, 1, 0), ALLOW),
        ('socket', (2, 1, 6), ALLOW),
        ('socket', (10, 1, 6), ALLOW),
        ('socket', (16, 3, 0), ALLOW),
        ('socket', (16, 3, 9), EPERM),
        ('socket', (40, 1, 0), EPERM),
        ('socket', (38, 5, 0), EPERM),
        ('socket', (1 << 32 | 1, 1, 0), EPERM),
        ('socketpair', (1,), ALLOW),
        ('socketpair', (2,), EPERM),
        ('personality', (0xFFFFFFFF,), ALLOW),
        ('personality', (0x40000,), EPERM),
    ],
)
def test_arguments_are_looked_at(machine, name, arguments, expected):
    program = seccomp.assemble(PROFILE, machine)
    number = syscalls.numbers(machine)[name]
    assert answer(program, number, arguments, ARCHITECTURES[machine]) == expected


def test_calls_of_another_architecture_end_the_process():
    program = seccomp.assemble(PROFILE, 'x86_64')
    assert answer(program, 1, architecture=0x40000003) == KILL
    assert answer(program, 0x40000000 | 39) == EPERM


def test_what_it_does_not_understand_is_refused():
    with pytest.raises(ValueError, match='riscv64'):
        seccomp.assemble(PROFILE, 'riscv64')
    for change in (
        {'defaultAction': 'SCMP_ACT_ALLOW'},
        {'syscalls': [{'names': ['read'], 'action': 'SCMP_ACT_TRACE'}]},
        {
            'syscalls': [
                {
                    'names': ['read'],
                    'action': 'SCMP_ACT_ALLOW',
                    'args': [{'index': 0, 'value': 1, 'op': 'SCMP_CMP_GT'}],
                }
            ]
        },
    ):
        with pytest.raises(ValueError, match='a profile m'):
            seccomp.assemble({**PROFILE, **change}, 'x86_64')


@pytest.mark.parametrize('machine', ARCHITECTURES)
def test_every_name_of_the_profile_is_known(machine):
    names = {name for rule in PROFILE['syscalls'] for name in rule['names']}
    known = set(syscalls.numbers('x86_64'))
    assert names <= known
    assert len(set(syscalls.numbers(machine).values())) == len(syscalls.numbers(machine))


HEADER = Path('/usr/include/x86_64-linux-gnu/asm/unistd_64.h')


@pytest.mark.skipif(
    not HEADER.exists() or platform.machine() != 'x86_64', reason='there are no kernel headers'
)
def test_the_numbers_are_those_of_the_kernel():
    numbers = syscalls.numbers('x86_64')
    for line in HEADER.read_text(encoding='ascii').splitlines():
        words = line.split()
        if len(words) == 3 and words[1].startswith('__NR_'):
            assert numbers[words[1].removeprefix('__NR_')] == int(words[2])
