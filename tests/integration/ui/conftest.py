"""A served page, and a browser that looks at it."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest
import uvicorn

from lagent.actions import Interpreter
from lagent.agents import DataAnalyst
from lagent.llms import ScriptedModel
from lagent.ui.app import Pages
from lagent.ui.security import Keys
from lagent.ui.sessions import Sessions

ARGUMENTS = [
    *('--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-sync'),
    *('--disable-background-networking', '--disable-component-update'),
]
WATCH = """
window.violations = [];
document.addEventListener('securitypolicyviolation', (event) => {
  window.violations.push(`${event.violatedDirective} ${event.blockedURI}`);
});
"""


class Served:
    """The page of an analyst, served on a port of its own."""

    def __init__(self, analyst: Any, files: Any) -> None:
        self.keys = Keys()
        self.sessions = Sessions(analyst, files)
        self.pages = Pages(self.sessions, self.keys, 'scripted')
        with socket.socket() as free:
            free.bind(('127.0.0.1', 0))
            self.port = free.getsockname()[1]
        self.origin = f'http://127.0.0.1:{self.port}'
        self.url = self.origin + self.keys.base
        self.start()

    def start(self) -> None:
        config = uvicorn.Config(
            self.pages.app('127.0.0.1'), port=self.port, log_level='error', lifespan='off'
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run)
        self._thread.start()
        wait_until(lambda: self._server.started)

    def stop(self) -> None:
        """End the server at once, as if it were not reached any more; the sessions go on."""
        self._server.should_exit = self._server.force_exit = True
        self._thread.join()

    def client(self, **options: Any) -> httpx.Client:
        """A client that is let in."""
        return httpx.Client(
            base_url=self.url,
            headers={'x-lagent': '1'},
            cookies={'lagent-ui': self.keys.cookie},
            timeout=60,
            **options,
        )

    def idle(self) -> None:
        """Wait until nothing is being done."""
        wait_until(lambda: not any(session.is_busy for session in self.sessions.all()))


def wait_until(condition: Callable[[], bool], seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, 'it did not come about'
        time.sleep(0.02)


@pytest.fixture
def served() -> Iterator[Callable[..., Served]]:
    """Serves the page of an analyst with a scripted model."""
    with ExitStack() as stack:

        def start(replies: Any, files: Any = (), backend: str = 'local') -> Served:
            interpreter = Interpreter(backend=backend, unsafe=backend == 'local', timeout=60)
            model = replies if hasattr(replies, 'chat') else ScriptedModel(replies)
            analyst = stack.enter_context(DataAnalyst(model, interpreter))
            page = Served(analyst, files)
            stack.callback(page.idle)
            stack.callback(page.sessions.close_all)
            stack.callback(page.stop)
            return page

        yield start


class Stranger(ThreadingHTTPServer):
    """A server that all names under ``.example`` lead to; it notes who speaks with it."""

    def __init__(self) -> None:
        super().__init__(('127.0.0.1', 0), BaseHTTPRequestHandler)
        self.connections = 0

    def verify_request(self, request: Any, address: Any) -> bool:
        self.connections += 1
        return False


@pytest.fixture(scope='session')
def stranger() -> Iterator[Stranger]:
    with Stranger() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(scope='session')
def browser(chromium_path: str, stranger: Stranger) -> Iterator[Any]:
    """A headless Chromium."""
    from playwright.sync_api import sync_playwright

    rule = f'--host-resolver-rules=MAP *.example 127.0.0.1:{stranger.server_port}'
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=chromium_path, args=[*ARGUMENTS, rule]
        )
        yield launched
        launched.close()


class Visit:
    """A browser window with the page, and what has happened in it."""

    def __init__(self, browser: Any, served: Served, **options: Any) -> None:
        self.served = served
        self.requests: list[str] = []
        self.dialogs: list[str] = []
        self.errors: list[str] = []
        self.context = browser.new_context(**options)
        self.context.set_default_timeout(60_000)
        self.context.add_init_script(WATCH)
        self.page = self.context.new_page()
        self.page.on('request', lambda request: self.requests.append(request.url))
        self.page.on('pageerror', lambda error: self.errors.append(str(error)))
        self.page.on('dialog', self._answer)
        self.page.goto(served.keys.link(served.origin))
        self.page.wait_for_selector('textarea')
        self.page.wait_for_load_state()  # its script has run

    def _answer(self, dialog: Any) -> None:
        self.dialogs.append(dialog.message)
        dialog.accept()

    def ask(self, question: str, pane: int = 1) -> None:
        """Ask a question, and wait until the page shows it."""
        asked = f'#pane-{pane} .question'
        before = self.count(asked)
        field = self.page.locator(f'#text-{pane}')
        field.fill(question)
        field.press('Enter')
        self.page.wait_for_selector(f':nth-match({asked}, {before + 1})')

    def answered(self) -> None:
        """Wait until nothing is being done, and the page shows all that was."""
        self.served.idle()
        count = self.served.sessions.changes.count
        self.page.wait_for_function('count => Number(seen) >= count', arg=count)

    def count(self, selector: str) -> int:
        return int(self.page.locator(selector).count())

    def clean(self) -> None:
        """Nothing was asked of anybody else, and nothing was refused to the page itself."""
        elsewhere = [url for url in self.requests if not url.startswith(self.served.origin)]
        assert [url for url in elsewhere if not url.startswith('blob:')] == []
        assert self.page.evaluate('window.violations') == []
        assert self.errors == []
        assert self.dialogs == []


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Visit]]:
    """Opens the page in a window of its own."""
    visits: list[Visit] = []

    def open_(served: Served, **options: Any) -> Visit:
        visits.append(Visit(browser, served, **options))
        return visits[-1]

    yield open_
    for each in visits:
        each.context.close()
