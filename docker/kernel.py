"""The kernel of a sandbox: a stock IPython kernel, made fit for code that nobody has read.

What differs from `python -m ipykernel`: it keeps no history, and reads no start-up or configuration
file; `exit()` is an error of the cell and not the end of the session; output survives whatever the
code did to `sys.stdout`, to descriptors 1 and 2, or put into a string; every request is answered,
even when an exception cannot be printed; and no output is dropped when the host reads slowly.

The folder of sockets lies on the host's disk and is open while a kernel starts. A kernel that
follows another one finds that one's files, so until its first cell it reads, makes and imports
nothing in a place that code can write to.
"""

import contextlib
import contextvars
import faulthandler
import functools
import importlib
import os
import shutil
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zmq
from ipykernel import ipkernel
from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp
from ipykernel.zmqshell import ZMQInteractiveShell
from IPython.core.autocall import ZMQExitAutocall
from IPython.core.inputtransformer2 import TransformerManager
from IPython.core.profiledir import ProfileDir
from traitlets import Type, default, observe
from traitlets.config import Config

from .formatters import Display
from .messages import Messages
from .output import Publisher, Stream
from .record import LastCell
from .workspace import Workspace

sys.modules['debugpy'] = None  # type: ignore[assignment]
"""The debugger is of no use here, and to import it takes a quarter of the kernel's start."""
for _name in (
    *('IPython.core.completerlib', 'IPython.core.debugger', 'IPython.core.logger'),
    *('IPython.core.oinspect', 'IPython.extensions.storemagic', 'ipykernel.debugger'),
    *('tornado.platform.asyncio', 'tornado.queues', 'unicodedata'),
):
    importlib.import_module(_name)  # a kernel that is forked from here has them, too

IOPUB_HIGH_WATER_MARK = 100_000
MOST_OF_ERROR = 16_384
"""Characters of an error's message, and of its traceback, that a reply holds."""
_KERNEL = tuple(f'{Path(file).parent}/' for file in (__file__, ipkernel.__file__))
_LIBRARIES = ('<', f'{sys.prefix}/', f'{sys.base_prefix}/')
_ASYNCIO_HINT = 'An event loop is running in this session already: write `await main()` instead.'


class Exit(ZMQExitAutocall):
    """What `exit` and `quit` are bound to: ends the cell, not the kernel."""

    def __call__(self, code: object = None, keep_kernel: bool = False) -> None:
        """Leave the cell with an exit code; whether to keep the kernel is not asked."""
        del keep_kernel
        raise SystemExit if code is None else SystemExit(code)


class Shell(ZMQInteractiveShell):
    """The shell that runs the cells."""

    @default('exiter')
    def _default_exiter(self) -> Exit:
        return Exit(self)

    def transform_cell(self, raw_cell: str) -> str:
        """Return the Python of a cell. The kernel asks for it, and then the shell does, too."""
        known, transformed = self.__dict__.pop('_transformed', (None, ''))
        if raw_cell is not known:
            transformed = super().transform_cell(raw_cell)
            self.__dict__['_transformed'] = raw_cell, transformed
        return str(transformed)

    def init_display_formatter(self) -> None:
        """Make our own."""
        self.display_formatter = Display(parent=self)
        self.configurables.append(self.display_formatter)

    def init_ipython_dir(self, _: str | None) -> None:
        """Leave it without a folder, which would be made where code may have put a link."""

    def init_environment(self) -> None:
        """Ask child processes for plain text: nothing here is a terminal."""
        os.environ.update(TERM='dumb', NO_COLOR='1', PAGER='cat', GIT_PAGER='cat')

    def ask_exit(self) -> None:
        """End the cell where IPython would end the kernel."""
        raise SystemExit

    def _showtraceback(self, etype: type[BaseException], evalue: Any, stb: list[str]) -> None:
        super()._showtraceback(etype, _Printable(evalue), stb)

    def showtraceback(self, *args: Any, **kwargs: Any) -> None:
        """Show an exception, with a hint at the one mistake that this environment provokes."""
        error = sys.exc_info()[1]
        if isinstance(error, RuntimeError) and 'running event loop' in str(error):
            error.add_note(_ASYNCIO_HINT)
        if isinstance(error, KeyboardInterrupt):
            _end_in_code(error)
        super().showtraceback(*args, **kwargs)


