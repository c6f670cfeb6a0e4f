"""Native tool calls from end to end: an agent, an executor, and a server on loopback."""

import asyncio
from typing import Annotated

from lagent.actions import ActionExecutor, AsyncActionExecutor, BaseAction, tool_api
from lagent.agents import Agent, AsyncAgent
from lagent.agents.aggregator import ToolCallAggregator
from lagent.llms import GPTAPI, AsyncGPTAPI
from lagent.prompts.parsers import ToolCallParser, ToolStatusCode

from .conftest import message


class Sums(BaseAction):
    """Adds and multiplies."""

    @tool_api
    def add(self, a: Annotated[int, 'first'], b: int = 1):
        """Add two numbers."""
        return a + b

    @tool_api
    def fail(self):
        """Fail."""
        raise RuntimeError('broken')


def asks(*calls):
    return message(
        None,
        'tool_calls',
        tool_calls=[
            {
                'id': f'c{n}',
                'type': 'function',
                'function': {'name': name, 'arguments': arguments},
            }
            for n, (name, arguments) in enumerate(calls)
        ],
    )


def check(server):
    first, second = server.requests
    [add, fail] = first['tools']
    assert add['function'] == {
        'name': 'Sums-add',
        'description': 'Add two numbers.',
        'parameters': {
            'type': 'object',
            'properties': {
                'a': {'type': 'integer', 'description': 'first'},
                'b': {'type': 'integer', 'default': 1},
            },
            'required': ['a'],
            'additionalProperties': False,
        },
    }
    assert fail['function']['name'] == 'Sums-fail'
    assert [m['role'] for m in second['messages']] == ['user', 'assistant', *['tool'] * 3]
    assert second['messages'][1]['content'] == ''
    assert [(m['tool_call_id'], m['content']) for m in second['messages'][2:4]] == [
        ('c0', '42'),
        ('c1', 'broken'),
    ]
    assert 'The tools are: Sums.add, Sums.fail.' in second['messages'][4]['content']


REPLIES = (
    asks(('Sums-add', '{"a": 41}'), ('Sums.fail', '{}'), ('none', '{}')),
    message('It is 42.'),
)


def parts():
    return {'output_format': ToolCallParser(), 'aggregator': ToolCallAggregator()}


def test_a_round_of_calls(serve):
    server = serve(*REPLIES)
    agent, executor = Agent(GPTAPI('m', base_url=server.base), **parts()), ActionExecutor(Sums())
    tools = executor.openai_tools()
    reply = agent('41 + 1?', tools=tools)
    while reply.formatted['status'] != ToolStatusCode.NO_TOOL:
        reply = agent(executor(reply), tools=tools)
    assert reply.content == 'It is 42.'
    check(server)


def test_a_round_of_calls_awaited(serve):
    server = serve(*REPLIES)

    async def main():
        agent = AsyncAgent(AsyncGPTAPI('m', base_url=server.base), **parts())
        executor = AsyncActionExecutor(Sums())
        tools = executor.openai_tools()
        reply = await agent('41 + 1?', tools=tools)
        while reply.formatted['status'] != ToolStatusCode.NO_TOOL:
            reply = await agent(await executor(reply), tools=tools)
        return reply.content

    assert asyncio.run(main()) == 'It is 42.'
    check(server)
