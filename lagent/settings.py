"""Settings of the command line that files and the environment hold.

An option on the command line goes before the environment, that before ``lagent.toml`` in the
working folder, that before the user's own file, and that before the default. The file in the
working folder may be somebody else's: it can't choose where data and keys are sent, what isolates
the code, or where files are written.
"""

import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from stat import S_ISREG
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lagent.errors import ConfigError

NAME = 'lagent.toml'

ENVIRONMENT = {
    'model': ['LAGENT_MODEL', 'MODEL'],
    'base_url': ['LAGENT_BASE_URL', 'OPENAI_BASE_URL'],
    'backend': ['LAGENT_BACKEND'],
    'timeout': ['LAGENT_TIMEOUT'],
    'max_turn': ['LAGENT_MAX_TURN'],
    'max_new_tokens': ['LAGENT_MAX_NEW_TOKENS'],
    'language': ['LAGENT_LANGUAGE'],
    'save': ['LAGENT_SAVE'],
    'journal': ['LAGENT_JOURNAL'],
    'images': ['LAGENT_IMAGES'],
}
"""The variables of each setting; the first that is set counts."""

Backend = Literal['docker', 'bubblewrap', 'auto', 'local']
Language = Literal['en', 'zh']
Images = Literal['auto', 'kitty', 'iterm2', 'sixel', 'none']

_LARGEST = 64 * 1024  # bytes of a file


class ProjectSettings(BaseModel):
    """What ``lagent.toml`` in the working folder may set.

    Attributes:
        model: name of a served model.
        timeout: seconds that one piece of code may run.
        max_turn: how many times code may run for one question.
        max_new_tokens: tokens that one reply of the model may have.
        language: language of the model's instructions.
    """

    model_config = ConfigDict(extra='forbid', frozen=True)

    model: str | None = None
    timeout: float | None = Field(None, ge=0.1)
    max_turn: int | None = Field(None, ge=1)
    max_new_tokens: int | None = Field(None, ge=1)
    language: Language | None = None


class UserSettings(ProjectSettings):
    """What the user's own file may set, besides.

    Attributes:
        model: name of a served model, or the folder of a local one.
        base_url: address of an OpenAI-compatible server.
        backend: what isolates the code.
        save: folder for the files that code creates or changes.
        journal: where runs are recorded.
        images: how images are shown in the terminal.
    """

    base_url: str | None = None
    backend: Backend | None = None
    save: str | None = None
    journal: str | None = None
    images: Images | None = None


def variables(name: str) -> str | list[str]:
    """The variables of a setting, as an option of the command line takes them.

    Args:
        name: the setting.

    Returns:
        The only one, or all of them in order.
    """
    first, *others = ENVIRONMENT[name]
    return [first, *others] if others else first


def user_file() -> Path:
    """The user's own file.

    Returns:
        Its path, by the XDG base directory specification; it need not exist.
    """
    base = os.environ.get('XDG_CONFIG_HOME', '')
    folder = Path(base) if Path(base).is_absolute() else Path.home() / '.config'
    return folder / 'lagent' / NAME


def from_files() -> dict[str, tuple[Any, Path]]:
    """Read both files.

    Returns:
        Each setting that one of them has, with the file that decides.

    Raises:
        ConfigError: a file can't be read, or has what it may not have.
    """
    found: dict[str, tuple[Any, Path]] = {}
    for path, kind in ((user_file(), UserSettings), (Path(NAME), ProjectSettings)):
        found |= {name: (value, path) for name, value in _read(path, kind)}
    return found


def default_map(journal_commands: list[str]) -> dict[str, Any]:
    """The settings of the files as defaults of the commands.

    Args:
        journal_commands: the commands of ``lagent runs``.

    Returns:
        The default map of a `click.Context`.

    Raises:
        ConfigError: see `from_files`.
    """
    values = {name: value for name, (value, _) in from_files().items()}
    recorded = {'where': values['journal']} if 'journal' in values else {}
    return {
        **dict.fromkeys(('run', 'chat', 'ui', 'models', 'doctor'), values),
        'resume': recorded,
        'runs': dict.fromkeys(journal_commands, recorded),
    }


def effective() -> Iterator[tuple[str, str, str]]:
    """What holds without options on the command line.

    Yields:
        The name of each setting that is set, its value without secrets, and where it is from.

    Raises:
        ConfigError: see `from_files`.
    """
    files = from_files()
    for name, variables in ENVIRONMENT.items():
        variable = next((each for each in variables if os.environ.get(each)), None)
        if variable is not None:
            yield name, _without_secrets(os.environ[variable]), variable
        elif name in files:
            value, path = files[name]
            yield name, _without_secrets(str(value)), str(path)


def _read(path: Path, kind: type[ProjectSettings]) -> Iterator[tuple[str, Any]]:
    try:
        if not _is_there(path):
            return
        status = path.stat()
        if not S_ISREG(status.st_mode):
            raise ConfigError(f'{path} is no file: its settings can not be read.')
        if status.st_size > _LARGEST:
            raise ConfigError(f'{path} is larger than {_LARGEST:,} bytes; it was not read.')
        settings = kind.model_validate(tomllib.loads(path.read_text('utf-8')))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f'{path} can not be read: {error}') from error
    except ValidationError as error:
        # Pydantic's own words would repeat the values, which may be secrets.
        told = '; '.join(_told(str(each['loc'][0]), each['msg'], kind) for each in error.errors())
        raise ConfigError(f'{path}: {told}') from None
    if kind is ProjectSettings and settings.model and Path(settings.model).is_dir():
        raise ConfigError(
            f'{path}: model is a folder. Weights are loaded from one only if {user_file()}, MODEL '
            'or --model names it.'
        )
    yield from settings.model_dump(exclude_none=True).items()


def _is_there(path: Path) -> bool:
    try:
        path.lstat()  # so that a link to nowhere is told
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _told(name: str, words: str, kind: type[ProjectSettings]) -> str:
    if name == 'unsafe':
        return 'isolation is given up with --unsafe only'
    if name in UserSettings.model_fields and name not in kind.model_fields:
        return f'{name} may be set in {user_file()} only'
    if name not in UserSettings.model_fields:
        return f'there is no setting {name!r}; there are {", ".join(kind.model_fields)}'
    return f'{name}: {words}'


def _without_secrets(value: str) -> str:
    """A value without the user, password and query of an address."""
    if '://' not in value:
        return value
    try:
        parts = urlsplit(value)
        host = parts.netloc.rpartition('@')[2]
    except ValueError:
        return '(not an address)'
    hidden = '…@' if '@' in parts.netloc else ''
    return f'{parts.scheme}://{hidden}{host}{parts.path}'
