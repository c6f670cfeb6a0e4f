"""InternLM's code tools on scripted sandboxes: one flow, plain and awaited."""

import asyncio
import gc
import inspect

import pytest

from lagent.actions import (
    ActionExecutor,
    AsyncActionExecutor,
    AsyncIPythonInteractive,
    AsyncIPythonInterpreter,
    AsyncPythonInterpreter,
    IPythonInteractive,
    IPythonInteractiveManager,
    IPythonInterpreter,
    PythonInterpreter,
)
from lagent.actions.cells import BACKEND_VARIABLE, UNSAFE_VARIABLE, on_portal
from lagent.actions.sandbox_sessions import Scoped
from lagent.context import run_context
from lagent.effects import subscribe
from lagent.portal import get_portal
from lagent.schema import ActionStatusCode, AgentMessage
from sandbox import ErrorInfo, ExecutionResult, FakeBackend, Outcome, Output, SandboxClosed

PNG = b'\x89PNG\r\n\x1a\n'
JPEG = b'\xff\xd8\xff'
PLOT = ExecutionResult(
    Outcome.OK,
    (
        Output('display', '<Figure>', {'text/plain': '<Figure>', 'image/png': PNG}),
        Output('display', '<Photo>', {'text/plain': '<Photo>', 'image/jpeg': JPEG}),
        Output('stdout', 'done\n'),
    ),
)
FAILED = ExecutionResult(
    Outcome.ERROR,
    (Output('stdout', 'step ' * 10 + '\n'), Output('error', 'ValueError: no')),
    ErrorInfo('ValueError', 'no', '----\nValueError: no'),
)
VALUE = ExecutionResult(Outcome.OK, (Output('stdout', ' 1\n2\n'), Output('result', '42')))


class Script:
    """Answers by code, and the code that was run; set-up code is not counted."""

    def __init__(self, answers=None):
        self.answers = answers or {}
        self.ran = []
        self.set_ups = 0

    def __call__(self, code):
        if '_set_up()' in code:
            self.set_ups += 1
            return ''
        self.ran.append(code)
        return self.answers.get(code, '')


@pytest.fixture
def script():
    return Script()


def settle(answer):
    if not inspect.iscoroutine(answer):
        return answer

    async def main():
        return await answer

    return asyncio.run(main())


def tools(*classes):
    return pytest.mark.parametrize('cls', classes)


INTERACTIVE = tools(IPythonInteractive, AsyncIPythonInteractive)
INTERPRETER = tools(IPythonInterpreter, AsyncIPythonInterpreter)
PROGRAM = tools(PythonInterpreter, AsyncPythonInterpreter)


def made(cls, script, **kwargs):
    return cls(backend=FakeBackend(script), **kwargs)


@INTERACTIVE
def test_interactive_gives_text_then_value(cls, script):
    script.answers = {'x': VALUE}
    answer = settle(made(cls, script)({'command': 'x'}))
    assert answer.result == [{'type': 'text', 'content': '1\n2\n42'}]
    assert (answer.args, answer.type) == ({'text': 'x'}, cls.__name__)
    assert answer.state is ActionStatusCode.SUCCESS


@INTERACTIVE
@pytest.mark.parametrize(
    ('most', 'text'),
    [
        (-1, 'step ' * 9 + 'step\nValueError: no'),
        (20, 'step\nValueError: no'),
        (5, 'Value'),
    ],
)
def test_a_short_limit_keeps_the_error(cls, script, most, text):
    script.answers = {'x': FAILED}
    answer = settle(made(cls, script, max_out_len=most)({'command': 'x'}))
    assert answer.state is ActionStatusCode.API_ERROR
    assert answer.errmsg.split() == text.split()
    assert most < 0 or len(answer.errmsg) <= most


@INTERACTIVE
def test_a_long_value_is_cut(cls, script):
    script.answers = {'x': 'y' * 50}
    answer = settle(made(cls, script, max_out_len=8)({'command': 'x'}))
    assert answer.format_result() == 'y' * 8


@INTERACTIVE
def test_both_faces_describe_the_same_api(cls):
    description = cls().description
    assert [p['name'] for p in description['parameters']] == ['command', 'timeout']
    assert description['required'] == ['command']
    assert description['description'].startswith('Run Python')


