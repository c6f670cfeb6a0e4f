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
import json
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

MAX_WAITING = 8
MAX_HELPERS = 8
MAX_MODULES, MAX_MODULE_NAME = 64, 200
MAX_UNSENT = 1 << 20
FIRST_REQUEST = 10.0
"""Seconds within which a new connection must have said what it wants."""
KILL_PATIENCE = 5.0
FAILED = 1 << 8
"""What `waitpid` says of a process that has ended with code 1."""


# Python's isolated mode keeps the folder of the program off sys.path: make it a package.
PACKAGE = ModuleType('sandbox_guest')
PACKAGE.__path__ = [str(Path(__file__).resolve().parent)]
sys.modules[PACKAGE.__name__] = PACKAGE


def _sibling(name: str) -> ModuleType:
    return importlib.import_module(f'{PACKAGE.__name__}.{name}')


files = _sibling('files')
processes = _sibling('processes')
zygote = _sibling('zygote')


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
        if length > files.MAX_FRAME:
            raise ValueError(f'a frame of {length} bytes')
        if len(self.received) < 4 + length:
            return None
        request = json.loads(self.received[4 : 4 + length])
        del self.received[: 4 + length]
        if isinstance(request, dict) and isinstance(request.get('op'), str):
            return request
        raise ValueError('a request is an object with an op')


