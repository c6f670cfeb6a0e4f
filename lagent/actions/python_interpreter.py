"""InternLM's program runner: fresh variables for each call, and one answer."""

from typing import Any, Unpack

from lagent import flow
from lagent.actions.base_action import tool_api
from lagent.actions.cell_text import code_in, error
from lagent.actions.cells import SandboxOptions
from lagent.actions.code_tool import AsyncCodeTool, CodeTool
from lagent.actions.ipython_interactive import SETUP as SHOW_VALUES_AS_TEXT
from lagent.actions.parser import BaseParser, JsonParser
from lagent.flow import Flow
from lagent.schema import ActionReturn, ActionStatusCode

SETUP = f"""{SHOW_VALUES_AS_TEXT}
class ProgramFailed(Exception):
    pass


def answer_of(code, symbol, expression, from_stdout):
    import ast
    import contextlib
    import io

    space = {{'__name__': '__main__'}}
    try:
        if from_stdout:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(code, '<program>', 'exec'), space)
            return printed.getvalue().splitlines(keepends=True)[-1]
        if symbol or expression:
            exec(compile(code, '<program>', 'exec'), space)
            return str(space[symbol] if symbol else eval(expression, space))
        *body, last = ast.parse(code, '<program>').body
        if not isinstance(last, ast.Expr):
            raise SyntaxError('the last line of the program is no expression')
        exec(compile(ast.Module(body, []), '<program>', 'exec'), space)
        return str(eval(compile(ast.Expression(last.value), '<program>', 'eval'), space))
    except BaseException as error:
        raise ProgramFailed(repr(error)) from None
"""


class PythonInterpreter(CodeTool):
    """Runs Python programs, each with fresh variables, and gives their answer.

    Args:
        answer_symbol: name of the variable that holds the answer.
        answer_expr: expression that gives the answer, where there is no symbol. With neither, the
            program's last line is the expression.
        answer_from_stdout: whether the answer is the last line that the program prints.
        timeout: wall clock of one program, in seconds.
        description: replaces the tool's description.
        parser: class that reads the inputs.
        options: see `SandboxOptions`.
    """

    def __init__(
        self,
        answer_symbol: str | None = None,
        answer_expr: str | None = 'solution()',
        answer_from_stdout: bool = False,
        timeout: float = 20,
        description: dict[str, Any] | None = None,
        parser: type[BaseParser] = JsonParser,
        **options: Unpack[SandboxOptions],
    ) -> None:
        super().__init__(description, parser, timeout=timeout, setup=SETUP, **options)
        self.answer_symbol = answer_symbol
        self.answer_expr = answer_expr
        self.answer_from_stdout = answer_from_stdout

    @tool_api
    def run(self, command: str) -> ActionReturn:
        """Run a Python program that defines a function `solution()`, and get what it returns.

        The program does all its imports itself, goes one step a line with names that say what they
        hold, and may use nothing of an earlier program:
        ```python
        import math
        def solution():
            radius = 3
            area = math.pi * radius ** 2
            return area
        ```

        Args:
            command: the program
        """
        return flow.run(self._run(command))

    def _run(self, command: str) -> Flow[ActionReturn]:
        program = code_in(command)
        answer = ActionReturn({'text': f'```python\n{program}\n```'}, type=self.name)
        how = (self.answer_symbol, self.answer_expr, self.answer_from_stdout)
        cell = f'answer_of({program!r}, {", ".join(map(repr, how))})'
        result = yield from self._at(self._cells.execute, cell)
        if result.ok:
            answer.result = [{'type': 'text', 'content': result.result or ''}]
            return answer
        answer.state = ActionStatusCode.API_ERROR
        if result.outcome == 'timeout':
            words = f'FunctionTimedOut: the program did not end within {self.timeout:g} seconds'
            kept = result.state_preserved
            answer.errmsg = words if kept else '\n'.join([words, *result.notices])
        elif result.outcome == 'error' and result.error.name == 'ProgramFailed':
            answer.errmsg = result.error.message
        else:
            answer.errmsg = error(result)
        return answer


class AsyncPythonInterpreter(AsyncCodeTool, PythonInterpreter):
    """A `PythonInterpreter` that is awaited."""

    @tool_api
    async def run(self, command: str) -> ActionReturn:  # type: ignore[override]
        """See `PythonInterpreter.run`."""
        return await flow.arun(self._run(command))

    run.api_description = PythonInterpreter.run.api_description  # type: ignore[attr-defined]
