"""A session as a Jupyter notebook, and a notebook as cells."""

import json
from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple

from lagent._extras import require
from lagent.actions.interpreter import execution_results
from lagent.analysis.sanitize import safe_bundle, safe_markdown
from lagent.prompts.parsers import ToolStatusCode
from lagent.prompts.parsers.fences import fenced
from lagent.schema import AgentMessage, without_surrogates

MAX_BYTES = 64 * 1024 * 1024
MAX_CELLS = 2_000

_KERNEL = {'display_name': 'Python 3', 'language': 'python', 'name': 'python3'}
_RUNS_AGAIN = ('ok', 'error')  # outcomes after which running the cell once more comes to an end
_WARNING = (
    'This notebook was exported from a session with a model. There its code ran in a sandbox; here '
    'it runs with your rights, so read it before you run it.'
)

Notebook = dict[str, Any]


class NotebookCell(NamedTuple):
    """A cell of a notebook that was read.

    Attributes:
        kind: code or markdown.
        source: its text.
    """

    kind: Literal['code', 'markdown']
    source: str


def to_notebook(messages: Sequence[AgentMessage], author: str) -> Notebook:
    """Make a notebook of a session.

    The conversation becomes Markdown, in which nothing can be executed, and what was run becomes
    code with its outputs. A cell that raised is marked, so that Jupyter goes on after it; one that
    never came to an end (a timeout, a crash) is shown as text, so that the notebook does.

    Args:
        messages: the messages of the agent that wrote the code, in order.
        author: its name.

    Returns:
        A valid notebook of the format 4.5, as plain values.

    Raises:
        ExtraMissing: nbformat or nh3 is not installed.
    """
    nbformat = require('nbformat', 'notebook')
    cells = [_markdown(_WARNING, 'warning')]
    waiting: list[str] = []
    for message in messages:
        if message.type == 'interpreter':
            cells += _run(waiting, message)
            waiting = []
            continue
        cells += _not_run(waiting)
        waiting = []
        if message.sender != author:
            cells.append(_said(message))
            continue
        parsed = message.formatted if isinstance(message.formatted, dict) else {}
        if parsed.get('status') == ToolStatusCode.VALID_TOOL:
            waiting = list(parsed.get('cells') or [str(parsed.get('action'))])
            if thought := str(parsed.get('thought') or '').strip():
                cells.append(_markdown(thought, 'thought'))
        else:
            cells.append(_markdown(_words(message.content), 'answer'))
    cells += _not_run(waiting)
    for number, cell in enumerate(cells):
        cell['id'] = f'cell-{number}'
    notebook = {
        'nbformat': 4,
        'nbformat_minor': 5,
        'metadata': {'kernelspec': _KERNEL, 'language_info': {'name': 'python'}},
        'cells': cells,
    }
    nbformat.validate(notebook)
    return notebook


def write_notebook(notebook: Notebook, path: str | PathLike[str]) -> Path:
    """Write a notebook, whole or not at all; halves of surrogate pairs become U+FFFD.

    Args:
        notebook: what `to_notebook` gave.
        path: the file; it is replaced.

    Returns:
        Its path.
    """
    target = Path(path)
    part = target.with_name(f'.{target.name}.part')
    try:
        text = json.dumps(notebook, indent=1, ensure_ascii=False) + '\n'
        part.write_text(without_surrogates(text), 'utf-8')
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    return target


def is_exported(path: str | PathLike[str]) -> bool:
    """Whether a file is a notebook that `to_notebook` made and to which nobody has added a cell.

    Args:
        path: the file.

    Returns:
        False for everything else, and for what is too large to be looked at.
    """
    path = Path(path)
    try:
        is_small = path.is_file() and path.stat().st_size <= MAX_BYTES
        cells = json.loads(path.read_text('utf-8'))['cells'] if is_small else []
        return bool(cells) and all('lagent' in cell['metadata'] for cell in cells)
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return False


