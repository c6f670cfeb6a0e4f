"""Tools: a class whose methods a model may call, and what it is told when a call goes wrong."""

import json
from typing import ClassVar

from lagent.actions import ActionExecutor, BaseAction, tool_api
from lagent.agents import Agent
from lagent.hooks import InternLMActionProcessor
from lagent.llms import ScriptedModel
from lagent.prompts.parsers import PluginParser, ToolStatusCode


class Shop(BaseAction):
    """The stock of a small shop."""

    stock: ClassVar = {'apples': 12, 'pears': 3}

    @tool_api
    def count(self, item: str) -> int:
        """How many of an item there are.

        Args:
            item (str): name of the item
        """
        return self.stock[item]


def main() -> None:
    executor = ActionExecutor([Shop()], hooks=[InternLMActionProcessor()])
    parser = PluginParser(
        template='You may call these tools, as JSON between {begin} and {end}:\n{tools}',
        begin='<tool>',
        end='</tool>',
        tools=json.dumps(executor.description(), indent=2),
    )
    llm = ScriptedModel(
        [
            'Let me look. <tool>{"name": "Shop.count", "parameters": {"item": "plums"}}</tool>',
            'No plums; pears? <tool>{"name": "Shop.count", "parameters": {"item": "pears"}}</tool>',
            'There are no plums, but 3 pears.',
        ]
    )
    agent = Agent(llm, template=parser.format_instruction(), output_format=parser)

    message = agent('Do you have plums, or pears?')
    while message.formatted['status'] == ToolStatusCode.VALID_TOOL:
        print('call  :', message.formatted['action'])
        result = executor(message)
        print('result:', result.content)
        message = agent(result)
    print('answer:', message.content)


if __name__ == '__main__':
    main()
