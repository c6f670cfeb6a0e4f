"""Aggregators: what a model is given for what is in memory."""

import copy
import json

import pytest

from lagent.actions import ActionExecutor, BaseAction
from lagent.agents import Agent
from lagent.agents.aggregator import (
    DefaultAggregator,
    InternLMToolAggregator,
    TokenWindowAggregator,
    ToolCallAggregator,
)
from lagent.llms import Completion, ScriptedModel
from lagent.llms.completion import ToolCall
from lagent.memory import Memory
from lagent.prompts.parsers import PluginParser, ToolCallParser, ToolParser, ToolStatusCode
from lagent.schema import ActionReturn, AgentMessage


def memory_of(*pairs):
    memory = Memory()
    memory.add([AgentMessage(sender=sender, content=content) for sender, content in pairs])
    return memory


class FewShot(DefaultAggregator):
    """Written like the few-shot aggregator in the README of InternLM's lagent."""

    def __init__(self, examples=None):
        self.examples = examples or []

    def aggregate(self, messages, name, parser=None, system_instruction=None):
        chat = []
        if system_instruction:
            chat.extend(self.aggregate_system_intruction(system_instruction))
        chat.extend(self.examples)
        for message in messages.get_memory():
            if message.sender == name:
                chat.append({'role': 'assistant', 'content': str(message.content)})
            elif chat and chat[-1]['role'] == 'user':
                chat[-1]['content'] += message.content
            else:
                chat.append({'role': 'user', 'content': message.content})
        return chat


def test_a_few_shot_aggregator_of_ones_own():
    shots = [{'role': 'user', 'content': '1+1'}, {'role': 'assistant', 'content': '2'}]
    llm = ScriptedModel([OSError('down'), '4'])
    agent = Agent(llm, 'Add.', aggregator={'type': FewShot, 'examples': shots})
    with pytest.raises(OSError):
        agent('1+2')
    assert agent('2+2').content == '4'
    assert llm.calls[-1].messages == [
        {'role': 'system', 'content': 'Add.'},
        *shots,
        {'role': 'user', 'content': '1+2'},
        {'role': 'assistant', 'content': '[no answer: OSError: down]'},
        {'role': 'user', 'content': '2+2'},
    ]


@pytest.mark.parametrize('aggregator', [DefaultAggregator(), InternLMToolAggregator()])
def test_what_a_tool_said_is_never_the_system(aggregator):
    chat = aggregator.aggregate(memory_of(('user', 'q'), ('me', 'a'), ('Tool', 'out')), 'me')
    assert [message['role'] for message in chat].count('system') == 0


def test_templates_keep_what_they_are():
    template = [{'role': 'system', 'content': 's'}, {'role': 'user', 'content': 'context '}]
    before = copy.deepcopy(template)
    aggregator = DefaultAggregator()
    for _ in range(2):
        chat = aggregator.aggregate(memory_of(('user', 'q')), 'me', None, template)
        assert chat == [template[0], {'role': 'user', 'content': 'context q'}]
    assert template == before


def test_internlm_roles():
    parser = PluginParser(template='Use tools.', begin='<p>', end='</p>')
    memory = Memory()
    good, bad = parser.parse_response('so<p>{"name": "f"}</p>'), {'status': -1, 'tool_type': None}
    memory.add(
        [
            AgentMessage(content='q'),
            AgentMessage(sender='me', content='bad', formatted=bad),
            AgentMessage(sender='me', content='so', formatted=good),
            AgentMessage(sender='exec', content='out'),
            AgentMessage(sender='me', content='plain'),
        ]
    )
    aggregator = InternLMToolAggregator(environment_begin='[', environment_end=']')
    chat = aggregator.aggregate(memory, 'me', parser, 'sys')
    assert [(m['role'], m.get('name')) for m in chat] == [
        ('system', None),
        ('system', 'plugin'),
        ('user', None),
        ('assistant', None),
        ('environment', 'plugin'),
        ('assistant', None),
    ]
    assert chat[4]['content'] == '[out]'


def test_internlm_aggregator_keeps_replies_of_other_parsers():
    memory = Memory()
    memory.add(
        [
            AgentMessage(sender='me', content='{"a": 1}', formatted={'a': 1}),
            AgentMessage(
                sender='me',
                content='cut <to',
                formatted=ToolParser('t').parse_response(
                    Completion('cut <tool>\nx', finish_reason='length')
                ),
            ),
        ]
    )
    chat = InternLMToolAggregator().aggregate(memory, 'me', ToolParser('t'))
    assert [m['content'] for m in chat] == ['{"a": 1}', 'cut <to']


class Python(BaseAction):
    """run code"""

    def run(self, code: str):
        if code == '1/0':
            raise ZeroDivisionError('division by zero')
        return code.removeprefix('print(').removesuffix(')')


CALLS = [
    ToolCall('c1', 'Python', '{"code": "print(1)"}'),
    ToolCall('c2', 'Python', '{"code": "1/0"}'),
    ToolCall('c3', 'no_such_tool', '{}'),
    ToolCall('c4', 'Python', 'print(1)'),
]


