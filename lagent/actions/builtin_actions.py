"""The answers to calls that are no calls of a tool."""

from typing import Any

from lagent.actions.base_action import BaseAction, tool_api
from lagent.actions.parser import BaseParser
from lagent.schema import ActionReturn, ActionStatusCode, ActionValidCode


class _Refusal(BaseAction):
    """Answers with an error text."""

    def __init__(
        self,
        err_msg: str,
        description: dict[str, Any] | None = None,
        parser: type[BaseParser] = BaseParser,
    ) -> None:
        super().__init__(description, parser)
        self._err_msg = err_msg

    @tool_api
    def run(self, err_msg: str | None = None) -> ActionReturn:
        """Answer with an error text.

        Args:
            err_msg: the text; the tool's own when it is empty or no text.
        """
        given = err_msg if isinstance(err_msg, str) else None
        return ActionReturn(
            args={'text': err_msg},
            type=self.name,
            errmsg=given or self._err_msg,
            state=ActionStatusCode.API_ERROR,
            valid=ActionValidCode.INVALID,
        )


class InvalidAction(_Refusal):
    """Answers a call of a tool that doesn't exist.

    Args:
        err_msg: the text of the answer.
        description: replaces the tool's description.
        parser: class that reads the input.
    """

    def __init__(
        self,
        err_msg: str = 'The action is invalid, please check the action name.',
        description: dict[str, Any] | None = None,
        parser: type[BaseParser] = BaseParser,
    ) -> None:
        super().__init__(err_msg, description, parser)


class NoAction(_Refusal):
    """Answers a reply in which no call could be read.

    Args:
        err_msg: the text of the answer.
        description: replaces the tool's description.
        parser: class that reads the input.
    """

    def __init__(
        self,
        err_msg: str = 'Please follow the format',
        description: dict[str, Any] | None = None,
        parser: type[BaseParser] = BaseParser,
    ) -> None:
        super().__init__(err_msg, description, parser)


class FinishAction(BaseAction):
    """Ends the run with a result.

    Args:
        description: replaces the tool's description.
        parser: class that reads the input.
    """

    def __init__(
        self, description: dict[str, Any] | None = None, parser: type[BaseParser] = BaseParser
    ) -> None:
        super().__init__(description, parser)

    @tool_api
    def run(self, response: str) -> ActionReturn:
        """Give the final result.

        Args:
            response: the final result
        """
        text: Any = response
        if isinstance(text, dict) and set(text) == {'response'}:
            # A model that was shown the parameter's name may well use it.
            text = text['response']
        return ActionReturn(
            args={'text': text},
            type=self.name,
            result=self._parser.parse_outputs(text),
            valid=ActionValidCode.FINISH,
        )
