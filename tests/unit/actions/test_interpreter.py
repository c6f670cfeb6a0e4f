"""The interpreter, with scripted sandboxes: one flow, driven in both ways."""

import asyncio
import copy
import inspect
import json
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from types import SimpleNamespace
from uuid import UUID

import pytest

import sandbox
from lagent.actions import AsyncInterpreter, Interpreter, execution_results
from lagent.actions.sandbox_sessions import Scoped, names_of
from lagent.context import run_context
from lagent.effects import subscribe
from lagent.errors import LimitExceeded, RepeatedCall
from lagent.hooks import Hook
from lagent.limits import RunLimits
from lagent.memory import Memory
from lagent.prompts.parsers import ToolStatusCode
from lagent.schema import AgentMessage
from sandbox import (
    ErrorInfo,
    ExecutionEvent,
    ExecutionResult,
    FileInfo,
    Outcome,
    Output,
    PolicyError,
    SandboxClosed,
    SandboxPolicy,
)

PNG = b'\x89PNG\r\n\x1a\n\xff\xfe'


def printed(text):
    return ExecutionResult(Outcome.OK, (Output('stdout', text),))


FAILED = ExecutionResult(
    Outcome.ERROR,
    (Output('error', 'ValueError: no'),),
    error=ErrorInfo('ValueError', 'no', 'ValueError: no'),
)
PLOT = ExecutionResult(
    Outcome.OK,
    (Output('display', '<Figure>', {'text/plain': '<Figure>', 'image/png': PNG}),),
    artifacts=(FileInfo('plot.png', 11, 1.5),),
)


class Box:
    """Answers each cell with what the script has for it, else with its own code printed."""

    def __init__(self, script):
        self.script = script
        self.log = []
        self.container_id = None
        self.policy = SandboxPolicy(timeout=60.0)

    def execute(self, code, timeout=None):
        self.container_id = self.container_id or 'c1'
        self.log.append(('execute', code, timeout))
        result = self.script.get(code) or printed(code)
        if isinstance(result, Exception):
            raise result
        return result

    def stream(self, code, timeout=None):
        result = self.execute(code, timeout)
        for output in result.outputs:
            yield ExecutionEvent('output', output=output)
        yield ExecutionEvent('output', clear=True)
        yield ExecutionEvent('result', result=result)

    def upload(self, source, name=None):
        self.container_id = self.container_id or 'c1'
        self.log.append(('upload', str(source)))
        if 'missing' in str(source):
            raise FileNotFoundError(source)
        return FileInfo(source.name, 1, 0.0)

    def files(self):
        return [FileInfo('a.csv', 1, 0.0)]

    def download(self, name, to):
        return to / name

    def read(self, name):
        return name.encode()

    def restart(self):
        self.log.append(('restart',))

    def interrupt(self):
        self.log.append(('interrupt',))


class Manager:
    def __init__(self, script=None):
        self.script = script or {}
        self.boxes = {}
        self.policies = {}
        self.policy = SandboxPolicy()
        self.closed = 0

    def session(self, session_id, policy=None):
        self.policies[session_id] = policy
        return self.boxes.setdefault(session_id, Box(self.script))

    def sessions(self):
        return list(self.boxes)

    def close_session(self, session_id):
        self.boxes.pop(session_id, None)

    def close(self):
        self.closed += 1


class Awaitable:
    """The asynchronous face of a stub."""

    def __init__(self, inner):
        self._inner = inner
        self._boxes = {}

    @property
    def container_id(self):
        return self._inner.container_id

    @property
    def policy(self):
        return self._inner.policy

    async def stream(self, code, timeout=None):  # noqa: ASYNC109 - as in the sandbox
        for event in self._inner.stream(code, timeout):
            await asyncio.sleep(0)
            yield event

    def __getattr__(self, name):
        async def method(*args, **kwargs):
            await asyncio.sleep(0)
            value = getattr(self._inner, name)(*args, **kwargs)
            return (
                self._boxes.setdefault(id(value), Awaitable(value)) if name == 'session' else value
            )

        return method


@pytest.fixture(params=[Interpreter, AsyncInterpreter])
def make(request):
    def build(script=None, **kwargs):
        manager = Manager(script)
        face = manager if request.param is Interpreter else Awaitable(manager)
        return request.param(manager=face, **kwargs), manager

    return build


