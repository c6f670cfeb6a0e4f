"""ClientHellos as OpenSSL makes them, and as a liar would."""

import contextlib
import ssl


def hello(name: str | None, **options: object) -> bytes:
    """Return the first flight of a TLS client."""
    context = ssl.create_default_context()
    context.check_hostname = False
    for option, value in options.items():
        setattr(context, option, value)
    outgoing = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def with_extension(data: bytes, kind: int, body: bytes) -> bytes:
    """Return a hello in one record with one more extension at its end."""
    extension = kind.to_bytes(2, 'big') + len(body).to_bytes(2, 'big') + body
    message = data[9:]
    at = 2 + 32
    at += 1 + message[at]
    at += 2 + int.from_bytes(message[at : at + 2], 'big')
    at += 1 + message[at]
    size = int.from_bytes(message[at : at + 2], 'big') + len(extension)
    message = message[:at] + size.to_bytes(2, 'big') + message[at + 2 :] + extension
    return records(b'\x01' + len(message).to_bytes(3, 'big') + message)


def records(message: bytes, size: int = 1 << 14) -> bytes:
    """Split a handshake message over records."""
    pieces = [message[at : at + size] for at in range(0, len(message), size)]
    return b''.join(b'\x16\x03\x01' + len(each).to_bytes(2, 'big') + each for each in pieces)
