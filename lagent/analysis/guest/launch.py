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
from typing import Any

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
sys.modules['guest.profile'].yield_to_others()
profiles = sys.modules['guest.profile'].profile_files(*request['arguments'])
json.dump(profiles, sys.stdout)
"""


def _look(request: dict[str, Any]) -> dict[str, Any]:
    folders = [os.curdir, *reversed(sys.path)]
    message = {
        'modules': request['modules'],
        'arguments': [request['names'], folders, request['seconds']],
    }
    try:
        done = subprocess.run(
            [sys.executable, '-I', '-c', _CHILD],
            input=json.dumps(message).encode(),
            capture_output=True,
            check=False,
            timeout=request['seconds'] * 2,
            env={**os.environ, 'OPENBLAS_NUM_THREADS': '1'},
        )
    except (OSError, subprocess.SubprocessError) as error:
        return {'error': f'{type(error).__name__}: {error}'[:1_000]}
    if done.returncode:
        reason = done.stderr.decode(errors='replace')[-1_000:]
        return {'error': reason or f'the process ended with {done.returncode}'}
    return {'profiles': json.loads(done.stdout)}


def _publish(request: dict[str, Any]) -> None:
    from IPython.display import publish_display_data

    publish_display_data({request['mime']: _look(request)})


_publish(json.loads(REQUEST))