def native(replies, **kwargs):
    llm = ScriptedModel(replies)
    agent = Agent(llm, output_format=ToolCallParser(), aggregator=ToolCallAggregator(**kwargs))
    return agent, llm


def test_every_call_gets_its_answer_in_order():
    executor = ActionExecutor(Python())
    agent, llm = native([Completion('', finish_reason='tool_calls', tool_calls=CALLS), 'done'])
    reply = agent('q')
    assert agent(executor(reply)).content == 'done'
    question, asked, *answers = llm.calls[-1].messages
    assert question == {'role': 'user', 'content': 'q'}
    assert (asked['role'], asked['content']) == ('assistant', '')
    assert [call['id'] for call in asked['tool_calls']] == ['c1', 'c2', 'c3', 'c4']
    assert json.loads(asked['tool_calls'][3]['function']['arguments']) == {'input': 'print(1)'}
    assert [(m['role'], m['tool_call_id']) for m in answers] == [
        ('tool', id_) for id_ in ('c1', 'c2', 'c3', 'c4')
    ]
    one, two, three, four = (m['content'] for m in answers)
    assert (one, two) == ('1', 'division by zero')
    assert 'The tools are: Python.' in three
    assert 'invalid json format' in four
    assert '"required": ["code"]' in four


def test_the_same_in_anthropics_format():
    executor = ActionExecutor(Python())
    agent, llm = native(
        [Completion('I run it.', tool_calls=CALLS[:2]), 'done', 'more'], format='anthropic'
    )
    agent(executor(agent('q')), 'and?')
    _, asked, answers = llm.calls[-1].messages
    assert asked['content'] == [
        {'type': 'text', 'text': 'I run it.'},
        {'type': 'tool_use', 'id': 'c1', 'name': 'Python', 'input': {'code': 'print(1)'}},
        {'type': 'tool_use', 'id': 'c2', 'name': 'Python', 'input': {'code': '1/0'}},
    ]
    assert answers['role'] == 'user'
    assert answers['content'] == [
        {'type': 'tool_result', 'tool_use_id': 'c1', 'content': '1'},
        {
            'type': 'tool_result',
            'tool_use_id': 'c2',
            'content': 'division by zero',
            'is_error': True,
        },
        {'type': 'text', 'text': 'and?'},
    ]


@pytest.mark.parametrize('format_', ['openai', 'anthropic'])
def test_a_call_whose_result_never_came_is_answered_too(format_):
    class Interrupted(BaseAction):
        """never ends"""

        def run(self):
            raise KeyboardInterrupt

    agent, llm = native(
        [Completion('', tool_calls=[ToolCall('c1', 'Interrupted', '{}')]), 'ok', 'ok'],
        format=format_,
    )
    executor = ActionExecutor(Interrupted())
    reply = agent('one')
    with pytest.raises(KeyboardInterrupt):
        executor(reply)
    agent('two')
    text = json.dumps(llm.calls[-1].messages)
    assert text.count('"c1"') == 2
    assert 'interrupted, and may have run in part' in text
    assert llm.calls[-1].messages[-1]['role'] == 'user'
    assert 'two' in str(llm.calls[-1].messages[-1]['content'])


def test_calls_and_results_survive_json():
    executor = ActionExecutor(Python())
    agent, llm = native([Completion('', tool_calls=CALLS), 'done', 'more'])
    agent(executor(agent('q')))
    other, again = native(['more'])
    other.load_state_dict(json.loads(json.dumps(agent.state_dict())))
    agent('next')
    other('next')
    assert again.calls[-1].messages == llm.calls[-1].messages


def test_no_content_is_null():
    memory = Memory()
    memory.add(
        [
            AgentMessage(content=None),
            AgentMessage(sender='me', content=Completion('', tool_calls=CALLS[:1])),
            AgentMessage(sender='ActionExecutor', content=None),
        ]
    )
    chat = ToolCallAggregator().aggregate(memory, 'me')
    assert ''.join(f'{m["role"]}:{m["content"]};' for m in chat) == 'user:;assistant:;tool:;'


def test_a_reply_that_is_cut_in_a_call_calls_nothing():
    executor = ActionExecutor(Python())
    cut = Completion('', finish_reason='length', tool_calls=CALLS[:1])
    agent, llm = native([cut, 'sorry'])
    reply = agent('q')
    assert reply.formatted['status'] is ToolStatusCode.INCOMPLETE
    agent(executor(reply))
    assert 'tool_calls' not in llm.calls[-1].messages[1]
    assert 'cut off' in llm.calls[-1].messages[-1]['content']


def test_what_is_no_format():
    with pytest.raises(ValueError, match='xml'):
        ToolCallAggregator('xml')


def test_a_parser_reads_calls_that_stand_in_the_text():
    parser = ToolCallParser()
    call = '<tool_call>\n{"name": "python", "arguments": {"code": "1"}}\n</tool_call>'
    parsed = parser.parse_response(f'{call}\n{call}')
    assert parsed['status'] is ToolStatusCode.VALID_TOOL
    first, second = parsed['action']
    assert (first['name'], first['parameters']) == ('python', {'code': '1'})
    assert first['id'] != second['id']
    quoted = parser.parse_response(f'Write {call} to call it.')
    assert quoted['status'] is ToolStatusCode.NO_TOOL
    broken = parser.parse_response('<tool_call>{"name": 1}</tool_call>')
    assert broken['status'] is ToolStatusCode.PARSING_ERROR