def settle(answer):
    if not inspect.iscoroutine(answer):
        return answer

    async def main():
        return await answer

    return asyncio.run(main())


def reply(*cells, status=ToolStatusCode.VALID_TOOL, **more):
    parsed = {
        'tool_type': 'interpreter',
        'thought': 't',
        'action': '\n\n'.join(cells) or None,
        'status': status,
    }
    if len(cells) > 1:
        parsed['cells'] = list(cells)
    return AgentMessage(sender='Agent', content='reply', formatted=parsed | more)


def test_one_cell(make):
    interpreter, manager = make({'6*7': printed('42\n')})
    answer = settle(interpreter(reply('6*7'), session_id='s'))
    assert (answer.sender, answer.type, answer.content) == ('interpreter', 'interpreter', '42')
    assert isinstance(answer.formatted, ExecutionResult)
    assert answer.formatted.stdout == '42\n'
    assert manager.boxes['s'].log == [('execute', '6*7', None)]


def test_several_cells_run_in_order(make):
    interpreter, _ = make()
    answer = settle(interpreter(reply('a', 'b')))
    assert answer.content == '[cell 1 of 2: ok]\na\n\n[cell 2 of 2: ok]\nb'
    assert [result.stdout for result in answer.formatted] == ['a', 'b']


def test_the_first_error_ends_the_message(make):
    interpreter, manager = make({'b': FAILED})
    answer = settle(interpreter(reply('a', 'b', 'c', 'd')))
    assert [entry[1] for entry in manager.boxes['#0'].log] == ['a', 'b']
    assert answer.content.splitlines() == [
        '[cell 1 of 4: ok]',
        'a',
        '',
        '[cell 2 of 4: error]',
        'ValueError: no',
        '',
        'Cells 3 to 4 were not run, because cell 2 failed.',
    ]
    assert [result.outcome for result in answer.formatted] == ['ok', 'error']


def test_an_error_in_the_only_cell(make):
    interpreter, _ = make({'b': FAILED})
    answer = settle(interpreter(reply('b')))
    assert answer.content == 'ValueError: no'
    assert answer.formatted.error.name == 'ValueError'


def test_many_cells_share_the_room_of_one_result(make):
    interpreter, _ = make({'big': printed('x' * 8_000)})
    answer = settle(interpreter(reply(*['big'] * 5 + ['x'])))
    assert len(answer.content) < 8_600


@pytest.mark.parametrize(
    'status', [ToolStatusCode.PARSING_ERROR, ToolStatusCode.INCOMPLETE, ToolStatusCode.NO_TOOL]
)
def test_what_must_not_run_does_not_even_start_a_sandbox(make, status):
    interpreter, manager = make()
    answer = settle(interpreter(reply('x = 1', status=status, hint='Close it.')))
    assert answer.content.endswith('so nothing was run. Close it.')
    assert (answer.sender, answer.formatted) == ('interpreter', None)
    assert manager.boxes == {}


def test_an_unparsed_message_is_a_mistake_of_the_program(make):
    interpreter, _ = make()
    with pytest.raises(ValueError, match='output_format'):
        settle(interpreter(AgentMessage(content='print(1)')))


def test_sessions_have_sandboxes_of_their_own(make):
    interpreter, manager = make()
    settle(interpreter(reply('a'), session_id='one'))
    settle(interpreter(reply('b'), session_id='two'))
    with run_context('three'):
        settle(interpreter(reply('c')))
    settle(interpreter(reply('d'), session_id=1))
    settle(interpreter(reply('e'), session_id='1'))
    assert {key: box.log[0][1] for key, box in manager.boxes.items()} == {
        'one': 'a',
        'two': 'b',
        'three': 'c',
        '#1': 'd',
        '1': 'e',
    }


class Twin:
    """Looks like all others of its kind, and is equal to itself only."""

    def __repr__(self):
        return 'Twin()'


