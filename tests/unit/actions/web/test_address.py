"""Which addresses may be connected to."""

import ipaddress
import socket
from collections.abc import Iterator

import pytest

from lagent.actions.web import address
from lagent.actions.web.address import AddressGuard
from lagent.actions.web.errors import BadAddress, Unreachable
from sandbox.egress import address as egress


def permits(address: str, *allow: str) -> bool:
    return AddressGuard(allow).permits(ipaddress.ip_address(address))


PUBLIC = ['93.184.216.34', '1.1.1.1', '2606:2800:220:1:248:1893:25c8:1946', '64:ff9b::101:101']
NOT_PUBLIC = {
    'loopback': ['127.0.0.1', '127.8.8.8', '::1', '0.0.0.0', '::'],
    'private': ['10.0.0.1', '172.16.0.1', '172.31.255.255', '192.168.1.1', 'fd00::1', 'fec0::1'],
    'link-local': ['169.254.1.1', 'fe80::1', 'fe80::1%1'],
    'metadata': ['169.254.169.254', 'fd00:ec2::254', '100.100.100.200', '168.63.129.16'],
    'shared': ['100.64.0.1'],
    'multicast': ['224.0.0.1', '239.255.255.250', 'ff02::1', 'ff0e::1'],
    'reserved': ['240.0.0.1', '255.255.255.255', '192.0.2.1', '198.18.0.1', '2001:db8::1'],
    'mapped': ['::ffff:127.0.0.1', '::ffff:169.254.169.254', '::ffff:10.0.0.1', '::127.0.0.1'],
    'translated': ['64:ff9b::7f00:1', '64:ff9b::a9fe:a9fe', '2002:7f00:1::1', '2002:a00:1::'],
    'tunnel': ['2001:0:4136:e378:8000:63bf:3fff:fdd2'],
}


NETWORKS = [
    *('0.0.0.0/8', '10.0.0.0/8', '100.64.0.0/10', '127.0.0.0/8', '169.254.0.0/16'),
    *('172.16.0.0/12', '192.0.0.0/24', '192.0.2.0/24', '192.88.99.0/24', '192.168.0.0/16'),
    *('198.18.0.0/15', '198.51.100.0/24', '203.0.113.0/24', '224.0.0.0/4', '240.0.0.0/4'),
    *('168.63.129.16/32', '8.8.8.8/32', '2000::/3', '2001::/23', '2001:db8::/32', '2002::/16'),
    *('3fff::/20', '64:ff9b::/96', '64:ff9b:1::/48', '100::/64', '5f00::/16', 'fc00::/7'),
    *('fe80::/10', 'fec0::/10', 'ff00::/8', '2606:4700::/32'),
]


@pytest.mark.parametrize('address', PUBLIC)
def test_public_addresses(address):
    assert permits(address)


@pytest.mark.parametrize(
    ('kind', 'address'), [(kind, one) for kind, all_ in NOT_PUBLIC.items() for one in all_]
)
def test_addresses_that_are_not_public(kind, address):
    assert not permits(address)


def addresses_around_networks() -> Iterator[str]:
    for name in NETWORKS:
        network = ipaddress.ip_network(name)
        first, last = int(network[0]), int(network[-1])
        top = 1 << network.max_prefixlen
        for number in (first - 1, first, first + 1, last, last + 1):
            address = type(network[0])(number % top)
            yield str(address)
            if isinstance(address, ipaddress.IPv4Address):
                for form in ('::ffff:0:0', '64:ff9b::', '2002::', '::'):
                    shift = 80 if form == '2002::' else 0
                    yield str(
                        ipaddress.IPv6Address(
                            int(ipaddress.ip_address(form)) + (int(address) << shift)
                        )
                    )


def test_the_egress_proxy_of_sandboxes_gives_the_same_answers() -> None:
    asked = [*PUBLIC, *(one for all_ in NOT_PUBLIC.values() for one in all_)]
    asked += addresses_around_networks()
    assert {one: permits(one) for one in asked} == {one: egress.permits(one) for one in asked}
    assert sum(map(permits, asked)) > 20


def test_an_address_of_this_machine_is_refused(monkeypatch):
    monkeypatch.setattr('lagent.actions.web.address._is_own', lambda one: str(one) == '8.8.8.8')
    assert not permits('8.8.8.8')
    assert not permits('64:ff9b::808:808')
    assert permits('8.8.8.8', '8.8.8.0/24')
    assert permits('8.8.4.4')


def test_the_addresses_of_this_machine_are_known():
    assert address._is_own(ipaddress.ip_address('127.0.0.1'))
    assert not address._is_own(ipaddress.ip_address('8.8.8.8'))


def test_networks_that_are_named_are_allowed():
    assert permits('10.1.2.3', '10.1.0.0/16')
    assert not permits('10.2.0.1', '10.1.0.0/16')
    assert permits('::ffff:10.1.2.3', '10.1.0.0/16')
    assert permits('fd00::5', 'fd00::/8')
    assert permits('8.8.8.8', '10.1.0.0/16')


def test_what_is_no_network_is_refused_at_once():
    with pytest.raises(ValueError, match='intranet'):
        AddressGuard(['intranet'])


@pytest.mark.parametrize(
    'host', ['127.0.0.1', '127.1', '2130706433', '0x7f000001', '0177.0.0.1', '::1', 'localhost']
)
async def test_every_notation_of_loopback_is_refused(host):
    with pytest.raises(BadAddress, match='not on the public internet'):
        await AddressGuard().resolve(host, 80)


async def test_only_the_permitted_addresses_of_a_name_are_given(monkeypatch):
    found = ['10.0.0.1', '1.1.1.1', '::1', '1.1.1.1', '2606:4700:4700::1111']

    def getaddrinfo(host, port, *args, **kwargs):
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, '', (one, port)) for one in found]

    monkeypatch.setattr(socket, 'getaddrinfo', getaddrinfo)
    addresses = await AddressGuard().resolve('both.example', 443)
    assert addresses == ['1.1.1.1', '2606:4700:4700::1111']


async def test_a_name_without_an_address(monkeypatch):
    def getaddrinfo(*args, **kwargs):
        raise socket.gaierror(socket.EAI_NONAME, 'unknown')

    monkeypatch.setattr(socket, 'getaddrinfo', getaddrinfo)
    with pytest.raises(Unreachable, match=r"'nowhere\.invalid' has no address"):
        await AddressGuard().resolve('nowhere.invalid', 80)
