"""Executors: one flow, driven synchronously and asynchronously."""

import asyncio
import copy
import inspect
import threading

import pytest

from lagent.actions import (
    ActionExecutor,
    AsyncActionExecutor,
    AsyncActionMixin,
    BaseAction,
    FinishAction,
    InvalidAction,
    NoAction,
    tool_api,
)
from lagent.context import current_context, run_context
from lagent.effects import subscribe
from lagent.errors import LimitExceeded
from lagent.hooks import Hook
from lagent.limits import RunLimits
from lagent.schema import (
    ActionReturn,
    ActionStatusCode,
    ActionValidCode,
    AgentMessage,
    FunctionCall,
)


class Bold(BaseAction):
    """make text bold"""

    def run(self, text: str, session_id=0):
        return f'**{text}** for {session_id}'


class AsyncBold(AsyncActionMixin, BaseAction):
    """make text bold"""

    async def run(self, text: str, session_id=0):
        await asyncio.sleep(0)
        return f'**{text}** for {session_id}'


class Kit(BaseAction):
    """a kit"""

    @tool_api
    def add(self, a: int, b: int = 2):
        """add"""
        return a + b


class Rude(BaseAction):
    """Has a `__call__` of its own, which raises."""

    def __call__(self, inputs, name='run'):
        raise inputs


@pytest.fixture(params=[ActionExecutor, AsyncActionExecutor])
def executor_class(request):
    return request.param


def ask(executor, name, parameters, **kwargs):
    return settle(
        executor(AgentMessage(content={'name': name, 'parameters': parameters}), **kwargs)
    )


def settle(answer):
    if not inspect.iscoroutine(answer):
        return answer

    async def main():
        return await answer

    return asyncio.run(main())


@pytest.mark.parametrize('tool', [Bold, AsyncBold])
def test_every_executor_drives_every_tool(executor_class, tool):
    executor = executor_class([tool()])
    answer = ask(executor, tool.__name__, {'text': 'x'}, session_id='s')
    assert answer.sender == executor_class.__name__
    assert answer.content.format_result() == '**x** for s'
    assert answer.content.args == {'text': 'x'}


def test_the_session_is_that_of_the_run_by_default(executor_class):
    executor = executor_class([Bold()])
    with run_context('outer'):
        assert ask(executor, 'Bold', {'text': 'x'}).content.format_result() == '**x** for outer'
    assert ask(executor, 'Bold', {'text': 'x'}).content.format_result() == '**x** for 0'
    assert current_context() is None


def test_the_same_transcript_from_both():
    def transcript(executor):
        calls = [
            ('Bold', {'text': 'x'}),
            ('Bold', {'words': 'x'}),
            ('Kit.add', '{"a": 1}'),
            ('Kit', {}),
            ('Kit.sub', {}),
            ('Kit.add.more', {}),
            ('Nope', {'q': 1}),
            ('Nope', '{"q": 1}'),
            ('a.b.c', {}),
            (None, {}),
            (['Bold'], {}),
            ('NoAction', ''),
            ('NoAction', 'what?'),
            ('FinishAction', 'done'),
        ]
        return [ask(executor, name, parameters).content for name, parameters in calls]

    results = transcript(ActionExecutor([Bold(), Kit()]))
    assert results == transcript(AsyncActionExecutor([Bold(), Kit()]))
    told = [(r.errmsg or r.format_result()).partition(' Send ')[0] for r in results]
    assert told == [
        '**x** for 0',
        "unknown arguments: {'words'}",
        '3',
        'invalid API: run',
        'invalid API: sub',
        'invalid API: add.more',
        *['The action is invalid, please check the action name.'] * 5,
        'Please follow the format',
        'what?',
        'done',
    ]
    assert [r.valid for r in results[-3:]] == [
        ActionValidCode.INVALID,
        ActionValidCode.INVALID,
        ActionValidCode.FINISH,
    ]


