"""Serves the page until the program is told to stop."""

import signal
import socket
import tempfile
import threading
import webbrowser
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from markupsafe import escape
from rich.console import Console
from rich.text import Text

from lagent.distributed.http_serve.client import is_loopback
from lagent.errors import ConfigError
from lagent.llms.effect import model_name
from lagent.ui.app import Pages
from lagent.ui.security import Keys, called
from lagent.ui.sessions import Sessions

_GRACE = 2  # seconds that open connections have when the server ends


def serve(
    analyst: Any,
    files: Iterable[Path] = (),
    *,
    host: str = '127.0.0.1',
    port: int = 0,
    open_browser: bool = True,
    console: Console | None = None,
) -> None:
    """Serve the page of a data analyst until Ctrl-C.

    Args:
        analyst: a `DataAnalyst`; every session of the page is one of its sessions.
        files: files that each session starts with.
        host: address to listen at. Others than loopback are reached by other machines, and what
            goes over the network there can be read on the way.
        port: port to listen at; 0 for a free one.
        open_browser: whether a browser is opened.
        console: where to say the address; the terminal by default.

    Raises:
        ConfigError: the address can't be listened at.
        ExtraMissing: the extra `ui` is not installed.
    """
    console = console or Console(stderr=True)
    listening = _listening(host, port)
    with listening:
        origin = _origin(host, listening.getsockname()[1])
        keys = Keys(lambda: _tell(console, 'For another browser, once:', keys.link(origin)))
        sessions = Sessions(analyst, files)
        pages = Pages(sessions, keys, model_name(analyst.agent.llm))
        config = uvicorn.Config(
            pages.app(host),
            log_level='warning',
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_GRACE,
            timeout_keep_alive=30,
            limit_concurrency=200,
            h11_max_incomplete_event_size=64 * 1024,
        )
        server = _Server(config, pages)
        if not is_loopback(host):
            words = 'Whoever is on the network can read what goes over it: there is no encryption.'
            console.print(Text(f'{words} Better: ssh -L to the machine.', style='yellow'))
        _tell(console, 'The page, once:', keys.link(origin))
        console.print('Ctrl-C ends, and removes the sandboxes.', style='dim')
        try:
            # Ctrl-C, which uvicorn raises once more when it has ended, is how one leaves.
            with _opened(keys.link(origin), open_browser), suppress(KeyboardInterrupt):
                server.run(sockets=[listening])
        finally:
            sessions.close_all()


class _Server(uvicorn.Server):
    """Ends the streams when it is told to end, since it waits for all connections."""

    def __init__(self, config: uvicorn.Config, pages: Pages) -> None:
        super().__init__(config)
        self._pages = pages

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._pages.live.end()
        # Raised again in the end: a SIGTERM would then kill the program with its sandboxes there.
        super().handle_exit(signal.SIGINT, frame)


def _listening(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen()  # a browser that is faster than the server waits for it
        except OSError:
            listening.close()
            raise
    except (OSError, OverflowError) as error:
        raise ConfigError(f'{host} port {port} can not be listened at: {error}') from error
    return listening


def _origin(host: str, port: int) -> str:
    name = called(host)
    return f'http://[{name}]:{port}' if ':' in name else f'http://{name}:{port}'


def _tell(console: Console, words: str, link: str) -> None:
    console.print(Text(f'{words}\n  {link}'), soft_wrap=True)


@contextmanager
def _opened(link: str, wanted: bool) -> Iterator[None]:
    """Open a browser, by a file: other users of the machine see the arguments of programs."""
    if not wanted:
        yield
        return
    with tempfile.TemporaryDirectory(prefix='lagent-ui-') as folder:
        page = Path(folder, 'open.html')
        address = escape(link)
        page.write_text(
            '<!doctype html><meta charset="utf-8"><title>lagent</title>'
            f'<meta http-equiv="refresh" content="0;url={address}"><a href="{address}">lagent</a>',
            'utf-8',
        )
        # Some of the programs that open a browser end when the browser does.
        threading.Thread(target=webbrowser.open, args=(page.as_uri(),), daemon=True).start()
        yield