def test_different_sessions_never_share_a_sandbox(make):
    interpreter, manager = make()
    first, second = Twin(), Twin()
    sessions = [
        *(0, '0', 'int-0', '#0', '#1-str', '#2-str', '##', ''),
        *(1.5, '1.5', (1, 2), '(1, 2)', (1, '2'), frozenset({1}), first, second, b'0', -1, '#-1'),
    ]
    for session in sessions:
        settle(interpreter(reply(f'{session!r}'), session_id=session))
    assert len(manager.boxes) == len(sessions)
    assert manager.boxes['int-0'].log == [('execute', "'int-0'", None)]
    # What is equal is the same session, as it is for memories.
    for session in [False, '#0', (1, 2), first]:
        settle(interpreter(reply('again'), session_id=session))
    assert len(manager.boxes) == len(sessions)
    assert [log[1] for log in manager.boxes['#0'].log] == ['0', 'again']
    # Interpreters that share a manager agree.
    settle(type(interpreter)(manager=interpreter._manager)(reply('y'), session_id=second))
    assert len(manager.boxes) == len(sessions)
    settle(interpreter.close_session(second))
    assert len(manager.boxes) == len(sessions) - 1


def test_a_session_may_have_a_stricter_policy_and_no_looser_one(make):
    interpreter, manager = make()
    wishes = {'guest': {'memory': 128 << 20, 'timeout': 5.0}, 'greedy': {'memory': 1 << 40}}
    interpreter.tighten = lambda session: wishes.get(session, {})
    settle(interpreter(reply('a'), session_id='member'))
    settle(interpreter(reply('b'), session_id='guest'))
    settle(interpreter.interrupt(session_id='guest'))  # it never asks for a looser one
    stricter = manager.policy.tighten(memory=128 << 20, timeout=5.0)
    assert manager.policies == {'member': None, 'guest': stricter}
    with pytest.raises(PolicyError, match=r'memory=\d+ would loosen'):
        settle(interpreter(reply('c'), session_id='greedy'))
    assert set(manager.boxes) == {'member', 'guest'}


def test_nothing_is_kept_of_the_names_of_sessions():
    manager = Manager()
    names = names_of(manager)
    for session in ('a', 7, '#', ('a', 7), Scoped('a', ('b', '#'))):
        assert names.of(session) == names.of(session)
    for session in (1.5, b'7', UUID(int=7), None, ('a', (UUID(int=7), 1.5))):
        assert names.of(session) == names.of(session) == names_of(Manager()).of(session)
    assert not names._numbered
    assert names.of(1.0) == names.of(1)
    assert names.of(frozenset()) != names_of(Manager()).of(frozenset())
    pairs = [(1, 23), (12, 3), ('1', 23), ((1, 2), 3), (1, (2, 3)), ('a', 'b'), ('ab', ''), ()]
    assert len({names.of(pair) for pair in [*pairs, Scoped(1, 23)]}) == len(pairs) + 1


def test_cells_are_effects_with_live_outputs(make):
    events = []
    interpreter, _ = make({'b': FAILED}, name='py')
    with subscribe(events.append):
        settle(interpreter(reply('a', 'b'), session_id=3))
    assert [(e.type, e.effect.kind, e.effect.name, e.effect.payload) for e in events] == [
        (type_, 'kernel', 'py', code) for code in 'ab' for type_ in ('begin', 'delta', 'end')
    ]
    assert [e.data for e in events if e.type == 'delta'] == [Output('stdout', 'a'), *FAILED.outputs]
    assert events[2].data.stdout == 'a'
    assert events[0].run.session_id == 3


def test_limits_end_the_run(make):
    interpreter, manager = make()
    with run_context(limits=RunLimits(tool_calls=1)), pytest.raises(LimitExceeded) as caught:
        settle(interpreter(reply('a', 'b', 'c')))
    assert [entry[1] for entry in manager.boxes['#0'].log] == ['a']
    results = caught.value.results
    assert [result.stdout for result in results.formatted] == ['a']
    assert results.content == (
        f'[cell 1 of 3: ok]\na\n\n[cell 2 of 3: not run]\n{caught.value}\n'
        'The cells after it were not run either.'
    )
    with run_context(limits=RunLimits(tool_calls=1)) as context:
        settle(interpreter(reply('a')))
        with pytest.raises(LimitExceeded) as caught:
            settle(interpreter(reply('b')))
        assert context.usage.tool_calls == 1
    assert caught.value.results is None


