import pytest

from sandbox import FakeBackend, Sandbox, SandboxError
from sandbox.backends.fake import FakeMachine


class FlakyBackend(FakeBackend):
    """Its sandboxes cannot be removed at the first attempt."""

    async def start(self, policy, *, labels):
        machine = FakeMachine(self._script, policy)
        machine.close = self._close
        self.attempts = 0
        return machine

    async def _close(self) -> None:
        self.attempts += 1
        if self.attempts == 1:
            raise SandboxError('the engine does not answer')


def test_close_keeps_the_handle_until_the_removal_has_succeeded():
    backend = FlakyBackend()
    box = Sandbox(backend=backend)
    box.start()
    with pytest.raises(SandboxError, match='does not answer'):
        box.close()
    assert not box.closed
    assert box.container_id is not None
    box.close()
    assert box.closed
    assert backend.attempts == 2
    box.close()
    with pytest.raises(SandboxError, match='closed'), box:
        pass
    assert backend.attempts == 2


def test_a_session_that_never_started_closes_at_once():
    box = Sandbox(backend=FakeBackend())
    assert repr(box).endswith('on fake: not started>')
    box.close()
    assert box.closed
    assert repr(box).endswith('on fake: closed>')


@pytest.mark.parametrize('timeout', [0, -1.0, float('inf'), float('nan')])
def test_a_timeout_is_checked(timeout):
    with Sandbox(backend=FakeBackend()) as box, pytest.raises(ValueError, match='timeout'):
        box.execute('', timeout=timeout)
