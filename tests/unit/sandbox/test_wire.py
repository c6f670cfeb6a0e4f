import json

import pytest
from jupyter_client.session import Session

from sandbox.kernel.wire import Signer, WireError

KEY = 'k' * 64


def frames_of(kind='stream', content=None, parent=None, key=KEY) -> list[bytes]:
    """What a real kernel would send."""
    session = Session(key=key.encode())
    message = session.msg(kind, content or {}, parent=parent)
    return [b'kernel.topic', *session.serialize(message)]


def test_a_real_kernel_understands_our_requests():
    session = Session(key=KEY.encode())
    message_id, frames = Signer(KEY).request('execute_request', {'code': 'é\ud800'})
    _, rest = session.feed_identities(frames)
    message = session.deserialize(rest)
    assert message['header']['msg_id'] == message_id
    assert message['msg_type'] == 'execute_request'
    assert message['content']['code'] == 'é\ud800'


def test_we_understand_a_real_kernel():
    parent = {'header': {'msg_id': 'abc'}}
    message = Signer(KEY).parse(frames_of('stream', {'text': 'x'}, parent))
    assert (message.kind, message.parent) == ('stream', 'abc')
    assert message.content() == {'text': 'x'}


def test_ids_are_never_used_twice():
    signer = Signer(KEY)
    ids = {signer.request('a', {})[0] for _ in range(10)} | {Signer(KEY).request('a', {})[0]}
    assert len(ids) == 11


def test_a_forged_message_is_refused():
    with pytest.raises(WireError, match='signature'):
        Signer(KEY).parse(frames_of(key='other'))
    frames = frames_of('stream', {'text': 'x'})
    frames[-1] = b'{"text": "y"}'
    with pytest.raises(WireError, match='signature'):
        Signer(KEY).parse(frames)


def signed(*parts: bytes) -> list[bytes]:
    signer = Signer(KEY)
    return [b'<IDS|MSG>', signer._sign(list(parts)), *parts]


@pytest.mark.parametrize(
    'frames',
    [
        [],
        [b''],
        [b'<IDS|MSG>'],
        [b'a'] * 10,
        signed(b'{}', b'{}', b'{}', b'{}'),
        signed(b'[]', b'{}', b'{}', b'{}'),
        signed(b'\xff', b'{}', b'{}', b'{}'),
        signed(b'[' * 100_000, b'{}', b'{}', b'{}'),
        signed(b'{"msg_type": 1}', b'{}', b'{}', b'{}'),
        signed(b'{"msg_type": "a"}', b'{"msg_id": []}', b'{}', b'{}'),
        signed(b'{"msg_type": "a"}', b'null', b'{}', b'{}'),
    ],
)
def test_malformed_messages_are_refused(frames):
    with pytest.raises(WireError):
        Signer(KEY).parse(frames)


@pytest.mark.parametrize('content', [b'', b'1', b'[1', b'9' * 10_000, b'[' * 100_000])
def test_malformed_contents_are_refused(content):
    message = Signer(KEY).parse(signed(b'{"msg_type": "a"}', b'{}', b'{}', content))
    with pytest.raises(WireError):
        message.content()


def test_bytes_that_are_no_utf8_are_replaced():
    content = json.dumps({'text': '?'}).encode().replace(b'?', b'\xff')
    message = Signer(KEY).parse(signed(b'{"msg_type": "a"}', b'{}', b'{}', content))
    assert message.content() == {'text': '\ufffd'}


BIG = b'x' * (5 << 20)


@pytest.mark.parametrize(
    'content',
    [
        b'{"text": "' + BIG + '\U0001f600'.encode() + b'"}',
        b'{"text": "' + BIG + b'\\ud83d"}',
        b'{"list": [' + b'[],' * 400_000 + b'[]]}',
        b'{' + b'"a":{},' * 300_000 + b'"b": 1}',
    ],
    ids=['wide', 'wide escapes', 'lists', 'objects'],
)
def test_what_would_fill_the_memory_is_refused(content):
    message = Signer(KEY).parse(signed(b'{"msg_type": "stream"}', b'{}', b'{}', content))
    with pytest.raises(WireError):
        message.content()


@pytest.mark.parametrize(
    'text', ['[1, {2}], ' * 400_000, 'a\n' * 1_000_000, 'é' * 1_000_000], ids=['marks', 'n', 'é']
)
def test_what_is_only_long_is_taken(text):
    content = json.dumps({'text': text}, ensure_ascii=False).encode()
    message = Signer(KEY).parse(signed(b'{"msg_type": "stream"}', b'{}', b'{}', content))
    assert message.content() == {'text': text}
