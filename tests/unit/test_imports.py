"""Importing is quick, loads nothing optional, and changes nothing."""

import json
import subprocess
import sys

import pytest

OPTIONAL = {
    *('torch', 'vllm', 'transformers', 'gguf', 'numpy', 'jinja2'),
    *('docker', 'zmq', 'jupyter_client', 'ipykernel', 'IPython', 'tornado'),
    *('nbformat', 'nh3', 'openpyxl', 'opentelemetry'),
    *('openai', 'anthropic', 'httpx', 'fastapi', 'typer', 'rich'),
}
SECONDS = 0.3
TRIES = 5

# Runs in a fresh interpreter, where nothing is loaded yet.
PROBE = """
import json, logging, signal, sys, threading, time, warnings
filters, handlers = list(warnings.filters), list(logging.getLogger().handlers)
started = time.perf_counter()
import {package}
elapsed = time.perf_counter() - started
print(json.dumps({{
    'seconds': elapsed,
    'modules': sorted({{name.partition('.')[0] for name in sys.modules}}),
    'threads': threading.active_count(),
    'warnings changed': warnings.filters[-len(filters):] != filters,
    'logging changed': logging.getLogger().handlers != handlers,
    'signals changed': signal.getsignal(signal.SIGINT) is not signal.default_int_handler,
}}))
"""


def probe(package: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, '-c', PROBE.format(package=package)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stderr == ''
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize('package', ['lagent', 'sandbox'])
def test_import_loads_nothing_optional_and_has_no_effects(package: str) -> None:
    found = probe(package)
    assert OPTIONAL.intersection(found['modules']) == set()  # type: ignore[call-overload]
    assert found['threads'] == 1
    assert not found['warnings changed']
    assert not found['logging changed']
    assert not found['signals changed']


@pytest.mark.parametrize('package', ['lagent', 'sandbox'])
def test_import_is_quick(package: str) -> None:
    fastest = SECONDS
    for _ in range(TRIES):  # the best of several: the machine may be busy
        fastest = min(fastest, float(probe(package)['seconds']))  # type: ignore[arg-type]
        if fastest < SECONDS:
            return
    pytest.fail(f'import {package} takes at least {SECONDS} s')
