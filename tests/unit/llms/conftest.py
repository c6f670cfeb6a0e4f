"""A server on loopback that says what a test tells it to, byte for byte if need be."""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

JSON = 'application/json'
EVENTS = 'text/event-stream'


@dataclass
class Reply:
    """One answer of the server.

    `pieces` are sent as they are, one write each, with `pause` seconds between them; with `cut`
    the connection is closed after them although more was announced, and with `hang` nothing more
    comes until the test is over.
    """

    status: int = 200
    pieces: list[bytes] = field(default_factory=list)
    content_type: str = JSON
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    hang: bool = False
    pause: float = 0.0


def message(content: Any = None, finish_reason: str | None = 'stop', **fields: Any) -> Reply:
    """A whole reply with one message."""
    said = {'role': 'assistant', 'content': content, **fields}
    usage = {'prompt_tokens': 11, 'completion_tokens': 7}
    return document(
        {'choices': [{'index': 0, 'message': said, 'finish_reason': finish_reason}], 'usage': usage}
    )


def document(value: Any, status: int = 200, **headers: str) -> Reply:
    """A JSON document."""
    headers = {name.replace('_', '-'): text for name, text in headers.items()}
    return Reply(status, [json.dumps(value).encode()], headers=headers)


def failure(status: int, code: Any = None, text: str = 'no', **headers: str) -> Reply:
    """An error in the protocol's form."""
    return document({'error': {'message': text, 'code': code}}, status, **headers)


def events(*items: Any, done: bool = True, **fields: Any) -> Reply:
    """A stream: texts become chunks of content, dicts are sent as they are."""
    chunks = [
        {'choices': [{'index': 0, 'delta': {'content': item}}]} if isinstance(item, str) else item
        for item in items
    ]
    pieces = [b'data: ' + json.dumps(chunk).encode() + b'\n\n' for chunk in chunks]
    if done:
        pieces.append(b'data: [DONE]\n\n')
    return Reply(pieces=pieces, content_type=EVENTS, **fields)


def ends(finish_reason: str = 'stop') -> dict[str, Any]:
    """The chunk that ends a reply."""
    return {'choices': [{'index': 0, 'delta': {}, 'finish_reason': finish_reason}]}


class FakeServer:
    """Gives the replies in order, the last one again and again, and keeps what it was asked."""

    def __init__(self, replies: tuple[Reply | Callable[[dict[str, Any]], Reply], ...]) -> None:
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.connections: set[Any] = set()
        self.over = threading.Event()
        self._replies = replies
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = 'HTTP/1.1'

            def log_message(self, *args: Any) -> None:
                pass

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers['content-length'])))
                headers = {name.lower(): value for name, value in self.headers.items()}
                outer._answer(self, body, headers)

        self._http = ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        self.base = f'http://127.0.0.1:{self._http.server_port}/v1'
        self.url = f'{self.base}/chat/completions'
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))
        self._thread.start()

    def _answer(
        self, handler: BaseHTTPRequestHandler, body: dict[str, Any], headers: dict[str, str]
    ) -> None:
        with self._lock:
            reply = self._replies[min(len(self.requests), len(self._replies) - 1)]
            self.requests.append(body)
            self.headers.append(headers)
            self.paths.append(handler.path)
            self.connections.add(handler.client_address)
        if not isinstance(reply, Reply):
            reply = reply(body)
        handler.send_response(reply.status)
        handler.send_header('content-type', reply.content_type)
        handler.send_header('transfer-encoding', 'chunked')
        for name, value in reply.headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        try:
            for piece in reply.pieces:
                handler.wfile.write(b'%x\r\n%s\r\n' % (len(piece), piece))
                handler.wfile.flush()
                if reply.pause and self.over.wait(reply.pause):
                    break
            if reply.hang:
                self.over.wait(30)
            if reply.cut or reply.hang:
                handler.close_connection = True
            else:
                handler.wfile.write(b'0\r\n\r\n')
        except OSError:  # the client has left
            handler.close_connection = True

    def close(self) -> None:
        self.over.set()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


@pytest.fixture
def serve() -> Iterator[Callable[..., FakeServer]]:
    """Start a server that gives these replies."""
    servers: list[FakeServer] = []

    def start(*replies: Reply | Callable[[dict[str, Any]], Reply]) -> FakeServer:
        servers.append(FakeServer(replies))
        return servers[-1]

    yield start
    for server in servers:
        server.close()
