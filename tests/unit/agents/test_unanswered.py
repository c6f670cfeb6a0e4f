"""What is left of a call that fails, and what the next one makes of it."""

import asyncio
import json

import pytest

from lagent.agents import Agent, AsyncAgent, AsyncStreamingAgent, Coder, Sequential, StreamingAgent
from lagent.errors import LimitExceeded
from lagent.hooks import Hook
from lagent.limits import RunLimits
from lagent.llms import AsyncScriptedModel, ScriptedModel
from lagent.schema import AgentMessage

CODE = '```python\nprint(1)\n```'


def ask(agent, *message):
    async def last():
        result = agent(*message)
        if hasattr(result, '__aiter__'):
            return [item async for item in result][-1]
        return await result

    if isinstance(agent, AsyncAgent | AsyncStreamingAgent):
        return asyncio.run(last())
    result = agent(*message)
    return result if isinstance(result, AgentMessage) else list(result)[-1]


@pytest.mark.parametrize('cls', [Agent, AsyncAgent, StreamingAgent, AsyncStreamingAgent])
@pytest.mark.parametrize('error', [RuntimeError('boom'), asyncio.CancelledError()])
def test_the_next_question_is_not_glued_to_the_one_that_failed(cls, error):
    is_async = issubclass(cls, AsyncAgent | AsyncStreamingAgent)
    llm = (AsyncScriptedModel if is_async else ScriptedModel)([error, 'fine'])
    agent = cls(llm, name='me')
    with pytest.raises(type(error)):
        ask(agent, 'one')
    [question] = agent.memory.get_memory()
    words = question.extra_info['no_answer']
    assert question.content == 'one'
    assert ask(agent, 'two').content == 'fine'
    assert llm.calls[-1].messages == [
        {'role': 'user', 'content': 'one'},
        {'role': 'assistant', 'content': f'[no answer: {words}]'},
        {'role': 'user', 'content': 'two'},
    ]
    assert agent.memory.get_memory()[1].type == 'no_answer'


def test_ctrl_c_is_noted_and_the_note_survives_json():
    agent = Agent(ScriptedModel([KeyboardInterrupt()]))
    with pytest.raises(KeyboardInterrupt):
        agent('one')
    state = json.loads(json.dumps(agent.state_dict()))
    llm = ScriptedModel(['fine'])
    other = Agent(llm)
    other.load_state_dict(state)
    other('two')
    assert llm.calls[-1].messages[1]['content'] == '[no answer: KeyboardInterrupt]'


def test_asking_once_more_without_a_message_answers_the_question():
    agent = Agent(ScriptedModel([OSError('gone'), OSError('again'), 'fine', 'more']))
    for words in ('OSError: gone', 'OSError: again'):
        with pytest.raises(OSError):
            agent(*([] if 'again' in words else ['one']))
        assert agent.memory.get_memory()[-1].extra_info == {'no_answer': words}
    assert agent().content == 'fine'
    assert [message.extra_info for message in agent.memory.get_memory()] == [None, None]
    agent('two')
    assert [m['content'] for m in agent.llm.calls[-1].messages] == ['one', 'fine', 'two']


def test_what_a_program_keeps_beside_the_message_stays():
    agent = Agent(ScriptedModel([OSError('x'), OSError('x')]))
    given = AgentMessage(content='one', extra_info={'id': 7})
    with pytest.raises(OSError):
        agent(given)
    assert given.extra_info == {'id': 7}
    assert agent.memory.get_memory()[-1].extra_info == {'id': 7, 'no_answer': 'OSError: x'}
    with pytest.raises(OSError):
        agent(AgentMessage(content='two', extra_info='theirs'))
    assert agent.memory.get_memory()[-1].extra_info == 'theirs'


def test_a_long_error_is_shortened_to_one_line():
    agent = Agent(ScriptedModel([OSError('a\nb' * 1000), 'fine']))
    with pytest.raises(OSError):
        agent('one')
    words = agent.memory.get_memory()[0].extra_info['no_answer']
    assert len(words) == 203
    assert '\n' not in words


