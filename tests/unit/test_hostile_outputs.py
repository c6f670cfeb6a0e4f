"""Whoever shows an output: what a kernel sent as HTML, SVG or Markdown is executed nowhere."""

import io
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from lagent.actions.interpreter import carried
from lagent.analysis import to_notebook
from lagent.console import ConsoleView, ReplyWriter, output_text
from lagent.effects import Effect, emit, perform, subscribe
from lagent.flow import run
from lagent.prompts.parsers import CodeParser
from lagent.schema import AgentMessage
from lagent.view import ModelView
from sandbox import ExecutionResult, Outcome, Output
from sandbox.console import LivePrinter

SVG = '<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"><rect width="1"/>'
HOSTILE = {
    'script': '<script>alert(1)</script>',
    'script in pieces': '<scr<script>ipt>alert(1)</scr</script>ipt>',
    'handler': '<img src=x onerror=alert(1)><b onclick="alert(1)">b</b>',
    'handler without a space': '<svg/onload=alert(1)>',
    'link': '<a href="javascript:alert(1)">x</a><a href="JaVa&#x09;script:alert(1)">y</a>',
    'frame': '<iframe srcdoc="<script>alert(1)</script>"></iframe><object data="x"></object>',
    'refresh': '<meta http-equiv="refresh" content="0;url=javascript:alert(1)"><base href="//a">',
    'style': '<style>@import "//example.org"</style><p style="background:url(//example.org)">p</p>',
    'form': '<form action="//example.org"><button formaction="javascript:alert(1)"></form>',
    'foreign object': f'{SVG}<foreignObject><body onload="alert(1)"/></foreignObject></svg>',
    'svg script': f'{SVG}<script>alert(1)</script><a href="javascript:alert(1)"/></svg>',
    'mathml': '<math><mtext><table><mglyph><style><img src=x onerror=alert(1)></style></math>',
    'comment': '<!--><script>alert(1)</script>--><![CDATA[<script>alert(1)</script>]]>',
    'data frame': (
        '<table class="dataframe" onmouseover="alert(1)"><tr><th><script>alert(1)</script></th>'
        '<th>a</th></tr><tr><td>1</td><td><img src=x onerror=alert(1)></td></tr></table>'
    ),
    'markdown': '[x](javascript:alert(1)) ![y](data:text/html,<script>alert(1)</script>) <b>z</b>',
    'terminal': '\x1b]8;;javascript:alert(1)\x07x\x1b]8;;\x07\x9b2J\x1b[2J\u202eabc',
}
MIMES = (
    *('text/html', 'image/svg+xml', 'text/markdown', 'text/latex', 'application/javascript'),
    *('application/vnd.plotly.v1+json', 'text/vnd.mermaid', 'application/xhtml+xml'),
)
INERT = {'text/plain', 'text/html', 'image/png', 'image/jpeg', 'image/gif', 'image/webp'}
TAGS = {
    *('table', 'tr', 'th', 'td', 'thead', 'tbody', 'p', 'b', 'div', 'span', 'pre', 'code'),
}
CONTROLS = re.compile('[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]')


def everything(text: str, wide: bool = False) -> Output:
    plain = f'{text} \\\n' if wide else text
    return Output('display', plain, {'text/plain': plain, **dict.fromkeys(MIMES, text)})


@pytest.fixture(params=HOSTILE)
def text(request: pytest.FixtureRequest) -> str:
    return HOSTILE[request.param]


@pytest.fixture
def result(text: str) -> ExecutionResult:
    outputs = [everything(text), everything(text, wide=True)]
    outputs += [Output('display', data={mime: text}) for mime in MIMES]
    return ExecutionResult(Outcome.OK, (*outputs, Output('stdout', text), Output('result', text)))


class Opened(HTMLParser):
    """What a browser would make elements of."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: dict[str, list[str]] = {}
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.setdefault(tag, []).extend(name for name, _ in attrs)


def html_of(notebook: dict[str, object]) -> Iterator[str]:
    for cell in notebook['cells']:
        if cell['cell_type'] == 'markdown':
            assert not re.search(r'(?i)(?:javascript|data):(?!\s)', cell['source'])
            yield cell['source']
        for output in cell.get('outputs', ()):
            assert set(output.get('data', ())) <= INERT
            yield output.get('data', {}).get('text/html', '')


def test_a_notebook(text: str, result: ExecutionResult) -> None:
    reply = f'{text}\n```python\nx\n```'
    messages = [
        AgentMessage(sender='user', content=text),
        AgentMessage(sender='a', content=reply, formatted=CodeParser().parse_response(reply)),
        AgentMessage(
            sender='interpreter', type='interpreter', content='', formatted=carried(result)
        ),
        AgentMessage(sender='a', content=text),
    ]
    notebook = to_notebook(messages, author='a')
    assert [cell for cell in notebook['cells'] if cell.get('outputs')]
    for html in html_of(notebook):
        opened = Opened(html).tags
        assert set(opened) <= TAGS
        assert {name for names in opened.values() for name in names} <= {'border', 'scope'}


def test_a_terminal(text: str, result: ExecutionResult) -> None:
    for is_terminal in (True, False):
        console = Console(
            file=io.StringIO(), width=80, color_system=None, force_terminal=is_terminal
        )

        def execute() -> ExecutionResult:
            for output in result.outputs:
                emit(output)
            return result

        with subscribe(ConsoleView(console, show_code=True)):
            run(perform(Effect('kernel', 'interpreter', text), execute))
        writer = ReplyWriter(console)
        writer.feed(text)
        writer.close()
        console.print(output_text(result.outputs[0]))
        assert not CONTROLS.search(console.file.getvalue().replace('\x1b[0m', ''))


def test_a_model(text: str, result: ExecutionResult) -> None:
    for shown in (ModelView().content([result]), result.text):
        assert isinstance(shown, str)
        assert not CONTROLS.search(shown)
    for mime in MIMES:
        only = ExecutionResult(Outcome.OK, (Output('display', data={mime: text}),))
        for shown in (ModelView().content([only]), only.text):
            assert shown.startswith('[')
            assert 'alert' not in shown


def test_the_command_line(
    text: str, result: ExecutionResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printer = LivePrinter(tmp_path)
    for output in result.outputs:
        printer.show(output)
    printer.finish(result)
    assert not CONTROLS.search(''.join(capsys.readouterr()))
    for path in tmp_path.iterdir():
        assert path.suffix == '.svg'
        opened = Opened(path.read_text('utf-8')).tags
        assert set(opened) <= {'svg', 'rect'}
        assert {name for names in opened.values() for name in names} <= {
            *('xmlns', 'xmlns:xlink', 'width'),
        }
