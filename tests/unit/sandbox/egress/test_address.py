import ipaddress
import socket

import pytest

from sandbox.egress.address import is_own, is_public, permits

CLOSED = [
    *('0.0.0.0', '0.1.2.3', '127.0.0.1', '127.255.0.9', '10.0.0.1', '172.16.0.1', '172.17.0.1'),
    *('172.31.255.255', '192.168.1.1', '100.64.0.1', '100.127.255.255', '169.254.169.254'),
    *('169.254.170.2', '168.63.129.16', '192.0.0.192', '192.0.2.1', '192.88.99.1', '198.18.0.1'),
    *('198.51.100.1', '203.0.113.9', '224.0.0.1', '239.255.255.250', '240.0.0.1'),
    '255.255.255.255',
    *('::', '::1', 'fe80::1', 'fec0::1', 'fc00::1', 'fd00:ec2::254', 'ff02::1', '100::1'),
    *('2001:db8::1', '3fff::1', '2001::1', '2001:0:1:2::', '2001:10::1', '5f00::1', '4000::1'),
    *('::ffff:127.0.0.1', '::ffff:10.0.0.1', '::ffff:169.254.169.254', '::127.0.0.1'),
    *('64:ff9b::7f00:1', '64:ff9b::a9fe:a9fe', '64:ff9b:1::a00:1', '64:ff9b::c0a8:101'),
    *('2002:7f00:1::', '2002:a9fe:a9fe::1', '2002:808:808::'),
    *('fe80::1%lo', 'example.org', '', '127.1'),
]


@pytest.mark.parametrize('text', CLOSED)
def test_what_is_not_the_public_internet_is_refused(text):
    assert not permits(text)


@pytest.mark.parametrize(
    'text',
    [
        *('1.1.1.1', '8.8.8.8', '172.15.255.255', '172.32.0.1', '100.63.255.255', '100.128.0.1'),
        *('192.167.1.1', '169.253.1.1', '223.255.255.1', '2606:4700::1111', '2a00:1450::1'),
        *('64:ff9b::808:808', '::ffff:8.8.8.8'),
    ],
)
def test_the_public_internet_is_let_through(text):
    assert permits(text)


def test_the_address_of_this_machine_is_known():
    assert is_own('127.0.0.1')
    assert not is_own('8.8.8.8')
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(('192.0.2.1', 9))
        own = probe.getsockname()[0]
    assert is_own(own)


def test_a_public_address_of_this_machine_is_refused(monkeypatch):
    monkeypatch.setattr('sandbox.egress.address.is_own', lambda text: text == '8.8.8.8')
    assert not permits('8.8.8.8')
    assert permits('8.8.4.4')


def test_no_address_below_a_closed_network_is_public():
    for network in ('10.0.0.0/8', '127.0.0.0/8', '169.254.0.0/16', '224.0.0.0/4', 'fc00::/7'):
        inside = ipaddress.ip_network(network)
        assert not is_public(inside[0])
        assert not is_public(inside[-1])
