"""Loads the guest's modules, runs its supervisor, and speaks its frames the plain way."""

import contextlib
import importlib
import json
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import pytest

from sandbox.image import guest_folder

PATIENCE = 60.0


def load(name: str) -> ModuleType:
    """Import one of the guest's files as a module of a package, as the supervisor does."""
    package = ModuleType('guest_package')
    package.__path__ = [str(guest_folder())]
    sys.modules.setdefault(package.__name__, package)
    return importlib.import_module(f'{package.__name__}.{name}')


class Connection:
    """One connection to a supervisor."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        sock.settimeout(PATIENCE)

    @classmethod
    def open(cls, path: Path) -> Self:
        deadline = time.monotonic() + PATIENCE
        while True:
            sock = socket.socket(socket.AF_UNIX)
            try:
                sock.connect(str(path))
            except OSError:
                sock.close()
                assert time.monotonic() < deadline
                time.sleep(0.005)
            else:
                return cls(sock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, message: object, data: bytes = b'') -> None:
        body = json.dumps(message).encode()
        self.socket.sendall(struct.pack('>I', len(body)) + body + data)

    def exactly(self, size: int) -> bytes:
        data = b''
        while len(data) < size:
            chunk = self.socket.recv(size - len(data))
            if not chunk:
                raise EOFError(f'{len(data)} of {size} bytes')
            data += chunk
        return data

    def receive(self) -> dict[str, Any]:
        (length,) = struct.unpack('>I', self.exactly(4))
        message = json.loads(self.exactly(length))
        assert isinstance(message, dict)
        return message

    def ask(self, op: str, data: bytes = b'', **fields: Any) -> dict[str, Any]:
        self.send({'op': op, **fields}, data)
        return self.receive()

    def is_closed(self) -> bool:
        with contextlib.suppress(ConnectionResetError):
            return self.socket.recv(1) == b''
        return True


class Guest:
    """A supervisor that runs a kernel made up by the test."""

    def __init__(self, folder: Path, kernel: str, *options: str) -> None:
        self.workspace = folder / 'w'
        self._sockets = folder / 'k'
        code = folder / 'code'
        for each in (self.workspace, self._sockets, code):
            each.mkdir()
        for path in guest_folder().glob('*.py'):
            shutil.copy(path, code)
        (code / 'kernel.py').write_text(kernel)
        self.process = subprocess.Popen(
            [
                *(sys.executable, '-I', code / 'supervisor.py', '--dir', self._sockets),
                *('--workspace', self.workspace, *options),
            ],
            stdin=subprocess.DEVNULL,
        )

    def connect(self) -> Connection:
        return Connection.open(self._sockets / 'ctl')

    @contextlib.contextmanager
    def owned(self) -> Iterator[Connection]:
        with self.connect() as owner:
            assert owner.ask('own')['ok']
            yield owner

    def close(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(PATIENCE)
        finally:
            self.process.kill()
            self.process.wait()


def is_running(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        stat = Path(f'/proc/{pid}/stat').read_text()
    except OSError:
        return False
    return stat.rpartition(')')[2].split()[0] != 'Z'


class Patience:
    """Waiting, with a bound, for what another process does."""

    def line(self, path: Path) -> str:
        """Wait until a file has a complete line, and return it."""
        self.until(lambda: path.exists() and path.read_text().endswith('\n'))
        return path.read_text().strip()

    def gone(self, pid: int) -> None:
        """Wait until a process has ended; it need not be reaped, which is its parent's business."""
        self.until(lambda: not is_running(pid))

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.005)


SLEEPER = 'import time\n\ndef run(connection, workspace):\n    time.sleep(600)\n'
StartGuest = Callable[..., Guest]


@pytest.fixture
def start_guest() -> Iterator[StartGuest]:
    """Start a supervisor whose kernel is the given source; the folder's path stays short."""
    guests: list[Guest] = []
    with tempfile.TemporaryDirectory(prefix='guest-') as folder:

        def start(kernel: str = SLEEPER, *options: str, same_uid: bool = True) -> Guest:
            place = Path(folder, str(len(guests)))
            place.mkdir()
            guest = Guest(place, kernel, *options, *(['--same-uid'] if same_uid else []))
            guests.append(guest)
            return guest

        yield start
        for guest in guests:
            guest.close()


@pytest.fixture(scope='session')
def guest_files() -> ModuleType:
    """The guest's module of file operations."""
    return load('files')


@pytest.fixture(scope='session')
def guest_workspace() -> ModuleType:
    """The guest's module of the folder that they are confined to."""
    return load('workspace')


@pytest.fixture
def open_pair() -> Iterator[Callable[[], tuple[Connection, socket.socket]]]:
    """Make the two ends of a connection: a driver for one, the bare socket of the other."""
    with contextlib.ExitStack() as stack:

        def make() -> tuple[Connection, socket.socket]:
            ours, theirs = socket.socketpair()
            stack.enter_context(ours)
            stack.enter_context(theirs)
            return Connection(ours), theirs

        yield make


@pytest.fixture(scope='session')
def patience() -> Patience:
    """Waiting for what happens in another process."""
    return Patience()
