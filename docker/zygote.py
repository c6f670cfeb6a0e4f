"""The process that kernels are forked from, and the supervisor's handle on it.

It has imported the kernel's modules and, once asked, a few libraries, so that a new kernel costs a
fork instead of an interpreter's start. It runs no code but that of the image: its working folder is
the root, its search path holds nothing that a cell can write to, and it is closed to `ptrace` and
`/proc/<pid>/mem`. Cells have its user id and can end it, or stop it; the supervisor lets it go on
before each request, and makes another one when it is gone.

Requests and answers are JSON objects, one a packet; the descriptor of a kernel's log comes with the
request to start it. The kernel is forked twice, so that the supervisor adopts it and sees its end.
"""

import contextlib
import gc
import importlib
import io
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any, NoReturn

MAX_PACKET = 1 << 16
MAX_REASON = 200
_INLINE = 'module://matplotlib_inline.backend_inline'


class Zygote:
    """The supervisor's handle. Made with `spawn`.

    Attributes:
        pid: Process id.
        channel: Non-blocking; readable when there is news.
        owes: Whether it was asked for a kernel that it has not told the process id of.
        proven: Whether it has forked a kernel before.
        imports: Whether it was asked to import libraries and is not done.
    """

    def __init__(self, pid: int, channel: socket.socket) -> None:
        self.pid, self.channel = pid, channel
        self.owes = self.proven = self.imports = False

    @classmethod
    def spawn(cls, serve: Callable[[socket.socket], None]) -> 'Zygote':
        """Fork the process, which runs `serve` on its end of the channel.

        Raises:
            OSError: There is no process left.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                pid = os.fork()
            except OSError:
                ours.close()
                raise
            if pid == 0:
                ours.close()
                _run(serve, theirs)
        ours.setblocking(False)
        return cls(pid, ours)

    def start(self, log: int) -> None:
        """Ask for a kernel that has `log` as its stderr."""
        self.owes = True
        self._ask({'op': 'start'}, [log])

    def preload(self, modules: list[str]) -> None:
        """Ask to import libraries."""
        self.imports = True
        self._ask({'op': 'preload', 'modules': modules})

    def _ask(self, request: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        # One that has ended takes no request; its end is told by `waitpid`.
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGCONT)
            socket.send_fds(self.channel, [json.dumps(request).encode()], descriptors)

    def answers(self) -> Iterator[dict[str, Any]]:
        """Yield the answers that have arrived."""
        while True:
            try:
                packet = self.channel.recv(MAX_PACKET)
            except OSError:
                return
            if not packet:
                return
            answer = json.loads(packet)
            if 'pid' in answer:
                self.owes, self.proven = False, True
            else:
                self.imports = False
            yield answer


def _run(serve: Callable[[socket.socket], None], channel: socket.socket) -> NoReturn:
    code = 1
    try:
        serve(channel)
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


class Server:
    """What runs in the process.

    Args:
        channel: Where requests come from.
        load: Imports one of the guest's own files.
        connection: Path of the kernels' connection file.
        workspace: The folder that code works in.
        forks: Whether the supervisor adopts what is forked here; else there is but one kernel.
    """

    def __init__(
        self,
        channel: socket.socket,
        load: Callable[[str], ModuleType],
        connection: str,
        workspace: str,
        *,
        forks: bool,
    ) -> None:
        self._channel, self._load = channel, load
        self._connection, self._workspace = connection, workspace
        self._processes = load('processes')
        self._supervisor = os.getppid()
        self._forks = forks
        self._home = os.environ.get('HOME')
        self._tried: dict[str, str] = {}  # modules that were to be imported, and what came of it

    def serve(self) -> None:
        """Fork kernels until the supervisor goes away; or become the first one asked for."""
        os.chdir('/')
        self._processes.become_servant(self._channel.fileno())
        while self._serve_one():
            pass

    def _serve_one(self) -> bool:
        packet, descriptors, _, _ = socket.recv_fds(self._channel, MAX_PACKET, 1)
        if not packet:
            return False
        request = json.loads(packet)
        if request['op'] == 'preload':
            self._preload(request['modules'])
            return True
        if self._forks:
            self._start(descriptors[0])
        else:
            self._become(descriptors[0])
        return self._forks

    def _tell(self, answer: dict[str, Any]) -> None:
        self._channel.send(json.dumps(answer).encode())

    def _start(self, log: int) -> None:
        # What goes wrong up to the fork is the reason why this kernel does not start.
        os.dup2(log, 2)
        kernel = self._load('kernel')
        gc.freeze()  # what a later collection looked at, it would copy
        go_on, adopted = os.pipe()
        pid = fork_twice(lambda: self._become_kernel(kernel, log, go_on, adopted))
        if not pid:
            os.write(log, b'no process is left')
        for descriptor in (go_on, log):
            os.close(descriptor)
        self._processes.silence()
        self._tell({'pid': pid})
        os.close(adopted)

    def _become(self, log: int) -> None:
        os.dup2(log, 2)
        kernel = self._load('kernel')
        self._tell({'pid': os.getpid()})
        self._run(kernel, log)

    def _become_kernel(self, kernel: ModuleType, log: int, go_on: int, adopted: int) -> None:
        os.close(adopted)
        os.read(go_on, 1)
        os.close(go_on)
        self._run(kernel, log)

    def _run(self, kernel: ModuleType, log: int) -> None:
        self._channel.close()
        self._processes.become_session(log, self._supervisor)
        if self._home is not None:
            os.environ['HOME'] = self._home
        renew()
        kernel.run(self._connection, self._workspace)

    def _preload(self, modules: list[str]) -> None:
        """Import modules, one at a time: a kernel must not have to wait for them all."""
        if not self._tried:
            leave_home()
        are_new = False
        for name in modules:
            while _is_readable(self._channel):
                if not self._serve_one():
                    return
            if name not in self._tried:
                self._tried[name], are_new = attempt(name), True
        if are_new:  # and not whenever a new kernel asks, which then runs its first cell
            self._make_ready()
        failed = {name: self._tried[name] for name in modules if self._tried[name]}
        self._tell({'preloaded': failed})

    def _make_ready(self) -> None:
        """Do once what every kernel would have to do, and see that one can be forked."""
        self._load('kernel').rehearse()
        draw()
        gc.freeze()
        os.waitpid(_fork(lambda: None), 0)  # libraries that know of forks end their threads before
        if threads() > 1:
            self._tell({'preloaded': {'': 'a library has left a thread behind'}})
            sys.exit(1)  # the next kernel comes from a process without it


def attempt(name: str) -> str:
    """Import a module, and return why that failed or nothing."""
    try:
        importlib.import_module(name)
    except Exception as error:
        return f'{type(error).__name__}: {error}'[:MAX_REASON]
    return ''


def draw() -> None:
    """Draw a plot, if matplotlib is there: a first one finds fonts, and imports much."""
    if 'matplotlib.pyplot' not in sys.modules:
        return
    with contextlib.suppress(Exception):  # it is of no importance
        figure = importlib.import_module('matplotlib.figure').Figure()
        figure.add_subplot().plot([0, 1])
        canvas = importlib.import_module('matplotlib.backends.backend_agg').FigureCanvasAgg(figure)
        canvas.print_figure(io.BytesIO(), bbox_inches='tight')
        # The backend itself is the kernel's to import, for it then looks for the kernel's shell.
        importlib.import_module('IPython.core.pylabtools')


def leave_home() -> None:
    """Let libraries read and write in a folder that no cell has prepared for them."""
    place = tempfile.mkdtemp(prefix='preload-')
    if seed := os.environ.pop('SANDBOX_FONT_CACHE', ''):
        with contextlib.suppress(OSError):
            shutil.copytree(seed, place, dirs_exist_ok=True)
    # When it is imported, matplotlib chooses its folder, and how it draws, for good.
    os.environ.update(HOME=place, MPLCONFIGDIR=place)
    os.environ.setdefault('MPLBACKEND', _INLINE)


def threads() -> int:
    """Return the number of threads of this process, those of C libraries included."""
    with os.scandir('/proc/self/task') as tasks:
        return sum(1 for _ in tasks)


def renew() -> None:
    """Give a forked process random numbers of its own.

    Those of `random`, `tempfile` and OpenSSL see to that themselves; `secrets` and `uuid` ask the
    system.
    """
    if numpy_random := sys.modules.get('numpy.random'):
        numpy_random.seed()
    if multiprocessing := sys.modules.get('multiprocessing'):
        multiprocessing.current_process().authkey = os.urandom(32)


def fork_twice(child: Callable[[], None]) -> int:
    """Fork a process that is no child of this one, and return its id; 0 if there is none left."""
    reader, writer = os.pipe()

    def grandchild() -> None:
        os.close(reader)
        os.close(writer)
        child()

    try:
        between = _fork(lambda: _tell_pid(writer, _fork(grandchild)))
    except OSError:
        os.close(reader)
        return 0
    finally:
        os.close(writer)
    pid = int(os.read(reader, 32) or b'0')
    os.close(reader)
    os.waitpid(between, 0)
    return pid


def _tell_pid(writer: int, pid: int) -> None:
    os.write(writer, str(pid).encode())


def _fork(child: Callable[[], None]) -> int:
    if (pid := os.fork()) == 0:
        code = 1
        try:
            child()
            code = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(code)
    return pid


def _is_readable(channel: socket.socket) -> bool:
    with contextlib.suppress(BlockingIOError):
        return channel.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) is not None
    return False
