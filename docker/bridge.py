"""One stream for all that host and sandbox say to each other, where they can share no sockets.

In gVisor a unix socket does not reach the host, and does not tell who is at its other end. So the
supervisor begins as root, with three capabilities, and divides itself at once. The first process
stays as the *bridge*, under a user id of its own: it alone holds the standard streams, whose other
ends the engine carries to the host. Its child becomes the supervisor, with the user id of the code.
They cannot be one user, for gVisor lets code open what any process of its own user has open,
dumpable or not. Neither has a capability left, or can get one back.

A frame is a kind (1 byte), a channel (4), a length (4), all big-endian, and up to 64 KiB. The host
begins with one HELLO: a JSON object with the connection file and the filter of system calls. Then
it OPENs channels to the supervisor (`ctl`) or to a socket of the kernel (`s-1`...); DATA goes
either way, as much as there is CREDIT for; CLOSE ends a channel. Standard library only.
"""

import base64
import contextlib
import ctypes
import json
import os
import selectors
import signal
import socket
import struct
from pathlib import Path
from typing import Any, NoReturn

HELLO, OPEN, DATA, CREDIT, CLOSE = range(5)
HEADER = struct.Struct('>BII')
MAX_PAYLOAD = 1 << 16
WINDOW = 1 << 19
"""Bytes that may be on their way in one direction of a channel."""
MAX_CHANNELS = 64
SUPERVISOR = 'ctl'
RETRY = 0.005
"""Seconds between attempts to reach a kernel that has not bound its sockets yet."""

_DROP_FROM_BOUNDING_SET, _NO_NEW_PRIVILEGES, _SECCOMP, _FILTER, _DUMPABLE = 24, 38, 22, 2, 4
_INSTRUCTION = 8  # bytes of a struct sock_filter


class Handover:
    """The supervisor's end: connections come from the bridge, and from nobody else."""

    def __init__(self, link: socket.socket, connection: dict[str, Any]) -> None:
        self._link, self._connection = link, connection
        self.setblocking, self.fileno, self.close = link.setblocking, link.fileno, link.close

    def accept(self) -> tuple[socket.socket, None]:
        """Return the next connection, like a listening socket."""
        _, descriptors, _, _ = socket.recv_fds(self._link, 1, 1)
        if not descriptors:
            raise ConnectionError('the bridge is gone')
        return socket.socket(fileno=descriptors[0]), None

    def renew(self, directory: Path) -> None:
        """Empty the folder of sockets, to which code could write, for a new kernel.

        Raises:
            RuntimeError: It cannot be emptied. That ends the supervisor: its sandbox is of no use.
        """
        try:
            _empty(directory)
            file = directory / 'connection.json'
            file.write_text(json.dumps(self._connection), encoding='ascii')
        except (OSError, RecursionError) as error:
            raise RuntimeError('the folder of sockets cannot be emptied') from error


def _empty(folder: Path) -> None:
    folder.chmod(0o711)
    for entry in list(os.scandir(folder)):
        path = Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            _empty(path)
            path.rmdir()
        else:
            path.unlink()


def divide(user: int, directory: Path) -> Handover:
    """Become the supervisor and return what it accepts from; the first process never returns.

    Args:
        user: User and group id of the supervisor and the code; the bridge gets the next one.
        directory: Folder of the kernel's sockets.
    """
    hello = json.loads(_read_hello())
    incoming, outgoing = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):
        os.dup2(nothing, number)
    os.close(nothing)
    ours, theirs = socket.socketpair()
    _give_up_capabilities()
    child = os.fork()
    if child == 0:
        for end in (incoming, outgoing):
            os.close(end)
        ours.close()
        _become(user)
        _filter_system_calls(base64.b64decode(hello['filter']))
        return Handover(theirs, hello['connection'])
    theirs.close()
    _become(user + 1)
    try:
        _Bridge(incoming, outgoing, ours, directory, child).run()
    finally:
        os._exit(1)


