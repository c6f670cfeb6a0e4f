"""Who may speak with the page, and what the browser is told about each answer.

The page runs code in a sandbox with the user's model and keys, and other users and other web pages
of the machine reach loopback as well. So every request needs a cookie that only the browser has
that was opened with a link of one use; it is sent by pages of the same origin alone, to a path that
others don't know, since cookies don't tell ports apart. The name in ``Host`` must be this machine's
(against a name of a stranger that leads here), and what changes something must come from the page
itself (``Origin``, ``Sec-Fetch-Site``) with a header that no form can send.
"""

import hmac
import ipaddress
import secrets
import socket
import threading
from collections.abc import Callable
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lagent.distributed.http_serve.client import is_loopback

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "frame-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
"""The policy of the page: only its own files run, and it can't be framed."""

FRAMED = (
    "sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'; form-action 'none'; "
    "base-uri 'none'; frame-ancestors 'self'"
)
"""The policy of what came out of a sandbox: an origin of its own, no scripts, nothing is loaded."""

COOKIE = 'lagent-ui'
HEADER = 'x-lagent'

_HEADERS = {
    'content-security-policy': POLICY,
    'x-content-type-options': 'nosniff',
    'x-frame-options': 'DENY',
    'referrer-policy': 'no-referrer',
    # Else the names of all links are looked up, and a name can carry what nobody should know.
    'x-dns-prefetch-control': 'off',
    'cross-origin-opener-policy': 'same-origin',
    'cross-origin-resource-policy': 'same-origin',
    'permissions-policy': 'camera=(), geolocation=(), microphone=(), payment=(), usb=()',
    'cache-control': 'no-store',
}


class Keys:
    """The secrets of one server: the path of the page, the cookie, and links of one use.

    Args:
        on_used: called when a link was used, and there is another one.
    """

    def __init__(self, on_used: Callable[[], None] | None = None) -> None:
        self.base = f'/{secrets.token_urlsafe(9)}'
        self.cookie = secrets.token_urlsafe(32)
        self._on_used = on_used
        self._lock = threading.Lock()
        self.token = secrets.token_urlsafe(32)

    def link(self, origin: str) -> str:
        """A link that opens the page once.

        Args:
            origin: where the server listens, such as ``http://127.0.0.1:8000``.

        Returns:
            The address.
        """
        return f'{origin}{self.base}/enter?token={quote(self.token)}'

    def use(self, token: str) -> bool:
        """Use a link.

        Args:
            token: its token.

        Returns:
            Whether it was good. It is not any more, then.
        """
        with self._lock:
            if not _equal(token, self.token):
                return False
            self.token = secrets.token_urlsafe(32)
        if self._on_used is not None:
            self._on_used()
        return True

    def knows(self, cookie: str | None) -> bool:
        """Whether a cookie is the one of this server."""
        return cookie is not None and _equal(cookie, self.cookie)


class Guard:
    """An ASGI layer that turns strangers away, and puts the policies on every answer.

    Args:
        app: what is guarded.
        keys: the secrets.
        host: the address that the server listens at.
    """

    def __init__(self, app: ASGIApp, keys: Keys, host: str) -> None:
        self._app, self._keys, self._host = app, keys, host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope['type'] != 'http':
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message['type'] == 'http.response.start':
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        reason = self._refusal(scope)
        if reason:
            await _refuse(guarded, reason)
        else:
            await self._app(scope, receive, guarded)

    def _refusal(self, scope: Scope) -> str:
        headers = Headers(scope=scope)
        if not is_own_host(headers.get('host', ''), self._host):
            return 'This name does not belong to this server.'
        path, base = scope['path'], self._keys.base
        if path == f'{base}/enter' and scope['method'] in ('GET', 'HEAD'):
            return ''
        if headers.get('sec-fetch-site', 'none') not in ('same-origin', 'none'):
            return 'Another web page asked for this.'
        if path.startswith(f'{base}/static/'):
            return ''
        if not self._keys.knows(Request(scope).cookies.get(COOKIE)):
            return 'Open the link that `lagent ui` has printed.'
        if scope['method'] in ('GET', 'HEAD'):
            return ''
        origin = headers.get('origin')
        if origin is not None and urlsplit(origin).netloc != headers.get('host'):
            return 'Another web page asked for this.'
        if HEADER not in headers:
            return f'The header {HEADER} is missing.'
        return ''


def is_own_host(header: str, bound: str) -> bool:
    """Whether the name that a browser asks for can be this server's.

    A name of a stranger's can be made to lead here; an address can't, and neither can localhost.

    Args:
        header: the header ``Host``.
        bound: the address that the server listens at.

    Returns:
        Whether it is one.
    """
    try:
        name = urlsplit(f'//{header}').hostname or ''
    except ValueError:
        return False
    if name in ('localhost', bound.lower(), called(bound).lower()):  # `hostname` is in lower case
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    return address.is_loopback or not is_loopback(bound)


def called(bound: str) -> str:
    """What a server is called in the links to it.

    Args:
        bound: the address that it listens at.

    Returns:
        The same, but for all addresses of the machine the machine's name.
    """
    try:
        is_any = ipaddress.ip_address(bound).is_unspecified
    except ValueError:
        return bound
    return socket.gethostname() if is_any else bound


def _equal(given: str, right: str) -> bool:
    return hmac.compare_digest(given.encode('utf-8', 'replace'), right.encode())


async def _refuse(send: Send, reason: str) -> None:
    body = f'{reason}\n'.encode()
    headers = [
        (b'content-type', b'text/plain; charset=utf-8'),
        (b'content-length', str(len(body)).encode()),
    ]
    await send({'type': 'http.response.start', 'status': 403, 'headers': headers})
    await send({'type': 'http.response.body', 'body': body})
