"""The cell that has files looked at, by a process of its own.

A file that takes all memory or time ends that process and not the kernel; nothing is imported into
the kernel, and no name is left in it. `REQUEST` is put in front of this source.
"""
# ruff: noqa: F821
# mypy: disable-error-code="name-defined"

import json
import os
import subprocess
import sys
import time
from typing import Any

_KILLED = -9

# Writes a line for each file as soon as it is known.
_CHILD = """
import json, sys, types
request = json.load(sys.stdin)
package = types.ModuleType('guest')
package.__path__ = []
sys.modules['guest'] = package
for name, source in request['modules'].items():
    module = types.ModuleType(f'guest.{name}')
    module.__package__ = 'guest'
    sys.modules[module.__name__] = module
    exec(compile(source, f'<{name}>', 'exec'), vars(module))
profile = sys.modules['guest.profile']
profile.yield_to_others()
for name in request['names']:
    print(json.dumps([name, profile.profile_named(name, request['folders'])]), flush=True)
"""


def _run(request: dict[str, Any], names: list[str], seconds: float) -> tuple[dict[str, Any], str]:
    message = {
        'modules': request['modules'],
        'names': names,
        'folders': [os.curdir, *reversed(sys.path)],
    }
    try:
        done = subprocess.run(
            [sys.executable, '-I', '-c', _CHILD],
            input=json.dumps(message).encode(),
            capture_output=True,
            check=False,
            timeout=seconds,
            env={**os.environ, 'OPENBLAS_NUM_THREADS': '1'},
        )
        output, code, words = done.stdout, done.returncode, done.stderr
    except subprocess.TimeoutExpired as error:
        output, code, words = error.stdout or b'', 1, b'it takes too long'
    reason = words.decode(errors='replace').strip()[-500:] or f'the process ended with {code}'
    if code == _KILLED:
        reason = 'it was killed, which happens when it takes too much memory'
    lines = [line for line in output.split(b'\n')[:-1] if line]
    return dict(map(json.loads, lines)), reason if code else ''


def _look(request: dict[str, Any]) -> dict[str, Any]:
    profiles: dict[str, Any] = {}
    deadline = time.monotonic() + request['seconds']
    left = list(request['names'])
    while left and (seconds := deadline - time.monotonic()) > 0:
        found, reason = _run(request, left, seconds)
        profiles.update(found)
        left = [name for name in left if name not in found]
        if not left:
            break
        # The process went down with the first file that it had no answer for.
        profiles[left.pop(0)] = {'error': f'it could not be looked at: {reason}'}
    for name in left:
        profiles[name] = {'error': 'there was no time to look at it'}
    return profiles


def _publish(request: dict[str, Any]) -> None:
    from IPython.display import publish_display_data

    found: dict[str, Any]
    try:
        found = {'profiles': _look(request)}
    except Exception as error:  # noqa: BLE001 - the code of the session may have changed anything
        found = {'error': f'{type(error).__name__}: {error}'[:1_000]}
    publish_display_data({request['mime']: found})


_publish(json.loads(REQUEST))
