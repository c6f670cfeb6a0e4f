"""The example of a tested pipeline: it plays offline, and its cassettes are what is recorded."""

import json
import os
import shutil
import subprocess
import sys
import threading
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / 'examples' / 'ci_pipeline'
MEANS = """I will look at the means.
```python
import pandas as pd
table = pd.read_csv('sales.csv')
means = table.groupby('shop').revenue.mean()
means.plot.bar().figure.savefig('shops.png')
print(means.round(1))
```"""
SCRIPT: dict[str, list[str]] = {
    'Which shop of sales.csv sold more per day? Plot both.': [
        MEANS,
        'The north shop: 126.7 per day against 115.0. The plot is in shops.png.',
    ],
    'How many revenues are missing in sales.csv?': [
        "```python\nimport pandas as pd\nprint(pd.read_csv('sale.csv').revenue.isna().sum())\n```",
        "```python\nprint(pd.read_csv('sales.csv').revenue.isna().sum())\n```",
        'One value is missing (1 of 6).',
    ],
    'How many shops are in sales.csv?': [
        "```python\nimport pandas as pd\nprint(pd.read_csv('sales.csv').shop.nunique())\n```",
        'There are 2 shops.',
    ],
}


class Scripted(BaseHTTPRequestHandler):
    """A model behind OpenAI's protocol that knows three conversations."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers['content-length'])))
        turns = [message for message in asked['messages'] if message['role'] != 'system']
        replies = SCRIPT[turns[0]['content']]
        said = replies[sum(message['role'] == 'assistant' for message in turns)]
        usage = {
            'prompt_tokens': sum(len(message['content'].split()) for message in turns),
            'completion_tokens': len(said.split()),
        }
        # Whoever listens to a run gets what a model says as it says it.
        assert asked['stream'], 'a watched run is streamed'
        chunk = {
            'choices': [{'index': 0, 'delta': {'content': said}, 'finish_reason': 'stop'}],
            'usage': usage,
        }
        body = f'data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n'.encode()
        self.send_response(200)
        self.send_header('content-type', 'text/event-stream')
        self.send_header('content-length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    with ThreadingHTTPServer(('127.0.0.1', 0), Scripted) as httpd:
        thread = threading.Thread(target=httpd.serve_forever)
        thread.start()
        try:
            yield f'http://127.0.0.1:{httpd.server_port}/v1'
        finally:
            httpd.shutdown()
            thread.join()


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The example in a repository of its own."""
    return shutil.copytree(
        EXAMPLE, tmp_path / 'sales', ignore=shutil.ignore_patterns('__pycache__', '.pytest_cache')
    )


OFFLINE: dict[str, str] = {'DOCKER_HOST': 'unix:///nowhere.sock', 'LAGENT_RECORD': 'none'}


def run_tests(folder: Path, *options: str, **environ: str) -> subprocess.CompletedProcess[str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(('OPENAI_', 'PYTEST_', 'LAGENT_'))
    }
    plugins = ('-p', 'lagent.pytest_plugin', '-p', 'sandbox.pytest_plugin')
    return subprocess.run(
        [sys.executable, '-m', 'pytest', *plugins, '-q', *options],
        cwd=folder,
        env={**kept, 'PYTHONPATH': str(ROOT), **environ},
        capture_output=True,
        text=True,
        timeout=150,
    )


def cassettes_in(folder: Path) -> dict[str, bytes]:
    root = folder / 'tests' / 'cassettes'
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob('*'))
        if path.is_file()
    }


def test_it_passes_without_a_key_a_network_or_docker(copy: Path) -> None:
    done = run_tests(copy, '--junitxml=report.xml', **OFFLINE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert '4 passed' in done.stdout
    found = [
        (each.get('name'), each.get('value'))
        for each in ET.parse(copy / 'report.xml').iter('property')
    ]
    assert any(name == 'lagent.artifact' and 'shops.png' in value for name, value in found if value)
    assert ('lagent.model_calls', '3') in found


def test_it_passes_under_xdist(copy: Path) -> None:
    pytest.importorskip('xdist')
    done = run_tests(copy, '-n', '2', **OFFLINE)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_changed_table_name_fails_with_the_difference(copy: Path) -> None:
    tests = copy / 'tests' / 'test_report.py'
    tests.write_text(tests.read_text().replace('How many shops are in', 'How many towns are in'))
    done = run_tests(copy, **OFFLINE)
    assert done.returncode == 1
    assert '+  "content": "How many towns are in sales.csv?"' in done.stdout


def test_its_workflow_runs_what_is_tested_here() -> None:
    yaml = pytest.importorskip('yaml')
    workflow = yaml.safe_load((EXAMPLE / '.github' / 'workflows' / 'tests.yml').read_text())
    jobs = workflow['jobs']
    assert jobs['replay']['env'] == {**OFFLINE}
    steps = [step.get('run', '') for job in jobs.values() for step in job['steps']]
    assert 'pytest -n auto --junitxml=report.xml' in steps
    assert 'pytest --lagent-strict' in steps


def test_its_cassettes_are_small() -> None:
    sizes = {name: len(data) for name, data in cassettes_in(EXAMPLE).items()}
    assert sum(sizes.values()) < 30_000, sizes


@pytest.mark.docker
@pytest.mark.slow
def test_recording_it_gives_its_cassettes_and_strict_agrees(copy: Path, server: str) -> None:
    """With real containers; LAGENT_RENEW_EXAMPLE=1 keeps what is recorded as the example's."""
    shutil.rmtree(copy / 'tests' / 'cassettes', ignore_errors=True)
    done = run_tests(copy, '--lagent-record=all', OPENAI_BASE_URL=server)
    assert done.returncode == 0, done.stdout + done.stderr
    if os.environ.get('LAGENT_RENEW_EXAMPLE') == '1':
        shutil.rmtree(EXAMPLE / 'tests' / 'cassettes')
        shutil.copytree(copy / 'tests' / 'cassettes', EXAMPLE / 'tests' / 'cassettes')
    assert cassettes_in(copy) == cassettes_in(EXAMPLE)
    done = run_tests(copy, '--lagent-strict')
    assert done.returncode == 0, done.stdout + done.stderr
