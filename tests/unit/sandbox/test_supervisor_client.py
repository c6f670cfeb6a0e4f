"""The host's side of the supervisor protocol, against supervisors that lie."""

import asyncio
import json
import struct
import tempfile
from collections.abc import AsyncIterator, Callable

import pytest

from sandbox.errors import SandboxLost
from sandbox.kernel import supervisor as supervisor_module
from sandbox.kernel import workspace
from sandbox.kernel.framing import MAX_FRAME, Refusal
from sandbox.kernel.supervisor import Supervisor

OWN = {'ok': True, 'pid': 1, 'kernel': 'running', 'generation': 1}


def frame(message: object) -> bytes:
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    return struct.pack('>I', len(body)) + body


async def read_frame(reader: asyncio.StreamReader) -> dict:
    (length,) = struct.unpack('>I', await reader.readexactly(4))
    return json.loads(await reader.readexactly(length))


@pytest.fixture
async def guest(tmp_path):
    """Start a supervisor that answers each request with the bytes a function gives."""
    servers = []

    async def start(answer: Callable[[dict], bytes]) -> Supervisor:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while True:
                    request = await read_frame(reader)
                    if request['op'] == 'own':
                        writer.write(frame({**OWN, 'id': request['id']}))
                    else:
                        writer.write(answer(request))
            except (asyncio.IncompleteReadError, OSError):
                writer.close()

        path = f'{tmp_path}/ctl'
        servers.append(await asyncio.start_unix_server(serve, path))
        supervisor = await asyncio.wait_for(Supervisor.connect(path), 5)
        servers.append(supervisor)
        return supervisor

    yield start
    for server in reversed(servers):
        result = server.close()
        if result is not None:
            await result


async def test_answers_find_their_requests(guest):
    supervisor = await guest(lambda r: frame({'ok': True, 'id': r['id'], 'echo': r['n']}))
    answers = await asyncio.gather(*(supervisor.request('x', n=n) for n in range(10)))
    assert [answer['echo'] for answer in answers] == list(range(10))


async def test_a_refusal_is_an_error_with_a_code(guest):
    supervisor = await guest(lambda r: frame({'ok': False, 'id': r['id'], 'error': 'running'}))
    with pytest.raises(Refusal) as caught:
        await supervisor.request('start')
    assert caught.value.code == 'running'


async def test_an_answer_has_a_deadline(guest):
    supervisor = await guest(lambda _: b'')
    with pytest.raises(SandboxLost, match=r'within 0\.05 s'):
        await supervisor.request('status', patience=0.05)
    assert not supervisor.lost


async def test_a_cancellation_that_comes_with_the_answer_is_not_lost(guest):
    supervisor = await guest(lambda _: b'')
    asking = asyncio.create_task(supervisor.request('status'))
    await asyncio.sleep(0)  # until it waits
    (number,) = supervisor._waiting
    supervisor._answered({'ok': True, 'id': number})
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


@pytest.mark.parametrize(
    'data',
    [
        struct.pack('>I', MAX_FRAME + 1),
        frame(b'no json'),
        frame(b'[' * 100_000),
        frame(b'\xff\xfe'),
    ],
)
async def test_one_that_breaks_the_protocol_is_lost(guest, data):
    supervisor = await guest(lambda _: data)
    with pytest.raises(SandboxLost):
        await supervisor.request('status')
    await asyncio.wait_for(supervisor.gone(), 5)
    assert supervisor.lost
    with pytest.raises(SandboxLost):
        await supervisor.request('status')


@pytest.mark.parametrize('message', [[], 5, {'id': 'x'}, {'id': True}, {'event': 'hello'}, {}])
async def test_what_is_not_understood_is_ignored(guest, message):
    supervisor = await guest(lambda r: frame(message) + frame({'ok': True, 'id': r['id']}))
    assert (await supervisor.request('status'))['ok'] is True


async def test_a_death_is_told_with_its_circumstances(guest):
    event = {
        'event': 'exited',
        'generation': 1,
        'code': None,
        'signal': 9,
        'oom_kills': 2,
        'log': 'x' * 10_000,
    }
    supervisor = await guest(lambda r: frame(event) + frame({'ok': True, 'id': r['id']}))
    await supervisor.request('kill')
    await asyncio.wait_for(supervisor.gone(), 5)
    assert supervisor.exit[:4] == (1, None, 9, 2)
    assert len(supervisor.exit.log) == 4_096


