"""The kernel of a sandbox: a stock IPython kernel, made fit for code that nobody has read.

What differs from `python -m ipykernel`: it keeps no history, and reads no start-up or configuration
file; `exit()` is an error of the cell and not the end of the session; output survives whatever the
code did to `sys.stdout`, to descriptors 1 and 2, or put into a string; every request is answered,
even when an exception cannot be printed; and no output is dropped when the host reads slowly.

The folder of sockets lies on the host's disk and is open while a kernel starts. A kernel that
follows another one finds that one's files, so until its first cell it reads, makes and imports
nothing in a place that code can write to.
"""

import codecs
import contextlib
import contextvars
import faulthandler
import functools
import importlib
import json
import os
import select
import shutil
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zmq
from ipykernel.iostream import OutStream
from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp
from ipykernel.zmqshell import ZMQInteractiveShell
from IPython.core.autocall import ZMQExitAutocall
from IPython.core.profiledir import ProfileDir
from jupyter_client.jsonutil import json_clean, json_default
from traitlets import Type, default, observe
from traitlets.config import Config

sys.modules['debugpy'] = None  # type: ignore[assignment]
"""The debugger is of no use here, and to import it takes a quarter of the kernel's start."""
for _name in (
    *('IPython.core.completerlib', 'IPython.core.debugger', 'IPython.core.oinspect'),
    *('IPython.extensions.storemagic', 'ipykernel.debugger'),
    *('tornado.platform.asyncio', 'tornado.queues', 'unicodedata'),
):
    importlib.import_module(_name)  # a kernel that is forked from here has them, too

IOPUB_HIGH_WATER_MARK = 100_000
_ASYNCIO_HINT = 'An event loop is running in this session already: write `await main()` instead.'


def _spell_out(error: UnicodeError) -> tuple[str, int]:
    """Write what UTF-8 cannot hold as the text of its escape, ready for use inside JSON."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    bad = error.object[error.start : error.end]
    return ''.join(f'\\\\u{ord(character):04x}' for character in bad), error.end


def pack(message: Any) -> bytes:
    """Turn a message into JSON; half a surrogate pair in a string must not cost the message."""
    try:
        text = json.dumps(message, default=json_default, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError):
        text = json.dumps(json_clean(message), default=json_default, ensure_ascii=False)
    return text.encode('utf-8', 'sandbox.spell_out')


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
        super().showtraceback(*args, **kwargs)


class _Printable:
    """An exception's text that does not fail, for code that calls `str` on it."""

    def __init__(self, error: object) -> None:
        self._error = error

    def __str__(self) -> str:
        try:
            return str(self._error)
        except BaseException as failure:
            return f'<str() of the exception failed with {type(failure).__name__}>'


class Stream(OutStream):
    """An output stream that has taken everything from its pipe when a cell is reported as ended.

    What child processes and libraries write to descriptor 1 or 2 comes through a pipe, read by a
    thread. The cell may be over before that thread runs, and the next one would get the output.

    And no message is larger than the host wants to read: what is printed at once, or faster than
    it is sent, goes out in pieces.
    """

    PIECE = 1 << 18
    CHUNK, MOST_CHUNKS = 1 << 16, 16  # together as much as a pipe can hold

    def write(self, string: str) -> int:
        """Write a text."""
        if not isinstance(string, str):
            raise TypeError(f'write() argument must be str, not {type(string).__name__}')
        for start in range(0, len(string), self.PIECE):
            piece = string[start : start + self.PIECE]
            super().write(piece)
            self._unsent += len(piece)
            if self._unsent >= self.PIECE:
                self._unsent = 0
                self.flush()
        return len(string)

    def fileno(self) -> int:
        """Return the captured descriptor, so that what children write to it is seen."""
        return int(self._original_stdstream_fd)

    def drain(self) -> None:
        """Take what was written to the pipe until now."""
        with self._draining:
            for _ in range(self.MOST_CHUNKS):
                try:
                    data = os.read(self._fid, self.CHUNK)
                except BlockingIOError:
                    return
                self.write(self._decoder.decode(data))

    def _setup_stream_redirects(self, name: str) -> None:
        self._unsent = 0
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


class Kernel(IPythonKernel):
    """The kernel that answers the host's requests."""

    shell_class = Type(Shell)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.before_code: Callable[[], None] | None = None
        self._streams = sys.stdout, sys.stderr
        self._pipes = {number: os.dup(number) for number in (1, 2)}

    def set_parent(self, ident: Any, parent: Any, channel: str = 'shell') -> None:
        """Undo what the last cell did to its output streams before the next one begins."""
        if channel == 'shell':
            self._drain()
            sys.stdout, sys.stderr = self._streams
            for number, pipe in self._pipes.items():
                with contextlib.suppress(OSError):
                    os.dup2(pipe, number)
        super().set_parent(ident, parent, channel)

    async def do_execute(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Run a cell; a failure while its failure is reported is answered as well."""
        try:
            if self.before_code:
                prepare, self.before_code = self.before_code, None
                prepare()
            return await super().do_execute(*args, **kwargs)
        except BaseException as error:
            return {
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

    def _drain(self) -> None:
        for stream in self._streams:
            stream.drain()


class Profile(ProfileDir):
    """Where a cell's `%store` and the like keep things, made when they ask for it."""

    @observe('location')
    def _location_changed(self, _: Any) -> None:
        """Make no folder."""


class App(IPKernelApp):
    """Sets up the kernel's sockets and streams."""

    kernel_class = Type(Kernel)

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
        codecs.register_error('sandbox.spell_out', _spell_out)
        self.session.pack = pack
        previous = os.umask(0)
        try:
            super().init_sockets()
        finally:
            self._umask = previous

    def init_iopub(self, context: Any) -> None:
        """Queue output for a slow reader, and wait for the reader once the queue is full."""
        context.sndhwm = IOPUB_HIGH_WATER_MARK
        super().init_iopub(context)
        self.iopub_thread.socket.setsockopt(zmq.XPUB_NODROP, 1)

    def init_heartbeat(self) -> None:
        """Bind the last socket."""
        super().init_heartbeat()
        os.umask(self._umask)

    def init_io(self) -> None:
        """Capture the streams, and let a crash leave its trace where the supervisor reads it."""
        super().init_io()
        faulthandler.enable(sys.stderr._original_stdstream_copy, all_threads=False)


def start_in_context(self: threading.Thread, start: Any = threading.Thread.start) -> None:
    """Start a thread with its starter's context, so that its output stays with that cell."""
    self.run = functools.partial(contextvars.copy_context().run, self.run)  # type: ignore[method-assign]
    start(self)


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
    config.Completer.use_jedi = False
    config.IPKernelApp.outstream_class = f'{__name__}.Stream'
    # Each cell would sleep that long in case its output is late: the host waits for it anyway.
    config.Kernel._execute_sleep = 0.0
    app = App.instance(config=config, connection_file=connection_file)
    app.initialize([])
    app.kernel.before_code = functools.partial(prepare_for_code, workspace)
    os.chdir(workspace)
    threading.Thread.start = start_in_context  # type: ignore[method-assign]
    app.start()
