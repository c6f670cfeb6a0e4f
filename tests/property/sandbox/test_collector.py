import json

from hypothesis import given
from hypothesis import strategies as st

from sandbox.kernel.collector import Collector
from sandbox.policy import SandboxPolicy
from sandbox.types import ExecutionResult, Outcome

POLICY = SandboxPolicy(
    output_chars=1_000,
    max_outputs=5,
    output_bytes=65_536,
    image_bytes=1_024,
    model_text_chars=400,
)
TEXT = st.text(st.characters(codec=None), max_size=40)
LONG = st.integers(0, 3_000).map(lambda size: 'x' * size)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
KINDS = st.sampled_from(
    [
        'stream',
        'display_data',
        'update_display_data',
        'execute_result',
        'error',
        'clear_output',
        'execute_input',
        'status',
        'comm_msg',
    ]
)
MIMES = st.sampled_from(['text/plain', 'text/html', 'image/png', 'application/json', 'x'])
BUNDLES = st.fixed_dictionaries(
    {'data': st.dictionaries(MIMES, TEXT | LONG | JSON, max_size=4)},
    optional={'metadata': JSON, 'transient': st.just({'display_id': 'd'}) | JSON},
)
STREAMS = st.fixed_dictionaries(
    {'name': st.sampled_from(['stdout', 'stderr']), 'text': TEXT | LONG}
)
ERRORS = st.fixed_dictionaries(
    {'ename': TEXT, 'evalue': TEXT | LONG, 'traceback': st.lists(TEXT | LONG, max_size=4)}
)
MESSAGES = st.lists(
    st.tuples(KINDS, JSON | BUNDLES | STREAMS | ERRORS)
    | st.tuples(st.just('stream'), STREAMS)
    | st.tuples(st.just('display_data'), BUNDLES),
    max_size=25,
)


def result_of(collector: Collector) -> ExecutionResult:
    return ExecutionResult(
        Outcome.OK,
        collector.outputs(),
        collector.error,
        truncated=collector.truncated(),
        text_limit=POLICY.model_text_chars,
    )


@given(MESSAGES)
def test_whatever_comes_is_bounded_and_safe(messages):
    collector = Collector(POLICY)
    for kind, content in messages:
        collector.feed(kind, content)
    result = result_of(collector)
    assert len(result.outputs) <= POLICY.max_outputs + 4
    assert len(result.text) <= POLICY.model_text_chars
    for kind in ('stdout', 'stderr'):
        kept = [output for output in result.outputs if output.kind == kind]
        marks = sum(1 for output in kept if output.cut)
        assert sum(len(output.text) for output in kept) <= POLICY.output_chars + 60 * marks
    saved = json.dumps(result.to_dict(), allow_nan=False, ensure_ascii=False).encode()
    assert ExecutionResult.from_dict(json.loads(saved)) == result


@given(st.lists(STREAMS, max_size=30))
def test_not_a_character_of_a_stream_is_unaccounted_for(streams):
    collector = Collector(POLICY)
    sent = {'stdout': 0, 'stderr': 0}
    for stream in streams:
        text = ''.join(character for character in stream['text'] if character.isalnum())
        sent[stream['name']] += len(text)
        collector.feed('stream', {'name': stream['name'], 'text': text})
    for kind, count in sent.items():
        outputs = [output for output in collector.outputs() if output.kind == kind]
        cut = sum(output.cut[1] for output in outputs if output.cut)
        marks = sum(
            len(f'\n[... {output.cut[1]:,} characters left out ...]\n')
            for output in outputs
            if output.cut
        )
        kept = sum(len(output.text) for output in outputs) - marks
        missing = getattr(collector.truncated(), f'{kind}_chars')
        assert kept + cut == count
        assert cut == missing


@given(MESSAGES)
def test_live_events_are_bounded(messages):
    events = []
    collector = Collector(POLICY, events.append)
    for kind, content in messages:
        collector.feed(kind, content)
    streams = ('stdout', 'stderr')
    shown = [e.output for e in events if e.output and e.output.kind in streams]
    assert sum(max(len(o.text), len(o.ansi)) for o in shown) <= 2 * POLICY.output_chars
