import pytest

from sandbox.kernel.supervisor import Exit
from sandbox.kernel.verdict import Ending, notices, outcome
from sandbox.policy import SandboxPolicy
from sandbox.types import Outcome

OK = {'status': 'ok'}
ERROR = {'status': 'error', 'ename': 'ValueError'}
BROKEN_OFF = {'status': 'error', 'ename': 'KeyboardInterrupt'}


def died(code=None, signal=None, oom_kills=0) -> Exit:
    return Exit(1, code, signal, oom_kills, '')


@pytest.mark.parametrize(
    ('ending', 'expected', 'preserved'),
    [
        (Ending(reply=OK), Outcome.OK, True),
        (Ending(reply=ERROR), Outcome.ERROR, True),
        (Ending(reply=BROKEN_OFF), Outcome.ERROR, True),
        (Ending(reply=BROKEN_OFF, interrupted=True), Outcome.INTERRUPTED, True),
        (Ending(reply=ERROR, interrupted=True), Outcome.ERROR, True),
        (Ending(reply=OK, interrupted=True), Outcome.OK, True),
        (Ending(reply=OK, timed_out=1.0, steps=['interrupt']), Outcome.TIMEOUT, True),
        (Ending(timed_out=1.0, steps=['interrupt', 'kill']), Outcome.TIMEOUT, False),
        (Ending(timed_out=1.0, exit=died(signal=2)), Outcome.TIMEOUT, False),
        (Ending(stopped=True, steps=['interrupt', 'kill']), Outcome.INTERRUPTED, False),
        (Ending(exit=died(code=3)), Outcome.KERNEL_DIED, False),
        (Ending(exit=died(signal=11)), Outcome.KERNEL_DIED, False),
        (Ending(exit=died(signal=9)), Outcome.KERNEL_DIED, False),
        (Ending(exit=died(signal=9, oom_kills=1)), Outcome.OOM, False),
        (Ending(exit=died(code=0, oom_kills=1)), Outcome.KERNEL_DIED, False),
        (Ending(loss='removed', reply=OK), Outcome.SANDBOX_LOST, False),
        (Ending(reply={'status': 'aborted'}), Outcome.UNKNOWN, True),
        (Ending(reply={'status': ['ok']}), Outcome.UNKNOWN, True),
        (Ending(disconnected=True, steps=['kill']), Outcome.UNKNOWN, False),
    ],
)
def test_outcomes(ending, expected, preserved):
    ending.output_ended = True
    assert outcome(ending) is expected
    assert ending.state_preserved is preserved
    assert bool(notices(ending, SandboxPolicy())) is (
        expected not in (Outcome.OK, Outcome.ERROR, Outcome.INTERRUPTED)
    )


@pytest.mark.parametrize(
    ('ending', 'words'),
    [
        (Ending(exit=died(signal=9, oom_kills=1)), 'ran out of memory (limit 1 GiB)'),
        (Ending(exit=died(signal=11)), 'signal 11 (SIGSEGV)'),
        (Ending(exit=died(signal=7)), 'shared memory'),
        (Ending(exit=died(signal=200)), 'signal 200 (unknown)'),
        (Ending(exit=died(code=3)), 'exit code 3'),
        (Ending(timed_out=1.5, steps=['interrupt']), '1.5 s and was interrupted; variables'),
        (Ending(timed_out=1.0, steps=['interrupt', 'kill']), 'its kernel was killed'),
        (Ending(loss='its container was removed'), 'files are lost'),
        (Ending(reply=OK), 'some of it may be missing'),
    ],
)
def test_what_is_said(ending, words):
    assert words in ' '.join(notices(ending, SandboxPolicy()))
