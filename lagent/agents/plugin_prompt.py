"""What InternLM's agents are told about their tools."""

import json
from collections.abc import Iterable
from typing import Any

from lagent.actions.function_tool import as_tool
from lagent.actions.toolbox import Action

API_PREFIX = (
    "A function of the tool '{tool_name}', which you may call. What the function does: \n"
    '{description}'
)

META_CN = '在工具或代码可用时，按照实际需要选用合适的一种'

INTERPRETER_CN = (
    '你可以运行 Python 代码：把代码发送给 python，它会在一个 Jupyter 环境里执行，'
    '变量、导入的模块和文件在多次执行之间都会保留。'
    '适合用代码完成的任务包括：数据的处理、统计与作图；数学、物理等学科的计算；'
    '演示一段程序或一个编程概念；解析和分析文本；训练模型并展示结果；'
    '以及读写 CSV、JSON 等文件。'
)

PLUGIN_CN = (
    '下面是你可以调用的工具：\n'
    '{prompt}\n'
    '信息足够时就直接回答，不要做多余的调用；只能使用上面列出的工具，不能虚构。'
)

MATH_PROMPT = (
    'Solve math problems by alternating between reasoning and Python code:\n'
    '- think about the problem step by step, and write Jupyter code for the calculations;\n'
    "- give the final result in LaTeX, inside of '\\boxed{{}}' and without units.\n"
)


def get_plugin_prompt(
    actions: Action | Iterable[Action], api_desc_template: str = '{description}'
) -> str:
    """Describe tools for a model.

    Args:
        actions: the tools, functions decorated with `tool_api`, or configuration dicts of tools;
            one need not be in a list.
        api_desc_template: how to describe an API of a toolkit, with the fields ``tool_name`` and
            ``description``, such as `API_PREFIX`.

    Returns:
        A JSON list of the APIs; those of toolkits are named ``Tool.api``.
    """
    described: list[dict[str, Any]] = []
    for given in [actions] if isinstance(actions, dict) or callable(actions) else actions:
        action = as_tool(given)
        if not action.is_toolkit:
            described.append(action.description)
            continue
        for api in action.description['api_list']:
            words = api_desc_template.format(tool_name=action.name, description=api['description'])
            described.append({**api, 'name': f'{action.name}.{api["name"]}', 'description': words})
    return json.dumps(described, ensure_ascii=False, indent=4)
