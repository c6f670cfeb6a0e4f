"""What a cell gave, in the words of InternLM's code tools, and the code in what they are given."""

import re

from lagent.actions.interpreter import CellResult
from lagent.prompts.parsers.fences import find_blocks, split_lines
from lagent.prompts.parsers.json_lenient import loads_object
from lagent.prompts.parsers.python_syntax import PythonSyntax
from lagent.utils.counts import many

TIMED_OUT = 'The code interpreter encountered a timeout error.'

_FENCE = re.compile(r'^[ \t]*(?:`{3,}|~{3,})[ \t]*([\w+#.-]*)', re.MULTILINE)
_INLINE = re.compile(r'`([^`]*)`')
_STREAMS = ('stdout', 'stderr')
_IMAGES = {'image/png', 'image/jpeg'}
_MOST = 100_000  # characters of one result that a model may be shown


def transcript(result: CellResult, *, value: bool = True, figures: bool = True) -> str:
    """Everything that a cell put out but its error, in order, each output on lines of its own.

    Args:
        result: the result.
        value: whether the value of the last expression belongs to it.
        figures: whether the text that stands for a displayed image does.

    Returns:
        The text, without the last newline.
    """
    text, last = '', ''
    for output in result.outputs:
        if output.kind == 'error' or (output.kind == 'result' and not value):
            continue
        if output.kind == 'display' and not figures and _IMAGES.intersection(output.data):
            continue
        notes = [
            f'[{mime} left out: {many(size, "byte")}]' for mime, size in output.missing.items()
        ]
        piece = '\n'.join([*([output.text] if output.text else _unread(output.data)), *notes])
        continues = output.kind == last and output.kind in _STREAMS
        if text and not text.endswith('\n') and not continues:
            text += '\n'
        text += piece
        last = output.kind
    text = text.removesuffix('\n')
    if result.truncated.outputs:
        text += f'\n[{many(result.truncated.outputs, "more output")} left out]'
    return text


def notices(result: CellResult) -> str:
    """What happened to the kernel.

    Args:
        result: the result.

    Returns:
        A line for each notice; ``''`` without any.
    """
    return '\n'.join(f'[notice] {notice}' for notice in result.notices)


def success(result: CellResult, *, figures: bool = True) -> str:
    """The text of a cell that ran to its end.

    Args:
        result: the result.
        figures: see `transcript`.

    Returns:
        Notices, and the transcript; of a very long one the head and the tail.
    """
    return _lines(notices(result), _bounded(transcript(result, figures=figures)))


def error(result: CellResult, *, whole: bool = False) -> str:
    """Why a cell failed.

    Args:
        result: the result of a cell that failed.
        whole: whether to show the traceback's head, instead of beginning with the exception.

    Returns:
        The words; what the cell had put out before is not among them.
    """
    if result.outcome == 'timeout':
        return TIMED_OUT if result.state_preserved else _lines(TIMED_OUT, notices(result))
    if result.outcome == 'error' and result.error is not None:
        trace = result.error.traceback or f'{result.error.name}: {result.error.message}'
        return _lines(notices(result), trace if whole else _from_exception(trace, result.error[0]))
    return notices(result) or f'The code was not run to its end: {result.outcome}.'


def failure(result: CellResult, *, whole: bool = False) -> str:
    """The text of a cell that failed.

    Args:
        result: the result.
        whole: see `error`.

    Returns:
        What it had put out before, as in `success`, and why it failed.
    """
    return _lines(_bounded(transcript(result)), error(result, whole=whole))


def code_in(text: str) -> str:
    """The code in what a model gave as code.

    A text that is Python is taken as it is. Otherwise it may be an object ``{code: ...}``, have the
    code in a Markdown fence, or in backticks.

    Args:
        text: the text.

    Returns:
        The code; the text itself where none of these is found.
    """
    if (code := _code_of_object(text)) is not None:
        return code
    syntax = PythonSyntax()
    if syntax.accepts(text):
        return text
    tags = {tag.lower() for tag in _FENCE.findall(text)}
    blocks = find_blocks(split_lines(text, ((0, len(text)),)), tags, syntax.accepts)
    if blocks:
        return blocks[0].body
    inline = _INLINE.search(text)
    return inline[1] if inline else text


def _code_of_object(text: str) -> str | None:
    if not text.lstrip().startswith('{'):
        return None
    try:
        code = loads_object(text).get('code')
    except ValueError:
        return None
    return code if isinstance(code, str) else None


def _unread(data: object) -> list[str]:
    return [f'[{mime}]' for mime in data] if isinstance(data, dict) else []


def _from_exception(trace: str, name: str) -> str:
    lines = trace.splitlines()
    first = next((n for n, line in enumerate(lines) if line.startswith(name)), 0)
    # In front of the exception are a ruler and, for a syntax error, the place of the error.
    before = [line for line in lines[:first] if line.strip('-')]
    return '\n'.join([*lines[first:], *before])


def _bounded(text: str) -> str:
    if len(text) <= _MOST:
        return text
    half = _MOST // 2
    return f'{text[:half]}\n[{len(text) - 2 * half:,} characters left out]\n{text[-half:]}'


def _lines(*parts: str) -> str:
    return '\n'.join(part for part in parts if part)
