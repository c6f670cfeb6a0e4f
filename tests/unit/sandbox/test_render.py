import struct

from sandbox.kernel.mime import image_size
from sandbox.types import ErrorInfo, ExecutionResult, FileInfo, Outcome, Output, Truncation


def png(width: int, height: int, size: int) -> bytes:
    head = b'\x89PNG\r\n\x1a\n' + bytes(4) + b'IHDR' + struct.pack('>II', width, height)
    return head.ljust(size, b'\0')


def test_everything_in_its_place():
    result = ExecutionResult(
        Outcome.ERROR,
        (
            Output('stdout', 'one\ntwo\n'),
            Output('stderr', 'careful'),
            Output('display', '<Figure>', {'image/png': png(640, 480, 12_345)}),
            Output('display', '   a\n0  1', {'text/html': '<table>', 'text/plain': '   a\n0  1'}),
            Output('display', data={'text/html': '<b>bold</b>'}),
            Output('display', data={'application/json': {}}),
            Output('display', left_out={'image/png': 20_000_000}),
            Output('result', '42'),
            Output('error', 'Traceback\nValueError: bad'),
        ),
        error=ErrorInfo('ValueError', 'bad', 'Traceback\nValueError: bad'),
        notices=('first', 'second'),
        artifacts=(FileInfo('plot.png', 12_345, 0.0), FileInfo('odd\n[notice] x', 2, 0.0)),
    )
    assert result.text == (
        '[notice] first\n'
        '[notice] second\n'
        'one\n'
        'two\n'
        '[stderr]\n'
        'careful\n'
        '[image: png 640x480, 12 kB]\n'
        '   a\n'
        '0  1\n'
        '[text/html: 11 characters]\n'
        '[application/json]\n'
        '[image/png left out: 20,000,000 bytes]\n'
        '42\n'
        '[files created or changed: plot.png (12 kB), odd\ufffd[notice] x (2 bytes)]\n'
        'Traceback\n'
        'ValueError: bad'
    )


def test_nothing_is_said_in_words():
    assert ExecutionResult(Outcome.OK).text == '[no output]'
    killed = ExecutionResult(Outcome.KERNEL_DIED, notices=('it died',))
    assert killed.text == '[notice] it died\n[no output]'


def test_a_long_text_keeps_both_ends_and_counts_exactly():
    text = 'h' * 10_000 + 't' * 10_000
    result = ExecutionResult(Outcome.OK, (Output('stdout', text),), text_limit=1_000)
    shown = result.text
    assert len(shown) <= 1_000
    kept = len(shown) - len(shown[shown.index('\n[...') : shown.index('...]\n') + 5])
    assert f'[... {20_000 - kept:,} characters left out ...]' in shown
    assert shown.startswith('h' * 400)
    assert shown.endswith('t' * 400)


def test_cuts_of_the_collector_and_of_the_text_are_counted_together():
    marker = '\n[... 1,000,000 characters left out ...]\n'
    output = Output('stdout', 'h' * 5_000 + marker + 't' * 5_000, cut=(5_000, 1_000_000))
    result = ExecutionResult(
        Outcome.OK, (output,), truncated=Truncation(stdout_chars=1_000_000), text_limit=1_000
    )
    shown = result.text
    start, rest = shown.split('\n[... ')
    count, end = rest.split(' characters left out ...]\n')
    assert int(count.replace(',', '')) + len(start) + len(end) == 1_010_000
    assert len(shown) <= 1_000


def test_the_end_of_the_error_and_all_notices_survive_a_flood():
    result = ExecutionResult(
        Outcome.ERROR,
        (
            Output('stdout', 'x' * 100_000),
            Output('error', 'frame\n' * 10_000 + 'RecursionError: too deep'),
        ),
        notices=('variables are lost',),
        text_limit=800,
    )
    assert result.text.startswith('[notice] variables are lost\n')
    assert result.text.endswith('RecursionError: too deep')
    assert len(result.text) <= 800


def test_a_short_error_leaves_the_room_to_the_output():
    result = ExecutionResult(
        Outcome.ERROR,
        (Output('stdout', 'x' * 100_000), Output('error', 'E: v')),
        text_limit=1_000,
    )
    assert result.text.count('x') > 900 - 2
    assert result.text.endswith('\nE: v')


def test_control_characters_do_not_reach_the_model():
    result = ExecutionResult(Outcome.OK, (Output('stdout', 'a\x00\x07b\u202ec\td\n'),))
    assert result.text == 'a\ufffd\ufffdb\ufffdc\td'


def test_many_files_are_summed_up():
    files = tuple(FileInfo(f'{number}.txt', 1_500_000, 0.0) for number in range(12))
    text = ExecutionResult(Outcome.OK, (Output('stdout', 'x'),), artifacts=files).text
    assert '0.txt (1.5 MB)' in text
    assert text.endswith('9.txt (1.5 MB), and 2 more]')


def test_image_sizes():
    jpeg = b'\xff\xd8\xff\xe0\x00\x04ab\xff\xc0\x00\x11\x08' + struct.pack('>HH', 48, 64)
    assert image_size(png(3, 4, 24)) == (3, 4)
    assert image_size(jpeg) == (64, 48)
    assert image_size(b'\xff\xd8\xff') is None
    assert image_size(b'\x89PNG\r\n\x1a\n') is None
    assert image_size(b'GIF89a') is None


def test_the_file_with_the_full_output_is_named():
    kept = FileInfo('.outputs/cell-3-stdout.txt', 3_000_000, 0.0)
    made = FileInfo('a.csv', 5, 0.0)
    result = ExecutionResult(
        Outcome.OK, (Output('stdout', 'x\n'),), artifacts=(made,), full_output=(kept,)
    )
    assert result.text == (
        'x\n[full output: .outputs/cell-3-stdout.txt (3.0 MB)]\n'
        '[files created or changed: a.csv (5 bytes)]'
    )
    assert ExecutionResult.from_dict(result.to_dict()) == result


def test_the_limit_is_kept_whatever_the_files_and_their_names():
    files = tuple(FileInfo(f'{n}' + 'x' * 90, 12_345_678, 0.0) for n in range(1_234))
    for kinds in (('stdout',), ('error',), ('stdout', 'error'), ()):
        for limit in (200, 300, 1_000, 8_000):
            for count in (0, 1, 2, 10, 1_234):
                result = ExecutionResult(
                    Outcome.OK,
                    tuple(Output(kind, 'line\n' * 100_000) for kind in kinds),
                    artifacts=files[:count],
                    full_output=files[:count],
                    text_limit=limit,
                )
                assert len(result.text) <= limit, (kinds, limit, count)
    assert '[files created or changed: 1,234]' in result.text or limit == 8_000
    small = ExecutionResult(Outcome.OK, artifacts=files, text_limit=200)
    assert small.text == '[no output]\n[files created or changed: 1,234]'


def test_one_is_no_plural():
    result = ExecutionResult(
        Outcome.OK,
        outputs=(Output('result', data={'text/x': 'a'}), Output('result', left_out={'text/y': 1})),
        artifacts=(FileInfo('a', 1, 0.0),),
    )
    assert '[text/x: 1 character]\n' in result.text
    assert '[text/y left out: 1 byte]\n' in result.text
    assert result.text.endswith('[files created or changed: a (1 byte)]')
