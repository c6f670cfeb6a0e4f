"""Which addresses a sandbox may be connected to: the public internet and nothing else.

`lagent.actions.web.address` answers the same question for what a model has the host fetch. There
are two because this package works without that one; a test holds both to the same answers.
"""

import ipaddress
import socket

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_CLOSED_4 = tuple(
    map(
        ipaddress.IPv4Network,
        (
            *('0.0.0.0/8', '10.0.0.0/8', '100.64.0.0/10', '127.0.0.0/8', '169.254.0.0/16'),
            *('172.16.0.0/12', '192.0.0.0/24', '192.0.2.0/24', '192.88.99.0/24', '192.168.0.0/16'),
            *('198.18.0.0/15', '198.51.100.0/24', '203.0.113.0/24', '224.0.0.0/3'),
            # Public by its number, and every Azure machine's own agent.
            '168.63.129.16/32',
        ),
    )
)
_UNICAST_6 = ipaddress.IPv6Network('2000::/3')
_CLOSED_6 = tuple(
    map(
        ipaddress.IPv6Network,
        # Special purposes (Teredo among them), documentation, 6to4, documentation.
        ('2001::/23', '2001:db8::/32', '2002::/16', '3fff::/20'),
    )
)
_NAT64 = ipaddress.IPv6Network('64:ff9b::/96')


def permits(text: str) -> bool:
    """Tell whether a connection to an address may be made.

    Not permitted are loopback, private, shared, link-local (cloud metadata among them), multicast
    and reserved addresses, the IPv6 forms of such IPv4 addresses, and every address of this
    machine, the gateways of its container networks included.

    Args:
        text: The address, as a resolver gives it.
    """
    try:
        address = _inner(ipaddress.ip_address(text))
    except ValueError:
        return False  # with a zone (`fe80::1%eth0`) it is link-local anyway
    return is_public(address) and not is_own(str(address))


def is_public(address: Address) -> bool:
    """Tell whether an address belongs to the public internet by its number."""
    if isinstance(address, ipaddress.IPv4Address):
        closed = any(address in network for network in _CLOSED_4)
    else:
        closed = address not in _UNICAST_6 or any(address in network for network in _CLOSED_6)
    return not closed and address.is_global


def is_own(text: str) -> bool:
    """Tell whether an address is one of this machine: its way there begins and ends with it."""
    family = socket.AF_INET6 if ':' in text else socket.AF_INET
    try:
        # Connecting a datagram socket looks up the route and sends nothing.
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((text, 9))
            return bool(probe.getsockname()[0] == text)
    except OSError:
        return False  # there is no way to it


def _inner(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address stands for, where a machine connects to it."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address
