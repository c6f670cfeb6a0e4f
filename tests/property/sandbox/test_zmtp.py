import contextlib

from hypothesis import given
from hypothesis import strategies as st

from sandbox.kernel import zmtp
from sandbox.kernel.zmtp import Decoder, Message, ProtocolError

HELLO = zmtp.GREETING + zmtp.ready('DEALER')
MESSAGES = st.lists(
    st.lists(st.binary(max_size=400), min_size=1, max_size=6), min_size=1, max_size=5
)
LIMIT = 900


@given(MESSAGES, st.lists(st.integers(1, 700), min_size=1, max_size=20))
def test_any_way_of_cutting_the_bytes_gives_the_same_messages(messages, sizes):
    wire = HELLO + b''.join(map(zmtp.encode, messages))
    decoder, received, position = Decoder(LIMIT), [], 0
    while position < len(wire):
        size = sizes[position % len(sizes)]
        received += decoder.feed(wire[position : position + size])
        position += size
        kept = len(decoder._buffer) + sum(map(len, decoder._frames))
        assert kept <= LIMIT + 700 + len(HELLO)
    sizes_of = [sum(map(len, frames)) for frames in messages]
    assert received == [
        Message(frames, size, True) if size <= LIMIT else Message([], size, False)
        for frames, size in zip(messages, sizes_of, strict=True)
    ]


@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_are_messages_or_an_error(data, greeted):
    decoder = Decoder(LIMIT)
    with contextlib.suppress(ProtocolError):
        for message in decoder.feed((HELLO if greeted else b'') + data):
            assert sum(map(len, message.frames)) <= LIMIT
