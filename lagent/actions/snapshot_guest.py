"""What keeps a namespace, and brings it back, inside of the sandbox: it is sent there as a cell.

It knows nothing of lagent and needs nothing but the standard library and IPython. Pickles are made
and read here only. A snapshot is the data of all entries, then JSON that says what they are, then
the length of that JSON in eight bytes.
"""

import ast
import contextlib
import json
import linecache
import os
import pickle
import re
import sys
import time
import types
from typing import Any

MOST = 1_000  # entries; what is beyond is counted
LONGEST = 200  # characters of a name and of a reason
_SHELL = re.compile(r'_{1,3}|_i{1,3}|_i?\d+|_[iod]h|_exit_code|__\w+__')
_RESTORED = '<snapshot: {}>'
_DEFINITION = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Refused(Exception):
    """A value is not kept, for a reason of ours."""


class Writer:
    """Collects a pickle, up to a limit of bytes and of time."""

    def __init__(self, most: int, deadline: float) -> None:
        self.data, self._most, self._deadline = bytearray(), most, deadline

    def check_time(self) -> None:
        """Refuse to go on when the time is over."""
        if time.monotonic() > self._deadline:
            raise Refused('there was no time left for it')

    def write(self, piece: Any) -> int:
        """Add a piece; what a `pickle.Pickler` calls."""
        self.check_time()
        view = memoryview(piece)
        if len(self.data) + view.nbytes > self._most:
            raise Refused(f'it is larger than the {self._most:,} bytes that are left for it')
        self.data += view
        return view.nbytes


class Keeper(pickle.Pickler):
    """Pickles a value, unless it needs something of `__main__` that will not be there again."""

    def __init__(self, writer: Writer, defined: 'set[str]') -> None:
        super().__init__(writer, protocol=5)
        self._writer, self._defined = writer, defined

    def reducer_override(self, value: Any) -> Any:
        """See `pickle.Pickler`."""
        self._writer.check_time()
        if is_own(value) and value.__qualname__.partition('.')[0] not in self._defined:
            raise Refused(f'it needs {value.__qualname__}, which no cell defines at its top level')
        return NotImplemented


def is_own(value: Any) -> bool:
    """Whether a value is a function or class of the notebook itself."""
    is_defined = isinstance(value, type | types.FunctionType)
    return is_defined and getattr(value, '__module__', None) == '__main__'


def definitions(cells: 'list[str]') -> 'dict[str, str]':
    """The last source of each function and class that cells, or a snapshot, have defined."""
    prefix, suffix = _RESTORED.split('{}')
    found = {
        name[len(prefix) : -len(suffix)]: ''.join(entry[2])
        for name, entry in linecache.cache.items()
        if name.startswith(prefix) and len(entry) == 4
    }
    for cell in cells:
        try:
            tree = ast.parse(cell)
        except (SyntaxError, ValueError):
            continue  # it was never run
        lines = cell.splitlines(keepends=True)
        for node in tree.body:
            if isinstance(node, _DEFINITION):
                first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
                found[node.name] = ''.join(lines[first - 1 : node.end_lineno])
    return found


def save(
    namespace: 'dict[Any, Any]',
    hidden: 'dict[str, Any]',
    cells: 'list[str]',
    total: int,
    each: int,
    seconds: float,
) -> bytes:
    """The snapshot of a namespace; one entry for all names of one object."""
    deadline = time.monotonic() + seconds
    named: dict[int, list[str]] = {}
    for name, value in list(namespace.items()):  # threads may add to it
        is_shells = name in hidden and hidden[name] is value
        if isinstance(name, str) and not _SHELL.fullmatch(name) and not is_shells:
            named.setdefault(id(value), []).append(name)
    sources = definitions(cells)
    defined = {
        value.__qualname__
        for names in named.values()
        if is_own(value := namespace[names[0]])
        and value.__qualname__ in names
        and value.__qualname__ in sources
    }
    data, kept, lost = bytearray(), [], []
    groups = list(named.values())
    for names in groups[:MOST]:
        value = namespace[names[0]]
        shown = [name[:LONGEST] for name in names[:MOST]]
        about = {'names': shown, 'type': type(value).__name__[:LONGEST]}
        writer = Writer(min(each, total - len(data)), deadline)
        try:
            _check_names(shown, names)
            about['kind'] = _write(value, writer, sources, defined)
        except Exception as error:  # noqa: BLE001 - whatever a value does when it is pickled
            lost.append({**about, 'reason': _reason(error)})
        else:
            kept.append({**about, 'size': len(writer.data)})
            data += writer.data
    about_all = {'kept': kept, 'lost': lost, 'more': len(groups[MOST:])}
    return bytes(data) + _footed(about_all)