async def test_the_news_of_an_old_kernel_is_forgotten_with_the_new_one(guest):
    def answer(request: dict) -> bytes:
        events = {'kill': frame({'event': 'exited', 'generation': 1, 'code': 'odd'})}
        reply = {'ok': True, 'id': request['id'], 'generation': 2}
        return events.get(request['op'], b'') + frame(reply)

    supervisor = await guest(answer)
    await supervisor.kill()
    assert supervisor.exit is not None
    assert supervisor.exit.code is None
    await supervisor.start()
    assert supervisor.exit is None
    assert supervisor.generation == 2


async def test_a_listing_takes_only_what_has_the_right_shape(guest):
    entries = [
        ['a', 1, 2, 'file', 3],
        ['b', -1, 'x', 'dir', None, 'digest'],
        ['c'],
        5,
        [1, 2, 3, 4, 5],
    ]
    supervisor = await guest(
        lambda request: frame({'id': request.get('id'), 'ok': True, 'entries': entries, 'more': 1})
    )
    first, second = ('a', 1, 2, 'file', 3, ''), ('b', 0, 0, 'dir', 0, 'digest')
    assert await supervisor.workspace.list('', 10) == ([first, second], True)
    assert (await supervisor.workspace.list('', 1))[0] == [first]


async def test_a_listing_that_takes_long_is_asked_for_on_a_connection_of_its_own(guest):
    def answer(request: dict) -> bytes:
        if 'id' in request:
            return frame({'id': request['id'], 'ok': False, 'error': 'not_quick'})
        return frame({'ok': True, 'entries': [['a', 1, 2, 'file', 3]], 'more': False})

    supervisor = await guest(answer)
    assert await supervisor.workspace.list('', 10) == ([('a', 1, 2, 'file', 3, '')], False)


async def test_a_listing_comes_in_frames_of_a_bounded_number(guest):
    asked = []

    def answer(request: dict) -> bytes:
        if 'id' in request:
            return frame({'id': request['id'], 'ok': False, 'error': 'not_quick'})
        asked.append(request['max'])
        page = {'ok': True, 'entries': [['a', 1, 2, 'odd', 3]] * 3, 'next': True}
        return frame(page) * 50 if request['max'] > 7 else frame(page) + frame({**page, 'next': 0})

    supervisor = await guest(answer)
    entries, more = await supervisor.workspace.list('', 7)
    assert (len(entries), more) == (6, False)
    assert entries[0].kind == 'other'
    entries, more = await supervisor.workspace.list('', 1_000)
    assert (len(entries), more) == (3 * workspace._MAX_PAGES, True)
    assert (await supervisor.workspace.list('', 10)) == (entries[:10], True)


async def test_a_write_of_which_nothing_is_told_is_not_believed(guest):
    async def chunks() -> AsyncIterator[bytes]:
        yield b''

    supervisor = await guest(lambda _: frame({'ok': True, 'entry': 5}))
    with pytest.raises(SandboxLost):
        await supervisor.workspace.write('a', 0, chunks())


async def test_a_file_that_is_larger_than_promised_is_refused(guest):
    supervisor = await guest(lambda _: frame({'ok': True, 'size': 1 << 40}))
    with pytest.raises(Refusal, match='bytes'):
        async for _ in supervisor.workspace.read('a', 10):
            pass


async def test_a_file_that_changed_while_it_was_read_is_refused(guest):
    data = frame({'ok': True, 'size': 3}) + b'abc' + frame({'ok': False, 'error': 'changed'})
    supervisor = await guest(lambda _: data)
    with pytest.raises(Refusal):
        async for _ in supervisor.workspace.read('a', 10):
            pass


async def test_a_write_that_is_refused(guest):
    async def chunks() -> AsyncIterator[bytes]:
        yield b''

    supervisor = await guest(lambda _: frame({'ok': False, 'error': 'no_space'}))
    with pytest.raises(Refusal) as caught:
        await supervisor.workspace.write('a', 0, chunks())
    assert caught.value.code == 'no_space'