def test_exec_gives_status_and_text(script):
    script.answers = {'x': VALUE, 'y': FAILED}
    tool = made(IPythonInteractive, script)
    assert (tool.exec('`x`').status, tool.exec('x').value) == ('success', '1\n2\n42')
    assert tool.exec('y').status == 'failure'
    assert tool.exec('y').msg.endswith('ValueError: no')


@INTERACTIVE
@pytest.mark.parametrize('timeout', ['soon', [1]])
def test_a_timeout_that_is_no_number_is_an_error_of_the_tool(cls, script, timeout):
    answer = settle(made(cls, script)({'command': 'x', 'timeout': timeout}))
    assert answer.state is ActionStatusCode.API_ERROR
    assert script.ran == []


@INTERPRETER
def test_images_are_saved_and_named(cls, script, tmp_path):
    script.answers = {'plot()': PLOT}
    tool = made(cls, script, work_dir=tmp_path / 'new' / 'images')
    assert (tmp_path / 'new' / 'images').is_dir()
    answer = settle(tool({'command': 'plot()'}))
    text, png, jpeg = answer.result
    assert text == {'type': 'text', 'content': 'done'}
    assert [png['type'], jpeg['type']] == ['image', 'image']
    assert png['content'].endswith('.png')
    assert jpeg['content'].endswith('.jpg')
    files = {path.read_bytes() for path in (tmp_path / 'new' / 'images').iterdir()}
    assert files == {PNG, JPEG}
    assert f'[image]({png["content"]})' in answer.format_result()


def test_the_plain_interpreter_shows_whole_tracebacks(script, tmp_path):
    script.answers = {'x': FAILED}
    plain = made(IPythonInterpreter, script, work_dir=tmp_path)
    awaited = made(AsyncIPythonInterpreter, script, work_dir=tmp_path)
    assert plain({'command': 'x'}).errmsg.endswith('\n----\nValueError: no')
    assert settle(awaited({'command': 'x'})).errmsg.endswith('step \nValueError: no')


@INTERPRETER
def test_user_data_is_copied_into_a_container(cls, script, tmp_path, monkeypatch):
    data = tmp_path / 'data'
    (data / 'sub').mkdir(parents=True)
    (data / 'sub' / 'a.csv').write_text('1')
    (tmp_path / 'secret').write_text('2')
    (data / 'link').symlink_to(tmp_path / 'secret')
    monkeypatch.setenv('USER_DATA_DIR', str(data))
    tool = made(cls, script, work_dir=tmp_path / 'images')
    settle(tool({'command': 'x'}))

    (session,) = tool._cells.sessions()

    async def listed():
        return [info.path for info in await tool._cells.files(session) if info.kind == 'file']

    assert get_portal().call(listed) == ['sub/a.csv']


@INTERPRETER
def test_a_missing_data_folder_is_told(cls, script, tmp_path):
    tool = made(cls, script, work_dir=tmp_path, user_data_dir=tmp_path / 'nowhere')
    answer = settle(tool({'command': 'x'}))
    assert 'nowhere is no folder' in answer.errmsg
    assert script.ran == []


def test_each_kernel_is_set_up_once(script, tmp_path):
    tool = made(IPythonInterpreter, script, work_dir=tmp_path)
    for session in ('a', 'b', 'a'):
        with run_context(session):
            tool({'command': 'x'})
    assert script.set_ups == 2
    with run_context('a'):
        tool.reset()
        tool({'command': 'x'})
    assert script.set_ups == 3


async def test_calls_at_the_same_time_set_a_kernel_up_once(script, tmp_path):
    tool = made(AsyncIPythonInterpreter, script, work_dir=tmp_path)
    answers = await asyncio.gather(*(tool({'command': f'x{n}'}) for n in range(5)))
    assert [answer.state for answer in answers] == [ActionStatusCode.SUCCESS] * 5
    assert script.set_ups == 1
    assert sorted(script.ran) == ['x0', 'x1', 'x2', 'x3', 'x4']


async def test_sessions_that_look_alike_have_kernels_of_their_own(script, tmp_path):
    tool = made(AsyncIPythonInterpreter, script, work_dir=tmp_path)
    sessions = [1, '1', ('a', 'b'), "('a', 'b')"]
    for session in sessions:
        await tool.run('x', session_id=session)
    assert tool._cells.sessions() == set(sessions)
    with run_context('a'):  # what the model of this run calls 'b' is not the session ('a', 'b')
        await tool.run('x', session_id='b')
    assert tool._cells.sessions() == {*sessions, Scoped('a', 'b')}
    assert len(tool._cells._manager.sessions()) == 5


