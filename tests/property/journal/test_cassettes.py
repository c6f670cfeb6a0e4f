"""Whatever effects ask for and give comes back from a cassette as it was."""

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from lagent.effects import Effect, within
from lagent.flow import Flow, call, run
from lagent.journal import replay

texts = st.one_of(
    st.text(st.characters(), max_size=20),  # halves of characters, too
    st.sampled_from(['$', 'blob', 'x' * 3_000, '\n\r\u2028', 'ü' * 2_048]),
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), texts)
    | st.binary(max_size=3_000),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.tuples(inner, inner),
        st.dictionaries(st.one_of(texts, st.integers()), inner, max_size=4),
    ),
    max_leaves=12,
)
Step = tuple[str, str, Any, Any]
steps = st.lists(
    st.tuples(
        st.sampled_from(['model', 'tool', 'kernel']), st.sampled_from(['a', 'b']), values, values
    ),
    max_size=6,
)


def doing(step: Step, *, known: bool) -> Flow[Any]:
    kind, name, asked, gives = step

    def give() -> Any:
        assert not known, 'it was done'
        return gives

    return within(Effect(kind, name, asked), call(give))  # type: ignore[arg-type]


@given(steps)
@settings(max_examples=150)
def test_a_program_of_effects_is_played_as_it_was_recorded(program: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, 'cassette.jsonl')
        with replay(path, record='once'):
            for step in program:
                run(doing(step, known=False))
        with replay(path):
            for step in program:
                gave = run(doing(step, known=True))
                assert gave == step[3]
                assert type(gave) is type(step[3])
        before = path.read_bytes()
        with replay(path, record='all'):
            for step in program:
                run(doing(step, known=False))
        assert path.read_bytes() == before
