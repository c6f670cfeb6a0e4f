import pytest

from benchmarks.harness import Goal, Measurement, interleave, percentile, timed


async def test_sides_take_turns_and_warm_up_is_left_out():
    taken = []

    def side(name):
        async def sample():
            taken.append(name)
            return float(len(taken))

        return sample

    first, second = await interleave(3, side('a'), side('b'), warm_up=1)
    assert ''.join(taken) == 'baabbaab'
    assert (first, second) == ((3.0, 6.0, 7.0), (4.0, 5.0, 8.0))


async def test_a_timed_step():
    async def step():
        return None

    assert 0 <= await timed(step)() < 1_000


def test_medians_ratio_and_excess():
    m = Measurement('a', 'ms', (1.0, 9.0, 3.0), (2.0, 2.0, 1.0))
    assert (m.value, m.ratio, m.excess) == (3.0, 1.5, 1.0)
    alone = Measurement('a', 'ms', (1.0,))
    assert (alone.value, alone.ratio, alone.excess) == (1.0, None, None)


@pytest.mark.parametrize(
    ('goal', 'reached'),
    [
        (Goal('value', 3.0), True),
        (Goal('value', 2.9), False),
        (Goal('ratio', 1.5), True),
        (Goal('ratio', 1.4), False),
        (Goal('excess', 1.0), True),
        (Goal('excess', 0.9), False),
        (Goal('ratio', 1.5, at_least=True), True),
        (Goal('ratio', 1.6, at_least=True), False),
    ],
)
def test_goals(goal, reached):
    assert Measurement('a', 'ms', (3.0,), (2.0,), goals=(goal,)).meets(goal) is reached


@pytest.mark.parametrize(
    'fields',
    [
        {'ours': ()},
        {'ours': (float('nan'),)},
        {'ours': (1.0,), 'floor': (float('inf'),)},
        {'ours': (1.0,), 'goals': (Goal('ratio', 1.0),)},
    ],
)
def test_what_is_no_measurement(fields):
    with pytest.raises(ValueError, match='a: '):
        Measurement('a', 'ms', **fields)


def test_percentiles():
    samples = [float(number) for number in range(100, 0, -1)]
    assert [percentile(samples, p) for p in (0, 50, 99, 100)] == [1.0, 50.0, 99.0, 100.0]
    assert percentile([7.0], 99) == 7.0
