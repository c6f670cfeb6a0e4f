"""The floors: a container and a Jupyter client with nothing around them.

This is what anybody would write who wants speed and nothing else: docker-py's low-level API, the
sockets of the kernel in a bind-mounted folder, and one poll loop over jupyter_client's `Session`.
It has the hardening of the sandbox, and none of its deadlines, bounds, checks or clean-up.
"""

import contextlib
import json
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import zmq
from jupyter_client.session import Session

import docker
from sandbox import AsyncSandbox, SandboxPolicy
from sandbox.image import guest_folder, image_tag

SOCKETS = '/run/k'
_STOCK = ['/opt/venv/bin/python', '-m', 'ipykernel_launcher', '-f', f'{SOCKETS}/connection.json']
_TICK = 5  # milliseconds
_ASK_AGAIN = 0.5
_PATIENCE = 60.0


class BareClient:
    """A poll loop around the sockets of one kernel.

    Args:
        connection: Jupyter's connection information, with the `ipc` transport.
        context: ZeroMQ's threads, if several clients are to share them.
    """

    def __init__(
        self, connection: dict[str, Any], context: 'zmq.Context[Any] | None' = None
    ) -> None:
        self._connection = connection
        self._session = Session(
            key=str(connection['key']).encode(), signature_scheme=connection['signature_scheme']
        )
        self._context = context or zmq.Context()
        self._owns_context = context is None
        self._output = self._socket(zmq.SUB, 'iopub_port')
        self._output.subscribe(b'')
        self._shell = self._socket(zmq.DEALER, 'shell_port')
        self._control = self._socket(zmq.DEALER, 'control_port')
        self.sockets = (self._output, self._shell)
        self._poller = zmq.Poller()
        for socket in self.sockets:
            self._poller.register(socket, zmq.POLLIN)

    @classmethod
    def connect(cls, connection: dict[str, Any], context: 'zmq.Context[Any] | None' = None) -> Self:
        """Connect, and wait until the kernel answers on both sockets."""
        client = cls(connection, context)
        deadline = time.monotonic() + _PATIENCE
        answered = subscribed = False
        ask_again = 0.0
        while not (answered and subscribed):
            now = time.monotonic()
            if now > deadline:
                raise TimeoutError('the kernel does not answer')
            if now >= ask_again:  # a request is lost with a connection that fails half-way, too
                client._session.send(client._shell, 'kernel_info_request')
                ask_again = now + _ASK_AGAIN
            ready = dict(client._poller.poll(_TICK))
            subscribed = subscribed or client._output in ready
            answered = answered or client._shell in ready
            if client._shell in ready:  # its status may have gone out before the subscription
                ask_again = now
            client.drain()
        return client

    def execute(self, code: str) -> list[tuple[str, dict[str, Any]]]:
        """Run a cell and return the messages that belong to it: kinds and contents."""
        return self.finish(self.submit(code))

    def submit(self, code: str) -> str:
        """Send a cell and return the id of its request."""
        content = {'code': code, 'silent': False, 'store_history': True, 'allow_stdin': False}
        request: Any = self._session.send(self._shell, 'execute_request', content)
        return str(request['header']['msg_id'])

    def finish(self, request: str) -> list[tuple[str, dict[str, Any]]]:
        """Wait for the reply to a request and for the end of its output."""
        messages: list[tuple[str, dict[str, Any]]] = []
        replied = idle = False
        while not (replied and idle):
            for socket, _ in self._poller.poll():
                if (message := self.receive(socket, request)) is None:
                    continue
                messages.append(message)
                replied = replied or message[0] == 'execute_reply'
                idle = idle or message[1].get('execution_state') == 'idle'
        return messages

    def receive(
        self, socket: 'zmq.Socket[bytes]', request: str
    ) -> tuple[str, dict[str, Any]] | None:
        """Read a message: its kind and content if it belongs to a request, else None."""
        _, message = self._session.recv(socket)
        if message is None or message['parent_header'].get('msg_id') != request:
            return None
        return message['msg_type'], message['content']

    def interrupt(self) -> None:
        """Ask the kernel to interrupt its cell."""
        self._session.send(self._control, 'interrupt_request')

    def drain(self) -> None:
        """Throw away what waits to be read."""
        for socket in self.sockets:
            with contextlib.suppress(zmq.Again):
                while True:
                    socket.recv_multipart(zmq.NOBLOCK, copy=False)

    def close(self) -> None:
        """Close the connections."""
        for socket in (*self.sockets, self._control):
            socket.close(linger=0)
        if self._owns_context:
            self._context.term()

    def _socket(self, kind: int, port: str) -> 'zmq.Socket[bytes]':
        socket = self._context.socket(kind)
        socket.linger = 0
        socket.rcvhwm = 0
        socket.reconnect_ivl = 2
        socket.connect(f'ipc://{self._connection["ip"]}-{self._connection[port]}')
        return socket


