"""Small rules of the page: names of hosts and files, links of one use, files of others."""

import asyncio
import hashlib
import re
import socket
from importlib import resources

import httpx
import pytest

from lagent.distributed.http_serve.client import is_loopback
from lagent.ui.app import Pages, safe_name
from lagent.ui.changes import Changes
from lagent.ui.live import event
from lagent.ui.security import Keys, is_own_host
from lagent.ui.server import _origin
from lagent.ui.sessions import Sessions


@pytest.mark.parametrize(
    ('header', 'bound', 'expected'),
    [
        ('127.0.0.1:80', '127.0.0.1', True),
        ('localhost:80', '127.0.0.1', True),
        ('[::1]:80', '127.0.0.1', True),
        ('127.0.0.1', '::1', True),
        ('evil.example', '127.0.0.1', False),
        ('192.168.1.2', '127.0.0.1', False),
        ('127.0.0.1.evil.example', '127.0.0.1', False),
        ('', '127.0.0.1', False),
        ('[', '127.0.0.1', False),
        ('192.168.1.2:80', '0.0.0.0', True),
        ('evil.example', '0.0.0.0', False),
        ('work.lan:80', 'work.lan', True),
        ('work.lan:80', 'Work.lan', True),
        ('WORK.lan:80', 'work.lan', True),
        ('machine-7:80', '0.0.0.0', True),
        ('machine-7:80', '0:0:0:0:0:0:0:0', True),
        ('machine-7:80', '127.0.0.1', False),
    ],
)
def test_a_name_that_strangers_can_lead_here_is_not_ours(monkeypatch, header, bound, expected):
    monkeypatch.setattr(socket, 'gethostname', lambda: 'Machine-7')
    assert is_own_host(header, bound) is expected


@pytest.mark.parametrize(
    'host', ['0.0.0.0', '::', '127.0.0.1', '::1', 'MyHost.lan', '192.168.1.2', '2001:db8::1']
)
async def test_the_link_that_is_printed_opens_the_page(monkeypatch, host):
    monkeypatch.setattr(socket, 'gethostname', lambda: 'Machine-7')
    keys = Keys()
    app = Pages(Sessions(None), keys, 'scripted').app(host)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app)) as browser:
        answer = await browser.get(keys.link(_origin(host, 8000)))
        assert answer.status_code == 200, answer.text
        assert keys.cookie in answer.headers['set-cookie']


def test_loopback():
    assert [is_loopback(each) for each in ('127.0.0.2', '::1', 'LocalHost')] == [True] * 3
    assert [is_loopback(each) for each in ('0.0.0.0', '::', 'work.lan', '')] == [False] * 4


def test_a_token_is_good_once():
    told = []
    keys = Keys(lambda: told.append(keys.token))
    token = keys.token
    assert not keys.use('')
    assert not keys.use('é')
    assert keys.use(token)
    assert not keys.use(token)
    assert told == [keys.token] != [token]
    assert keys.knows(keys.cookie)
    assert not keys.knows(None)
    assert Keys().base != keys.base


@pytest.mark.parametrize(
    ('name', 'expected'),
    [
        ('a.csv', 'a.csv'),
        ('folder/a.csv', 'a.csv'),
        ('a\r\nSet-Cookie: x', 'aSet-Cookie: x'),
        ('..\\..\\a.exe', '.._.._a.exe'),
        ('txt.\u202egpj.exe', 'txt.gpj.exe'),
        ('', 'file'),
        ('a' * 500, 'a' * 200),
    ],
)
def test_names_for_downloads(name, expected):
    assert safe_name(name) == expected


def test_no_text_breaks_out_of_an_event():
    lines = event('a\r\nid: 7\rdata: b\n\nevent: x', 3).splitlines()
    assert lines[0] == 'id: 3'
    assert all(line.startswith('data: ') for line in lines[1:] if line)


def test_files_of_others_are_the_ones_that_are_written_down():
    folder = resources.files('lagent.ui').joinpath('static', 'vendor')
    rows = re.findall(
        r'\| `(\S+)` \|.*\| `([0-9a-f]{64})` \|', folder.joinpath('README.md').read_text()
    )
    assert {name for name, _ in rows} == {
        file.name for file in folder.iterdir() if file.name.endswith(('.js', '.css'))
    }
    for name, digest in rows:
        assert hashlib.sha256(folder.joinpath(name).read_bytes()).hexdigest() == digest


async def test_changes_wake_who_waits():
    changes = Changes()
    assert not await changes.wait(0, 0.01)
    waiting = asyncio.create_task(changes.wait(0, 60))
    await asyncio.sleep(0)
    assert await asyncio.to_thread(changes.add) == 1
    assert await waiting
    assert await changes.wait(0, 0.01)  # known already
    assert not await changes.wait(1, 0.01)
    assert changes._waiting == set()
