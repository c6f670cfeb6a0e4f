"""`lagent ui` as a program."""

import re
import signal
import stat
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import httpx
import pytest
from rich.console import Console

from lagent.errors import ConfigError
from lagent.ui import server

from .conftest import wait_until

pytestmark = pytest.mark.server

PROGRAM = """
import sys
from lagent import cli
from lagent.llms import ScriptedModel, from_env
from_env.model_from_env = lambda model, *_: ScriptedModel(['Hi.'], path=model)
sys.argv = ['lagent', 'ui', *sys.argv[1:]]
cli.main()
"""


@pytest.fixture
def command(tmp_path):
    started = []

    def start(*arguments):
        process = subprocess.Popen(
            [sys.executable, '-c', textwrap.dedent(PROGRAM), *map(str, arguments)],
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env={'PATH': '', 'XDG_CONFIG_HOME': str(tmp_path), 'PYTHONPATH': ':'.join(sys.path)},
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stderr.close()


def link_of(process):
    for line in process.stderr:
        if found := re.search(r'http://\S+', line):
            return found[0]
    raise AssertionError('no link was printed')


@pytest.mark.parametrize('sent', [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_told_to_end(command, tmp_path, sent):
    (tmp_path / 'lagent.toml').write_text("model = 'of-the-folder'\n")  # as for `lagent chat`
    (tmp_path / 'a.csv').write_text('a\n1\n')
    arguments = ('a.csv', '--no-browser', '--backend', 'local', '--unsafe')
    process = command(*arguments)
    link = link_of(process)
    assert link.startswith('http://127.0.0.1:')
    with httpx.Client() as client:
        entered = client.get(link)
        target = re.search(r'url=([^"]+)', entered.text)[1]
        page = client.get(httpx.URL(link).join(target))
        assert 'of-the-folder' in page.text
        base = str(page.url).rstrip('/')
        wait_until(lambda: 'a.csv' in client.get(f'{base}/').text)
        # A page that is open does not hold it up.
        with client.stream('GET', f'{base}/live') as stream:
            next(stream.iter_lines())
            process.send_signal(sent)
            assert process.wait(60) == 0
    rest = process.stderr.read()
    assert 'For another browser' in rest
    assert 'Traceback' not in rest


def test_an_address_that_is_taken_is_told(command):
    first = command('--no-browser', '--backend', 'local', '--unsafe', '--model', 'm')
    port = httpx.URL(link_of(first)).port
    second = command('--no-browser', '--model', 'm', '--port', port)
    assert second.wait(60) == 2
    assert 'can not be listened at' in second.stderr.read()
    with pytest.raises(ConfigError, match='can not be listened at'):
        server._listening('no.such.host.invalid', 0)


def test_the_browser_is_opened_by_a_file_that_others_can_not_read(monkeypatch):
    opened = threading.Event()

    def open_(address):
        path = Path(address.removeprefix('file://'))
        open_.text, open_.folder = path.read_text(), path.parent
        open_.mode = stat.S_IMODE(path.parent.stat().st_mode)
        opened.set()

    monkeypatch.setattr('webbrowser.open', open_)
    link = 'http://127.0.0.1:1/x/enter?token=a&b="'
    with server._opened(link, wanted=True):
        assert opened.wait(60)
        assert open_.mode == 0o700
        assert 'token=a&amp;b=&#34;' in open_.text
    assert not open_.folder.exists()
    with server._opened(link, wanted=False):
        pass


def test_an_open_address_is_warned_of(monkeypatch):
    monkeypatch.setattr(server._Server, 'run', lambda self, sockets: None)
    printed = Console(record=True, file=open('/dev/null', 'w'), width=200)  # noqa: SIM115, PTH123

    class Analyst:
        class agent:
            llm = None

        def reset(self, session):
            pass

    for host in ('127.0.0.1', '0.0.0.0'):
        server.serve(Analyst(), host=host, open_browser=False, console=printed)
        assert ('no encryption' in printed.export_text()) is (host == '0.0.0.0')
    printed.file.close()
