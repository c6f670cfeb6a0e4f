"""Assertions on what an agent did."""

import re
from typing import Any

import pytest

from lagent.actions import ActionExecutor, AsyncInterpreter, Interpreter, tool_api
from lagent.agents import Agent, AsyncCoder, AsyncStreamingAgent, Coder, StreamingAgent
from lagent.llms import AsyncScriptedModel, Completion, ModelUnavailable, ScriptedModel, Usage
from lagent.schema import AgentMessage, FunctionCall
from lagent.testing import Run, ask, properties

pytestmark = pytest.mark.kernel

REPLIES = [
    Completion(
        '```python\nopen("a.txt", "w").write("abc")\n```',
        usage=Usage(prompt_tokens=7, completion_tokens=3),
    ),
    '```python\n1 / 0\n```',
    'It has 3 letters.',
]
LOCAL: dict[str, Any] = {'backend': 'local', 'unsafe': True}


@pytest.fixture(scope='module')
def run() -> Run:
    with Coder(ScriptedModel(REPLIES), interpreter=Interpreter(**LOCAL)) as coder:
        return ask(coder, 'How long is abc?')


def test_a_run_knows_its_answer_calls_and_usage(run: Run) -> None:
    assert run.answer == 'It has 3 letters.'
    assert [call.kind for call in run.calls] == ['model', 'kernel', 'model', 'kernel', 'model']
    assert (run.usage.model_calls, run.usage.tokens) == (3, 10)
    assert [info.path for info in run.artifacts] == ['a.txt']


def test_code_that_was_run_is_found(run: Run) -> None:
    assert run.ran_code('open("a.txt"').gave.ok
    assert run.ran_code(re.compile(r'1\s*/\s*0')).gave.error.name == 'ZeroDivisionError'


def test_code_that_was_not_run_fails_and_says_what_was(run: Run) -> None:
    with pytest.raises(AssertionError) as caught:
        run.ran_code('read_csv')
    assert str(caught.value) == (
        "no code with 'read_csv' was run; there were:\n"
        '  interpreter: open("a.txt", "w").write("abc") -> ok\n'
        '  interpreter: 1 / 0 -> error'
    )


def test_an_answer_is_compared(run: Run) -> None:
    run.answered('3 letters')
    run.answered(re.compile(r'\d letters'))
    with pytest.raises(AssertionError, match=re.escape("'4' is not in the answer: 'It has 3")):
        run.answered('4')


def test_properties_are_texts(run: Run) -> None:
    assert properties([run, run]) == [
        ('lagent.model_calls', '6'),
        ('lagent.prompt_tokens', '14'),
        ('lagent.completion_tokens', '6'),
        ('lagent.tool_calls', '0'),
        ('lagent.cells', '4'),
        ('lagent.artifact', 'a.txt (3 bytes)'),
        ('lagent.artifact', 'a.txt (3 bytes)'),
    ]


class Mailer(Agent):
    """Calls its tool as it is told."""

    def __init__(self, parameters: Any) -> None:
        super().__init__()

        @tool_api
        def mail(to: str, text: str = '') -> str:
            """Send a mail."""
            return f'sent to {to}'

        self.tools, self.parameters = ActionExecutor([mail]), parameters

    def forward(self, *message: AgentMessage, **kwargs: Any) -> Any:
        self.tools(AgentMessage(content=FunctionCall('mail', self.parameters)))
        return 'done'


@pytest.mark.parametrize(
    'parameters', [{'to': 'Ada', 'text': 'Hi'}, '{"to": "Ada", "text": "Hi"}'], ids=['dict', 'json']
)
def test_a_tool_that_was_called_is_found(parameters: Any) -> None:
    run = ask(Mailer(parameters), 'Go')
    assert run.called_tool('mail').gave.format_result() == 'sent to Ada'
    run.called_tool('mail', to='Ada', text=lambda text: text.startswith('H'))
    with pytest.raises(AssertionError, match=r"mail\(to='Ben'\) was not called; there were"):
        run.called_tool('mail', to='Ben')
    with pytest.raises(AssertionError, match='nothing of the kind'):
        run.ran_code('x')


def test_a_failed_call_is_kept_for_code_around_it() -> None:
    run = Run()
    with pytest.raises(ModelUnavailable), run.watching():
        Agent(ScriptedModel([ModelUnavailable('down')]))('Go')
    assert str(run.calls[0]).endswith('-> ModelUnavailable: down')
    assert run.usage.model_calls == 1


async def test_an_asynchronous_agent_is_awaited() -> None:
    async with AsyncCoder(
        AsyncScriptedModel(REPLIES), interpreter=AsyncInterpreter(**LOCAL)
    ) as coder:
        run = await ask(coder, 'How long is abc?')
    run.ran_code('a.txt')
    run.answered('3 letters')


async def test_streams_are_read_to_their_end() -> None:
    run = ask(StreamingAgent(ScriptedModel(['A long enough answer.'])), 'Go')
    assert (run.answer, len(run.model_calls)) == ('A long enough answer.', 1)
    run = await ask(AsyncStreamingAgent(AsyncScriptedModel(['A long enough answer.'])), 'Go')
    assert (run.answer, len(run.model_calls)) == ('A long enough answer.', 1)
