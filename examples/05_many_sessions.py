"""One agent, many users at once: each session has a memory and a container of its own."""

import asyncio

from lagent.actions import AsyncInterpreter
from lagent.agents import AsyncCoder
from lagent.llms import AsyncScriptedModel


def reply(messages: list[dict[str, str]]) -> str:
    """Stands for a model: squares the user's number, then reports what the code printed."""
    last = messages[-1]['content']
    if last.startswith('square '):
        return f'```python\nprint({last.split()[1]} ** 2)\n```'
    return f'The result is {last.strip()}.'


async def main() -> None:
    interpreter = AsyncInterpreter(max_sessions=4)
    async with AsyncCoder(AsyncScriptedModel(reply), interpreter) as coder:
        users = range(4)
        answers = await asyncio.gather(
            *(coder(f'square {n}', session_id=f'user-{n}') for n in users)
        )
        for user, answer in zip(users, answers, strict=True):
            print(f'user-{user}: {answer.content}')
            remembered = coder.memory.get_memory(f'user-{user}')
            print(f'        {[message.content for message in remembered]}')


if __name__ == '__main__':
    asyncio.run(main())