def _end_in_code(interrupt: KeyboardInterrupt) -> None:
    """Cut off a traceback where, behind the code's last frame, a kernel's own frames begin."""
    at, before, last = interrupt.__traceback__, None, None
    while at is not None:
        file = at.tb_frame.f_code.co_filename
        if not file.startswith((*_KERNEL, *_LIBRARIES)):
            last = None
        elif file.startswith(_KERNEL) and last is None:
            last = before
        before, at = at, at.tb_next
    if last is not None:
        last.tb_next = None


class _Printable:
    """An exception's text that does not fail, for code that calls `str` on it."""

    def __init__(self, error: object) -> None:
        self._error = error

    def __str__(self) -> str:
        try:
            return str(self._error)
        except BaseException as failure:
            return f'<str() of the exception failed with {type(failure).__name__}>'


class MainThread:
    """Stands where a kernel with subshells has the thread that hands requests on to them."""

    def __init__(self) -> None:
        self.parent_thread = threading.main_thread()

    def __bool__(self) -> bool:
        return False


class Kernel(IPythonKernel):
    """The kernel that answers the host's requests."""

    shell_class = Type(Shell)
    _supports_kernel_subshells = False

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.before_code: Callable[[], None] | None = None
        self.workspace: Listing | None = None
        self._rehearsed = False
        self._streams = sys.stdout, sys.stderr
        self._pipes = {number: os.dup(number) for number in (1, 2)}
        self.last_cell = LastCell()
        self.shell_handlers['last_cell_request'] = self.last_cell_request

    def set_parent(self, ident: Any, parent: Any, channel: str = 'shell') -> None:
        """Undo what the last cell did to its output streams before the next one begins."""
        if channel == 'shell':
            self._drain()
            sys.stdout, sys.stderr = self._streams
            for number, pipe in self._pipes.items():
                with contextlib.suppress(OSError):
                    os.dup2(pipe, number)
        super().set_parent(ident, parent, channel)

    def pre_handler_hook(self) -> None:
        """Let an interrupt break off what a request runs, but not what it sends."""
        self.iopub_thread.forget()
        self.saved_sigint_handler = signal.signal(signal.SIGINT, self.iopub_thread.on_interrupt)

    async def kernel_info_request(self, *args: Any) -> None:
        """Answer whether there is a kernel; while the host reads that, make ready for a cell."""
        await super().kernel_info_request(*args)
        if not self._rehearsed:
            self._rehearsed = True
            rehearse()
            self.shell.display_formatter.format(0)

    async def execute_request(self, stream: Any, ident: Any, parent: Any) -> None:
        """Answer the request to run a cell, even when an interrupt comes before the cell."""
        self.iopub_thread.hold()
        self.last_cell.begin(parent)
        self.iopub_thread.kept = self.last_cell if self.last_cell.is_open else None
        await super().execute_request(stream.socket, ident, parent)
        if self.last_cell.is_open and stream.socket.EVENTS & zmq.POLLIN:
            # A new host has asked meanwhile; the socket tells of it once, and told the reply above.
            self.io_loop.add_callback(stream._handle_events, stream.socket, 0)

    async def last_cell_request(self, stream: Any, ident: Any, parent: Any) -> None:
        """Tell a host that has not seen it how the last cell ended."""
        told = self.last_cell.told(int(parent['content']['room']))
        self.session.send(stream, 'last_cell_reply', told, parent, ident=ident)

    def start(self) -> None:
        """Serve requests, and subscribers between them."""
        super().start()
        publisher = self.iopub_thread
        self.io_loop.add_handler(publisher.socket.FD, publisher.welcome, self.io_loop.READ)

    def _publish_status(self, status: str, channel: str, parent: Any = None) -> None:
        super()._publish_status(status, channel, parent)
        if status == 'idle' and channel == 'shell':
            self.iopub_thread.welcome()

    async def do_execute(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Run a cell, and keep the answer where that is wanted."""
        reply = await self._run_cell(*args, **kwargs)
        self.last_cell.end(reply)
        if self.workspace and self.workspace.is_unchanged():
            reply['workspace_unchanged'] = True  # the host need not ask for a listing
        return reply

    async def _run_cell(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        # A failure while the cell's failure is reported is answered as well.
        try:
            self.iopub_thread.let_go()
            if self.before_code:
                prepare, self.before_code = self.before_code, None
                prepare()
            reply = dict(await super().do_execute(*args, **kwargs))
        except BaseException as error:
            reply = {
                'status': 'error',
                'ename': type(error).__name__,
                'evalue': str(_Printable(error)),
                'traceback': self.shell._last_traceback or [],
                'execution_count': self.shell.execution_count - 1,
                'user_expressions': {},
                'payload': [],
            }
        finally:
            # The code has ended: an interrupt that comes now would only cost the reply.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            self._drain()
        bound(reply)
        return reply

    def _drain(self) -> None:
        for stream in self._streams:
            stream.drain()
            stream.flush()


class Listing:
    """What a cell finds in the workspace, beside what the last one has left there.

    A host that believes a cell about this may learn of its files late: so it would of files that
    the cell has a thread write afterwards.
    """

    MOST = 32

    def __init__(self, workspace: str) -> None:
        self._workspace = Workspace(workspace)
        self._known: Any = None

    def is_unchanged(self) -> bool:
        """Tell whether all is as it was when this was last asked; no where that takes long."""
        before, self._known = self._known, None
        with contextlib.suppress(Exception):  # the cell may have left no descriptors, or worse
            self._known = self._workspace.list_quickly('', self.MOST)
        return before is not None and bool(before == self._known)


class Profile(ProfileDir):
    """Where a cell's `%store` and the like keep things, made when they ask for it."""

    @observe('location')
    def _location_changed(self, _: Any) -> None:
        """Make no folder."""


class App(IPKernelApp):
    """Sets up the kernel's sockets and streams."""

    kernel_class = Type(Kernel)

    @default('session')
    def _session_default(self) -> Messages:
        return Messages(parent=self)

    def parse_command_line(self, *_: Any, **__: Any) -> None:
        """Read no command line."""

    def load_config_file(self, *_: Any, **__: Any) -> None:
        """Read no configuration."""

    def init_profile_dir(self) -> None:
        """Name a profile, but neither look for one nor make it."""
        self.profile_dir = Profile(location=str(Path.home() / '.ipython/profile_default'))

    def init_config_files(self) -> None:
        """Copy none."""

    def init_code(self) -> None:
        """Run no start-up files: an earlier cell can have written them."""
        self.shell.user_ns_hidden.update(self.shell.user_ns)
        self.shell._sys_modules_keys = set(sys.modules)

    def write_connection_file(self, **_: Any) -> None:
        """Leave the host's file alone; it is complete."""

    def init_sockets(self) -> None:
        """Bind the sockets so that the host, another user, may connect to them."""
        previous = os.umask(0)
        try:
            super().init_sockets()
        finally:
            self._umask = previous

    def init_iopub(self, context: Any) -> None:
        """Queue output for a slow reader, and wait for the reader once the queue is full."""
        socket = context.socket(zmq.XPUB)
        socket.linger = 1000
        socket.sndhwm = IOPUB_HIGH_WATER_MARK
        socket.setsockopt(zmq.XPUB_NODROP, 1)
        self.iopub_port = self._bind_socket(socket, self.iopub_port)
        self.configure_tornado_logger()
        self.iopub_thread = Publisher(socket, pipe=True, session=self.session)
        self.iopub_thread.start()
        self.iopub_socket = self.iopub_thread.background_socket

    def init_control(self, context: Any) -> None:
        """Take requests on the main thread: for another one to hand them on takes time."""
        super().init_control(context)
        self.shell_channel_thread.io_loop.close()
        self.shell_channel_thread = MainThread()

    def init_heartbeat(self) -> None:
        """Bind the last socket."""
        super().init_heartbeat()
        os.umask(self._umask)

    def init_io(self) -> None:
        """Capture the streams, and let a crash leave its trace where the supervisor reads it."""
        super().init_io()
        faulthandler.enable(sys.stderr._original_stdstream_copy, all_threads=False)


_look_up_parameters = functools.cache(ipkernel._accepts_parameters)


def _accepts_parameters(method: Any, names: list[str]) -> Any:
    return _look_up_parameters(method, tuple(names))


def bound(reply: dict[str, Any]) -> None:
    """Leave out of a reply what could make it too large for the host, which needs it.

    All of an error is in the message of its own that went before; the host takes that if it can.
    """
    reply['payload'] = []  # texts for an editor or the next cell, which the host does not have
    if reply['status'] == 'error':
        reply['evalue'] = shortened(reply['evalue'])
        reply['traceback'] = [shortened('\n'.join(map(str, reply['traceback'])))]


def shortened(text: str) -> str:
    """Return a text, or its head and its tail and how much is left out between them."""
    excess = len(text) - MOST_OF_ERROR
    if excess <= 0:
        return text
    half = MOST_OF_ERROR // 2
    return f'{text[:half]}\n[... {excess:,} characters left out ...]\n{text[-half:]}'


def start_in_context(self: threading.Thread, start: Any = threading.Thread.start) -> None:
    """Start a thread with its starter's context, so that its output stays with that cell."""
    self.run = functools.partial(contextvars.copy_context().run, self.run)  # type: ignore[method-assign]
    start(self)


def rehearse() -> None:
    """Do what the first cell would have to do: compile the patterns that tell tokens."""
    TransformerManager().transform_cell('1')


def seed_font_cache() -> None:
    """Give matplotlib the image's font cache: it wants a folder it may write to."""
    seed, target = os.environ.pop('SANDBOX_FONT_CACHE', ''), os.environ.get('MPLCONFIGDIR', '')
    if seed and target:
        with contextlib.suppress(OSError):
            shutil.copytree(seed, target)


def prepare_for_code(workspace: str) -> None:
    """Do what involves places that code may write to. The host has sealed its folder by now."""
    sys.path.append(workspace)
    seed_font_cache()


def run(connection_file: str, workspace: str) -> None:
    """Serve the kernel of a connection file until it is told to shut down.

    Args:
        connection_file: Jupyter connection file with an `ipc` address.
        workspace: the folder the code works in; modules in it can be imported, but hide none of
            the installed ones.
    """
    warnings.filterwarnings('ignore', message='To exit: use')
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShellApp.ignore_cwd = True
    config.InteractiveShell.colors = 'nocolor'
    config.InteractiveShell.display_page = True  # the host has no pager: `len?` is output like any
    config.Completer.use_jedi = False
    config.IPKernelApp.outstream_class = f'{Stream.__module__}.Stream'
    # Each cell would sleep that long in case its output is late: the host waits for it anyway.
    config.Kernel._execute_sleep = 0.0
    app = App.instance(config=config, connection_file=connection_file)
    app.initialize([])
    app.log.setLevel(app.log_level)  # else records are made that nobody sees
    ipkernel._accepts_parameters = _accepts_parameters
    app.kernel.workspace = Listing(workspace)
    app.kernel.before_code = functools.partial(prepare_for_code, workspace)
    os.chdir(workspace)
    threading.Thread.start = start_in_context  # type: ignore[method-assign]
    app.start()