def test_a_call_has_its_own_timeout(script, tmp_path):
    tool = made(IPythonInterpreter, script, work_dir=tmp_path)
    asked = []
    tool({'command': 'x'})
    ((box, _),) = tool._cells._preparations.open_boxes()
    execute = box.execute

    async def noted(code, timeout=None):  # noqa: ASYNC109 - as in the sandbox
        asked.append(timeout)
        return await execute(code, timeout=timeout)

    box.execute = noted
    tool({'command': 'x', 'timeout': 3})
    tool({'command': 'x'})
    assert asked == [3, 20]


def test_a_new_kernel_is_told_of_and_set_up(script, tmp_path):
    died = ExecutionResult(Outcome.KERNEL_DIED, state_preserved=False, notices=('it died',))
    script.answers = {'die': died}
    tool = made(IPythonInterpreter, script, work_dir=tmp_path)
    assert tool({'command': 'die'}).errmsg.startswith('[notice] it died')
    assert '[notice]' in tool({'command': 'x'}).format_result()
    assert tool({'command': 'x'}).format_result() == ''
    assert script.set_ups == 2


def test_a_failed_set_up_runs_nothing(tmp_path):
    tool = made(IPythonInterpreter, lambda _: RuntimeError('no'), work_dir=tmp_path)
    assert 'RuntimeError: no' in tool({'command': 'x'}).errmsg


async def test_a_model_cannot_reach_another_session(script, tmp_path):
    tool = made(AsyncIPythonInterpreter, script, work_dir=tmp_path)
    executor = AsyncActionExecutor([tool])

    async def asked(of, session):
        call = {
            'name': 'AsyncIPythonInterpreter',
            'parameters': {'command': 'x', 'session_id': of},
        }
        await executor(AgentMessage(content=call), session_id=session)
        return tool._cells.sessions()

    await tool({'command': 'x', 'session_id': 'mine'})
    assert await asked('mine', session='theirs') == {'mine', Scoped('theirs', 'mine')}
    assert await asked('theirs', session='theirs') == {'mine', Scoped('theirs', 'mine'), 'theirs'}


async def test_sessions_of_the_awaited_interpreter_can_be_closed(script, tmp_path):
    async with made(AsyncIPythonInterpreter, script, work_dir=tmp_path, max_kernels=3) as tool:
        await tool.initialize('a')
        assert script.set_ups == 1
        await tool({'command': 'x', 'session_id': 'a'})
        await tool({'command': 'x', 'session_id': 1})
        await tool({'command': 'x', 'session_id': '1'})
        assert tool._cells._manager.sessions() == ['#1', '1', 'a']
        await tool.close_session('a')
        await tool.shutdown(1)
        assert tool._cells._manager.sessions() == ['1']
        await tool.shutdown('1')
        assert tool._cells._manager.sessions() == []
    answer = await tool({'command': 'x'})
    assert answer.state is ActionStatusCode.API_ERROR
    assert 'closed' in answer.errmsg


def test_reset_of_an_unused_session_starts_nothing(script, tmp_path):
    tool = made(IPythonInterpreter, script, work_dir=tmp_path)
    tool.reset()
    made(AsyncIPythonInteractive, script).reset()
    assert tool._cells._manager is None


@PROGRAM
def test_programs_are_asked_for_their_answer(cls, script):
    tool = made(cls, script, answer_symbol='a', timeout=3)
    cell = "answer_of('a = 1', 'a', 'solution()', False)"
    script.answers = {cell: ExecutionResult(Outcome.OK, (Output('result', '1'),))}
    answer = settle(tool({'command': '```python\na = 1\n```'}))
    assert answer.format_result() == '1'
    assert answer.args == {'text': '```python\na = 1\n```'}


