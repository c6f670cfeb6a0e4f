import json

from sandbox.types import (
    ErrorInfo,
    ExecutionResult,
    FileInfo,
    Outcome,
    Output,
    Timings,
    Truncation,
)

PNG = b'\x89PNG\r\n\x1a\n' + bytes(8)

FULL = ExecutionResult(
    Outcome.TIMEOUT,
    outputs=(
        Output('stdout', 'a\n'),
        Output('stderr', 'careful'),
        Output('stdout', 'b', cut=(1, 7)),
        Output('display', 'x', {'image/png': PNG, 'application/json': {'k': [1, None]}}, {'m': 1}),
        Output('display', data={'image/jpeg': b'\xff\xd8'}, display_id='d', left_out={'a/b': 3}),
        Output('result', '1'),
        Output('result', '2'),
        Output('error', 'trace'),
    ),
    error=ErrorInfo('ValueError', 'bad', 'trace'),
    state_preserved=False,
    notices=('n',),
    execution_count=3,
    truncated=Truncation(stdout_chars=7, bytes=3),
    artifacts=(FileInfo('a.txt', 2, 1.5),),
    timings=Timings(0.1, 0.2, 0.3),
    exit_code=None,
    signal=9,
    steps=('interrupt', 'kill', 'restart'),
    text_limit=500,
)


def test_a_result_survives_json():
    again = ExecutionResult.from_dict(json.loads(json.dumps(FULL.to_dict())))
    assert again == FULL
    assert again.text == FULL.text


def test_an_empty_result_survives_json():
    empty = ExecutionResult(Outcome.OK)
    assert ExecutionResult.from_dict(json.loads(json.dumps(empty.to_dict()))) == empty


def test_what_a_result_offers_at_a_glance():
    assert FULL.stdout == 'a\nb'
    assert FULL.stderr == 'careful'
    assert FULL.result == '2'
    assert FULL.images == [PNG, b'\xff\xd8']
    assert not FULL.ok
    assert ExecutionResult(Outcome.OK).ok
    assert ExecutionResult(Outcome.OK).result is None


def test_an_error_unpacks():
    name, message, traceback = FULL.error
    assert (name, message, traceback) == ('ValueError', 'bad', 'trace')


def test_a_truncation_is_true_when_something_is_missing():
    assert not Truncation()
    assert Truncation(outputs=1)
