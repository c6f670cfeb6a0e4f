import pytest

from sandbox import (
    AsyncFakeSandbox,
    ExecutionResult,
    FakeBackend,
    FakeSandbox,
    Outcome,
    Sandbox,
    SandboxClosed,
    SandboxError,
)


def test_a_list_is_answered_in_order():
    with FakeSandbox(['one', ValueError('bad'), ExecutionResult(Outcome.TIMEOUT)]) as box:
        assert box.execute('a').stdout == 'one'
        second = box.execute('b')
        assert (second.outcome, second.error.name, second.error.message) == (
            Outcome.ERROR,
            'ValueError',
            'bad',
        )
        assert box.execute('c').outcome is Outcome.TIMEOUT
        with pytest.raises(SandboxError, match='used up'):
            box.execute('d')


def test_a_dictionary_is_answered_by_code():
    with FakeSandbox({'x = 1\n': 'done'}) as box:
        assert box.execute(' x = 1').stdout == 'done'
        with pytest.raises(SandboxError, match='x = 2'):
            box.execute('x = 2')


def test_a_function_is_asked():
    with FakeSandbox(lambda code: code.upper()) as box:
        assert box.execute('abc').stdout == 'ABC'


def test_every_sandbox_takes_a_list_from_its_start():
    backend = FakeBackend(iter(['one']))
    for _ in range(2):
        with Sandbox(backend=backend) as box:
            assert box.execute('').stdout == 'one'


def test_it_is_a_sandbox_in_every_other_way():
    lost = ExecutionResult(Outcome.KERNEL_DIED, state_preserved=False, notices=('it died',))
    with FakeSandbox(['a', lost, 'b', 'c']) as box:
        box.upload(b'x', name='f')
        first, second, third, fourth = (box.execute('') for _ in range(4))
        assert [event.kind for event in FakeSandbox(['x']).stream('')] == ['output', 'result']
        assert first.state_preserved
        assert second.steps == ('restart',)
        assert 'files are kept' in second.notices[-1]
        assert 'new kernel' in third.notices[0]
        assert fourth.notices == ()
        assert box.read('f') == b'x'
    assert box.closed
    with pytest.raises(SandboxClosed):
        box.execute('')


def test_a_lost_sandbox_loses_its_files():
    lost = ExecutionResult(Outcome.SANDBOX_LOST, state_preserved=False)
    script = iter(['', lost])
    with FakeSandbox(lambda _: next(script, 'x')) as box:
        box.upload(b'x', name='f')
        first_id = box.container_id
        box.execute('')
        box.execute('')
        assert box.files() == []
        assert box.container_id != first_id
        assert 'files from before it are lost' in box.execute('').notices[0]


async def test_the_async_form():
    async with AsyncFakeSandbox(['one']) as box:
        assert (await box.execute('')).stdout == 'one'


@pytest.mark.parametrize('code', [None, b'x = 1', 5])
def test_code_is_a_text(code):
    with FakeSandbox() as box:
        with pytest.raises(TypeError, match=f'not {type(code).__name__}; nothing was run'):
            box.execute(code)
        assert box.execute('x = 1').ok
