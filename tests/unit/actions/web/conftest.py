"""A web server on loopback that answers as a test says, and records what it was asked."""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

LOOPBACK = ('127.0.0.0/8',)


@dataclass
class Answer:
    """One answer. With `hang` it never ends; with `endless` the body comes again and again."""

    body: bytes = b''
    status: int = 200
    content_type: str = 'text/html; charset=utf-8'
    headers: dict[str, str] = field(default_factory=dict)
    hang: bool = False
    endless: bool = False


@dataclass
class Asked:
    """One request."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Route = Answer | list[Answer] | Callable[[Asked], Answer]


def as_json(value: Any, status: int = 200, **headers: str) -> Answer:
    headers = {name.replace('_', '-'): text for name, text in headers.items()}
    return Answer(json.dumps(value).encode(), status, 'application/json', headers)


def page(html: str) -> Answer:
    return Answer(html.encode())


class WebServer:
    """Answers by path; a list of answers is given one after the other, the last one again."""

    def __init__(self, routes: dict[str, Route]) -> None:
        self.routes = routes
        self.asked: list[Asked] = []
        self.over = threading.Event()
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = 'HTTP/1.1'

            def log_message(self, *args: Any) -> None:
                pass

            def do_GET(self) -> None:
                outer._answer(self)

            do_POST = do_GET

        self._http = ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        self.url = f'http://127.0.0.1:{self._http.server_port}'
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))
        self._thread.start()

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(handler.path)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        headers = {name.lower(): value for name, value in handler.headers.items()}
        body = handler.rfile.read(int(headers.get('content-length', 0)))
        asked = Asked(handler.command, parts.path, query, headers, body)
        with self._lock:
            self.asked.append(asked)
            number = sum(one.path == parts.path for one in self.asked)
        route = self.routes.get(parts.path, Answer(b'no such page', 404, 'text/plain'))
        if callable(route):
            answer = route(asked)
        else:
            answer = route[min(number, len(route)) - 1] if isinstance(route, list) else route
        handler.send_response(answer.status)
        handler.send_header('content-type', answer.content_type)
        for name, value in answer.headers.items():
            handler.send_header(name, value)
        if not (answer.hang or answer.endless):
            handler.send_header('content-length', str(len(answer.body)))
        handler.send_header('connection', 'close')
        handler.end_headers()
        try:
            handler.wfile.write(answer.body)
            while answer.endless and not self.over.is_set():
                handler.wfile.write(answer.body)
            if answer.hang:
                self.over.wait(30)
        except OSError:  # the client has left
            pass
        handler.close_connection = True

    def close(self) -> None:
        self.over.set()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


@pytest.fixture
def web() -> Iterator[Callable[..., WebServer]]:
    """Start a server with these routes."""
    servers: list[WebServer] = []

    def start(routes: dict[str, Route]) -> WebServer:
        servers.append(WebServer(routes))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture(autouse=True)
def quick_and_keyless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits between attempts take no time, and no key or proxy of this machine is used."""
    for name in ('SERPER_API_KEY', 'SERPAPI_API_KEY', 'BING_MAP_KEY'):
        monkeypatch.delenv(name, raising=False)
    for name in ('http_proxy', 'https_proxy', 'all_proxy'):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setattr('lagent.actions.web.client._CAP', 0.0)
    monkeypatch.setattr('lagent.actions.arxiv_search._ArxivSearch.pace.interval', 0.0)