@PROGRAM
def test_programs_that_fail(cls, script):
    error = ErrorInfo('ProgramFailed', "KeyError('x')", "ProgramFailed: KeyError('x')")
    results = [
        ExecutionResult(Outcome.ERROR, error=error),
        ExecutionResult(Outcome.TIMEOUT),
        ExecutionResult(Outcome.OOM, notices=('out of memory',)),
    ]
    words = []
    for result in results:
        tool = made(cls, lambda code, result=result: '' if '_set_up()' in code else result)
        answer = settle(tool({'command': 'a'}))
        assert answer.state is ActionStatusCode.API_ERROR
        words.append(answer.errmsg)
    assert words[0] == "KeyError('x')"
    assert words[1] == 'FunctionTimedOut: the program did not end within 20 seconds'
    assert 'out of memory' in words[2]


def test_a_batch_is_answered_in_order(script):
    script.answers = {'a': VALUE, 'b': FAILED}
    manager = made(IPythonInteractiveManager, script, max_workers=1)
    first, second = manager(['a', 'b'])
    assert first.result == [{'type': 'text', 'content': '1\n2\n42'}]
    assert (first.args, first.type) == ({'command': 'a'}, 'IPythonInteractiveManager')
    assert second.errmsg.endswith('ValueError: no')
    assert manager('a', session_ids=7).format_result() == '1\n2\n42'
    assert manager._cells.sessions() == {0, 1, 7}
    manager.reset()
    manager.clear()
    assert manager._cells._manager.sessions() == []
    assert manager('a').format_result() == '1\n2\n42'


@pytest.mark.parametrize('sessions', [[1], [1, 1], 5, [1, 2, 3]])
def test_each_command_needs_a_session_of_its_own(script, sessions):
    with pytest.raises(ValueError, match='session of its own'):
        made(IPythonInteractiveManager, script)(['a', 'b'], sessions)
    assert script.ran == []


@tools(ActionExecutor, AsyncActionExecutor)
def test_outputs_are_events_of_the_tool_call(cls, script):
    script.answers = {'x': VALUE}
    kind = IPythonInteractive if cls is ActionExecutor else AsyncIPythonInteractive
    executor = cls([made(kind, script)])
    call = AgentMessage(content={'name': kind.__name__, 'parameters': {'command': 'x'}})
    events = []
    with subscribe(events.append):
        settle(executor(call))
    effects = {(event.effect.kind, event.effect.name) for event in events}
    assert effects == {('tool', kind.__name__)}
    texts = [event.data.text for event in events if event.type == 'delta']
    assert texts == [' 1\n2\n', '42']


def test_docker_is_the_default_and_the_environment_may_choose(monkeypatch):
    monkeypatch.delenv(BACKEND_VARIABLE, raising=False)
    monkeypatch.setenv(UNSAFE_VARIABLE, '1')

    def chosen(**options):
        given = IPythonInteractive(**options)._cells._options
        return given['backend'], given.get('unsafe', False)

    assert chosen()[0] == 'docker'
    monkeypatch.setenv(BACKEND_VARIABLE, 'local')
    assert chosen() == ('local', True)
    assert chosen(backend='docker') == ('docker', False)
    monkeypatch.delenv(UNSAFE_VARIABLE)
    assert chosen() == ('local', False)


def test_no_consent_means_that_nothing_runs(monkeypatch):
    monkeypatch.delenv(UNSAFE_VARIABLE, raising=False)
    answer = IPythonInteractive(backend='local')({'command': '1'})
    assert answer.state is ActionStatusCode.API_ERROR
    assert 'unsafe' in answer.errmsg


def test_a_tool_that_nobody_has_is_closed(script):
    tool = made(IPythonInteractive, script)
    tool({'command': 'x'})
    cells = tool._cells
    del tool
    gc.collect()

    async def refused():
        with pytest.raises(SandboxClosed):
            while True:
                await cells.execute('x')

    get_portal().call(refused)


def test_a_closed_tool_says_so(script):
    with made(IPythonInteractive, script) as tool:
        tool({'command': 'x'})
    assert 'closed' in tool({'command': 'x'}).errmsg
    tool.close()


async def test_on_portal_is_cancelled_with_its_caller():
    begun, ended = asyncio.Event(), asyncio.Event()
    own = asyncio.get_running_loop()

    async def wait():
        own.call_soon_threadsafe(begun.set)
        try:
            await asyncio.sleep(60)
        finally:
            own.call_soon_threadsafe(ended.set)

    task = asyncio.create_task(on_portal(wait))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(ended.wait(), 10)


def test_on_portal_works_on_the_portal():
    async def value():
        return 6 * 7

    assert get_portal().call(on_portal, value) == 42
