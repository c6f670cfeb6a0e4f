"""The cell that looks at files inside a sandbox, and what its result says."""

import json
from collections.abc import Iterable, Sequence
from importlib import resources
from typing import Any

from lagent.analysis.profiles import FileProfile, parse_profile

MODULES = (
    'words',
    'encodings',
    'columns',
    'delimited',
    'documents',
    'images',
    'containers',
    'compressed',
    'profile',
)
"""The guest's modules, in the order in which they import one another."""

MIME = 'application/vnd.lagent.profiles+json'
SECONDS = 10.0  # how long the look at all files of one cell may take
MOST = 50  # files that one cell looks at


def look_code(names: Sequence[str]) -> str:
    """The cell that looks at files.

    It works in a namespace of its own, whose names the user's code never sees.

    Args:
        names: paths in the workspace.

    Returns:
        The code.
    """
    guest = resources.files('lagent.analysis.guest')
    modules = {name: guest.joinpath(f'{name}.py').read_text('utf-8') for name in MODULES}
    request = {'names': list(names), 'modules': modules, 'mime': MIME, 'seconds': SECONDS}
    launch = guest.joinpath('launch.py').read_text('utf-8')
    source = f'REQUEST = {json.dumps(request)!r}\n{launch}'
    run = f"exec(compile({source!r}, '<look>', 'exec'), {{'__name__': 'look'}})"
    return f"__import__('builtins').{run}"


def found_profiles(result: Any, files: Iterable[tuple[str, int]]) -> list[FileProfile]:
    """The profiles that a look gave.

    Args:
        result: the `ExecutionResult` of `look_code`.
        files: paths and sizes of the files, as the host knows them.

    Returns:
        One profile a file, in order, whatever the cell has put out.
    """
    found: dict[str, Any] = {}
    reason = ''
    for output in result.outputs:
        data = output.data.get(MIME)
        if isinstance(data, dict) and isinstance(data.get('profiles'), dict):
            found = data['profiles']
        elif isinstance(data, dict) and 'error' in data:
            reason = f'it could not be looked at: {data["error"]}'
    if not found and not result.ok:
        reason = f'it could not be looked at: the look ended with {result.outcome}'
    return [
        parse_profile(path, size, found.get(path, {'error': reason} if reason else None))
        for path, size in files
    ]
