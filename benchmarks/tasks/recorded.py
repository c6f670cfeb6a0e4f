"""Replies that solve the tasks: they show that the answers are right and the harness works."""

import re

from benchmarks.tasks.task import Task
from lagent.llms import ScriptedModel
from lagent.llms.base_llm import Message
from lagent.prompts.parsers.fences import fence_for

_PRINTED = re.compile(r'^ANSWER: .*', re.MULTILINE)


def recorded(task: Task) -> ScriptedModel:
    """Make a model that runs a task's solution, and answers with what that has printed.

    Args:
        task: the task.

    Returns:
        The model, good for one conversation.
    """
    code = f"import pandas as pd\n{task.solution.strip()}\nprint('ANSWER:', answer)"
    fence = fence_for(code)
    return ScriptedModel([f'I run the solution.\n{fence}python\n{code}\n{fence}', _last_printed])


def _last_printed(messages: list[Message]) -> str:
    printed = _PRINTED.findall(str(messages[-1]['content']))
    return str(printed[-1]) if printed else 'The solution has printed no answer.'
