"""Which addresses a model may make us connect to."""

import asyncio
import ipaddress
import socket
from collections.abc import Iterable

from lagent.actions.web.errors import BadAddress, Unreachable

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_NAT64 = ipaddress.IPv6Network('64:ff9b::/96')
# Global by its number, yet it is every Azure machine's own agent, which hands out credentials.
_REFUSED = (ipaddress.IPv4Network('168.63.129.16/32'),)


class AddressGuard:
    """Lets connections through to the public internet, and to the networks that are named.

    Not public are loopback, private, link-local (cloud metadata), shared, multicast and reserved
    addresses, and IPv6 forms of such IPv4 addresses.

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
        return _is_public(inner)

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
    return address.ipv4_mapped or address.sixtofour or address


def _is_public(address: Address) -> bool:
    if any(address in network for network in _REFUSED):
        return False
    is_odd = address.is_multicast or address.is_reserved or address.is_unspecified
    is_local = isinstance(address, ipaddress.IPv6Address) and address.is_site_local
    return address.is_global and not is_odd and not is_local
