"""A conversation with a data analyst in a terminal: turns, Ctrl-C, and the slash commands."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from lagent.console import ConsoleView, markdown, printable
from lagent.dialogue import Dialogue, made_for
from lagent.errors import LagentError
from lagent.inline_images import Pictures
from lagent.outcomes import show_error
from lagent.prompts.parsers.reasoning import TAGS, split_reasoning
from lagent.utils.counts import many

HELP = {
    '/files': 'list the files of the session',
    '/add FILE': 'give the session another file',
    '/save [NAME]': 'copy a file, or all that were made, out of the sandbox',
    '/undo': 'take back the last question; variables and files stay',
    '/reset': 'forget the conversation, the variables and the files',
    '/export [NOTEBOOK]': 'write the session as a Jupyter notebook',
    '/help': 'show this',
    '/quit': 'end; so does Ctrl-D',
}
DEFAULT_FOLDER, DEFAULT_NOTEBOOK = Path('lagent-files'), Path('lagent-session', 'session.ipynb')


class CellInterrupt:
    """In a turn Ctrl-C interrupts the running cell; without one, or pressed twice, ends the turn.

    Args:
        dialogue: whose turns they are; it must be subscribed to their events.
        console: where to say what is done.
    """

    def __init__(self, dialogue: Dialogue, console: Console) -> None:
        self._dialogue, self._console = dialogue, console

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Listen to Ctrl-C for the time of one turn."""
        self._dialogue.begin()
        if threading.current_thread() is not threading.main_thread():
            yield  # signals belong to the main thread
            return
        before = signal.signal(signal.SIGINT, self._pressed)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _pressed(self, number: int, frame: FrameType | None) -> None:
        if self._dialogue.stop() == 'turn':
            raise KeyboardInterrupt
        # The main thread waits for the cell and must not wait for anything else.
        threading.Thread(target=self._interrupt, daemon=True).start()

    def _interrupt(self) -> None:
        words = '\nInterrupting the code; Ctrl-C again ends the turn.'
        self._console.print(Text(words, style='yellow'))
        self._dialogue.interrupt()


