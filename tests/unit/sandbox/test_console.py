"""What a session's output looks like on a terminal."""

import sys
from pathlib import Path

import pytest

from sandbox.console import LivePrinter, printable
from sandbox.types import ErrorInfo, ExecutionResult, Outcome, Output, Truncation

PNG = b'\x89PNG'


@pytest.mark.parametrize(
    ('text', 'shown'),
    [
        ('a\tb\nc', 'a\tb\nc'),
        ('50%\r100%\r\nend', '50%\n100%\nend'),
        ('\x1b]52;c;aGk=\x07\x1b[2J', ']52;c;aGk=[2J'),
        ('\x9b2Jx\x00\x7f', '2Jx'),
        ('user\u202etxt.exe\u2066', 'usertxt.exe'),
        ('naïve 漢字 🙂', 'naïve 漢字 🙂'),
    ],
)
def test_nothing_that_a_terminal_obeys_gets_through(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_outputs_go_where_they_belong(capsys: pytest.CaptureFixture[str]) -> None:
    printer = LivePrinter()
    printer.show(Output('stdout', 'half a '))
    printer.show(Output('stderr', 'warned\n'))
    printer.show(Output('stdout', 'line'))
    printer.show(Output('result', '42'))
    printer.show(Output('display', '<b>'))
    error = Output('error', 'ValueError: no')
    printer.show(error)
    printer.finish(ExecutionResult(Outcome.ERROR, (error,), ErrorInfo('ValueError', 'no', '')))
    assert capsys.readouterr() == ('half a line\n42\n<b>\n', 'warned\nValueError: no\n')


def test_a_script_that_exits_shows_its_message_and_no_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    printer = LivePrinter()
    printer.show(Output('error', 'An exception has occurred, use %tb.\n\nSystemExit: no data\n'))
    error = ErrorInfo('SystemExit', 'no data', '')
    printer.finish(ExecutionResult(Outcome.ERROR, error=error))
    assert capsys.readouterr() == ('', 'no data\n')


def test_a_message_that_looks_like_an_exit_hides_no_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = 'Traceback\nValueError: a\nSystemExit: b'
    error = ErrorInfo('ValueError', 'a\nSystemExit: b', text)
    printer = LivePrinter()
    printer.show(Output('error', text))
    printer.finish(ExecutionResult(Outcome.ERROR, (Output('error', text),), error))
    assert capsys.readouterr() == ('', text + '\n')


def test_an_exit_code_is_not_a_message(capsys: pytest.CaptureFixture[str]) -> None:
    error = ErrorInfo('SystemExit', '3', '')
    LivePrinter().finish(ExecutionResult(Outcome.ERROR, error=error))
    assert capsys.readouterr() == ('', '')


def test_what_was_lost_and_left_out_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    result = ExecutionResult(
        Outcome.OOM,
        notices=('the kernel died',),
        truncated=Truncation(stdout_chars=12_345, outputs=2),
    )
    LivePrinter().finish(result)
    assert capsys.readouterr().err == (
        'sandbox: the kernel died\nsandbox: left out: 12,345 stdout chars, 2 outputs\n'
    )


def test_images_are_saved_once_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / 'new'
    printer = LivePrinter(folder)
    printer.show(Output('display', '<Figure>', data={'image/png': PNG, 'image/svg+xml': '<svg/>'}))
    drawing = (
        '<svg xmlns="http://www.w3.org/2000/svg"><text>é</text><script>alert(1)</script></svg>'
    )
    printer.show(Output('display', '<Figure>', data={'image/svg+xml': drawing}))
    printer.show(Output('display', '<Figure>', data={'image/svg+xml': '<script>alert(1)</script>'}))
    printer.finish(ExecutionResult(Outcome.OK))
    assert sorted(path.name for path in folder.iterdir()) == ['output-1.png', 'output-2.svg']
    assert (folder / 'output-1.png').read_bytes() == PNG
    assert (folder / 'output-2.svg').read_text('utf-8').endswith('><text>é</text></svg>')
    out, err = capsys.readouterr()
    assert out == ''
    assert err.splitlines() == [
        f'sandbox: saved {folder}/output-1.png',
        f'sandbox: saved {folder}/output-2.svg',
        'sandbox: output-3.svg not saved: it is no SVG that is safe to open',
    ]


def test_images_that_are_not_saved_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    printer = LivePrinter()
    printer.show(Output('display', '<Figure>', data={'image/png': PNG}))
    printer.finish(ExecutionResult(Outcome.OK))
    assert capsys.readouterr() == ('', 'sandbox: 1 image(s) not saved; use --output-dir\n')


def test_silence(capsys: pytest.CaptureFixture[str]) -> None:
    printer = LivePrinter(silent=True)
    printer.show(Output('stdout', 'x'))
    printer.finish(ExecutionResult(Outcome.OOM, notices=('y',)))
    assert capsys.readouterr() == ('', '')


@pytest.mark.parametrize('no_colour', ['', '1'])
def test_colours_are_shown_on_a_terminal_only(
    no_colour: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = Output('stdout', 'red\n', ansi='\x1b[31mred\x07\u202e\x1b[39m\n')
    monkeypatch.setenv('NO_COLOR', no_colour)
    LivePrinter().show(output)
    assert capsys.readouterr().out == 'red\n'
    monkeypatch.setattr(sys.stdout, 'isatty', lambda: True)
    LivePrinter().show(output)
    expected = 'red\n' if no_colour else '\x1b[31mred\x1b[39m\n\x1b[0m'
    assert capsys.readouterr().out == expected
