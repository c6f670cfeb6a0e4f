"""InternLM's interactive shell: a value or printed text as one bounded text."""

from collections.abc import Hashable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Unpack

from lagent import flow
from lagent.actions.base_action import tool_api
from lagent.actions.cell_text import code_in, error, notices, transcript
from lagent.actions.cells import SandboxOptions
from lagent.actions.code_tool import AsyncCodeTool, CodeTool, seconds
from lagent.actions.interpreter import CellResult
from lagent.actions.parser import BaseParser, JsonParser
from lagent.flow import Flow
from lagent.portal import get_portal
from lagent.schema import ActionReturn, ActionStatusCode

# Values are shown as `str` gives them, whatever their type.
SETUP = """\
def _set_up():
    from IPython.core.formatters import PlainTextFormatter

    class Text(PlainTextFormatter):
        def __call__(self, value):
            return str(value)

    display = get_ipython().display_formatter
    display.formatters['text/plain'] = Text(parent=display)

_set_up()
del _set_up
"""


class Status(StrEnum):
    """Whether code ran to its end."""

    SUCCESS = 'success'
    FAILURE = 'failure'


@dataclass
class ExecutionResult:
    """What `IPythonInteractive.exec` gives.

    Attributes:
        status: whether the code ran to its end.
        value: what it put out, and its value, if it did.
        msg: why it failed, if it did.
    """

    status: Status
    value: str | None = None
    msg: str | None = None


class IPythonInteractive(CodeTool):
    """An interactive Python shell.

    The result is all that the code put out, and then ``str`` of its last expression. Variables are
    kept from call to call, for each session of its own, until `reset`.

    Args:
        timeout: wall clock of one call, in seconds.
        max_out_len: characters that are shown of a result or an error; all if negative.
        use_signals: without a meaning here; timeouts work in every thread.
        description: replaces the tool's description.
        parser: class that reads the inputs.
        options: see `SandboxOptions`.
    """

    def __init__(
        self,
        timeout: float = 30,
        max_out_len: int = 8192,
        use_signals: bool = True,
        description: dict[str, Any] | None = None,
        parser: type[BaseParser] = JsonParser,
        **options: Unpack[SandboxOptions],
    ) -> None:
        super().__init__(description, parser, timeout=timeout, setup=SETUP, **options)
        self.max_out_len = max_out_len

    @tool_api
    def run(self, command: str, timeout: int | None = None) -> ActionReturn:
        """Run Python in an interactive shell that keeps its variables from call to call.

        Args:
            command: the code
            timeout: how many seconds it may take
        """
        return flow.run(self._run(command, timeout))

    def exec(self, code: str) -> ExecutionResult:
        """Run code.

        Args:
            code: the code, or a text with it.

        Returns:
            What came out.
        """
        return flow.run(self._exec(code, None))

    def reset(self, session_id: Hashable | None = None) -> None:
        """Forget the variables; files are kept.

        Args:
            session_id: whose; inside a run its session, else 0.
        """
        get_portal().call(self._cells.restart, session_id)

    @staticmethod
    def extract_code(text: str) -> str:
        """The code in a text; see `code_in`.

        Args:
            text: code, or a text with code in a Markdown fence, in backticks, or in an object
                ``{code: ...}``.

        Returns:
            The code.
        """
        return code_in(text)

    def _run(self, command: str, timeout: Any) -> Flow[ActionReturn]:
        done = yield from self._exec(command, timeout)
        answer = ActionReturn({'text': command}, type=self.name)
        if done.status is Status.SUCCESS:
            answer.result = [{'type': 'text', 'content': done.value}]
        else:
            answer.errmsg, answer.state = done.msg, ActionStatusCode.API_ERROR
        return answer

    def _exec(self, code: str, timeout: Any) -> Flow[ExecutionResult]:
        code = self.extract_code(code)
        result = yield from self._at(self._cells.execute, code, None, seconds(timeout))
        if result.ok:
            return ExecutionResult(Status.SUCCESS, value=_shown(result)[: self._most])
        words = error(result)[: self._most]
        before = '\n'.join(transcript(result).strip().splitlines())
        if self._most is not None:
            # What was put out last is the nearest to the error, and is kept.
            room = max(self._most - len(words) - 1, 0)
            before = before[-room:] if room else ''
        return ExecutionResult(Status.FAILURE, msg='\n'.join(filter(None, [before, words])))

    @property
    def _most(self) -> int | None:
        return self.max_out_len if self.max_out_len >= 0 else None


class AsyncIPythonInteractive(AsyncCodeTool, IPythonInteractive):
    """An `IPythonInteractive` that is awaited; `reset` is a plain method, as in InternLM's."""

    @tool_api
    async def run(  # type: ignore[override]
        self,
        command: str,
        timeout: int | None = None,  # noqa: ASYNC109 - the code's wall clock
    ) -> ActionReturn:
        """See `IPythonInteractive.run`."""
        return await flow.arun(self._run(command, timeout))

    async def exec(self, code: str) -> ExecutionResult:  # type: ignore[override]
        """See `IPythonInteractive.exec`."""
        return await flow.arun(self._exec(code, None))

    run.api_description = IPythonInteractive.run.api_description  # type: ignore[attr-defined]


def _shown(result: CellResult) -> str:
    parts = [notices(result), transcript(result, value=False).strip()]
    parts = [part for part in parts if part]
    return '\n'.join(parts if result.result is None else [*parts, result.result])