class RawContainer:
    """A container with stock ipykernel, on the sandbox's image and as hardened as a sandbox."""

    def __init__(self, engine: 'docker.APIClient', policy: SandboxPolicy | None = None) -> None:
        self._engine = engine
        self._policy = policy or SandboxPolicy()
        self._folder = Path(tempfile.mkdtemp(prefix='raw-', dir='/tmp'))
        self._folder.chmod(0o777)
        self.connection: dict[str, Any] = {
            'transport': 'ipc',
            'ip': f'{self._folder}/s',
            'key': secrets.token_hex(32),
            'signature_scheme': 'hmac-sha256',
            **{f'{name}_port': number for number, name in enumerate(_PORTS, 1)},
        }
        inside = {**self.connection, 'ip': f'{SOCKETS}/s'}
        (self._folder / 'connection.json').write_text(json.dumps(inside), encoding='ascii')
        self.id = ''

    def start(self) -> BareClient:
        """Start it and wait until its kernel answers."""
        options = hardened(self._policy, self._folder)
        host = self._engine.create_host_config(**options)
        created = self._engine.create_container(
            image_tag(),
            _STOCK[1:],
            entrypoint=_STOCK[:1],
            user=_user(self._policy),
            hostname='sandbox',
            working_dir='/workspace',
            host_config=host,
        )
        self.id = created['Id']
        self._engine.start(self.id)
        return BareClient.connect(self.connection)

    def remove(self) -> None:
        """Remove it and its folder."""
        self._engine.remove_container(self.id, force=True, v=True)
        shutil.rmtree(self._folder)


_PORTS = ('shell', 'iopub', 'stdin', 'control', 'hb')


def _user(policy: SandboxPolicy) -> str:
    # Only root may connect to a socket of somebody else's that stock ipykernel has made.
    uid = os.geteuid() or policy.uid
    return f'{uid}:{uid}'


def hardened(policy: SandboxPolicy, folder: Path) -> dict[str, Any]:
    """Return the host options of a sandbox, for docker-py's low-level API."""
    from docker.types import LogConfig, Ulimit

    owner = f'uid={policy.uid},gid={policy.uid},mode=0700'
    largest = max(policy.disk, policy.tmp, policy.shm) + 2**20

    def memory_disk(size: int, rest: str) -> str:
        return f'rw,exec,nosuid,nodev,size={size},nr_inodes={max(1024, size // 4096)},{rest}'

    return {
        'init': True,
        'network_mode': 'none',
        'read_only': True,
        'binds': {str(folder): {'bind': SOCKETS, 'mode': 'rw'}},
        'tmpfs': {
            '/tmp': memory_disk(policy.tmp, 'mode=1777'),  # noqa: S108 - the container's
            '/workspace': memory_disk(policy.disk, owner),
            '/home/sandbox': memory_disk(min(policy.tmp, 64 * 2**20), owner),
        },
        'shm_size': policy.shm,
        'ipc_mode': 'private',
        'cap_drop': ['ALL'],
        'security_opt': [
            'no-new-privileges:true',
            f'seccomp={(guest_folder() / "seccomp.json").read_text("utf-8")}',
        ],
        'pids_limit': policy.pids,
        'mem_limit': policy.memory,
        'memswap_limit': policy.memory,
        'nano_cpus': int(min(policy.cpus, os.cpu_count() or 1) * 1e9),
        'oom_score_adj': 300,
        'ulimits': [
            Ulimit(name='nofile', soft=1024, hard=1024),
            Ulimit(name='fsize', soft=largest, hard=largest),
            Ulimit(name='core', soft=0, hard=0),
        ],
        'log_config': LogConfig(type=LogConfig.types.NONE),
    }


async def take_kernel(box: AsyncSandbox) -> dict[str, Any]:
    """Disconnect a session from its kernel and return where that is.

    A kernel sends its output to every client, so a floor is measured without the session's own.
    The session can only be closed after that.
    """
    machine: Any = box._machine
    await machine._client.close()
    return dict(machine._instance.endpoint.connection)


def container_of(box: AsyncSandbox) -> str:
    """Return the id of a session's container."""
    machine: Any = box._machine
    return str(machine.id)


@contextlib.contextmanager
def raw_engine() -> Iterator['docker.APIClient']:
    """Connect to the engine for the length of a block."""
    client = docker.from_env().api
    try:
        yield client
    finally:
        client.close()


def check_same_hardening(engine: 'docker.APIClient', ours: str, floor: str) -> None:
    """Refuse to compare containers that are not confined alike.

    Raises:
        RuntimeError: They differ in what the host gives them.
    """
    mine, theirs = (_confinement(engine, name) for name in (ours, floor))
    differing = [name for name in mine.keys() | theirs.keys() if mine.get(name) != theirs.get(name)]
    if differing:
        raise RuntimeError(f'the floor is not confined as the sandbox is: {sorted(differing)}')


def _confinement(engine: 'docker.APIClient', name: str) -> dict[str, Any]:
    host: dict[str, Any] = engine.inspect_container(name)['HostConfig']
    return {key: value for key, value in host.items() if key not in ('Binds', 'AutoRemove')}
