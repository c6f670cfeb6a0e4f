"""Event streams are read alike, however the network cuts them."""

import itertools
import time

from hypothesis import given
from hypothesis import strategies as st

from lagent.llms.sse import BodyDecoder

STREAM = (
    ': a comment\r\n\r\ndata: {"a": "ü€😀"}\r\n\r\n'
    'event: x\nid: 1\ndata: one\ndata:two\n\ndata: [DONE]\n\n'
).encode()
DOCUMENT = '{\n  "a": "ü€😀",\r\n\n  "data:": 1\n}\n'.encode()
EVENTS = ['{"a": "ü€😀"}', 'one\ntwo', '[DONE]']


@given(st.lists(st.integers(0, len(STREAM)), max_size=10))
def test_any_cut_gives_the_same_events(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    decoder = BodyDecoder()
    found: list[str] = []
    for start, end in itertools.pairwise(edges):
        found += decoder.feed(STREAM[start:end])
    assert found + list(decoder.close()) == EVENTS
    assert decoder.document() is None


def test_a_long_line_is_read_once_and_not_again_with_each_piece() -> None:
    decoder = BodyDecoder()
    piece = b'x' * 4096
    started = time.process_time()
    for _ in range(4096):  # 16 MiB, which is all that a reply may have
        assert list(decoder.feed(piece)) == []
    assert time.process_time() - started < 5  # it was minutes when each piece was added to a copy
    assert list(decoder.feed(b'\ndata: x\n\n')) == ['x']


def test_a_last_event_needs_no_blank_line() -> None:
    decoder = BodyDecoder()
    assert list(decoder.feed(b'data: x')) == []
    assert list(decoder.close()) == ['x']


@given(st.lists(st.integers(0, len(DOCUMENT)), max_size=10))
def test_a_document_is_given_whole(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(DOCUMENT)]
    decoder = BodyDecoder()
    for start, end in itertools.pairwise(edges):
        assert list(decoder.feed(DOCUMENT[start:end])) == []
    assert list(decoder.close()) == []
    assert decoder.document() == DOCUMENT.decode()