def test_ids_that_are_missing_or_doubled_are_made():
    calls = [ToolCall('', 'f', '{}'), ToolCall('a', 'f', '{}'), ToolCall('a', 'f', '{}')]
    parse = ToolCallParser().parse_response
    ids = [call['id'] for call in parse(Completion('', tool_calls=calls))['action']]
    assert len(set(ids)) == 3
    assert ids[1] == 'a'
    assert ids == [call['id'] for call in parse(Completion('', tool_calls=calls))['action']]


def conversation(turns, *, pinned=()):
    """Questions, replies with a call, results, and answers, of one word each."""
    memory = Memory()
    for n in range(turns):
        info = {'pinned': True} if n in pinned else None
        memory.add(
            [
                AgentMessage(content=f'question{n}', extra_info=info),
                AgentMessage(sender='me', content=f'call{n}'),
                AgentMessage(sender='tool', content=f'result{n}'),
                AgentMessage(sender='me', content=f'answer{n}'),
            ]
        )
    memory.add(AgentMessage(content='last'))
    return memory


def window(budget, memory, system='sys', **kwargs):
    # 10 tokens a message, so that a budget is a number of messages.
    aggregator = TokenWindowAggregator(budget * 10, lambda text: 6, **kwargs)
    return [m['content'] for m in aggregator.aggregate(memory, 'me', None, system)]


def test_the_oldest_exchanges_go_first_and_whole():
    memory = conversation(3)
    everything = window(14, memory)
    assert len(everything) == 14
    tail = ['call2', 'result2', 'answer2', 'last']
    assert window(13, memory) == ['sys', 'question1', *everything[6:]]
    assert window(6, memory) == ['sys', 'question2', *tail]
    assert window(5, memory) == ['sys', 'last']
    assert window(1, memory) == ['sys', 'last']  # these stay, whatever the budget


def test_pinned_messages_stay():
    memory = conversation(3, pinned=[0])
    # Only the pinned unit stays of its exchange; the next question is joined to it.
    assert window(2, memory) == ['sys', 'question0last']


def test_a_call_is_never_without_its_result():
    memory = conversation(0)
    for n in range(4):
        memory.add(
            [
                AgentMessage(sender='me', content=f'call{n}'),
                AgentMessage(sender='tool', content=f'result{n}'),
            ]
        )
    for budget in range(1, 12):
        said = window(budget, memory)
        assert said[:2] == ['sys', 'last']
        kept = [text[-1] for text in said[2:] if text.startswith('call')]
        assert kept == [text[-1] for text in said[2:] if text.startswith('result')]
        assert kept == [str(n) for n in range(4)][4 - max(min((budget - 2) // 2, 4), 1) :]


def test_a_window_over_native_calls_is_a_valid_dialog():
    executor = ActionExecutor(Python())
    llm = ScriptedModel(
        [
            Completion('', tool_calls=[ToolCall(f'c{n}', 'Python', '{"code": "x"}')])
            for n in range(6)
        ]
    )
    agent = Agent(
        llm,
        output_format=ToolCallParser(),
        aggregator=TokenWindowAggregator(150, aggregator={'type': ToolCallAggregator}),
    )
    reply = agent('q')
    for _ in range(5):
        reply = agent(executor(reply))
    for call in llm.calls:
        asked = [c['id'] for m in call.messages for c in m.get('tool_calls', ())]
        assert asked == [m['tool_call_id'] for m in call.messages if m['role'] == 'tool']
        assert agent.aggregator.count(call.messages) <= 150
    assert len(asked) < 5


def test_tokens_are_counted_as_told():
    count = TokenWindowAggregator(1, lambda text: list(text)).count
    assert count([{'role': 'user', 'content': 'abc'}]) == 7
    parts = [{'type': 'text', 'text': 'ab'}, {'type': 'image_url', 'image_url': {}}]
    assert count([{'role': 'user', 'content': parts}]) == 4 + 2 + 1000
    assert TokenWindowAggregator(1).count([{'role': 'user', 'content': 'abcde'}]) == 6
    assert TokenWindowAggregator(1).count([{'role': 'user', 'content': '你好' * 1000}]) == 2004
    with pytest.raises(ValueError, match='budget'):
        TokenWindowAggregator(0)


def test_results_of_one_call_may_be_any_message():
    memory = Memory()
    memory.add(
        [
            AgentMessage(sender='me', content=Completion('', tool_calls=CALLS[:1])),
            AgentMessage(sender='interpreter', content='1\n'),
            AgentMessage(sender='me', content=Completion('', tool_calls=CALLS[:1])),
            AgentMessage(sender='ActionExecutor', content=ActionReturn(errmsg='no')),
        ]
    )
    chat = ToolCallAggregator().aggregate(memory, 'me')
    assert [m['content'] for m in chat if m['role'] == 'tool'] == ['1\n', 'no']