@pytest.mark.parametrize('name', ['Kit.greet', 'Kit-greet'])
def test_one_call_is_corrected_as_well_as_several(executor_class, name):
    class Kit(BaseAction):
        @tool_api
        def greet(self, name: str):
            """Greet somebody."""
            return ActionReturn(errmsg='who is that?', state=ActionStatusCode.ARGS_ERROR)

    executor = executor_class([Kit()])
    for arguments, words in (({}, "missing required arguments: {'name'}"), ({'name': 'x'}, 'who')):
        one = ask(executor, name, arguments).content
        asked = {'name': name, 'parameters': arguments}
        several = settle(executor(AgentMessage(content=[asked, asked]))).content
        assert one.errmsg == several[0].errmsg == several[1].errmsg
        assert one.errmsg.startswith(words)
        assert one.errmsg.endswith(
            'Send a JSON object of this schema: {"type": "object", "properties": {"name": '
            '{"type": "string"}}, "required": ["name"], "additionalProperties": false}'
        )


def test_a_tool_may_have_a_name_with_a_dot():
    description = {'name': 'fs.bold', 'description': '', 'parameters': [], 'required': []}
    description['parameters'] = [{'name': 'text', 'type': 'STRING', 'description': ''}]
    executor = ActionExecutor([Bold(description=description)])
    assert ask(executor, 'fs.bold', {'text': 'x'}).content.format_result() == '**x** for 0'


def test_what_a_tool_says_about_the_run_is_kept(executor_class):
    class Closing(BaseAction):
        """closes"""

        def run(self):
            return ActionReturn(errmsg='closed', valid=ActionValidCode.CLOSED)

    assert ask(executor_class([Closing()]), 'Closing', {}).content.valid is ActionValidCode.CLOSED


def test_a_listed_finish_action_is_called_with_text_or_by_name(executor_class):
    executor = executor_class([], finish_in_action=True)
    for parameters in ('done', {'response': 'done'}):
        ret = ask(executor, 'FinishAction', parameters).content
        assert (ret.valid, ret.format_result()) == (ActionValidCode.FINISH, 'done')
        assert ret.args == {'text': 'done'}
    assert ask(executor, 'FinishAction', {'a': 1}).content.format_result() == '{"a": 1}'


def test_tools_that_raise_from_their_call_are_results(executor_class):
    ret = ask(executor_class([Rude()]), 'Rude', RuntimeError('rude')).content
    assert (ret.type, ret.state, ret.errmsg) == ('Rude', ActionStatusCode.API_ERROR, 'rude')


def test_control_errors_are_no_results(executor_class):
    with pytest.raises(LimitExceeded):
        ask(executor_class([Rude()]), 'Rude', LimitExceeded('tokens', 1, 2))
    with pytest.raises(KeyboardInterrupt):
        ask(ActionExecutor([Rude()]), 'Rude', KeyboardInterrupt())


async def test_cancelling_is_no_result():
    started = asyncio.Event()

    class Slow(AsyncActionMixin, BaseAction):
        async def run(self):
            started.set()
            await asyncio.Event().wait()

    message = AgentMessage(content=FunctionCall('Slow', {}))
    task = asyncio.create_task(AsyncActionExecutor([Slow()])(message))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_plain_tools_do_not_hold_up_the_loop():
    release = threading.Event()

    class Blocking(BaseAction):
        def run(self):
            return release.wait(30)

    message = AgentMessage(content=FunctionCall('Blocking', {}))
    task = asyncio.create_task(AsyncActionExecutor([Blocking()])(message))
    await asyncio.sleep(0)
    release.set()
    assert (await task).content.format_result() == 'True'


def test_calls_are_effects(executor_class):
    events = []
    executor = executor_class([Bold()])
    with subscribe(events.append):
        ask(executor, 'Bold', {'text': 'x'}, session_id=3)
        ask(executor, 'Nope', {'q': 1})
        ask(executor, 'FinishAction', 'done')
    assert [(e.type, e.effect.kind, e.effect.name, e.effect.payload) for e in events] == [
        ('begin', 'tool', 'Bold', {'text': 'x'}),
        ('end', 'tool', 'Bold', {'text': 'x'}),
        ('begin', 'tool', 'Nope', {'q': 1}),
        ('end', 'tool', 'Nope', {'q': 1}),
    ]
    assert events[1].data.format_result() == '**x** for 3'
    assert events[1].run.session_id == 3


