"""Our reader of the wire against the real library, and against peers that break the rules."""

import asyncio
import contextlib
import socket
import struct
import time
from collections import Counter

import pytest
import zmq
import zmq.asyncio

from sandbox.kernel import zmtp
from sandbox.kernel.zmtp import Channel, Decoder, Message, ProtocolError

Inbox = asyncio.Queue[Message]
HELLO = zmtp.GREETING + zmtp.ready('DEALER')


def decode(*chunks: bytes, max_bytes: int = 1_000, max_frames: int = 8) -> list[Message]:
    decoder = Decoder(max_bytes, max_frames)
    return [message for chunk in (HELLO, *chunks) for message in decoder.feed(chunk)]


@pytest.fixture
def context():
    with zmq.asyncio.Context() as context:
        yield context


async def connect(path: str, kind: zmtp.SocketType, on_message, max_bytes: int = 1_000_000):
    loop = asyncio.get_running_loop()
    _, channel = await loop.create_unix_connection(
        lambda: Channel(kind, on_message, max_bytes), path
    )
    await asyncio.wait_for(asyncio.shield(channel.ready), 5)
    return channel


async def test_a_real_router_talks_with_us(context, tmp_path):
    router = context.socket(zmq.ROUTER)
    router.bind(f'ipc://{tmp_path}/s')
    received = Inbox()
    channel = await connect(f'{tmp_path}/s', 'DEALER', received.put_nowait)
    parts = [b'', b'a', b'b' * 70_000]
    channel.send(parts)
    name, *told = await router.recv_multipart()
    assert told == parts
    await router.send_multipart([name, *parts])
    assert await received.get() == Message(parts, 70_001, True)
    channel.close()
    await channel.closed
    router.close(0)


async def test_a_real_publisher_loses_nothing_behind_a_message_that_is_too_large(context, tmp_path):
    publisher = context.socket(zmq.XPUB)
    publisher.bind(f'ipc://{tmp_path}/s')
    received = Inbox()
    channel = await connect(f'{tmp_path}/s', 'SUB', received.put_nowait, max_bytes=1_000)
    assert await publisher.recv() == b'\x01'
    await publisher.send_multipart([b't', b'x' * 3_000_000])
    await publisher.send_multipart([b't', b'after'])
    assert await received.get() == Message([], 3_000_001, False)
    assert await received.get() == Message([b't', b'after'], 6, True)
    publisher.close(0)
    await asyncio.wait_for(channel.closed, 5)


def test_messages_of_one_and_many_parts():
    assert decode(zmtp.encode([b'a']), zmtp.encode([b'b', b'', b'c' * 300])) == [
        Message([b'a'], 1, True),
        Message([b'b', b'', b'c' * 300], 301, True),
    ]


def test_a_message_over_the_limit_is_counted_and_skipped():
    chunks = [zmtp.encode([b'a' * 600, b'b' * 600]), zmtp.encode([b'c'])]
    assert decode(*chunks) == [Message([], 1_200, False), Message([b'c'], 1, True)]


def test_a_message_of_endless_parts_takes_no_memory():
    decoder = Decoder(1_000, 8)
    list(decoder.feed(HELLO))
    part = b'\x01\x01x'
    for _ in range(100):
        assert list(decoder.feed(part * 1_000)) == []
    assert list(decoder.feed(b'\x00\x01x')) == [Message([], 100_001, False)]


def test_a_frame_that_claims_to_be_huge_takes_no_memory():
    decoder = Decoder(1_000)
    list(decoder.feed(HELLO + b'\x02' + struct.pack('>Q', 1 << 62)))
    for _ in range(100):
        assert list(decoder.feed(bytes(100_000))) == []
    assert len(decoder._buffer) == 0


@pytest.mark.parametrize(
    'data',
    [
        b'HTTP/1.1 200 OK\r\n\r\n',
        b'\xff' + bytes(9),
        zmtp.GREETING.replace(b'NULL', b'CURV'),
        zmtp.GREETING.replace(b'\x7f\x03', b'\x7f\x02'),
        zmtp.GREETING + zmtp.encode([b'too early']),
        HELLO + b'\x04\x06\x05ERROR',
        HELLO + b'\x06' + struct.pack('>Q', 1 << 40),
    ],
)
def test_peers_that_break_the_rules(data):
    with pytest.raises(ProtocolError):
        list(Decoder(1_000).feed(data))


async def test_a_peer_that_breaks_the_rules_is_disconnected(tmp_path):
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'no greeting at all')
        await reader.read()
        writer.close()

    async with await asyncio.start_unix_server(serve, f'{tmp_path}/s'):
        channel = await connect(f'{tmp_path}/s', 'DEALER', print)
        await asyncio.wait_for(channel.closed, 5)
        channel.send([b'ignored'])


async def test_many_messages_at_once_leave_room_for_the_rest_of_the_loop():
    loop = asyncio.get_running_loop()
    received, turn = [], 0

    async def watch() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    async def open_channel(number: int) -> tuple[Channel, socket.socket]:
        def receive(message: Message) -> None:
            received.append((turn, number, int(message.frames[0])))
            time.sleep(0.006)

        ours, theirs = socket.socketpair()
        _, channel = await loop.create_unix_connection(
            lambda: Channel('DEALER', receive, 1_000), sock=ours
        )
        theirs.sendall(HELLO)
        await channel.ready
        return channel, theirs

    opened = [await open_channel(number) for number in range(20)]
    watcher = asyncio.create_task(watch())
    for step in range(2):
        for _, theirs in opened:
            theirs.sendall(zmtp.encode([b'%d' % step]))
    for _, theirs in opened:
        theirs.close()  # what it has said is heard nevertheless
    async with asyncio.timeout(10):
        for channel, _ in opened:
            await channel.closed
    watcher.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watcher
    assert [step for number in range(20) for _, n, step in received if n == number] == [0, 1] * 20
    # Two such messages use up a turn; the two of one channel may be read together.
    assert max(Counter(turn for turn, _, _ in received).values()) <= 3
