"""The first program of a sandbox: has a kernel forked, watches it, and answers the host.

It listens on a unix socket beside the kernel's own sockets. A frame is a 4-byte big-endian length
and a JSON object of at most 1 MiB; a `size` in the object announces that many raw bytes behind it.

One connection is the *owner's*: it asks `own`, then may `signal`, `kill`, `start`, `stop` or `list`
a small workspace, and is told `exited` as soon as the kernel has ended. Other connections carry one
file operation each (see `files.py`) and are served by a child process, so that this loop never
waits for anybody.

Without an owner for `--orphan-grace` seconds everything ends by itself. Standard library only.
"""

import argparse
import importlib
import os
import select
import selectors
import signal
import socket
import struct
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

MAX_HELPERS = 8

# Python's isolated mode keeps the folder of the program off sys.path: make it a package.
PACKAGE = ModuleType('sandbox_guest')
PACKAGE.__path__ = [str(Path(__file__).resolve().parent)]
sys.modules[PACKAGE.__name__] = PACKAGE


def _sibling(name: str) -> ModuleType:
    return importlib.import_module(f'{PACKAGE.__name__}.{name}')


files = _sibling('files')
frames = _sibling('frames')
peers = _sibling('peers')
processes = _sibling('processes')
session = _sibling('session')


class Supervisor:
    """The event loop and what it looks after."""

    def __init__(self, options: argparse.Namespace, handover: Any = None) -> None:
        self._options = options
        self._handover = handover
        self._listener = handover or socket.socket(socket.AF_UNIX)
        self._wake, self._waker = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._peers = peers.Peers(self._selector, self._listener, self._may_ask, self._answer)
        self._session = session.Session(
            options, handover, self._selector, self._peers.report, self._leave
        )
        self._helpers: set[int] = set()
        self._stopping = False

    def run(self) -> None:
        """Serve until told to stop or left alone."""
        self._watch_signals()
        self._listen()
        self._session.start()
        while not self._stopping:
            for key, ready in self._selector.select(self._tick()):
                key.data(ready)
            self._expire()
        self._session.kill(set(), self._pause, zygote_too=True)

    def _watch_signals(self) -> None:
        self._wake.setblocking(False)
        self._waker.setblocking(False)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._selector.register(self._wake, selectors.EVENT_READ, self._woken)

    def _listen(self) -> None:
        if self._handover is None:
            path = self._options.dir / 'ctl'
            self._listener.bind(str(path))
            path.chmod(0o777)
            self._listener.listen(peers.MAX_WAITING)
        self._peers.listen()

    def _may_ask(self, connection: socket.socket) -> bool:
        if self._handover is not None or self._options.same_uid:
            return True
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        # The kernel runs under our own uid: what connects with it may be the code it runs.
        return bool(struct.unpack('3i', credentials)[1] != os.getuid())

    def _tick(self) -> float:
        """Return how long to sleep when nothing happens, in seconds."""
        deadlines = self._peers.deadlines()
        if self._peers.owner is None:
            deadlines.append(self._peers.unowned_since + self._options.orphan_grace)
        return max(0.0, min(deadlines, default=time.monotonic() + 60.0) - time.monotonic())

    def _expire(self) -> None:
        self._peers.expire()
        alone = time.monotonic() - self._peers.unowned_since
        if self._peers.owner is None and alone >= self._options.orphan_grace:
            self._stopping = True

    def _woken(self, _: int = selectors.EVENT_READ) -> None:
        try:
            if signal.SIGTERM in self._wake.recv(4096):
                self._stopping = True
        except BlockingIOError:
            pass
        self._reap()

    def _pause(self) -> None:
        select.select([self._wake], [], [], 0.01)
        self._woken()

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._helpers.discard(pid)
            self._session.ended(pid, status)

    # What is asked

    def _answer(self, peer: Any, request: dict[str, Any]) -> None:
        operation = request['op']
        if peer is self._peers.owner:
            answer = {'id': request.get('id'), **self._command(operation, request)}
            self._peers.send(peer, answer)
            if operation == 'own' and self._session.kernel.exited:
                self._peers.send(peer, self._session.kernel.exited)
        elif operation == 'own' and self._peers.owner is None:
            self._peers.own(peer)
            self._answer(peer, request)
        elif operation in files.OPERATIONS:
            self._delegate(peer, request)
        elif operation == 'own':
            self._peers.refuse(peer, request, 'owned', 'another connection owns this sandbox')
        else:
            self._peers.refuse(peer, request, 'bad_request', 'only the owner may ask for this')

    def _command(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        try:
            if operation == 'list':  # after every cell: a fork would cost as much as the cell
                return files.list_quickly(request, self._options.workspace)
            self._obey(operation, request)
        except frames.RequestError as error:
            return {'ok': False, 'error': error.code, 'message': error.message}
        except OSError as error:
            return {'ok': False, 'error': 'no_processes', 'message': str(error)}
        kernel = self._session.kernel
        return {
            'ok': True,
            'pid': kernel.pid,
            'kernel': 'running' if self._session.runs else 'ended',
            'generation': kernel.generation,
            'oom_kills': kernel.oom_kills,
        }

    def _obey(self, operation: str, request: dict[str, Any]) -> None:
        if operation == 'signal':
            self._session.signal(frames.natural(request, 'signal'))
        elif operation == 'kill':
            if not self._session.kill(self._helpers, self._pause, zygote_too=False):
                raise frames.RequestError('survivors', 'some processes could not be ended')
        elif operation == 'start':
            if self._session.runs:
                raise frames.RequestError('running', 'a kernel is running already')
            self._session.start()
        elif operation == 'preload':
            self._session.preload(request.get('modules'))
        elif operation == 'stop':
            self._stopping = True
        elif operation not in ('own', 'status'):
            raise frames.RequestError('bad_request', 'no such operation')

    # Children

    def _delegate(self, peer: Any, request: dict[str, Any]) -> None:
        if len(self._helpers) >= MAX_HELPERS:
            self._peers.refuse(peer, request, 'busy', 'too many file operations at once')
            return
        try:
            pid = os.fork()
        except OSError as error:
            self._peers.refuse(peer, request, 'no_processes', str(error))
            return
        if pid == 0:
            self._become_helper(peer, request)
        self._helpers.add(pid)
        self._peers.drop(peer)

    def _become_helper(self, peer: Any, request: dict[str, Any]) -> NoReturn:
        code = 1
        try:
            self._leave(keep=peer)
            files.serve(peer.socket, request, bytes(peer.received), self._options.workspace)
            code = 0
        finally:
            os._exit(code)

    def _leave(self, keep: Any = None) -> None:
        """In a child: let go of what belongs to the loop."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._selector.close()
        for end in (self._wake, self._waker):
            end.close()
        self._peers.leave(keep)


def main() -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(description='Start a kernel and watch it for the host.')
    parser.add_argument('--dir', type=Path, required=True, help='folder of the sockets')
    parser.add_argument('--workspace', required=True, help='folder the code works in')
    parser.add_argument('--orphan-grace', type=float, default=30.0, metavar='SECONDS')
    parser.add_argument(
        '--forward', nargs=2, metavar=('PORT', 'SOCKET'), help='carry a loopback port to a socket'
    )
    parser.add_argument('--same-uid', action='store_true', help='accept peers of our own uid')
    parser.add_argument('--bridge', type=int, metavar='UID', help='serve our standard streams')
    options = parser.parse_args()
    handover = None
    if options.bridge is not None:
        handover = _sibling('bridge').divide(options.bridge, options.dir)
    processes.supervise()
    Supervisor(options, handover).run()


if __name__ == '__main__':
    main()
