"""What a kernel puts out: streams that lose nothing, and a way out without a detour.

A stock kernel hands every message to a thread of its own and waits for that thread six times in a
cell. The two share one interpreter lock, so that this is most of what a small cell takes.
"""

import codecs
import os
import select
import signal
import threading
import time
from collections import deque
from typing import Any

import zmq
from ipykernel.iostream import IOPubThread, OutStream

from .messages import send_parts
from .record import LastCell


class Publisher(IOPubThread):
    """Sends what is published on the thread that publishes it; one sends at a time, in order.

    What is published meanwhile is sent by the thread that sends. The thread of its own is left for
    what has to happen later. An interrupt waits until a message is complete, for half of one would
    spoil the next.
    """

    MOST_WAITING = 64
    PATIENCE = 1.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._outbox: deque[tuple[list[bytes], bool]] = deque()
        self._sending = threading.Lock()
        self._sender = 0
        self.uninterrupted = Uninterrupted(self)
        self.kept: LastCell | None = None
        self.forget()
        super().__init__(*args, **kwargs)

    def send_multipart(self, parts: list[bytes], copy: bool = True) -> None:
        """Send a message, or leave it to whoever is sending."""
        if self._check_mp_mode():
            self._really_send(parts, copy=copy)  # a forked child has no part in this
            return
        if self.kept is not None:
            self.kept.add(parts)
        self._outbox.append((parts, copy))
        self._send_out()

    def _send_out(self) -> None:
        me = threading.get_ident()
        with self.uninterrupted:
            # Looked at again after the release: somebody may have relied on the holder just then.
            while self._outbox and self._sender != me:
                patience = self.PATIENCE if len(self._outbox) > self.MOST_WAITING else 0.0
                if not self._sending.acquire(timeout=patience):
                    return
                self._sender = me
                try:
                    while self._outbox:
                        parts, copy = self._outbox.popleft()
                        if not self.closed:
                            send_parts(self.socket, parts, copy)
                finally:
                    self._sender = 0
                    self._sending.release()

    def _setup_xpub_listener(self) -> None:
        """Leave it to the main thread: each message sent would wake this one."""

    def welcome(self, *_: Any) -> None:
        """Greet new subscribers. The socket tells of them once, to whoever uses it next."""
        with self.uninterrupted, self._sending:
            while not self.closed and self.socket.EVENTS & zmq.POLLIN:
                self._handle_subscription(self.socket.recv_multipart())
        self._send_out()  # somebody may have relied on this thread

    # Interrupts, which are the main thread's

    def on_interrupt(self, number: int, frame: Any) -> None:
        """Handle SIGINT."""
        if self._held:
            self._interrupted = True
        else:
            signal.default_int_handler(number, frame)

    def hold(self) -> None:
        """Let interrupts wait."""
        self._held += 1

    def let_go(self) -> None:
        """Let interrupts wait no longer.

        Raises:
            KeyboardInterrupt: There was one.
        """
        self._held -= 1
        if not self._held and self._interrupted:
            self._interrupted = False
            raise KeyboardInterrupt

    def forget(self) -> None:
        """Begin anew: nothing is interrupted any more."""
        self._held, self._interrupted = 0, False


class Uninterrupted:
    """A block at whose end interrupts are let through; they reach the main thread only."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher, self._main = publisher, threading.main_thread().ident

    def __enter__(self) -> None:
        if threading.get_ident() == self._main:
            self._publisher.hold()

    def __exit__(self, *_: object) -> None:
        if threading.get_ident() == self._main:
            self._publisher.let_go()


class Stream(OutStream):
    """An output stream that has taken everything from its pipe when a cell is reported as ended.

    What child processes and libraries write to descriptor 1 or 2 comes through a pipe, read by a
    thread. The cell may be over before that thread runs, and the next one would get the output.

    And no message is larger than the host wants to read: what is printed at once, or faster than
    it is sent, goes out in pieces.
    """

    PIECE = 1 << 18
    CHUNK, MOST_CHUNKS = 1 << 16, 16  # together as much as a pipe can hold
    CHILD = 0.0002  # seconds in which no child can have come and gone

    def write(self, string: str) -> int:
        """Write a text; the first line in a while is sent at once."""
        if not isinstance(string, str):
            raise TypeError(f'write() argument must be str, not {type(string).__name__}')
        now = time.monotonic()
        if now - self._written > self.CHILD and self._is_master_process():
            self.drain()  # what a child wrote meanwhile comes before it
        self._written = now
        self._put(string, now)
        return len(string)

    def _put(self, string: str, now: float) -> None:
        for start in range(0, len(string), self.PIECE):
            piece = string[start : start + self.PIECE]
            super().write(piece)
            self._unsent += len(piece)
            if self._unsent >= self.PIECE:
                self.flush()
        if string.endswith('\n') and now - self._flushed > self.flush_interval:
            self.flush()
        elif self._buffers:
            super()._schedule_flush()

    def flush(self) -> None:
        """Send what was written."""
        self._flush()

    def _schedule_flush(self) -> None:
        """Leave it to `write`, which has seen the text."""

    def _flush(self) -> None:
        if not self._is_master_process():
            super()._flush()
            return
        if not self._buffers and not self._taking:
            return
        # What one thread has taken out must be on its way before another publishes what follows.
        with self.pub_thread.uninterrupted, self._flushing:
            self._taking = True
            self._flushed, self._unsent = time.monotonic(), 0
            super()._flush()
            self._taking = False

    def fileno(self) -> int:
        """Return the captured descriptor, so that what children write to it is seen."""
        return int(self._original_stdstream_fd)

    def drain(self) -> None:
        """Take what was written to the pipe until now."""
        with self.pub_thread.uninterrupted, self._draining:
            for _ in range(self.MOST_CHUNKS):
                try:
                    data = os.read(self._fid, self.CHUNK)
                except BlockingIOError:
                    return
                self._put(self._decoder.decode(data), time.monotonic())

    def _setup_stream_redirects(self, name: str) -> None:
        self._unsent, self._flushed, self._written = 0, 0.0, 0.0
        self._flushing, self._taking = threading.RLock(), False
        self._draining = threading.Lock()
        self._decoder = codecs.getincrementaldecoder('utf-8')('replace')
        super()._setup_stream_redirects(name)

    def _watch_pipe_fd(self) -> None:
        os.set_blocking(self._fid, False)
        poll = select.poll()
        poll.register(self._fid, select.POLLIN)
        while self._should_watch:
            poll.poll()
            self.drain()
            # Else this thread would have the lock again before anybody who waits for it.
            time.sleep(0.001)
