"""Which addresses a model may make us connect to.

`sandbox.egress.address` answers the same question for the code in a sandbox. There are two because
`lagent` sees nothing of `sandbox` but its public names; a test holds both to the same answers.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Iterable

from lagent.actions.web.errors import BadAddress, Unreachable

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# Said in full: what `is_global` says of them depends on the version of Python.
_CLOSED: tuple[Network, ...] = tuple(
    map(
        ipaddress.ip_network,
        (
            *('0.0.0.0/8', '10.0.0.0/8', '100.64.0.0/10', '127.0.0.0/8', '169.254.0.0/16'),
            *('172.16.0.0/12', '192.0.0.0/24', '192.0.2.0/24', '192.88.99.0/24', '192.168.0.0/16'),
            *('198.18.0.0/15', '198.51.100.0/24', '203.0.113.0/24', '224.0.0.0/3'),
            # Public by its number, yet every Azure machine's own agent, which knows credentials.
            '168.63.129.16/32',
            # Special purposes (Teredo among them), documentation, 6to4, documentation.
            *('2001::/23', '2001:db8::/32', '2002::/16', '3fff::/20'),
        ),
    )
)
_UNICAST = ipaddress.IPv6Network('2000::/3')
_NAT64 = ipaddress.IPv6Network('64:ff9b::/96')


class AddressGuard:
    """Lets connections through to the public internet, and to the networks that are named.

    Not public are loopback, private, link-local (cloud metadata), shared, multicast and reserved
    addresses, IPv6 forms of such IPv4 addresses, and every address of this machine.

    Args:
        allow: networks that may be connected to as well, such as ``'10.1.0.0/16'``.

    Raises:
        ValueError: one of them is no network.
    """

    def __init__(self, allow: Iterable[str] = ()) -> None:
        self._allow: tuple[Network, ...] = tuple(map(ipaddress.ip_network, allow))

    def permits(self, address: Address) -> bool:
        """Whether a connection to an address may be made.

        Args:
            address: the address.
        """
        inner = _inner(address)
        if any(one in network for one in {address, inner} for network in self._allow):
            return True
        return _is_public(inner) and not _is_own(inner)

    async def resolve(self, host: str, port: int) -> list[str]:
        """Find the addresses of a host that may be connected to.

        The caller connects to one of these and doesn't resolve the name again: a second answer
        may be another one.

        Args:
            host: a name, or an address in any notation that the system's resolver reads.
            port: the port.

        Returns:
            The permitted addresses, in the resolver's order.

        Raises:
            BadAddress: the host has only addresses that nobody may be sent to.
            Unreachable: the host has no address.
        """
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise Unreachable(f'The name {host!r} has no address.') from error
        addresses = [str(entry[4][0]) for entry in found]
        permitted = [one for one in addresses if self.permits(ipaddress.ip_address(one))]
        if not permitted:
            raise BadAddress(
                f'{host!r} is not on the public internet, so nothing was fetched from there. '
                'Use the address of a public website.'
            )
        return list(dict.fromkeys(permitted))


def _inner(address: Address) -> Address:
    """The IPv4 address that an IPv6 address stands for, where it stands for one."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address


def _is_public(address: Address) -> bool:
    if address.version == 6 and address not in _UNICAST:
        return False
    return address.is_global and not any(address in network for network in _CLOSED)


def _is_own(address: Address) -> bool:
    """Whether an address is one of this machine: the way there begins and ends with it."""
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    try:
        # Connecting a datagram socket looks up the route and sends nothing.
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), 9))
            return bool(probe.getsockname()[0] == str(address))
    except OSError:
        return False  # there is no way to it
