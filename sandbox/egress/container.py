"""How a container without a network is connected to its egress proxy."""

from pathlib import Path
from typing import NamedTuple

from sandbox.egress.process import SOCKET

_PORT = 3128
_INSIDE = '/run/egress'


class Wiring(NamedTuple):
    """What a container needs to reach a proxy.

    Attributes:
        command: More arguments for the supervisor.
        environment: Variables that common clients heed; to ignore them is to reach nothing.
        volumes: What is shown of the host: the folder with the proxy's socket, read-only.
    """

    command: tuple[str, ...]
    environment: dict[str, str]
    volumes: dict[str, dict[str, str]]


UNWIRED = Wiring((), {}, {})


def wiring(folder: Path) -> Wiring:
    """Connect a container to the proxy whose socket is in a folder."""
    names = ('http_proxy', 'https_proxy', 'all_proxy')
    variables = dict.fromkeys(names, f'http://127.0.0.1:{_PORT}')
    variables['no_proxy'] = 'localhost,127.0.0.1,::1'
    return Wiring(
        command=('--forward', str(_PORT), f'{_INSIDE}/{SOCKET}'),
        environment={**variables, **{name.upper(): value for name, value in variables.items()}},
        volumes={str(folder): {'bind': _INSIDE, 'mode': 'ro'}},
    )
