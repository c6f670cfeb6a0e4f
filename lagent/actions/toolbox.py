"""The tools that an executor has: by name, and as models are told of them."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from lagent.actions.base_action import BaseAction
from lagent.actions.function_tool import as_tool
from lagent.actions.json_schema import function_name
from lagent.schema import ActionReturn, ActionStatusCode, ActionValidCode

Action = BaseAction | dict[str, Any] | Callable[..., Any]


class Toolbox:
    """Tools by name.

    Attributes:
        actions: the tools.
        invalid_action: what answers calls of others.
    """

    actions: dict[str, BaseAction]
    invalid_action: BaseAction

    def description(self) -> list[dict[str, Any]]:
        """What models are told about the tools.

        Returns:
            A description for each API, named ``Tool.api`` in toolkits.
        """
        return [
            api | {'name': f'{name}.{api["name"]}'} if tool.is_toolkit else dict(api)
            for name, tool in self.actions.items()
            for api in tool.description.get('api_list', [tool.description])
        ]

    def openai_tools(self) -> list[dict[str, Any]]:
        """The tools as OpenAI-compatible servers take them: ``llm.chat(..., tools=...)``.

        Returns:
            A function for each API. Names are made of what providers accept: ``Tool.api`` becomes
            ``Tool-api``, and is called by either.
        """
        return [{'type': 'function', 'function': tool} for tool in self._schemas('parameters')]

    def anthropic_tools(self) -> list[dict[str, Any]]:
        """The tools as Anthropic's API takes them.

        Returns:
            See `openai_tools`; the dicts have ``input_schema``.
        """
        return self._schemas('input_schema')

    def _schemas(self, key: str) -> list[dict[str, Any]]:
        schemas = [one for tool in self.actions.values() for one in tool.json_schemas().values()]
        return [
            {
                'name': function_name(api['name']),
                'description': api.get('description', ''),
                key: schema,
            }
            for api, schema in zip(self.description(), schemas, strict=True)
        ]

    def explained(self, result: Any) -> Any:
        """A refused call of an unknown tool with the names of the known ones.

        Args:
            result: what a call gave.

        Returns:
            A copy with more words in its error; other results as they are.
        """
        is_refusal = isinstance(result, ActionReturn) and result.valid == ActionValidCode.INVALID
        if not is_refusal or result.type != self.invalid_action.name:
            return result
        names = ', '.join(api['name'] for api in self.description())
        hint = f'The tools are: {names}.' if names else 'There are no tools.'
        return replace(result, errmsg=f'{result.errmsg} {hint}')

    def _corrected(self, result: Any, name: Any) -> Any:
        """A call that was refused for its arguments with the schema of what they should be."""
        if not isinstance(result, ActionReturn) or result.state != ActionStatusCode.ARGS_ERROR:
            return result
        schemas = {tool['name']: tool['parameters'] for tool in self._schemas('parameters')}
        schema = schemas.get(function_name(str(name)))
        if schema is None:
            return result
        hint = f'Send a JSON object of this schema: {json.dumps(schema, ensure_ascii=False)}'
        return replace(result, errmsg=f'{result.errmsg} {hint}')

    def keys(self) -> list[str]:
        """The names of the tools.

        Returns:
            The names, in the order of the tools.
        """
        return list(self.actions)

    def __repr__(self) -> str:
        return f'{type(self).__name__}({", ".join(self.actions)})'

    def __contains__(self, name: object) -> bool:
        return name in self.actions

    def __setitem__(self, key: str, action: Action) -> None:
        """Add a tool under its own name; the key is ignored, as in InternLM's."""
        tool = as_tool(action)
        self.actions[tool.name] = tool

    def __delitem__(self, name: str) -> None:
        del self.actions[name]

    def _find(self, name: Any) -> tuple[BaseAction | None, str]:
        if not isinstance(name, str):
            return None, 'run'
        if name in self.actions:
            return self.actions[name], 'run'
        if '.' not in name:
            known = {function_name(api['name']): api['name'] for api in self.description()}
            name = known.get(name, name)
        tool_name, _, api = name.partition('.')
        return self.actions.get(tool_name), api or 'run'