class Supervisor:
    """The event loop and what it looks after."""

    def __init__(self, options: argparse.Namespace, handover: Any = None) -> None:
        self._options = options
        self._handover = handover
        self._selector = selectors.DefaultSelector()
        self._kernel = processes.Kernel()
        self._zygote: zygote.Zygote | None = None
        self._owner: Peer | None = None
        self._waiting: set[Peer] = set()
        self._helpers: set[int] = set()
        self._unowned_since = time.monotonic()
        self._stopping = False
        self._listener = handover or socket.socket(socket.AF_UNIX)
        self._wake, self._waker = socket.socketpair()
        # gVisor gives orphans to the first process, which is the bridge.
        self._roots = {os.getpid()} if handover is None else {os.getpid(), os.getppid()}

    def run(self) -> None:
        """Serve until told to stop or left alone."""
        self._watch_signals()
        self._listen()
        self._start_kernel()
        while not self._stopping:
            for key, ready in self._selector.select(self._tick()):
                self._dispatch(key.data, ready)
            self._expire()
        self._kill_session(spare_ours=False)

    def _watch_signals(self) -> None:
        self._wake.setblocking(False)
        self._waker.setblocking(False)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._selector.register(self._wake, selectors.EVENT_READ, 'wake')

    def _listen(self) -> None:
        if self._handover is None:
            path = self._options.dir / 'ctl'
            self._listener.bind(str(path))
            path.chmod(0o777)
            self._listener.listen(MAX_WAITING)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, 'listener')

    def _tick(self) -> float:
        """Return how long to sleep when nothing happens, in seconds."""
        deadlines = [peer.deadline for peer in self._waiting]
        if self._owner is None:
            deadlines.append(self._unowned_since + self._options.orphan_grace)
        return max(0.0, min(deadlines, default=time.monotonic() + 60.0) - time.monotonic())

    def _expire(self) -> None:
        now = time.monotonic()
        for peer in [peer for peer in self._waiting if peer.deadline <= now]:
            self._drop(peer)
        if self._owner is None and now - self._unowned_since >= self._options.orphan_grace:
            self._stopping = True

    def _dispatch(self, source: 'Peer | str', ready: int) -> None:
        if source == 'wake':
            self._woken()
        elif source == 'listener':
            self._accept()
        elif source == 'log':
            if not self._kernel.read_log():
                self._close_log()
        elif source == 'zygote':
            self._hear_zygote()
        elif isinstance(source, Peer):
            if ready & selectors.EVENT_WRITE:
                self._flush(source)
            if ready & selectors.EVENT_READ:
                self._receive(source)

    def _woken(self) -> None:
        try:
            if signal.SIGTERM in self._wake.recv(4096):
                self._stopping = True
        except BlockingIOError:
            pass
        self._reap()

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._helpers.discard(pid)
            self._hear_zygote()  # which may have just told whose end this is
            if pid == self._kernel.pid:
                self._report(self._kernel.ended(status))
            elif self._zygote and pid == self._zygote.pid:
                self._lose_zygote(status)

    def _report(self, event: dict[str, Any]) -> None:
        if self._owner:
            self._send(self._owner, event)

    # Connections

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        if not self._may_ask(connection) or len(self._waiting) >= MAX_WAITING:
            connection.close()
            return
        connection.setblocking(False)
        peer = Peer(connection)
        self._waiting.add(peer)
        self._selector.register(connection, selectors.EVENT_READ, peer)

    def _may_ask(self, connection: socket.socket) -> bool:
        if self._handover is not None or self._options.same_uid:
            return True
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        # The kernel runs under our own uid: what connects with it may be the code it runs.
        return bool(struct.unpack('3i', credentials)[1] != os.getuid())

    def _drop(self, peer: Peer) -> None:
        if peer.socket.fileno() < 0:
            return
        self._selector.unregister(peer.socket)
        peer.socket.close()
        self._waiting.discard(peer)
        if peer is self._owner:
            self._owner = None
            self._unowned_since = time.monotonic()

    def _receive(self, peer: Peer) -> None:
        try:
            data = peer.socket.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b''
        if not data:
            self._drop(peer)
            return
        peer.received += data
        try:
            while peer.socket.fileno() >= 0 and (request := peer.next_request()) is not None:
                self._answer(peer, request)
        except (ValueError, RecursionError):
            self._drop(peer)

    def _answer(self, peer: Peer, request: dict[str, Any]) -> None:
        operation = request['op']
        if peer is self._owner:
            self._send(peer, {'id': request.get('id'), **self._command(operation, request)})
            if operation == 'own' and self._kernel.exited:
                self._send(peer, self._kernel.exited)
        elif operation == 'own' and self._owner is None:
            self._waiting.discard(peer)
            self._owner = peer
            self._answer(peer, request)
        elif operation in files.OPERATIONS:
            self._delegate(peer, request)
        elif operation == 'own':
            self._refuse(peer, request, 'owned', 'another connection owns this sandbox')
        else:
            self._refuse(peer, request, 'bad_request', 'only the owner may ask for this')

    def _refuse(self, peer: Peer, request: dict[str, Any], code: str, message: str) -> None:
        refusal = {'id': request.get('id'), 'ok': False, 'error': code, 'message': message}
        self._send(peer, refusal)
        self._drop(peer)

    def _send(self, peer: Peer, message: dict[str, Any]) -> None:
        if peer.socket.fileno() < 0:
            return
        peer.unsent += files.encode_frame(message)
        self._flush(peer)

    def _flush(self, peer: Peer) -> None:
        try:
            while peer.unsent:
                del peer.unsent[: peer.socket.send(peer.unsent)]
        except BlockingIOError:
            pass
        except OSError:
            self._drop(peer)
            return
        if len(peer.unsent) > MAX_UNSENT:
            self._drop(peer)
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if peer.unsent else 0)
        if wanted != peer.wanted:
            peer.wanted = wanted
            self._selector.modify(peer.socket, wanted, peer)

    # What the owner may ask

    def _command(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        try:
            if operation == 'list':  # after every cell: a fork would cost as much as the cell
                return files.list_quickly(request, self._options.workspace)
            self._obey(operation, request)
        except files.RequestError as error:
            return {'ok': False, 'error': error.code, 'message': error.message}
        except OSError as error:
            return {'ok': False, 'error': 'no_processes', 'message': str(error)}
        return {
            'ok': True,
            'pid': self._kernel.pid,
            'kernel': 'running' if self._runs() else 'ended',
            'generation': self._kernel.generation,
            'oom_kills': self._kernel.oom_kills,
        }

    def _obey(self, operation: str, request: dict[str, Any]) -> None:
        if operation == 'signal':
            self._signal_kernel(files.natural(request, 'signal'))
        elif operation == 'kill':
            if not self._kill_session():
                raise files.RequestError('survivors', 'some processes could not be ended')
        elif operation == 'start':
            if self._runs():
                raise files.RequestError('running', 'a kernel is running already')
            self._start_kernel()
        elif operation == 'preload':
            self._preload(request.get('modules'))
        elif operation == 'stop':
            self._stopping = True
        elif operation not in ('own', 'status'):
            raise files.RequestError('bad_request', 'no such operation')

    def _runs(self) -> bool:
        return bool(self._kernel.pid or self._kernel.starting)

    def _preload(self, modules: object) -> None:
        if (
            not isinstance(modules, list)
            or len(modules) > MAX_MODULES
            or not all(isinstance(n, str) and len(n) <= MAX_MODULE_NAME for n in modules)
        ):
            raise files.RequestError('bad_request', 'modules must be a list of names')
        if self._zygote is None:
            raise files.RequestError('ended', 'the process that would import them has ended')
        self._zygote.preload(modules)

    def _signal_kernel(self, number: int) -> None:
        if not self._kernel.pid:
            raise files.RequestError('ended', 'no kernel is running')
        try:
            os.killpg(self._kernel.pid, number)
        except (OSError, OverflowError) as error:
            raise files.RequestError('bad_request', str(error)) from None

    def _kill_session(self, *, spare_ours: bool = True) -> bool:
        """End every process of the session, and tell whether none is left.

        All are stopped first, since a stopped process cannot fork, and killed afterwards.
        """
        spared = self._helpers.copy() if spare_ours else set()
        if self._zygote and self._zygote.owes:
            self._zygote.proven = False  # it has the kernel, and is not given another chance
        elif self._zygote and spare_ours:
            spared.add(self._zygote.pid)

        def living() -> set[int]:
            return processes.descendants(spared, self._roots)

        deadline = time.monotonic() + KILL_PATIENCE
        stopped: set[int] = set()
        while (fresh := living() - stopped) and time.monotonic() < deadline:
            processes.send(signal.SIGSTOP, fresh)
            stopped |= fresh
        while (left := living()) and time.monotonic() < deadline:
            processes.send(signal.SIGKILL, left)
            select.select([self._wake], [], [], 0.01)
            self._woken()
        return not left

    # Children

    def _start_kernel(self) -> None:
        if self._handover is not None:
            self._handover.renew(self._options.dir)
        if self._options.forward:
            self._start_forwarder(*self._options.forward)
        source = self._zygote or self._spawn_zygote()
        self._kernel.begins()
        self._ask_for_kernel(source)

    def _spawn_zygote(self) -> Any:
        self._zygote = zygote.Zygote.spawn(self._become_zygote)
        self._selector.register(self._zygote.channel, selectors.EVENT_READ, 'zygote')
        return self._zygote

    def _ask_for_kernel(self, source: Any) -> None:
        self._close_log()
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        self._kernel.logs_to(reader)
        self._selector.register(reader, selectors.EVENT_READ, 'log')
        source.start(writer)
        os.close(writer)

    def _hear_zygote(self) -> None:
        for answer in self._zygote.answers() if self._zygote else ():
            if answer.get('pid'):
                self._kernel.began(answer['pid'])
                if answer['pid'] == self._zygote.pid:
                    self._forget_zygote()
                    return
            elif 'pid' in answer:
                self._report(self._kernel.ended(FAILED))
            else:
                self._report({'event': 'preloaded', 'failed': answer['preloaded']})

    def _forget_zygote(self) -> Any:
        forgotten, self._zygote = self._zygote, None
        self._selector.unregister(forgotten.channel)
        forgotten.channel.close()
        return forgotten

    def _lose_zygote(self, status: int) -> None:
        lost = self._forget_zygote()
        if lost.imports:
            reason = 'the process that imported it has ended'
            self._report({'event': 'preloaded', 'failed': {'': reason}})
        if not lost.owes:
            return
        try:
            if lost.proven:  # a cell can have ended it: what is new may do better
                self._ask_for_kernel(self._spawn_zygote())
                return
        except OSError:
            pass
        self._report(self._kernel.ended(status))

    def _start_forwarder(self, port: str, target: str) -> None:
        # It is a process of the session and ends with it, so each kernel gets a new one.
        with _sibling('forwarder').listen(int(port)) as listener:
            if os.fork() == 0:
                self._become_forwarder(listener, target)

    def _become_forwarder(self, listener: socket.socket, target: str) -> NoReturn:
        try:
            self._leave()
            _sibling('forwarder').run(listener, target)
        finally:
            os._exit(1)

    def _close_log(self) -> None:
        if self._kernel.log_pipe >= 0:
            self._selector.unregister(self._kernel.log_pipe)
            os.close(self._kernel.log_pipe)
            self._kernel.log_pipe = -1

    def _become_zygote(self, channel: socket.socket) -> None:
        self._leave()
        connection = str(self._options.dir / 'connection.json')
        zygote.Server(
            channel,
            _sibling,
            connection,
            self._options.workspace,
            forks=self._handover is None,  # in gVisor, the bridge adopts all orphans
        ).serve()

    def _delegate(self, peer: Peer, request: dict[str, Any]) -> None:
        if len(self._helpers) >= MAX_HELPERS:
            self._refuse(peer, request, 'busy', 'too many file operations at once')
            return
        try:
            pid = os.fork()
        except OSError as error:
            self._refuse(peer, request, 'no_processes', str(error))
            return
        if pid == 0:
            self._become_helper(peer, request)
        self._helpers.add(pid)
        self._drop(peer)

    def _become_helper(self, peer: Peer, request: dict[str, Any]) -> NoReturn:
        code = 1
        try:
            self._leave(keep=peer)
            files.serve(peer.socket, request, bytes(peer.received), self._options.workspace)
            code = 0
        finally:
            os._exit(code)

    def _leave(self, keep: Peer | None = None) -> None:
        """In a child: let go of what belongs to the loop."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._selector.close()
        for end in (self._listener, self._wake, self._waker):
            end.close()
        peers = self._waiting | ({self._owner} if self._owner else set())
        for peer in peers - {keep}:
            peer.socket.close()


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