def _read_hello() -> bytes:
    kind, _, length = HEADER.unpack(_read_exactly(HEADER.size))
    if kind != HELLO:
        raise ValueError('the host did not begin with its greeting')
    return _read_exactly(length)


def _read_exactly(size: int) -> bytes:
    data = b''
    while len(data) < size:
        chunk = os.read(0, size - len(data))
        if not chunk:
            raise EOFError('the host is gone')
        data += chunk
    return data


def _prctl(option: int, *values: Any) -> int:
    arguments = [*values, 0, 0, 0, 0][:4]
    result: int = ctypes.CDLL(None, use_errno=True).prctl(
        option, *(ctypes.c_ulong(value) if type(value) is int else value for value in arguments)
    )
    return result


def _check(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _give_up_capabilities() -> None:
    capability = 0
    while _prctl(_DROP_FROM_BOUNDING_SET, capability) == 0:
        capability += 1


def _become(user: int) -> None:
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)  # the change takes the capabilities that are left
    _check(_prctl(_DUMPABLE, 0))
    _check(_prctl(_NO_NEW_PRIVILEGES, 1))


def _filter_system_calls(program: bytes) -> None:
    # gVisor does not load the engine's filter by itself; it is small, so it is applied in here.
    class Program(ctypes.Structure):
        _fields_ = (('length', ctypes.c_ushort), ('instructions', ctypes.c_char_p))

    filter_ = Program(len(program) // _INSTRUCTION, program)
    _check(_prctl(_SECCOMP, _FILTER, ctypes.byref(filter_)))


class _Channel:
    """A connection inside, and how much may still be sent for it to the host."""

    def __init__(self, number: int, target: str) -> None:
        self.number, self.target = number, target
        self.socket: socket.socket | None = None
        self.credit = WINDOW
        self.unsent = bytearray()


class _Bridge:
    """The event loop between the stream and the channels."""

    def __init__(
        self, incoming: int, outgoing: int, link: socket.socket, directory: Path, child: int
    ) -> None:
        self._incoming, self._outgoing, self._link = incoming, outgoing, link
        self._directory, self._child = directory, child
        self._received, self._unsent = bytearray(), bytearray()
        self._channels: dict[int, _Channel] = {}
        self._selector = selectors.DefaultSelector()
        self._wake, self._waker = socket.socketpair()

    def run(self) -> NoReturn:
        """Carry bytes until the host or the supervisor is gone."""
        for end in (self._wake, self._waker):
            end.setblocking(False)
        for descriptor in (self._incoming, self._outgoing):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        self._selector.register(self._wake, selectors.EVENT_READ, 'wake')
        self._selector.register(self._incoming, selectors.EVENT_READ, 'incoming')
        while True:
            waiting = [channel for channel in self._channels.values() if channel.socket is None]
            for key, ready in self._selector.select(RETRY if waiting else None):
                self._dispatch(key.data, ready)
            for channel in waiting:
                if channel.number in self._channels and channel.socket is None:
                    self._connect(channel)
            self._send()

    def _dispatch(self, source: '_Channel | str', ready: int) -> None:
        if source == 'wake':
            self._reap()
        elif source == 'incoming':
            self._receive()
        elif isinstance(source, _Channel) and source.number in self._channels:
            if ready & selectors.EVENT_WRITE:
                self._deliver(source)
            if ready & selectors.EVENT_READ and source.number in self._channels:
                self._collect(source)

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wake.recv(4096)
        while True:
            pid, _ = os.waitpid(-1, os.WNOHANG)  # orphans come to the first process
            if pid == self._child:
                os._exit(0)
            if pid == 0:
                return

    # The stream

    def _receive(self) -> None:
        try:
            data = os.read(self._incoming, MAX_PAYLOAD)
        except BlockingIOError:
            return
        if not data:
            os._exit(0)  # the host is gone, and it cannot come back
        self._received += data
        while len(self._received) >= HEADER.size:
            kind, number, length = HEADER.unpack_from(self._received)
            if len(self._received) < HEADER.size + length:
                return
            payload = bytes(self._received[HEADER.size : HEADER.size + length])
            del self._received[: HEADER.size + length]
            self._handle(kind, number, payload)

    def _handle(self, kind: int, number: int, payload: bytes) -> None:
        if kind == OPEN:
            self._open(number, payload.decode('ascii'))
        elif (channel := self._channels.get(number)) is None:
            return  # it ended while that was on its way
        elif kind == DATA:
            channel.unsent += payload
            self._deliver(channel)
        elif kind == CREDIT:
            channel.credit += int.from_bytes(payload)
            self._watch(channel)
        elif kind == CLOSE:
            self._forget(channel)

    def _queue(self, kind: int, number: int, payload: bytes = b'') -> None:
        self._unsent += HEADER.pack(kind, number, len(payload)) + payload

    def _send(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._unsent:
                del self._unsent[: os.write(self._outgoing, self._unsent)]
        watched = self._outgoing in self._selector.get_map()
        if self._unsent and not watched:
            self._selector.register(self._outgoing, selectors.EVENT_WRITE, 'outgoing')
        elif watched and not self._unsent:
            self._selector.unregister(self._outgoing)

    # Channels

    def _open(self, number: int, target: str) -> None:
        channel = self._channels[number] = _Channel(number, target)
        if len(self._channels) > MAX_CHANNELS:
            self._end(channel)
        elif target == SUPERVISOR:
            channel.socket, theirs = socket.socketpair()
            with theirs:
                socket.send_fds(self._link, [b'.'], [theirs.fileno()])
            self._connected(channel)
        else:
            self._connect(channel)

    def _connect(self, channel: _Channel) -> None:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.setblocking(False)
            connection.connect(str(self._directory / channel.target))
        except OSError:
            connection.close()
            return  # the kernel is not that far yet; the host says when to give up
        channel.socket = connection
        self._connected(channel)

    def _connected(self, channel: _Channel) -> None:
        assert channel.socket is not None
        channel.socket.setblocking(False)
        self._selector.register(channel.socket, selectors.EVENT_READ, channel)
        self._deliver(channel)

    def _watch(self, channel: _Channel) -> None:
        if channel.socket is None:
            return
        wanted = selectors.EVENT_READ if channel.credit > 0 else 0
        wanted |= selectors.EVENT_WRITE if channel.unsent else 0
        watched = channel.socket in self._selector.get_map()
        if watched and wanted:
            self._selector.modify(channel.socket, wanted, channel)
        elif watched:
            self._selector.unregister(channel.socket)
        elif wanted:
            self._selector.register(channel.socket, wanted, channel)

    def _deliver(self, channel: _Channel) -> None:
        if channel.socket is None:
            return
        delivered = 0
        try:
            while channel.unsent:
                sent = channel.socket.send(channel.unsent)
                del channel.unsent[:sent]
                delivered += sent
        except BlockingIOError:
            pass
        except OSError:
            channel.unsent.clear()  # what it said before it closed can still be read
        if delivered:
            self._queue(CREDIT, channel.number, delivered.to_bytes(4))
        self._watch(channel)

    def _collect(self, channel: _Channel) -> None:
        assert channel.socket is not None
        try:
            data = channel.socket.recv(min(MAX_PAYLOAD, channel.credit))
        except BlockingIOError:
            return
        except OSError:
            data = b''
        if not data:
            self._end(channel)
            return
        channel.credit -= len(data)
        self._queue(DATA, channel.number, data)
        self._watch(channel)

    def _end(self, channel: _Channel) -> None:
        self._queue(CLOSE, channel.number)
        self._forget(channel)

    def _forget(self, channel: _Channel) -> None:
        del self._channels[channel.number]
        if channel.socket is not None:
            if channel.socket in self._selector.get_map():
                self._selector.unregister(channel.socket)
            channel.socket.close()
