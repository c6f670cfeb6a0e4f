"""A run that kills its own process at a chosen moment; executed by test_crashes.

Arguments: the folder, how many moments to live, and ``sync`` or ``async``. Every line of `world` is
a side effect. A moment is before and after each effect, and around each write to the journal.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from lagent.actions import (
    ActionExecutor,
    AsyncActionExecutor,
    AsyncInterpreter,
    Interpreter,
    tool_api,
)
from lagent.agents import Agent, AsyncAgent
from lagent.journal import SqliteJournal
from lagent.llms import AsyncScriptedModel, ScriptedModel
from lagent.prompts import CodeParser
from lagent.schema import AgentMessage, FunctionCall
from sandbox import FakeBackend

folder, left = Path(sys.argv[1]), int(sys.argv[2])
is_async = sys.argv[3] == 'async'


def moment() -> None:
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)


def happen(line: str) -> None:
    moment()
    with (folder / 'world').open('a') as file:
        file.write(f'{line}\n')
    moment()


class Journal(SqliteJournal):
    def append(self, *args: Any, **kwargs: Any) -> None:
        moment()
        super().append(*args, **kwargs)
        moment()

    def release(self, *args: Any) -> None:
        moment()
        super().release(*args)
        moment()


def model(messages: Any) -> str:
    happen(f'model {messages[-1]["content"]}')
    return f'reply to {messages[-1]["content"]}'


@tool_api
def mail(text: str) -> str:
    """Send a mail."""
    happen(f'mail {text}')
    return f'sent {text}'


@tool_api(idempotent=True)
def look(text: str) -> str:
    """Look something up."""
    happen(f'look {text}')
    return f'found {text}'


def cell(code: str) -> str:
    happen(f'cell {code}')
    return f'ran {code}'


def calls(*texts: str) -> AgentMessage:
    return AgentMessage(sender='x', content=[FunctionCall('mail', {'text': t}) for t in texts])


def code(source: str) -> AgentMessage:
    text = f'```python\n{source}\n```'
    return AgentMessage(sender='x', content=text, formatted=CodeParser().parse_response(text))


def shown(message: AgentMessage) -> str:
    results = message.content if isinstance(message.content, list) else [message.content]
    return ' '.join(
        one if isinstance(one, str) else one.format_result() or one.errmsg for one in results
    )


def asked(text: str) -> list[dict[str, str]]:
    return [{'role': 'user', 'content': text}]


LOOK = AgentMessage(sender='x', content=FunctionCall('look', {'text': 'l'}))


class Worker(Agent):
    def forward(self, *message: AgentMessage, **kwargs: Any) -> Any:
        seen = [str(self.llm.chat(asked('one')))]
        seen.append(shown(self.tools(calls('a', 'b'))))
        seen.append(shown(self.interpreter(code('x = 1'))))
        seen.append(shown(self.tools(LOOK)))
        seen.append(str(self.llm.chat(asked('two'))))
        return seen


class AsyncWorker(AsyncAgent):
    async def forward(self, *message: AgentMessage, **kwargs: Any) -> Any:
        seen = [str(await self.llm.chat(asked('one')))]
        seen.append(shown(await self.tools(calls('a', 'b'))))
        seen.append(shown(await self.interpreter(code('x = 1'))))
        seen.append(shown(await self.tools(LOOK)))
        seen.append(str(await self.llm.chat(asked('two'))))
        return seen


def main() -> Any:
    with Journal(folder / 'runs.db') as journal:
        backend = FakeBackend(cell)
        if not is_async:
            worker = Worker(ScriptedModel(model))
            worker.tools = ActionExecutor([mail, look])
            with Interpreter(backend=backend, unsafe=True) as worker.interpreter:
                return worker.run('go', run_id='r', journal=journal)

        async def work() -> Any:
            agent = AsyncWorker(AsyncScriptedModel(model))
            agent.tools = AsyncActionExecutor([mail, look])
            async with AsyncInterpreter(backend=backend, unsafe=True) as agent.interpreter:
                return await agent.run('go', run_id='r', journal=journal)

        return asyncio.run(work())


answer = main().content
(folder / 'answer').write_text('\n'.join(answer))
print('moments left:', left)
