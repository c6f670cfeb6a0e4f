"""`Allowlist`: the hosts and ports that a sandbox may reach."""

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Self

from sandbox.errors import PolicyError

MAX_ENTRIES = 1_000
_WEB_PORTS = (80, 443)
_LABEL = re.compile(r'[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?')
_NUMBER = re.compile(r'[0-9]+|0x[0-9a-f]*')


class _Rule(NamedTuple):
    name: str
    wildcard: bool
    ports: tuple[int, ...]

    def covers(self, name: str, port: int, *, wildcard: bool = False) -> bool:
        if port not in self.ports:
            return False
        if self.wildcard:
            return name.endswith(f'.{self.name}') or (wildcard and name == self.name)
        return name == self.name and not wildcard


@dataclass(frozen=True)
class Allowlist:
    """Hosts that a sandbox may reach, through a proxy that checks names and addresses.

    An entry is a host (`'pypi.org'`) or all hosts below a domain at any depth (`'*.example.org'`,
    which leaves out `example.org` itself), and may name its one port (`'pypi.org:443'`); without a
    port it stands for 80 and 443. Addresses are no entries, and a host whose name leads to a
    private or reserved address stays out of reach.

    Two lists with the same entries are equal, whatever their order and case.

    Attributes:
        hosts: The entries: lower case, sorted, each once.

    Raises:
        PolicyError: An entry is invalid, or there is none.

    Example:
        >>> Allowlist(['PyPI.org:443', '*.example.org']).hosts
        ('*.example.org', 'pypi.org:443')
    """

    hosts: tuple[str, ...]

    def __init__(self, hosts: Iterable[str]) -> None:
        entries = [hosts] if isinstance(hosts, str) else list(hosts)
        if not entries:
            raise PolicyError(
                'an Allowlist needs at least one host.', hint="Use network='none' to allow none."
            )
        if len(entries) > MAX_ENTRIES:
            raise PolicyError(f'an Allowlist has at most {MAX_ENTRIES:,} hosts.')
        object.__setattr__(self, 'hosts', tuple(sorted({_normal(entry) for entry in entries})))

    def permits(self, host: str, port: int) -> bool:
        """Tell whether a host may be reached at a port.

        Args:
            host: Its name as `host_name` returns it.
            port: The port.
        """
        return any(_rule(entry).covers(host, port) for entry in self.hosts)

    def covers(self, other: Self) -> bool:
        """Tell whether this list allows everything that another one does."""
        return all(
            any(
                _rule(mine).covers(theirs.name, port, wildcard=theirs.wildcard)
                for mine in self.hosts
            )
            for theirs in map(_rule, other.hosts)
            for port in theirs.ports
        )


def host_name(text: str) -> str | None:
    """Return a host's name in its one normal form, or None if it is not a full domain name.

    What a resolver might take for an address (`127.1`, `0x7f000001`, `2130706433`) is not a name.
    """
    name = text.lower().removesuffix('.')
    labels = name.split('.')
    if len(name) > 253 or len(labels) < 2 or not all(map(_LABEL.fullmatch, labels)):
        return None
    return None if _NUMBER.fullmatch(labels[-1]) else name


def _normal(entry: object) -> str:
    if not isinstance(entry, str):
        raise PolicyError(f'an Allowlist has texts, not {entry!r}.')
    rule = _rule(entry)
    host = f'*.{rule.name}' if rule.wildcard else rule.name
    return f'{host}:{rule.ports[0]}' if rule.ports != _WEB_PORTS else host


@functools.lru_cache(maxsize=4 * MAX_ENTRIES)
def _rule(entry: str) -> _Rule:
    host, colon, port_text = entry.partition(':')
    wildcard = host.startswith('*.')
    name = host_name(host.removeprefix('*.'))
    if name is None:
        raise PolicyError(
            f'{entry!r} is not a host of an Allowlist.',
            hint="Write full names, such as 'pypi.org', '*.example.org' or 'pypi.org:443': no "
            "addresses, no 'https://', no path; international names in their xn-- form.",
        )
    if not colon:
        return _Rule(name, wildcard, _WEB_PORTS)
    if not re.fullmatch('[0-9]{1,5}', port_text) or not 0 < int(port_text) < 1 << 16:
        raise PolicyError(f'{entry!r} has no valid port after the colon.')
    return _Rule(name, wildcard, (int(port_text),))