@pytest.mark.parametrize(
    ('cells', 'ran', 'last'),
    [
        (['a', 'a'], ['a'], '[cell 2 of 2: not run]\n{refusal}'),
        (
            ['b', 'a', 'a', 'c'],
            ['b', 'a'],
            '[cell 3 of 4: not run]\n{refusal}\nThe cells after it were not run either.',
        ),
    ],
)
def test_a_repetition_that_is_told_keeps_the_results_before_it(make, cells, ran, last):
    interpreter, manager = make()
    limits = RunLimits(repeated_calls=1, on_repeat='tell')
    with run_context(limits=limits):
        answer = settle(interpreter(reply(*cells)))
        assert [entry[1] for entry in manager.boxes['#0'].log] == ran
        assert [result.stdout for result in answer.formatted] == ran
        *reports, told = answer.content.split('\n\n')
        assert reports == [
            f'[cell {n} of {len(cells)}: ok]\n{code}' for n, code in enumerate(ran, 1)
        ]
        # Alone, it is the caller's to tell, as before.
        with pytest.raises(RepeatedCall) as caught:
            settle(interpreter(reply('c'))), settle(interpreter(reply('c')))
    assert told == last.format(refusal=caught.value)


def test_the_deadline_of_the_run_bounds_a_cell(make):
    interpreter, manager = make()
    with run_context(limits=RunLimits(seconds=1_000)):
        settle(interpreter(reply('a')))
    with run_context(limits=RunLimits(seconds=30)):
        settle(interpreter(reply('a')))
    interpreter.timeout = 5
    with run_context(limits=RunLimits(seconds=30)):
        settle(interpreter(reply('a')))
    default, short, own = (entry[2] for entry in manager.boxes['#0'].log)
    assert default == 60
    assert 0 < short <= 30
    assert own == 5


def test_a_sandbox_that_cannot_be_had_is_an_error(make):
    interpreter, _ = make({'a': sandbox.StartFailed('no engine')})
    with pytest.raises(sandbox.StartFailed):
        settle(interpreter(reply('a')))


def test_files_are_put_into_each_new_sandbox(make):
    interpreter, manager = make({'die': ExecutionResult(Outcome.SANDBOX_LOST)}, files=['a', 'b'])
    for code in ('x', 'y', 'die', 'z'):
        settle(interpreter(reply(code)))
    assert [entry[1] for entry in manager.boxes['#0'].log] == [
        *('a', 'b', 'x', 'y', 'die'),
        *('a', 'b', 'z'),
    ]
    manager.boxes['#0'].container_id = 'c2'
    settle(interpreter(reply('w')))
    assert [entry[1] for entry in manager.boxes['#0'].log][-3:] == ['a', 'b', 'w']


def test_files_that_cannot_be_put_are_tried_again(make):
    interpreter, manager = make(files='missing')
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            settle(interpreter(reply('x')))
    assert manager.boxes['#0'].log == [('upload', 'missing')] * 2


def test_calls_at_the_same_time_wait_for_the_files():
    begun, go_on = threading.Event(), threading.Event()

    class Slow(Box):
        def upload(self, source, name=None):
            begun.set()
            assert go_on.wait(10)
            return super().upload(source, name)

    manager = Manager()
    manager.boxes['#0'] = box = Slow({})
    interpreter = Interpreter(manager=manager, files='table.csv')
    with ThreadPoolExecutor() as pool:
        first = pool.submit(interpreter, reply('a'))
        assert begun.wait(10)
        second = pool.submit(interpreter, reply('b'))
        assert not wait([second], timeout=0.2).done
        go_on.set()
        assert {first.result(10).content, second.result(10).content} == {'a', 'b'}
    assert box.log[0] == ('upload', 'table.csv')
    assert len(box.log) == 3


async def test_a_cancelled_preparation_is_taken_over():
    begun, go_on = asyncio.Event(), asyncio.Event()

    class Slow(Awaitable):
        async def upload(self, source, name=None):
            begun.set()
            await go_on.wait()
            return self._inner.upload(source, name)

    inner, manager = Box({}), Awaitable(Manager())
    manager._inner.boxes['#0'] = inner
    manager._boxes[id(inner)] = Slow(inner)
    interpreter = AsyncInterpreter(manager=manager, files='table.csv')
    calls = [asyncio.create_task(interpreter(reply(code))) for code in 'abc']
    await begun.wait()
    await asyncio.sleep(0.05)
    assert inner.log == []
    calls[0].cancel()
    calls[1].cancel()
    await asyncio.wait(calls[:2])
    go_on.set()
    assert (await calls[2]).content == 'c'
    assert [entry[1] for entry in inner.log] == ['table.csv', 'c']


