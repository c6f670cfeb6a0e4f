"""The process of an egress proxy: reads its orders from its standard input, and lives as long.

The first line is a JSON object: `allow` has the entries of the allow-list, `listener` the number
of an inherited listening socket. Then the input stays silent; when it ends, whoever started this
is gone, and so is the proxy. The output has `ready`, and a JSON object for every refusal.
"""

import asyncio
import contextlib
import importlib
import json
import os
import resource
import socket
import sys

from sandbox.egress import address
from sandbox.egress.allowlist import Allowlist
from sandbox.egress.server import EgressServer, Judge, Refusal, Resolver

READY = b'ready\n'

_NOBODY = 65_534
_OPEN_FILES = 256
_ORDERS, _NEWS = 0, 1


def main(*, resolve: Resolver | None = None, permits: Judge = address.permits) -> None:
    """Serve until the standard input ends.

    Args:
        resolve: Returns the addresses of a host; the system's resolver if None.
        permits: Tells whether an address may be connected to.
    """
    orders = json.loads(sys.stdin.buffer.readline())
    listener = socket.socket(fileno=orders['listener'])
    _renounce()
    os.set_blocking(_NEWS, False)
    server = EgressServer(Allowlist(orders['allow']), _tell, resolve=resolve, permits=permits)
    os.write(_NEWS, READY)
    asyncio.run(_serve(server, listener))


def _renounce() -> None:
    """Give up what a proxy has no use for."""
    # What is imported at its first use only may be in a folder that nobody else can read.
    importlib.import_module('concurrent.futures.thread')
    socket.getaddrinfo('127.0.0.1', 0)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_OPEN_FILES, _OPEN_FILES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.chdir('/')
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)


async def _serve(server: EgressServer, listener: socket.socket) -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(_ORDERS, ended.set)
    tasks = {asyncio.ensure_future(server.serve(listener)), asyncio.ensure_future(ended.wait())}
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    loop.remove_reader(_ORDERS)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _tell(refusal: Refusal) -> None:
    line = json.dumps({'target': refusal.target, 'why': refusal.why}).encode('ascii') + b'\n'
    # Whole or not at all, since it is short. A full pipe: nobody has read the news for a while.
    with contextlib.suppress(OSError):
        os.write(_NEWS, line)
