"""The processes of a session: its kernel, what that is forked from, and how all of them end."""

import argparse
import importlib
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any, NoReturn

from . import frames, processes, zygote

MAX_MODULES, MAX_MODULE_NAME = 64, 200
KILL_PATIENCE = 5.0
FAILED = 1 << 8
"""What `waitpid` says of a process that has ended with code 1."""


def _sibling(name: str) -> ModuleType:
    return importlib.import_module(f'{__package__}.{name}')


class Session:
    """The kernel and the zygote.

    Args:
        options: Those of the command line.
        handover: The bridge that this supervisor serves, if there is one.
        selector: Where their pipes are registered, with what is to be called as data.
        report: Tells the owner of an event.
        leave: In a child, lets go of what belongs to the supervisor's loop.

    Attributes:
        kernel: The current kernel, or how the last one ended.
    """

    def __init__(
        self,
        options: argparse.Namespace,
        handover: Any,
        selector: selectors.BaseSelector,
        report: Callable[[dict[str, Any]], None],
        leave: Callable[[], None],
    ) -> None:
        self._options, self._handover, self._selector = options, handover, selector
        self._report, self._leave = report, leave
        self.kernel = processes.Kernel()
        self._zygote: zygote.Zygote | None = None
        # gVisor gives orphans to the first process, which is the bridge.
        self._roots = {os.getpid()} if handover is None else {os.getpid(), os.getppid()}

    @property
    def runs(self) -> bool:
        """Whether there is a kernel, or one on its way."""
        return bool(self.kernel.pid or self.kernel.starting)

    def start(self) -> None:
        """Start a kernel.

        Raises:
            OSError: There is no process left.
        """
        if self._handover is not None:
            self._handover.renew(self._options.dir)
        if self._options.forward:
            self._start_forwarder(*self._options.forward)
        source = self._zygote or self._spawn_zygote()
        self.kernel.begins()
        self._ask_for_kernel(source)

    def preload(self, modules: object) -> None:
        """Have libraries imported where the next kernel comes from.

        Raises:
            RequestError: There are too many, or nobody to import them.
        """
        if (
            not isinstance(modules, list)
            or len(modules) > MAX_MODULES
            or not all(isinstance(n, str) and len(n) <= MAX_MODULE_NAME for n in modules)
        ):
            raise frames.RequestError('bad_request', 'modules must be a list of names')
        if self._zygote is None:
            raise frames.RequestError('ended', 'the process that would import them has ended')
        self._zygote.preload(modules)

    def signal(self, number: int) -> None:
        """Send a signal to the kernel's process group.

        Raises:
            RequestError: There is no kernel, or no such signal.
        """
        self.hear()  # the kernel may already run what a signal is meant for
        if not self.kernel.pid:
            raise frames.RequestError('ended', 'no kernel is running')
        try:
            os.killpg(self.kernel.pid, number)
        except (OSError, OverflowError) as error:
            raise frames.RequestError('bad_request', str(error)) from None

    def kill(self, helpers: set[int], pause: Callable[[], None], *, zygote_too: bool) -> bool:
        """End every process of the session, and tell whether none is left.

        All are stopped first, since a stopped process cannot fork, and killed afterwards.

        Args:
            helpers: Children of the supervisor that are spared.
            pause: Waits a moment, and takes note of processes that have ended.
            zygote_too: Whether the next kernel shall not come from the same zygote.
        """
        spared = helpers.copy()
        if self._zygote and self._zygote.owes:
            self._zygote.proven = False  # it has the kernel, and is not given another chance
        elif self._zygote and not zygote_too:
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
            pause()
        return not left

    def ended(self, pid: int, status: int) -> None:
        """Take note of the end of a process, as `waitpid` tells it."""
        self.hear()  # which may have just told whose end this is
        if pid == self.kernel.pid:
            self._report(self.kernel.ended(status))
        elif self._zygote and pid == self._zygote.pid:
            self._lose_zygote(status)

    def hear(self, _: int = selectors.EVENT_READ) -> None:
        """Take note of what the zygote has told."""
        for answer in self._zygote.answers() if self._zygote else ():
            if answer.get('pid'):
                self.kernel.began(answer['pid'])
                if answer['pid'] == self._zygote.pid:
                    self._forget_zygote()
                    return
            elif 'pid' in answer:
                self._report(self.kernel.ended(FAILED))
            else:
                self._report({'event': 'preloaded', 'failed': answer['preloaded']})

    # The zygote

    def _spawn_zygote(self) -> zygote.Zygote:
        self._zygote = zygote.Zygote.spawn(self._become_zygote)
        self._selector.register(self._zygote.channel, selectors.EVENT_READ, self.hear)
        return self._zygote

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

    def _ask_for_kernel(self, source: zygote.Zygote) -> None:
        self._close_log()
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        self.kernel.logs_to(reader)
        self._selector.register(reader, selectors.EVENT_READ, self._read_log)
        source.start(writer)
        os.close(writer)

    def _read_log(self, _: int) -> None:
        if not self.kernel.read_log():
            self._close_log()

    def _close_log(self) -> None:
        if self.kernel.log_pipe >= 0:
            self._selector.unregister(self.kernel.log_pipe)
            os.close(self.kernel.log_pipe)
            self.kernel.log_pipe = -1

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
        self._report(self.kernel.ended(status))

    # The forwarder

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