def test_limits_end_the_run_before_the_call(executor_class):
    calls = []

    class Counted(BaseAction):
        def run(self):
            calls.append(1)

    executor = executor_class([Counted()])
    with run_context(limits=RunLimits(tool_calls=1)):
        ask(executor, 'Counted', {})
        with pytest.raises(LimitExceeded):
            ask(executor, 'Counted', {})
    assert calls == [1]


def test_nothing_of_the_caller_is_changed(executor_class):
    class Greedy(BaseAction):
        def run(self, items: list):
            items.append('more')

    class Meddling(Hook):
        def before_action(self, executor, message, session_id):
            message.content = message.formatted.pop('call')

    tools = [{'type': Greedy}]
    message = AgentMessage(content='', formatted={'call': FunctionCall('Greedy', {'items': []})})
    given = copy.deepcopy(message)
    executor = executor_class(tools, finish_in_action=True, hooks=Meddling())
    settle(executor(message))
    assert tools == [{'type': Greedy}]
    assert message == given


def test_ways_to_give_tools():
    for given in (Bold(), {'type': Bold}, [Bold()], (Bold(),), iter([{'type': Bold}])):
        assert ActionExecutor(given).keys() == ['Bold']


def test_hooks_may_be_one_several_or_configs():
    class Tagged(Hook):
        def __init__(self, tag):
            self.tag = tag

        def after_action(self, executor, message, session_id):
            return AgentMessage(content=f'{self.tag}{getattr(message, "content", "")}'[:4])

    for hooks in (Tagged('a'), {'type': Tagged, 'tag': 'a'}, [Tagged('b'), Tagged('a')]):
        executor = ActionExecutor([Bold()], hooks=hooks)
        assert ask(executor, 'Bold', {'text': 'x'}).content.startswith('a')


def test_asynchronous_hooks_are_awaited(executor_class):
    class Hooked(Hook):
        async def before_action(self, executor, message, session_id):
            await asyncio.sleep(0)
            return AgentMessage(content=FunctionCall('Bold', {'text': message.content}))

        async def after_action(self, executor, message, session_id):
            message.content = message.content.format_result()

    answer = settle(executor_class([Bold()], hooks=Hooked())(AgentMessage(content='x')))
    assert answer.content == '**x** for 0'


def test_a_subclass_may_take_over():
    class Dry(ActionExecutor):
        def forward(self, name, parameters):
            return f'would call {name} with {parameters}'

    class AsyncDry(AsyncActionExecutor):
        async def forward(self, name, parameters, dry=False):
            if dry:
                return f'would call {name}'
            return await super().forward(name, parameters)

    assert ask(Dry([]), 'x', 1, session_id=4).content == 'would call x with 1'
    executor = AsyncDry([Bold()])
    assert ask(executor, 'x', 1, dry=True).content == 'would call x'
    ret = ask(executor, 'Bold', {'text': 'x'}, session_id=4).content
    assert ret.format_result() == '**x** for 4'


def test_descriptions_are_flat():
    executor = ActionExecutor([Bold(), Kit()])
    assert [d['name'] for d in executor.description()] == ['Bold', 'Kit.add']
    executor.description()[1]['name'] = 'changed'
    assert executor.description()[1]['name'] == 'Kit.add'
    assert Kit().description['api_list'][0]['name'] == 'add'


def test_the_set_of_tools_can_change():
    executor = ActionExecutor([Bold()])
    executor['ignored'] = {'type': Kit}
    assert executor.keys() == ['Bold', 'Kit']
    del executor['Bold']
    assert 'Bold' not in executor
    assert 'Kit' in executor


@pytest.mark.parametrize('content', ['text', {'name': 'Bold'}, {'parameters': {}}, None, ['Bold']])
def test_the_content_must_be_a_call(executor_class, content):
    with pytest.raises(AssertionError):
        settle(executor_class([Bold()])(AgentMessage(content=content)))


def test_special_tools_called_directly():
    assert InvalidAction()('words').errmsg == 'words'
    assert InvalidAction(err_msg='mine')('').errmsg == 'mine'
    assert NoAction()('').valid is ActionValidCode.INVALID
    assert FinishAction()('done').result == [{'type': 'text', 'content': 'done'}]
