"""The connections of a supervisor: what they have sent, what they are yet to receive, whose it is.

A frame is a 4-byte big-endian length and a JSON object of at most 1 MiB. One connection is the
*owner's*. Every other one has a few seconds to say what it wants; none is ever waited for.
"""

import json
import selectors
import socket
import struct
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from . import frames

MAX_WAITING = 8
MAX_UNSENT = 1 << 20
FIRST_REQUEST = 10.0
"""Seconds within which a new connection must have said what it wants."""


class Peer:
    """A connection: what it has sent so far and what it has yet to receive."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.deadline = time.monotonic() + FIRST_REQUEST
        self.received = bytearray()
        self.unsent = bytearray()
        self.wanted = selectors.EVENT_READ

    def next_request(self) -> dict[str, Any] | None:
        """Return the next complete request.

        Raises:
            ValueError: the peer does not keep to the protocol.
        """
        if len(self.received) < 4:
            return None
        (length,) = struct.unpack_from('>I', self.received)
        if length > frames.MAX_FRAME:
            raise ValueError(f'a frame of {length} bytes')
        if len(self.received) < 4 + length:
            return None
        request = json.loads(self.received[4 : 4 + length])
        del self.received[: 4 + length]
        if isinstance(request, dict) and isinstance(request.get('op'), str):
            return request
        raise ValueError('a request is an object with an op')


class Peers:
    """All connections, and the socket that new ones come from.

    Args:
        selector: Where they are registered, with what is to be called as data.
        listener: The socket, or what stands for it.
        may_ask: Tells whether a new connection is let in.
        answer: Called with each request and whose it is.

    Attributes:
        owner: The connection that the sandbox belongs to, if there is one.
        unowned_since: When there was none any more, on the monotonic clock.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        listener: Any,
        may_ask: Callable[[socket.socket], bool],
        answer: Callable[[Peer, dict[str, Any]], None],
    ) -> None:
        self._selector, self._listener = selector, listener
        self._may_ask, self._answer = may_ask, answer
        self._waiting: set[Peer] = set()
        self.owner: Peer | None = None
        self.unowned_since = time.monotonic()

    def listen(self) -> None:
        """Let connections come."""
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def deadlines(self) -> list[float]:
        """Return when `expire` will find something to do."""
        return [peer.deadline for peer in self._waiting]

    def expire(self) -> None:
        """Drop those that have not said in time what they want."""
        now = time.monotonic()
        for peer in [peer for peer in self._waiting if peer.deadline <= now]:
            self.drop(peer)

    def own(self, peer: Peer) -> None:
        """Make a connection the owner's."""
        self._waiting.discard(peer)
        self.owner = peer

    def drop(self, peer: Peer) -> None:
        """Close a connection; once is enough."""
        if peer.socket.fileno() < 0:
            return
        self._selector.unregister(peer.socket)
        peer.socket.close()
        self._waiting.discard(peer)
        if peer is self.owner:
            self.owner = None
            self.unowned_since = time.monotonic()

    def refuse(self, peer: Peer, request: dict[str, Any], code: str, message: str) -> None:
        """Say why a request is not answered, and drop the connection."""
        refusal = {'id': request.get('id'), 'ok': False, 'error': code, 'message': message}
        self.send(peer, refusal)
        self.drop(peer)

    def report(self, event: dict[str, Any]) -> None:
        """Tell the owner something that it has not asked for."""
        if self.owner:
            self.send(self.owner, event)

    def send(self, peer: Peer, message: dict[str, Any]) -> None:
        """Send a message as soon as it can be sent."""
        if peer.socket.fileno() < 0:
            return
        peer.unsent += frames.encode_frame(message)
        self._flush(peer)

    def leave(self, keep: Peer | None) -> None:
        """In a child: close them all but one."""
        self._listener.close()
        for peer in (self._waiting | ({self.owner} if self.owner else set())) - {keep}:
            peer.socket.close()

    def _accept(self, _: int) -> None:
        try:
            connection, _address = self._listener.accept()
        except OSError:
            return
        if not self._may_ask(connection) or len(self._waiting) >= MAX_WAITING:
            connection.close()
            return
        connection.setblocking(False)
        peer = Peer(connection)
        self._waiting.add(peer)
        self._selector.register(connection, selectors.EVENT_READ, partial(self._serve, peer))

    def _serve(self, peer: Peer, ready: int) -> None:
        if ready & selectors.EVENT_WRITE:
            self._flush(peer)
        if ready & selectors.EVENT_READ:
            self._receive(peer)

    def _receive(self, peer: Peer) -> None:
        try:
            data = peer.socket.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b''
        if not data:
            self.drop(peer)
            return
        peer.received += data
        try:
            while peer.socket.fileno() >= 0 and (request := peer.next_request()) is not None:
                self._answer(peer, request)
        except (ValueError, RecursionError):
            self.drop(peer)

    def _flush(self, peer: Peer) -> None:
        try:
            while peer.unsent:
                del peer.unsent[: peer.socket.send(peer.unsent)]
        except BlockingIOError:
            pass
        except OSError:
            self.drop(peer)
            return
        if len(peer.unsent) > MAX_UNSENT:
            self.drop(peer)
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if peer.unsent else 0)
        if wanted != peer.wanted:
            peer.wanted = wanted
            self._selector.modify(peer.socket, wanted, partial(self._serve, peer))
