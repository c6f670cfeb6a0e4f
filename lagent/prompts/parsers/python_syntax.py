"""Whether a text is Python, asked of hostile texts at a bounded cost."""

import ast
import re
import textwrap

MAX_CHARS = 500_000
"""Characters that are compiled for one reply; the compiler does about 400,000 a second."""

_FLAGS = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
# Escapes that Python does not know make the compiler warn, and warnings cannot be switched off
# for one thread. The pair is replaced by one that is valid where a backslash is, in strings, and
# as wrong as before outside of them. Quotes and newlines keep their meaning.
_ESCAPE = re.compile(r'\\([^\n\'"\\])')
_MAGIC_LINE = re.compile(
    r"""([ \t]*+)(?: [%!?]                        # %matplotlib inline, !ls, ?len
                   | [\w.]++ \?{1,2} [ \t]*+ $    # df.head?
                   | [\w.,\ ]++ = [ \t]*+ [%!]    # names = !ls
                 ).*+""",
    re.VERBOSE,
)


class PythonSyntax:
    """Answers whether texts are Python, until the characters of one reply are used up.

    Attributes:
        left: characters that may still be compiled.
    """

    def __init__(self, left: int = MAX_CHARS) -> None:
        self.left = left

    def accepts(self, code: str, *, magics: bool = True) -> bool:
        """Whether a kernel could parse a cell.

        Args:
            code: source of a cell; top-level ``await`` is allowed, as in a kernel.
            magics: whether IPython's ``%`` and ``!`` lines count as code.

        Returns:
            True when it parses; False when it does not, or is too long or deep to tell.
        """
        if magics and code.lstrip().startswith('%%'):
            return True
        if self._parses(code):
            return True
        masked = '\n'.join(_without_magic(line) for line in code.split('\n')) if magics else code
        if code[:1] in (' ', '\t', '\n'):
            masked = textwrap.dedent(masked)
        return masked != code and self._parses(masked)

    def _parses(self, code: str) -> bool:
        self.left -= len(code)
        if self.left < 0:
            return False
        try:
            compile(_ESCAPE.sub(r'\\\\', code), '<reply>', 'exec', _FLAGS, dont_inherit=True)
        except (SyntaxError, ValueError, MemoryError, RecursionError, OverflowError):
            return False
        return True


def _without_magic(line: str) -> str:
    magic = _MAGIC_LINE.fullmatch(line)
    return f'{magic[1]}pass' if magic else line
