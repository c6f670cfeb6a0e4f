"""What a client asks of a proxy over HTTP/1. Reads bytes of a hostile client and does no I/O.

A tunnel is asked for with `CONNECT host:port`. Any other request has an absolute `http://` address
and is written anew: for the host that was checked, one request a connection, its body counted.
"""

import re
from dataclasses import dataclass
from http import HTTPStatus

MAX_HEAD = 16 * 1024

_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TARGET = re.compile(rb'[\x21-\x7e\x80-\xff]+')
_VALUE = re.compile(rb'[\t\x20-\x7e\x80-\xff]*')
_AUTHORITY = re.compile(r'([^\s:@/?#\[\]]+|\[[0-9A-Fa-f:.%a-z]*\])(?::([0-9]{1,5}))?')
_HOP_BY_HOP = frozenset(
    {
        *(b'connection', b'proxy-connection', b'keep-alive', b'proxy-authorization', b'te'),
        *(b'proxy-authenticate', b'trailer', b'transfer-encoding', b'upgrade'),
        *(b'host', b'content-length'),  # written anew
    }
)


class BadRequest(Exception):
    """A request that is refused whoever it is for.

    Args:
        status: What to answer.
        why: What is wrong with it.
    """

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status, self.why = status, why


@dataclass(frozen=True)
class Request:
    """A request that keeps to the rules; nothing is said about whether it may be made.

    Attributes:
        host: Host as the client wrote it.
        port: Port.
        head: What to send there first; None for a tunnel.
        body: Bytes of the client's that follow.
    """

    host: str
    port: int
    head: bytes | None = None
    body: int = 0


def parse_request(data: bytes) -> Request:
    """Read the head of a request, with the empty line at its end.

    Raises:
        BadRequest: It does not keep to the rules.
    """
    line, *lines = data.removesuffix(b'\r\n\r\n').split(b'\r\n')
    parts = line.split(b' ')
    if len(parts) != 3 or parts[2] not in (b'HTTP/1.0', b'HTTP/1.1'):
        raise _malformed()
    method, target, version = parts
    if not _TOKEN.fullmatch(method) or not _TARGET.fullmatch(target):
        raise _malformed()
    headers = [_header(each) for each in lines]
    if method == b'CONNECT':
        return Request(*_authority(target))
    if target[:7].lower() != b'http://':
        raise BadRequest(HTTPStatus.BAD_REQUEST, 'This is a proxy for http and https addresses')
    place, path = _split(target[7:])
    host, port = _authority(place, 80)
    length = _length(headers)
    named = {
        each.strip().lower()
        for name, value in headers
        if name == b'connection'
        for each in value.split(b',')
    }
    kept = [(name, value) for name, value in headers if name not in _HOP_BY_HOP | named]
    kept.insert(0, (b'host', host.encode() + (b':%d' % port if port != 80 else b'')))
    if length is not None:
        kept.append((b'content-length', b'%d' % length))
    kept.append((b'connection', b'close'))
    head = b'%s %s %s\r\n' % (method, path, version)
    head += b''.join(b'%s: %s\r\n' % header for header in kept) + b'\r\n'
    return Request(host, port, head, length or 0)


def _malformed() -> BadRequest:
    return BadRequest(HTTPStatus.BAD_REQUEST, 'The request is malformed')


def _header(line: bytes) -> tuple[bytes, bytes]:
    name, colon, value = line.partition(b':')
    if not colon or not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
        raise _malformed()
    return name.lower(), value.strip(b' \t')


def _split(target: bytes) -> tuple[bytes, bytes]:
    """Split what follows `http://` into the host and the path with its query."""
    target = target.partition(b'#')[0]
    at = min((at for at in map(target.find, (b'/', b'?')) if at >= 0), default=len(target))
    path = target[at:]
    return target[:at], path if path.startswith(b'/') else b'/' + path


def _authority(data: bytes, default: int | None = None) -> tuple[str, int]:
    match = _AUTHORITY.fullmatch(data.decode('latin-1'))
    port = int(match[2]) if match and match[2] else default
    if match is None or port is None or not 0 < port < 1 << 16 or not match[1].isascii():
        raise _malformed()
    return match[1].strip('[]').lower(), port


def _length(headers: list[tuple[bytes, bytes]]) -> int | None:
    """Return the declared length of the body; a body of unknown length is not taken."""
    if any(name == b'transfer-encoding' for name, _ in headers):
        raise BadRequest(HTTPStatus.LENGTH_REQUIRED, 'Send a Content-Length')
    lengths = [value for name, value in headers if name == b'content-length']
    if not lengths:
        return None
    if len(lengths) > 1 or not re.fullmatch(rb'[0-9]{1,15}', lengths[0]):
        raise _malformed()
    return int(lengths[0])