def test_file_helpers(make, tmp_path):
    interpreter, manager = make()
    assert settle(interpreter.upload('x/a.csv', 's'))[0].path == 'a.csv'
    assert [f.path for f in settle(interpreter.upload(['b', tmp_path / 'c'], 's'))] == ['b', 'c']
    assert settle(interpreter.files('s'))[0].path == 'a.csv'
    assert settle(interpreter.download('p.png', tmp_path, 's')) == tmp_path / 'p.png'
    assert settle(interpreter.read('p.png', 's')) == b'p.png'
    assert list(manager.boxes) == ['s']


def test_interrupt_restart_and_close_session_start_nothing(make):
    interpreter, manager = make()
    settle(interpreter.interrupt('s'))
    settle(interpreter.restart('s'))
    settle(interpreter.close_session('s'))
    assert manager.boxes == {}
    settle(interpreter(reply('x'), session_id='s'))
    settle(interpreter.interrupt('s'))
    settle(interpreter.restart('s'))
    assert manager.boxes['s'].log[-2:] == [('interrupt',), ('restart',)]
    settle(interpreter.close_session('s'))
    assert manager.boxes == {}


def test_a_given_manager_is_not_closed(make):
    interpreter, manager = make()
    settle(interpreter.close())
    settle(interpreter.close())
    assert manager.closed == 0
    with pytest.raises(SandboxClosed):
        settle(interpreter(reply('x')))


def test_the_own_manager_is_made_on_first_use_and_closed(monkeypatch):
    made = []

    def manager(**options):
        made.append((options, Manager()))
        return made[-1][1]

    monkeypatch.setattr('lagent.actions.sandboxes.sandbox', SimpleNamespace(SandboxManager=manager))
    policy = SandboxPolicy(timeout=7.0)
    with Interpreter(policy, backend='local', unsafe=True, max_sessions=2) as interpreter:
        assert made == []
        interpreter(reply('x'))
        interpreter(reply('y'))
    ((options, own),) = made
    assert options == {'policy': policy, 'backend': 'local', 'max_sessions': 2, 'unsafe': True}
    assert own.closed == 1


async def test_the_asynchronous_interpreter_is_a_context_manager():
    manager = Manager()
    async with AsyncInterpreter(manager=Awaitable(manager)) as interpreter:
        assert (await interpreter(reply('x'))).content == 'x'


def test_hooks_see_the_request_and_the_result(make):
    log = []

    class Watching(Hook):
        def before_action(self, executor, message, session_id):
            log.append((executor.name, message.content, session_id))
            message.formatted['action'] = 'changed'

        async def after_action(self, executor, message, session_id):
            log.append((message.content, session_id))
            return message.model_copy(update={'content': f'<{message.content}>'})

    interpreter, _ = make(hooks=[Watching()])
    message = reply('x')
    given = copy.deepcopy(message)
    answer = settle(interpreter(message, session_id=4))
    assert answer.content == '<changed>'
    assert log == [('interpreter', 'reply', 4), ('changed', 4)]
    assert message == given


@pytest.mark.parametrize('cells', [['plot'], ['plot', 'a']])
def test_results_survive_json_and_memory(make, cells):
    interpreter, _ = make({'plot': PLOT})
    answer = settle(interpreter(reply(*cells)))
    wanted = [PLOT, printed('a')][: len(cells)]
    dumped = json.loads(json.dumps(answer.model_dump()))
    loaded = AgentMessage.model_validate_json(answer.model_dump_json())
    memory = Memory()
    memory.load([dumped])
    for message in (answer, loaded, *memory.get_memory()):
        results = execution_results(message)
        assert [result.to_dict() for result in results] == [result.to_dict() for result in wanted]
        assert results[0].images == [PNG]
    assert loaded.model_dump_json() == answer.model_dump_json()


def test_messages_without_results():
    assert execution_results(AgentMessage(content='', formatted=None)) == []


def test_both_faces_have_the_same_methods():
    for name, method in inspect.getmembers(Interpreter, inspect.isfunction):
        if name.startswith('_') and name != '__call__':
            continue
        other = getattr(AsyncInterpreter, name)
        assert inspect.signature(method) == inspect.signature(other)
        assert inspect.iscoroutinefunction(other) or name == 'register_hook'