def test_a_hook_that_fails_before_the_question_is_remembered_marks_nothing():
    class Refuses(Hook):
        def before_agent(self, agent, message, session_id):
            if message[0].content == 'two':
                raise ValueError('no')

    agent = Agent(ScriptedModel(['fine']), hooks=Refuses())
    agent('one')
    with pytest.raises(ValueError):
        agent('two')
    assert [(m.content, m.extra_info) for m in agent.memory.get_memory()] == [
        ('one', None),
        ('fine', None),
    ]


def test_every_agent_on_the_way_notes_it():
    chain = Sequential(Agent(ScriptedModel(['a', 'b'])), Agent(ScriptedModel([OSError(), 'c'])))
    with pytest.raises(OSError):
        chain('one')
    assert chain('two').content == 'c'
    assert [m['content'] for m in chain[0].llm.calls[-1].messages] == ['one', 'a', 'two']
    assert [m['content'] for m in chain[1].llm.calls[-1].messages] == [
        'a',
        '[no answer: OSError]',
        'b',
    ]


class Fails:
    """An interpreter that is lost in the middle."""

    name = 'interpreter'

    def __init__(self, error):
        self.error = error

    def __call__(self, message, session_id=None):
        raise self.error


@pytest.mark.parametrize('error', [RuntimeError('sandbox lost'), KeyboardInterrupt()])
def test_a_kernel_that_fails_in_the_middle_of_a_turn(error):
    llm = ScriptedModel([CODE, 'fine'])
    coder = Coder(llm, Fails(error), template='sys')
    with pytest.raises(type(error)):
        coder('one')
    assert coder('two').content == 'fine'
    roles = [(m['role'], m['content']) for m in llm.calls[-1].messages]
    words = 'RuntimeError: sandbox lost' if isinstance(error, RuntimeError) else 'KeyboardInterrupt'
    assert roles == [
        ('system', 'sys'),
        ('user', 'one'),
        ('assistant', CODE),
        ('user', f'[no result: {words}. The code may have run in part.]'),
        ('assistant', f'[no answer: {words}]'),
        ('user', 'two'),
    ]
    assert [m.type for m in coder.memory.get_memory()] == [None, 'no_answer', None, None]


def test_a_limit_gives_a_flagged_message_that_is_remembered():
    limits = RunLimits(model_calls=1, on_limit='return')
    for cls in (Agent, StreamingAgent):

        class Twice(Agent):
            def __init__(self, inner):
                super().__init__(limits=limits)
                self.inner = inner

            def forward(self, *message, session_id=0):
                ask(self.inner, 'first')
                return ask(self.inner, 'second')

        agent = Twice(cls(ScriptedModel(['x', 'y'])))
        answer = agent('q')
        assert (answer.type, answer.sender) == ('limit', 'Twice')
        assert answer.extra_info == {'limit': 'model_calls', 'allowed': 1, 'used': 1}
        assert agent.memory.get_memory()[-1] == answer
        # The inner agent has not answered, and says so.
        assert 'LimitExceeded' in agent.inner.memory.get_memory()[-1].extra_info['no_answer']


async def test_every_face_gives_the_limit_message():
    limits = RunLimits(tokens=1, on_limit='return')
    agent = AsyncAgent(AsyncScriptedModel(['x']), limits=limits)

    class Over(AsyncAgent):
        async def forward(self, *message, session_id=0):
            raise LimitExceeded('tokens', 1, 2)

    assert (await agent('q')).content == 'x'
    assert (await Over(limits=limits)('q')).type == 'limit'

    class OverStream(AsyncStreamingAgent):
        async def forward(self, *message, session_id=0):
            yield 'some'
            raise LimitExceeded('tokens', 1, 2)

    items = [item async for item in OverStream(limits=limits)('q')]
    assert [item.content for item in items[:-1]] == ['some']
    assert items[-1].type == 'limit'