def _check_names(shown: 'list[str]', names: 'list[str]') -> None:
    if shown != names:
        raise Refused('it has too long a name, or too many')


def _write(value: Any, writer: Writer, sources: 'dict[str, str]', defined: 'set[str]') -> str:
    if isinstance(value, types.ModuleType):
        writer.write(value.__name__.encode())
        return 'module'
    if is_own(value):
        if value.__qualname__ not in defined:
            raise Refused('no cell defines it at its top level, so there is no source of it')
        writer.write(sources[value.__qualname__].encode())
        return 'source'
    Keeper(writer, defined).dump(value)
    return 'value'


def _footed(tree: object) -> bytes:
    text = json.dumps(tree).encode()
    return text + len(text).to_bytes(8, 'big')


def _reason(error: BaseException) -> str:
    words = str(error) if isinstance(error, Refused) else f'{type(error).__name__}: {error}'
    return words[:LONGEST]


def restore(namespace: 'dict[str, Any]', snapshot: bytes, seconds: float) -> bytes:
    """Make the values of a snapshot again, and return what was not possible, and why.

    What needs another one is tried again after it: a function its default, an object its class.
    """
    deadline = time.monotonic() + seconds
    end = len(snapshot) - 8
    about = json.loads(snapshot[end - int.from_bytes(snapshot[end:], 'big') : end])
    pending, start = [], 0
    for entry in about['kept']:
        pending.append((entry, snapshot[start : start + entry['size']]))
        start += entry['size']
    order = ('module', 'source', 'value')
    pending.sort(key=lambda pair: order.index(pair[0]['kind']))
    while pending:
        failed, reasons = [], []
        for entry, data in pending:
            try:
                Writer(0, deadline).check_time()
                _make(namespace, entry, data)
            except Exception as error:  # noqa: BLE001 - whatever a value does when it is made
                failed.append((entry, data))
                reasons.append({**entry, 'reason': _reason(error)})
        if len(failed) == len(pending):
            return _footed({'kept': [], 'lost': reasons, 'more': 0})
        pending = failed
    return _footed({'kept': [], 'lost': [], 'more': 0})


def _make(namespace: 'dict[str, Any]', entry: 'dict[str, Any]', data: bytes) -> None:
    names = entry['names']
    value: Any
    if entry['kind'] == 'module':
        __import__(data.decode())
        value = sys.modules[data.decode()]
    elif entry['kind'] == 'source':
        text = data.decode()
        (definition,) = ast.parse(text).body
        name = definition.name  # type: ignore[attr-defined]
        file = _RESTORED.format(name)
        exec(compile(text, file, 'exec'), namespace)  # noqa: S102 - it was code of this sandbox
        # For tracebacks, and for the next snapshot.
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        value = namespace[name]
    else:
        value = pickle.loads(data)  # noqa: S301 - in the sandbox that the code runs in anyway
    namespace.update(dict.fromkeys(names, value))


def main(action: str, name: str, seconds: float, total: int = 0, each: int = 0) -> None:
    """Replace the content of a file of the workspace by what comes of it."""
    from IPython import get_ipython

    shell = get_ipython()
    folders = [*reversed(sys.path), os.getcwd()]  # noqa: PTH109 - `pathlib` need not be loaded
    folder = next(each for each in folders if os.path.exists(os.path.join(each, name)))  # noqa: PTH110, PTH118
    with open(os.path.join(folder, name), 'r+b') as file:  # noqa: PTH118, PTH123
        if action == 'save':
            cells = shell.history_manager.input_hist_parsed
            answer = save(shell.user_ns, shell.user_ns_hidden, cells, total, each, seconds)
        else:
            answer = restore(shell.user_ns, file.read(), seconds)
        file.seek(0)
        file.truncate()
        file.write(answer)
    with contextlib.suppress(Exception):
        _forget(shell)


def _forget(shell: Any) -> None:
    """Take this cell out of what IPython has noted of it."""
    history, names = shell.history_manager, shell.user_ns
    history.input_hist_parsed[-1] = history.input_hist_raw[-1] = ''
    names.pop(f'_i{shell.execution_count}', None)
    history._i00, history._i, history._ii = history._i, history._ii, history._iii
    names.update(_i=history._i, _ii=history._ii, _iii=history._iii)
