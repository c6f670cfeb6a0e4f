"""`lagent doctor` and `lagent models`: what they find, and what they never show."""

import json
import subprocess
import sys
import threading
import time
import tomllib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

import lagent.llms
from lagent import cli, doctor
from lagent.doctor import EXTRAS, MODELS, served_models
from lagent.llms.errors import (
    AuthenticationFailed,
    BadReply,
    BadRequest,
    ModelTimeout,
    ModelUnavailable,
)

ROOT = Path(__file__).parents[2]
KEY = 'sk-never-shown'


@pytest.fixture
def server():
    """A server whose answer the test sets; it remembers the keys that it was sent."""
    seen = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append((self.path, self.headers.get('Authorization')))
            status, pieces = served.reply
            self.send_response(status)
            self.end_headers()
            for piece in pieces:
                try:
                    self.wfile.write(piece)
                    self.wfile.flush()
                except OSError:
                    return

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(('127.0.0.1', 0), Handler) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        served.url = f'http://127.0.0.1:{served.server_port}/v1'
        served.seen = seen
        yield served
        served.shutdown()


@pytest.fixture
def clean(monkeypatch, tmp_path):
    for variables in doctor.ENVIRONMENT.values():
        for variable in variables:
            monkeypatch.delenv(variable, raising=False)
    for name in ('OPENAI_API_KEY', 'ANTHROPIC_API_KEY'):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv('XDG_CONFIG_HOME', str(tmp_path))
    return monkeypatch


def drip():
    while True:
        time.sleep(0.05)
        yield b' '


def test_the_models_of_a_server(server):
    server.reply = 200, [json.dumps({'data': [{'id': 'a'}, {'id': 'b'}]}).encode()]
    assert served_models(f'{server.url}/', KEY, 30) == ['a', 'b']
    assert server.seen == [('/v1/models', f'Bearer {KEY}')]


@pytest.mark.parametrize(
    ('reply', 'error', 'words'),
    [
        ((401, [b'no']), AuthenticationFailed, 'status 401. Check OPENAI_API_KEY'),
        ((302, [b'']), BadRequest, 'status 302. Check that the base URL'),
        ((404, [b'no']), BadRequest, 'status 404. Check that the base URL .* /v1'),
        ((503, [b'no']), ModelUnavailable, 'status 503. .*again later'),
        ((200, [b'<html>']), BadReply, 'a list of models. Check that the base URL'),
        ((200, [b'{"data": [1]}']), BadReply, 'a list of models. Check that the base URL'),
        ((200, [b'[]']), BadReply, 'a list of models. Check that the base URL'),
        ((200, [b'x' * (1 << 20)] * 8), BadReply, 'longer than .* Check that the base URL'),
    ],
)
def test_a_server_that_gives_something_else(server, reply, error, words):
    server.reply = reply
    with pytest.raises(error, match=f'^{server.url} .*{words}'):
        served_models(server.url.replace('//', '//me:hunter2@'), KEY, 30)


def test_a_server_that_drips_has_a_deadline(server):
    server.reply = 200, drip()
    started = time.monotonic()
    with pytest.raises(ModelTimeout, match=rf'^{server.url} .*in 0\.5 s.*--deadline'):
        served_models(server.url, KEY, 0.5)
    assert time.monotonic() - started < 10


def test_the_command_lists_both_and_obeys_nobody(server, clean):
    server.reply = 200, [json.dumps({'data': [{'id': 'tiny\x1b[2J'}]}).encode()]
    clean.setenv('OPENAI_API_KEY', KEY)
    result = CliRunner().invoke(cli.app, ['models', '--base-url', server.url])
    assert result.exit_code == 0, result.output
    assert 'served: tiny\n' in result.output
    for name, _, _ in MODELS:
        assert name in result.output
    assert KEY not in result.output
    found = json.loads(CliRunner().invoke(cli.app, ['models', '--json']).stdout)
    assert found['served'] == []
    assert {'name': 'GPTAPI', 'usable': True, 'extra': None} in found['classes']


def test_a_server_that_is_not_there(clean):
    address = 'http://me:hunter2@127.0.0.1:9/v1'
    result = CliRunner().invoke(cli.app, ['models', '--base-url', address])
    assert result.exit_code == cli.MODEL_FAILED
    assert 'ModelUnavailable' in result.output
    said = ' '.join(result.output.split())
    assert 'No connection to http://127.0.0.1:9/v1 (ConnectError). Check the address' in said
    assert 'hunter2' not in said


def test_an_address_that_is_none_is_wrong_usage(clean):
    result = CliRunner().invoke(cli.app, ['models', '--base-url', 'me:hunter2@localhost:8000'])
    assert result.exit_code == cli.USAGE
    said = ' '.join(result.output.split())
    assert "'localhost:8000' is not the URL of a server, such as http://localhost:8000/v1" in said
    assert 'hunter2' not in said


def test_the_classes_and_extras_are_those_that_there_are():
    assert all(hasattr(lagent.llms, name) for name, _, _ in MODELS)
    declared = tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']
    assert set(EXTRAS) == set(declared['optional-dependencies']) - {'all', 'dev', 'bench'}


ENGINE = {'name': 'engine', 'status': 'ok', 'detail': 'x\x1b[2J', 'hint': ''}
SANDBOX = f'import json; print(json.dumps([{ENGINE}]))'


def test_the_doctor_names_a_key_and_never_shows_it(clean):
    clean.setattr(doctor, '_ASK_SANDBOX', ('-c', SANDBOX))
    result = CliRunner().invoke(cli.app, ['doctor', '--json'])
    assert result.exit_code == 1
    missing = [each['name'] for each in json.loads(result.stdout) if each['status'] == 'missing']
    assert missing == ['model']
    clean.setenv('OPENAI_API_KEY', KEY)
    result = CliRunner().invoke(cli.app, ['doctor'])
    assert result.exit_code == 0, result.output
    for words in ('OPENAI_API_KEY', 'is set', 'sandbox: engine', 'extras'):
        assert words in result.output
    assert KEY not in result.output
    assert '\x1b' not in result.output


def test_the_sandbox_is_asked_by_its_command(clean):
    asked = [sys.executable, *doctor._ASK_SANDBOX]
    said = subprocess.run(asked, capture_output=True, timeout=60, check=False)
    assert 'system' in {finding['name'] for finding in json.loads(said.stdout)}


def test_a_sandbox_that_says_nothing_is_found(clean):
    clean.setenv('OPENAI_API_KEY', KEY)
    silent = ('import time; time.sleep(60)', 0.5, 'did not end')
    for code, seconds, words in (silent, ('0', 60, 'failed')):
        clean.setattr(doctor, '_ASK_SANDBOX', ('-c', code))
        clean.setattr(doctor, '_SANDBOX_SECONDS', seconds)
        *_, last = doctor.examine()
        assert (last.status, words in last.detail) == ('missing', True)
