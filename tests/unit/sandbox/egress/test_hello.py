import contextlib
import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.egress.hello import MAX_HELLO, BadHello, server_name

from .hellos import hello, records, with_extension

REAL = hello('pypi.org')


@pytest.mark.parametrize('version', [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_the_name_is_found(version):
    assert server_name(hello('pypi.org', maximum_version=version)) == 'pypi.org'
    assert server_name(hello('a.pypi.org', maximum_version=version) + b'more') == 'a.pypi.org'


def test_every_beginning_wants_more():
    assert [at for at in range(len(REAL)) if server_name(REAL[:at]) is not None] == []


@pytest.mark.parametrize('size', [1, 7, 100])
def test_a_hello_may_be_split_over_records(size):
    assert server_name(records(REAL[5:], size)) == 'pypi.org'


@pytest.mark.parametrize(
    ('data', 'why'),
    [
        (b'GET / HTTP/1.1\r\n', 'not speak TLS'),
        (b'SSH-2.0-x\r\n', 'not speak TLS'),
        (b'\x16\x02\x01\x00\x05', 'not speak TLS'),
        (b'\x80\x2e\x01\x03\x01', 'not speak TLS'),
        (b'\x16\x03\x01\x00\x00', 'malformed'),
        (records(b'\x02\x00\x00\x00'), 'does not begin'),
        (records(b'\x01\x00\x00\x05abcde'), 'malformed'),
        (hello(None), 'does not name one'),
        (hello('127.0.0.1'), 'does not name one'),
        (with_extension(REAL, 0, b'\x00\x0b\x00\x00\x08evil.org'), 'does not name one'),
        (with_extension(hello(None), 0, b'\x00\x04\x01\x00\x01a'), 'malformed'),
        (with_extension(REAL, 0xFE0D, b'\x00' * 40), 'encrypted'),
        (with_extension(REAL, 0xFFCE, b''), 'encrypted'),
        (b'\x16\x03\x01\xff\xff\x01\x00\xff\xff' + bytes(MAX_HELLO), 'too long'),
    ],
)
def test_what_does_not_say_where_it_goes_is_refused(data, why):
    with pytest.raises(BadHello, match=why):
        server_name(data)


@given(st.binary(max_size=300))
def test_any_bytes_end_in_a_verdict(data):
    with contextlib.suppress(BadHello):
        assert server_name(data) is None or data[0] == 22


@given(st.integers(9, len(REAL) - 1), st.integers(0, 255))
def test_a_changed_byte_never_breaks_the_reader(at, value):
    try:
        name = server_name(REAL[:at] + bytes([value]) + REAL[at + 1 :])
    except BadHello:
        return
    assert name is None or isinstance(name, str)
