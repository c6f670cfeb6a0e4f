"""ReAct: its defaults, its loop, and replies that it cannot read; plain and awaited."""

import asyncio
import inspect

import pytest
from pydantic import BaseModel

from lagent.actions import BaseAction
from lagent.agents import AsyncReAct, ReAct
from lagent.agents.react import PARSE_ERROR, has_conclusion
from lagent.errors import LimitExceeded, ParseFailed
from lagent.limits import RunLimits
from lagent.llms import AsyncScriptedModel, ScriptedModel
from lagent.prompts import JSONParser, PromptTemplate, StrParser
from lagent.schema import AgentMessage

CALL = '{"action": {"name": "Bold", "parameters": {"text": "x"}}}'
DONE = '{"thought_process": "seen", "conclusion": "it is bold"}'


class Bold(BaseAction):
    """make text bold"""

    def run(self, text: str):
        """
        Args:
            text (str): the text
        """
        return f'**{text}**'


class Act(BaseModel):
    action: dict


class Finish(BaseModel):
    conclusion: str


@pytest.fixture(params=[ReAct, AsyncReAct])
def make(request):
    def build(*replies, **kwargs):
        kind = ScriptedModel if request.param is ReAct else AsyncScriptedModel
        model = kind(list(replies))
        return request.param(model, kwargs.pop('actions', [Bold()]), **kwargs), model

    return build


def ask(agent, *message, **kwargs):
    answer = agent(*message, **kwargs)
    if not inspect.iscoroutine(answer):
        return answer

    async def main():
        return await answer

    return asyncio.run(main())


def prompts(model):
    return [call.messages for call in model.calls]


def test_the_defaults_are_enough(make):
    agent, model = make(CALL, DONE)
    answer = ask(agent, 'make x bold', session_id=3)
    assert answer.formatted == {'thought_process': 'seen', 'conclusion': 'it is bold'}
    assert answer.sender in ('Agent', 'AsyncAgent')
    first, second = prompts(model)
    assert '"name": "Bold"' in first[0]['content']
    assert '"conclusion": "str"' in first[0]['content']
    assert [m['role'] for m in second] == ['system', 'user', 'assistant', 'user']
    assert second[-1]['content'] == '**x**'
    assert list(agent.state_dict(3)) == ['memory', 'select_agent.memory']
    assert agent.state_dict(3)['memory'][-1]['content'] == DONE


def test_parts_may_be_given_in_every_form(make):
    parser = {'type': JSONParser, 'template': '{act}{finish}', 'act': Act, 'finish': Finish}
    agent, model = make(
        '{"conclusion": "done"}',
        actions={'type': Bold},
        template=PromptTemplate('{action_info} and {output_format}'),
        output_format=parser,
    )
    assert ask(agent, 'q').formatted == {'conclusion': 'done'}
    assert prompts(model)[0][0]['content'].startswith('[{"name": "Bold"')
    assert parser['type'] is JSONParser


def test_a_call_that_speaks_of_a_conclusion_is_no_conclusion(make):
    call = CALL.replace('"x"', '"in conclusion"')
    agent, model = make(call, DONE)
    assert ask(agent, 'q').formatted['conclusion'] == 'it is bold'
    assert prompts(model)[1][-1]['content'] == '**in conclusion**'


def test_a_reply_that_cannot_be_read_is_answered(make):
    agent, model = make('I think, in conclusion, that', DONE)
    assert ask(agent, 'q').formatted['conclusion'] == 'it is bold'
    refusal = prompts(model)[1][-1]
    assert refusal['role'] == 'user'
    assert 'could not be read' in refusal['content']
    reply = agent.select_agent.memory.get_memory()[1]
    assert (reply.formatted, list(reply.extra_info)) == (None, [PARSE_ERROR])


def test_too_many_such_replies_end_the_run(make):
    agent, _ = make(*['no json'] * 3, limits=RunLimits(parse_failures=2))
    with pytest.raises(ParseFailed) as caught:
        ask(agent, 'q')
    assert (caught.value.attempts, caught.value.reply) == (2, 'no json')


def test_when_turns_run_out_the_tools_message_is_marked(make):
    agent, model = make(CALL, CALL.replace('"x"', '"y"'), max_turn=2)
    answer = ask(agent, 'q')
    assert answer.content == '**y**'
    assert answer.sender in ('ActionExecutor', 'AsyncActionExecutor')
    assert answer.type == 'limit'
    assert answer.extra_info == {'limit': 'max_turn', 'allowed': 2, 'used': 2}
    assert len(model.calls) == 2
    assert agent.select_agent.memory.get_memory()[-1].content == '**y**'


def test_or_the_limit_is_raised(make):
    agent, _ = make(CALL, max_turn=1, on_max_turn='raise')
    with pytest.raises(LimitExceeded) as caught:
        ask(agent, 'q')
    assert caught.value.limit == 'max_turn'


def test_the_policy_at_a_limit_of_the_run_is_another_one(make):
    agent, _ = make(CALL, max_turn=1, limits=RunLimits(on_limit='return'), on_max_turn='raise')
    answer = ask(agent, 'q')
    assert (answer.type, answer.extra_info['limit']) == ('limit', 'max_turn')


def test_a_loop_needs_a_turn(make):
    with pytest.raises(ValueError, match='max_turn'):
        make(max_turn=0)


def test_an_error_of_the_loop_leaves_memory_in_order(make):
    agent, model = make('{"thought": "no call"}', 'now it works, in conclusion')

    class Anything(StrParser):
        def parse_response(self, data):
            return {'conclusion': data} if 'conclusion' in data else {'thought': data}

    agent.select_agent.output_format = Anything()
    with pytest.raises(AssertionError, match='no parsed tool call'):
        ask(agent, 'q')
    ask(agent, 'again')
    roles = [message['role'] for message in prompts(model)[1]]
    assert roles == ['system', 'user', 'assistant', 'user', 'assistant', 'user']
    assert 'no result: AssertionError' in prompts(model)[1][3]['content']


@pytest.mark.parametrize(
    ('message', 'finished'),
    [
        (AgentMessage(content='in conclusion', formatted={'action': {}}), False),
        (AgentMessage(content='', formatted={'conclusion': ''}), True),
        (AgentMessage(content='in conclusion'), True),
        (AgentMessage(content='x', formatted='x'), False),
        (AgentMessage(content='conclusion', extra_info={PARSE_ERROR: 'no'}), False),
    ],
)
def test_what_a_conclusion_is(message, finished):
    assert has_conclusion(message) is finished