class Conversation:
    """What the lines of a user do.

    Args:
        dialogue: what the lines do it with.
        console: the terminal.
        view: shows the events of a turn.
        pictures: shows images.
        interrupt: what Ctrl-C does in a turn.
        folder: where files are saved after each turn; None to save only what is asked for.
    """

    def __init__(
        self,
        dialogue: Dialogue,
        console: Console,
        view: ConsoleView,
        pictures: Pictures,
        interrupt: CellInterrupt,
        folder: Path | None,
    ) -> None:
        self._dialogue, self._console, self._view = dialogue, console, view
        self._pictures, self._interrupt, self._folder = pictures, interrupt, folder

    def talk(self) -> None:
        """Read lines and do what they ask for, until the user ends."""
        interrupted = False
        while True:
            try:
                line = self._read()
            except EOFError:
                return
            except KeyboardInterrupt:
                if interrupted:
                    return
                interrupted = True
                self._say('\nCtrl-C again, Ctrl-D or /quit ends.')
                continue
            interrupted = False
            if line in ('/quit', '/exit'):
                return
            with self._told():
                if line.startswith('/'):
                    self._obey(line)
                elif line:
                    self._turn(line)

    def _read(self) -> str:
        if not self._console.is_terminal:
            return self._console.input('› ').strip()
        with suppress(ImportError):
            import readline  # noqa: F401 - gives `input` a history and keys to edit with
        # The marks tell readline what takes no room on the line.
        return input('\x01\x1b[1;32m\x02› \x01\x1b[0m\x02').strip()

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Tell what a turn or a command failed with, and go on."""
        from lagent.actions.interpreter import SandboxError

        try:
            yield
        except KeyboardInterrupt:
            self._say('Interrupted; variables and files are kept.')
        except (SandboxError, LagentError, OSError, ValueError) as error:
            show_error(self._console, error, self._view)

    def _turn(self, question: str) -> None:
        self._view.last_reply = ''
        with self._interrupt.turn():
            answer = self._dialogue.ask(question)
            if str(answer.content) != self._view.last_reply:
                show_answer(self._console, answer)
            self._show_images(answer)
        save_all(self._dialogue, self._folder, self._console)

    def _show_images(self, answer: Any) -> None:
        for made in made_for(answer):
            if made['kind'] == 'image':
                self._pictures.show_file(
                    self._dialogue.download(made['path'], self._pictures.folder)
                )

    def _obey(self, line: str) -> None:
        name, _, argument = line.partition(' ')
        argument = argument.strip()
        commands: dict[str, Callable[[str], None]] = {
            '/files': self._list,
            '/add': self._add,
            '/save': self._save,
            '/undo': self._undo,
            '/reset': self._reset,
            '/export': self._export,
            '/help': self._help,
        }
        if name not in commands:
            self._say(f'There is no command {printable(name)}.')
        commands.get(name, self._help)(argument)

    def _list(self, _: str) -> None:
        table = Table(box=None, pad_edge=False, show_header=False)
        table.add_column(overflow='fold')
        table.add_column(justify='right')
        for info in self._dialogue.files():
            table.add_row(Text(printable(info.path)), many(info.size, 'byte'))
        self._console.print(table if table.row_count else 'There are no files.')

    def _add(self, name: str) -> None:
        if not name:
            raise ValueError('/add needs the path of a file')
        self.upload([Path(name).expanduser()])

    def upload(self, paths: list[Path]) -> None:
        """Give files to the session, and say what they are.

        Args:
            paths: the files.
        """
        tell_upload(self._dialogue, paths, self._console)

    def _save(self, name: str) -> None:
        folder = self._folder or DEFAULT_FOLDER
        names = [name] if name else self._dialogue.made()
        for each in names:
            tell_saved(self._console, self._dialogue.download(each, folder))
        if not names:
            self._say('No file was made yet.')

    def _undo(self, _: str) -> None:
        question = self._dialogue.undo()
        if question is None:
            self._say('There is no question to take back.')
            return
        self._console.print(Text(f'Taken back: {printable(question)}'))
        self._say('Variables and files are as the code has left them.')

    def _reset(self, _: str) -> None:
        self._dialogue.reset()
        self._say('Memory, variables and files are gone.')
        if self._dialogue.initial_files:
            self.upload(self._dialogue.initial_files)

    def _export(self, name: str) -> None:
        path = Path(name or DEFAULT_NOTEBOOK).expanduser()
        tell_saved(self._console, self._dialogue.export(path))

    def _help(self, _: str) -> None:
        table = Table(box=None, pad_edge=False, show_header=False)
        for name, words in HELP.items():
            table.add_row(Text(name, style='bold'), words)
        self._console.print('Commands:')
        self._console.print(table)
        self._say('Ctrl-C interrupts the running code; pressed again, it ends the turn.')

    def _say(self, words: str) -> None:
        self._console.print(Text(words, style='yellow'))


def tell_upload(dialogue: Dialogue, paths: list[Path], console: Console) -> None:
    """Give files to a session, and say what they are.

    Args:
        dialogue: the session.
        paths: the files.
        console: the terminal.
    """
    words = f'Looking at {many(len(paths), "file")} in the sandbox …'
    with console.status(words):
        profiles = dialogue.upload(paths)
    for profile in profiles:
        table = profile.tables[0] if len(profile.tables) == 1 else None
        total = None if table is None else table.total
        rows = '' if total is None else f', {many(total, "row")}'
        about = profile.error or f'{profile.kind}, {many(profile.size, "byte")}{rows}'
        console.print(
            Text(f'  {printable(profile.path)}  {printable(about)}', style='dim'), soft_wrap=True
        )


def save_all(dialogue: Dialogue, folder: Path | None, console: Console) -> bool:
    """Copy a session's files, each into its own sub-folder, and tell each.

    Args:
        dialogue: the session.
        folder: where to; None for nowhere.
        console: the terminal.

    Returns:
        False if not all could be copied.
    """
    from lagent.actions.interpreter import SandboxError

    if folder is None:
        return True
    try:
        files = [info for info in dialogue.files() if info.kind == 'file']
    except (SandboxError, OSError) as error:
        show_error(console, error)
        return False
    saved = 0
    for info in files:
        try:
            path = dialogue.download(info.path, folder)
        except (SandboxError, OSError) as error:
            show_error(console, error)
        else:
            saved += 1
            tell_saved(console, path)
    return saved == len(files)


def tell_saved(console: Console, path: Path) -> None:
    """Say where something was saved.

    Args:
        console: the terminal.
        path: where.
    """
    console.print(f'saved {printable(str(path))}', style='green', markup=False)


def show_answer(console: Console, answer: Any) -> None:
    """Show an answer in a frame.

    Args:
        console: the terminal.
        answer: the message.
    """
    title, style = 'answer', 'green'
    if answer.type == 'limit':
        title, style = 'no answer', 'red'
    elif (reason := getattr(answer.content, 'finish_reason', None)) in ('length', 'content_filter'):
        title, style = f'answer, cut off ({reason})', 'yellow'
    text = str(answer.content)
    said = split_reasoning(text, TAGS).said().strip()  # the reasoning was seen while it was written
    console.print(Panel(markdown(printable(said or text)), title=title, border_style=style))
