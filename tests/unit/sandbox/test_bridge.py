"""The host's end of a bridge, with a made-up sandbox at the other end of a socket pair."""

import asyncio
import contextlib
import json
import socket
import struct

import pytest

from sandbox.backends.bridge import Bridge
from sandbox.backends.frames import (
    CLOSE,
    CREDIT,
    DATA,
    HELLO,
    MAX_PAYLOAD,
    OPEN,
    WINDOW,
    BridgeError,
    Decoder,
    Demultiplexer,
    Frame,
    encode,
)

PATIENCE = 10


def mixed(data: bytes, stream: int = 1) -> bytes:
    """What the engine makes of a program's output."""
    return struct.pack('>BxxxI', stream, len(data)) + data


class Guest:
    """The far end of the engine's stream."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    async def open(self) -> 'Guest':
        self._reader, self._writer = await asyncio.open_connection(sock=self._end)
        return self

    async def frame(self) -> Frame:
        async with asyncio.timeout(PATIENCE):
            kind, channel, size = struct.unpack('>BII', await self._reader.readexactly(9))
            return Frame(kind, channel, await self._reader.readexactly(size))

    async def ended(self) -> bool:
        async with asyncio.timeout(PATIENCE):
            with contextlib.suppress(ConnectionError):
                while await self._reader.read(1 << 16):
                    pass
        return True

    def say(self, kind: int, channel: int, payload: bytes = b'', stream: int = 1) -> None:
        self._writer.write(mixed(encode(kind, channel, payload), stream))

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    async def leave(self) -> None:
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()


@contextlib.asynccontextmanager
async def bridged(folder):
    ours, theirs = socket.socketpair()
    bridge = await Bridge.open(ours, folder, {'connection': 1})
    guest = await Guest(theirs).open()
    try:
        hello = await guest.frame()
        assert (hello.kind, json.loads(hello.payload)) == (HELLO, {'connection': 1})
        yield bridge, guest
    finally:
        await bridge.close()
        await guest.leave()


@contextlib.asynccontextmanager
async def connected(folder, guest, target='ctl'):
    reader, writer = await asyncio.open_unix_connection(str(folder / target))
    try:
        opened = await guest.frame()
        assert (opened.kind, opened.payload) == (OPEN, target.encode())
        yield reader, writer, opened.channel
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def test_bytes_go_both_ways_and_are_credited(tmp_path):
    async with bridged(tmp_path) as (_, guest), connected(tmp_path, guest) as (reader, writer, at):
        writer.write(b'question')
        assert await guest.frame() == Frame(DATA, at, b'question')
        guest.say(DATA, at, b'answer')
        assert await reader.readexactly(6) == b'answer'
        assert await guest.frame() == Frame(CREDIT, at, (6).to_bytes(4))


async def test_channels_are_kept_apart(tmp_path):
    async with (
        bridged(tmp_path) as (_, guest),
        connected(tmp_path, guest, 'ctl') as (control, _, first),
        connected(tmp_path, guest, 's-2') as (output, _, second),
    ):
        guest.say(DATA, second, b'two')
        guest.say(DATA, first, b'one')
        assert await control.readexactly(3) == b'one'
        assert await output.readexactly(3) == b'two'


async def test_no_more_is_sent_than_there_is_credit_for(tmp_path):
    async with bridged(tmp_path) as (_, guest), connected(tmp_path, guest) as (_, writer, at):
        writer.write(bytes(WINDOW + 10))
        sent = 0
        while sent < WINDOW:
            sent += len((await guest.frame()).payload)
        assert sent == WINDOW
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await guest.frame()
        guest.say(CREDIT, at, (10).to_bytes(4))
        assert len((await guest.frame()).payload) == 10


@pytest.mark.parametrize(
    'attack',
    [
        lambda at: encode(DATA, at, bytes(MAX_PAYLOAD)) * 600,  # far more than there is room for
        lambda at: encode(CREDIT, at, (1).to_bytes(4)),
        lambda at: encode(DATA, at),  # costs no credit, so there could be any number of them
        lambda at: encode(OPEN, at, b'ctl'),
        lambda at: struct.pack('>BII', DATA, at, MAX_PAYLOAD + 1),
        lambda at: b'\xff' * 64,
    ],
)
async def test_who_does_not_keep_to_the_protocol_is_left(tmp_path, attack):
    # Nobody reads what comes, so that it stays in the way.
    async with bridged(tmp_path) as (_, guest), connected(tmp_path, guest) as (_, _, at):
        data = attack(at)
        guest.write(mixed(data))
        assert await guest.ended()


async def test_credit_that_the_sandbox_does_not_read_does_not_pile_up(tmp_path):
    async with bridged(tmp_path) as (bridge, guest), connected(tmp_path, guest) as (reader, _, at):
        count = 100_000  # its credits are several times what all buffers on their way hold
        guest.write(mixed(encode(DATA, at, b'x')) * count)
        with contextlib.suppress(TimeoutError):
            while True:
                async with asyncio.timeout(0.5):
                    count -= len(await reader.read(1 << 16))
        assert count > 0
        assert bridge._writer.transport.get_write_buffer_size() < 1 << 17


async def test_the_end_of_a_channel_comes_after_its_data(tmp_path):
    async with bridged(tmp_path) as (_, guest), connected(tmp_path, guest) as (reader, _, at):
        guest.say(DATA, at, b'last words')
        guest.say(CLOSE, at)
        guest.say(DATA, at, b'of a ghost')
        assert await reader.read() == b'last words'


async def test_the_end_of_the_sandbox_ends_all_connections(tmp_path):
    async with bridged(tmp_path) as (_, guest), connected(tmp_path, guest) as (reader, _, at):
        guest.say(DATA, at, b'last words')
        await guest.leave()
        assert await reader.read() == b'last words'
        with pytest.raises(OSError, match=r'refused|No such file'):
            await asyncio.open_unix_connection(str(tmp_path / 'ctl'))


async def test_a_connection_that_the_host_closes_is_closed_there(tmp_path):
    async with bridged(tmp_path) as (_, guest):
        async with connected(tmp_path, guest) as (_, _, at):
            pass
        assert await guest.frame() == Frame(CLOSE, at, b'')


async def test_what_the_first_program_says_is_kept_for_people(tmp_path):
    async with bridged(tmp_path) as (bridge, guest), connected(tmp_path, guest) as (reader, _, at):
        guest.write(mixed(b'Traceback...\n' * 1_000 + b'OSError: no\n', stream=2))
        guest.say(DATA, at, b'x')
        assert await reader.readexactly(1) == b'x'
        assert bridge.said == 'OSError: no'


def test_frames_are_found_however_the_bytes_come():
    frames = [Frame(DATA, 1, b'a'), Frame(CREDIT, 2, b'\0\0\0\1'), Frame(CLOSE, 3, b'')]
    stream = b''.join(encode(*frame) for frame in frames)
    for size in (1, 2, 7, len(stream)):
        decoder = Decoder()
        pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
        assert [frame for piece in pieces for frame in decoder.feed(piece)] == frames


def test_output_is_told_from_errors_however_the_bytes_come():
    stream = mixed(b'out') + mixed(b'err', 2) + mixed(b'put') + mixed(b'?', 7)
    for size in (1, 3, len(stream)):
        demultiplexer = Demultiplexer()
        pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
        assert b''.join(p for piece in pieces for p in demultiplexer.feed(piece)) == b'output'
        assert demultiplexer.said == b'err'


def test_a_frame_that_is_too_long_is_refused_by_its_header():
    with pytest.raises(BridgeError):
        list(Decoder().feed(struct.pack('>BII', DATA, 1, MAX_PAYLOAD + 1)))
