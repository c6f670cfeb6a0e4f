"""`lagent chat`: its commands, and Ctrl-C and plots in a real terminal (a pseudo-terminal)."""

import base64
import fcntl
import os
import pty
import select
import subprocess
import sys
import termios
import textwrap
import time

import nbformat
import pytest
from typer.testing import CliRunner

from lagent import cli
from lagent.errors import ModelError
from lagent.llms import ScriptedModel, from_env

pytestmark = pytest.mark.kernel

LOCAL = ['--backend', 'local', '--unsafe']
MAKES = "```python\nn = open('made.csv', 'w').write('a\\n1\\n')\n```"


@pytest.fixture
def chat(monkeypatch, tmp_path):
    """Talk with a scripted model in an empty folder; gives what was printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('XDG_CONFIG_HOME', str(tmp_path))

    def talk(replies, lines, *arguments):
        llm = ScriptedModel(replies)
        monkeypatch.setattr(from_env, 'model_from_env', lambda *_: llm)
        arguments = ['chat', *map(str, arguments), *LOCAL]
        result = CliRunner().invoke(cli.app, arguments, input='\n'.join([*lines, '/quit', '']))
        assert result.exit_code == 0, result.output
        talk.calls = llm.calls
        return result.output

    return talk


def test_files_are_told_saved_and_added(chat, tmp_path):
    (tmp_path / 'sales.csv').write_text('city,n\nA,1\nB,2\n')
    (tmp_path / 'more.csv').write_text('x\n')
    output = chat(
        [MAKES, 'Made.', 'Yes.'],
        ['Make it', '/save', '/save sales.csv', '/add more.csv', '/files', 'And more.csv?'],
        'sales.csv',
    )
    for words in ('sales.csv  table, 15 bytes, 2 rows', 'made.csv', 'more.csv'):
        assert words in output
    folder = tmp_path / 'lagent-files'
    assert sorted(path.name for path in folder.iterdir()) == ['made.csv', 'sales.csv']
    assert (folder / 'made.csv').read_text() == 'a\n1\n'
    told = [str(message['content']) for message in chat.calls[-1].messages]
    assert any('more.csv' in content for content in told[1:])


def test_a_question_is_taken_back(chat):
    output = chat(['One.', 'Two.'], ['first', '/undo', '/undo', 'second'])
    assert 'Taken back: first' in output
    assert 'no question to take back' in output
    contents = [message['content'] for message in chat.calls[1].messages]
    assert [content.strip() for content in contents[1:]] == ['second']


def test_a_reset_gives_the_first_files_again(chat, tmp_path):
    (tmp_path / 'sales.csv').write_text('city,n\nA,1\n')
    check = "```python\nimport os\nprint(sorted(os.listdir()), 'n' in globals())\n```"
    output = chat([MAKES, 'Made.', check, 'So.'], ['zebra', '/reset', 'b'], 'sales.csv')
    assert "['sales.csv'] False" in output
    assert 'zebra' not in str(chat.calls[-1].messages)


def test_a_session_is_written_as_a_notebook(chat, tmp_path):
    chat([MAKES, 'Made.'], ['Make it', '/export', '/export other.ipynb', '/export no.txt'])
    for path in ('lagent-session/session.ipynb', 'other.ipynb'):
        cells = nbformat.read(tmp_path / path, 4).cells
        assert any('made.csv' in cell.source for cell in cells if cell.cell_type == 'code')
    assert not (tmp_path / 'no.txt').exists()


def test_a_failure_of_the_model_is_told_once(chat):
    output = chat([ModelError('no answer today'), 'Now.'], ['Why?', 'And now?'])
    assert output.count('ModelError: no answer today') == output.count('no answer today') == 1
    assert 'Now.' in output


def test_what_fails_is_told_and_the_conversation_goes_on(chat, tmp_path):
    output = chat(
        ['Still here.'],
        ['/add', '/add nowhere.csv', '/save ../../etc/passwd', '/save no', '/nonsense', 'There?'],
    )
    for words in (
        'needs the path',
        'nowhere.csv',
        'no command /nonsense',
        'Commands:',
        'Still here.',
    ):
        assert words in output
    assert not (tmp_path.parent / 'etc').exists()
    assert 'Traceback' not in output


PROGRAM = """
import sys
from lagent import cli
from lagent.llms import ScriptedModel, from_env
llm = ScriptedModel({replies!r})
from_env.model_from_env = lambda *_: llm
sys.argv = ['lagent', 'chat', '--backend', 'local', '--unsafe']
cli.main()
"""


class Terminal:
    """A pseudo-terminal with `lagent chat` in it."""

    def __init__(self, replies, folder, **environment):
        environment = {**os.environ, 'XDG_CONFIG_HOME': str(folder), **environment}
        environment.pop('TMUX', None)
        master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, '-c', textwrap.dedent(PROGRAM.format(replies=replies))],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=folder,
            env={'COLUMNS': '100', 'LINES': '40', **environment},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        self._master, self._read, self._known = master, b'', 0

    def type(self, text):
        # What comes before readline waits for a key would be seen with the next one only.
        time.sleep(0.3)
        os.write(self._master, text.encode())

    def wait_for(self, words, seconds=60):
        """Read until these words come after what was waited for before."""
        end, sought = time.monotonic() + seconds, words.encode()
        while (found := self._read.find(sought, self._known)) < 0:
            ready, _, _ = select.select([self._master], [], [], max(0, end - time.monotonic()))
            assert ready, f'{words!r} did not come: {self._read[self._known :]!r}'
            self._read += os.read(self._master, 4096)
        start, self._known = self._known, found + len(sought)
        return self._read[start : self._known].decode()

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)


@pytest.fixture
def terminal(tmp_path):
    opened = []

    def start(replies, **environment):
        opened.append(Terminal(replies, tmp_path, TERM='xterm', **environment))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


SLEEPS = '```python\nimport time\nx = 41\nprint("begun", flush=True)\ntime.sleep(100)\n```'
STUBBORN = """```python
x = 42
try:
    print('begun', flush=True)
    time.sleep(100)
except KeyboardInterrupt:
    print('stubborn', flush=True)
time.sleep(100)
```"""


def test_ctrl_c_interrupts_the_cell_and_twice_ends_the_turn(terminal):
    # What the user has interrupted is not given back to the model, as other failures are.
    screen = terminal([SLEEPS, 'I was stopped.', STUBBORN, '```python\nx\n```', 'Ok.'])
    screen.wait_for('›')
    screen.type('one\n')
    screen.wait_for('\nbegun')
    screen.type('\x03')
    screen.wait_for('Interrupting the code')
    screen.wait_for('I was stopped.')
    screen.wait_for('›')
    screen.type('two\n')
    screen.wait_for('\nbegun')
    screen.type('\x03')
    screen.wait_for('\nstubborn')
    screen.type('\x03')
    screen.wait_for('variables and files are kept')
    screen.wait_for('›')
    screen.type('three\n')
    assert '42' in screen.wait_for('Ok.')
    screen.wait_for('›')
    screen.type('\x04')
    assert screen.process.wait(30) == 0


def test_two_ctrl_c_at_the_prompt_end(terminal):
    screen = terminal(['Never.'])
    screen.wait_for('›')
    screen.type('\x03')
    screen.wait_for('/quit ends')
    screen.wait_for('›')
    screen.type('\x03')
    assert screen.process.wait(30) == 0


PNG = base64.b64encode(
    b'\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00\x1f\x15'
    b'\xc4\x89\x00\x00\x00\rIDATx\xdac\xfc\xcf\xc0P\x0f\x00\x04\x85\x01\x80\x84\xa98!\x00\x00\x00\x00'
    b'IEND\xaeB`\x82'
).decode()
SHOWS = f"""```python
import base64
from IPython.display import Image
png = base64.b64decode('{PNG}')
open('dot.png', 'wb').write(png)
print('\\x1b]0;title\\x07\\x1b_Ga=T,f=100;AAAA\\x1b\\\\')
Image(data=png)
```"""


def test_plots_appear_where_the_terminal_can_show_them(terminal):
    screen = terminal([SHOWS, 'See [the dot](dot.png).'], KITTY_WINDOW_ID='1')
    screen.wait_for('›')
    screen.type('draw\n')
    shown = screen.wait_for('the dot](dot.png)') + screen.wait_for('›')
    # The displayed image and the file: written by us, with the bytes as they are.
    assert shown.count(f'\x1b_Ga=T,f=100,q=2,m=0;{PNG}\x1b\\') == 2
    assert shown.count('\x1b_G') == 2
    assert '\x1b]' not in shown