def read_notebook(path: str | PathLike[str]) -> list[NotebookCell]:
    """Read the cells of a notebook of any version; outputs are left out, and nothing is run.

    Args:
        path: the file.

    Returns:
        Its cells of code and Markdown, without empty ones and the warning of `to_notebook`.

    Raises:
        ExtraMissing: nbformat is not installed.
        OSError: the file can't be read.
        ValueError: it is no notebook, or too large.
    """
    nbformat = require('nbformat', 'notebook')
    path = Path(path)
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(f'{path} has more than {MAX_BYTES >> 20} MiB, so it was not opened.')
    try:
        notebook = nbformat.reads(path.read_text('utf-8-sig'), as_version=4)
        nbformat.validate(notebook)
    except OSError:
        raise
    except Exception as error:  # what nbformat raises for what it cannot read is of many types
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f'{path} is no notebook, so it was not opened: {reason[:200]}') from error
    if len(notebook.cells) > MAX_CELLS:
        raise ValueError(f'{path} has more than {MAX_CELLS:,} cells, so it was not opened.')
    return [
        NotebookCell(cell.cell_type, cell.source)
        for cell in notebook.cells
        if cell.cell_type in ('code', 'markdown') and cell.source.strip() and not _is_warning(cell)
    ]


def _is_warning(cell: Any) -> bool:
    about = cell.metadata.get('lagent')
    return isinstance(about, dict) and about.get('role') == 'warning'


def _run(sources: Sequence[str], message: AgentMessage) -> Iterator[dict[str, Any]]:
    results = execution_results(message)
    for source, result in zip(sources, results, strict=False):
        if result.notices:
            yield _markdown('\n'.join(f'> {notice}' for notice in result.notices), 'notice')
        if result.outcome in _RUNS_AGAIN:
            yield _code(source, result)
        else:
            told = f'This code did not come to an end ({result.outcome}), so it is not run here:'
            yield _markdown(told, 'notice', source)
    yield from _not_run(sources[len(results) :])


def _not_run(sources: Sequence[str]) -> Iterator[dict[str, Any]]:
    for source in sources:
        yield _markdown('This code was not run:', 'notice', source)


def _code(source: str, result: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {'lagent': {'outcome': str(result.outcome)}}
    if not result.ok:
        metadata['tags'] = ['raises-exception']
    return {
        'cell_type': 'code',
        'execution_count': result.execution_count,
        'metadata': metadata,
        'source': source,
        'outputs': [_output(output, result) for output in result.outputs],
    }


def _output(output: Any, result: Any) -> dict[str, Any]:
    if output.kind in ('stdout', 'stderr'):
        return {'output_type': 'stream', 'name': output.kind, 'text': output.text}
    if output.kind == 'error':
        error = result.error
        return {
            'output_type': 'error',
            'ename': error.name if error else 'Error',
            'evalue': error.message if error else '',
            'traceback': output.text.splitlines(),
        }
    data = safe_bundle(output.data)
    if output.text or not data:
        data['text/plain'] = output.text
    if output.kind == 'result':
        count = result.execution_count
        return {
            'output_type': 'execute_result',
            'execution_count': count,
            'data': data,
            'metadata': {},
        }
    return {'output_type': 'display_data', 'data': data, 'metadata': {}}


def _markdown(text: str, role: str, code: str = '', language: str = 'python') -> dict[str, Any]:
    source = safe_markdown(text)
    if code:
        source += f'\n\n{fenced(code, language)}'
    return {'cell_type': 'markdown', 'metadata': {'lagent': {'role': role}}, 'source': source}


def _said(message: AgentMessage) -> dict[str, Any]:
    words, info = _words(message.content), message.extra_info
    if isinstance(info, dict) and info.get('cell') == 'markdown':
        return _markdown(words, 'markdown')
    if message.type:  # not the user's words, and laid out with spaces
        return _markdown(f'*{message.type}*', 'note', words, 'text')
    return _markdown(f'**{message.sender}:** {words}', 'question')


def _words(content: Any) -> str:
    if isinstance(content, list):
        return '\n'.join(str(part.get('text', '')) for part in content if isinstance(part, dict))
    return str(content).strip()