async def test_an_open_file_is_written_whole(tmp_path):
    received = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await read_frame(reader)
        if request['op'] == 'own':
            writer.write(frame({**OWN, 'id': request['id']}))
        else:
            received.append(await reader.readexactly(request['size']))
            writer.write(frame({'ok': True, 'entry': ['other', 5, 6, 'file', 7, 'digest']}))
        await reader.read()
        writer.close()

    data = bytes(range(256)) * 20_000
    file = tmp_path / 'file'
    file.write_bytes(data)
    async with await asyncio.start_unix_server(serve, f'{tmp_path}/ctl'):
        supervisor = await Supervisor.connect(f'{tmp_path}/ctl')
        with file.open('rb') as source:
            written = await supervisor.workspace.write('a', len(data), source)
        await supervisor.close()
    assert received == [data]
    assert written == ('a', 5, 6, 'file', 7, 'digest')


async def test_a_reader_that_stands_still_ends_the_write_of_a_file(tmp_path, monkeypatch):
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await read_frame(reader)
        writer.write(frame({**OWN, 'id': request['id']}) if request['op'] == 'own' else b'')
        await over.wait()
        writer.close()

    monkeypatch.setattr(workspace, '_STALL', 0.1)
    with tempfile.TemporaryFile() as source:
        source.truncate(8 << 20)
        async with await asyncio.start_unix_server(serve, f'{tmp_path}/ctl'):
            supervisor = await Supervisor.connect(f'{tmp_path}/ctl')
            with pytest.raises(SandboxLost, match='stood still'):
                await supervisor.workspace.write('a', 8 << 20, source)
            over.set()
            await supervisor.close()


async def test_a_write_that_goes_on_and_on_has_a_deadline(guest, monkeypatch):
    async def chunks() -> AsyncIterator[bytes]:
        while True:
            await asyncio.sleep(0.01)
            yield b'x'

    monkeypatch.setattr(workspace, '_TRANSFER', 0.1)
    supervisor = await guest(lambda _: b'')
    async with asyncio.timeout(10):
        with pytest.raises(SandboxLost, match='too slow'):
            await supervisor.workspace.write('a', 1_000, chunks())


async def test_a_read_that_goes_on_and_on_has_a_deadline(guest, monkeypatch):
    monkeypatch.setattr(workspace, '_TRANSFER', 0.1)
    supervisor = await guest(lambda _: frame({'ok': True, 'size': 100}) + b'x')
    async with asyncio.timeout(10):
        with pytest.raises(SandboxLost, match='too slow'):
            async for _ in supervisor.workspace.read('a', 100):
                pass


async def test_what_was_preloaded_is_bounded_and_checked(guest):
    failed = {f'm{n}': 'x' * 1_000 for n in range(500)} | {'odd': 1}
    supervisor = await guest(
        lambda r: (
            frame({'ok': True, 'id': r['id']}) + frame({'event': 'preloaded', 'failed': failed})
        )
    )
    await supervisor.preload(['m0'])
    await asyncio.wait_for(supervisor.has_preloaded(), 5)
    assert len(supervisor.preloaded) == 65
    assert {len(reason) for reason in supervisor.preloaded.values()} == {200}


async def test_who_cannot_preload_says_so(guest):
    refusal = {'ok': False, 'error': 'ended', 'message': 'nobody there'}
    supervisor = await guest(lambda r: frame({**refusal, 'id': r['id']}))
    await supervisor.preload(['m'])
    await asyncio.wait_for(supervisor.has_preloaded(), 5)
    assert supervisor.preloaded == {'': 'nobody there'}


async def test_an_answer_says_something_of_the_present_for_a_moment(guest, monkeypatch):
    supervisor = await guest(lambda r: frame({'ok': True, 'id': r['id']}))
    await supervisor.probe()
    monkeypatch.setattr(supervisor_module, '_NOW', 60.0)
    assert supervisor.answers_now
    monkeypatch.setattr(supervisor_module, '_NOW', 0.0)
    assert not supervisor.answers_now
