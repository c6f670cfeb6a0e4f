"""Whole agents as data: a YAML file, or the dict that it stands for."""

import re
from collections.abc import Iterable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from lagent._extras import require
from lagent.errors import ConfigError, ExtraMissing
from lagent.utils.config import import_from, resolved_by

DEFAULT_ALLOW = ('lagent.', 'sandbox.SandboxPolicy')
"""What a configuration may always name: lagent's own classes, and the policy of a sandbox."""

_MAX_DEPTH = 50
_UNEXPECTED = re.compile(r"unexpected keyword argument '(\w+)'")

FieldPath = tuple[str | int, ...]


def from_config(source: str | PathLike[str] | Mapping[str, Any], allow: Iterable[str] = ()) -> Any:
    """Build an agent, or any other object, from a YAML file or a dict.

    A mapping with a ``type`` that is a dotted path becomes an instance of that class, made with
    the arguments beside it, at any depth. Everything else is plain data. In YAML, an anchor stands
    for one object: where its alias is used, the same object is.

    ::

        type: lagent.agents.Agent
        template: You are brief.
        llm:
          type: lagent.llms.GPTAPI
          model_type: gpt-4o

    A dotted path in data could name any code that is installed, so it must be allowed, as a `type`
    or as an argument that stands for a function. The data still decides what is built of what is
    allowed, which server a model asks and which files are read: load what you would run.

    Args:
        source: path of a YAML file (JSON is YAML too), or the data itself.
        allow: what may be named beside `DEFAULT_ALLOW`: full dotted paths, or prefixes that end
            with a dot. A prefix allows the classes that are defined below it, not functions, and
            not what is merely imported there. What a class of yours looks up with `create_object`
            while it is built must be allowed as well.

    Returns:
        The object.

    Raises:
        ConfigError: the data can't be built; the message names the file, the line and the field.
        ExtraMissing: a file was given, and PyYAML is not installed.
        OSError: the file can't be read.
    """
    data: Any = source
    if isinstance(source, Mapping):
        builder = _Builder('', {}, allow)
    else:
        path = Path(source)
        data, lines = _load_yaml(path)
        builder = _Builder(str(path), lines, allow)
    if not (isinstance(data, Mapping) and 'type' in data):
        raise builder.error((), 'a configuration is a mapping with a "type"')
    if not builder.is_config(data):
        raise builder.error(('type',), f'{data["type"]!r} is no dotted path of a class')
    return builder.build(data, ())


class _Builder:
    def __init__(self, file: str, lines: dict[FieldPath, int], allow: Iterable[str]) -> None:
        if isinstance(allow, str):
            allow = (allow,)
        self._file, self._lines = file, lines
        self._allow = (*DEFAULT_ALLOW, *allow)
        self._built: dict[int, Any] = {}
        self._kept: list[Any] = []  # the data whose ids `_built` knows

    def error(self, path: FieldPath, problem: str) -> ConfigError:
        where = _place(path)
        if not self._file:
            return ConfigError(f'config: {where}: {problem}')
        # A field that isn't there itself is missing in what would hold it.
        holders = (path[:length] for length in range(len(path), -1, -1))
        line = next((self._lines[holder] for holder in holders if holder in self._lines), 1)
        return ConfigError(f'{self._file}:{line}: {where}: {problem}')

    @staticmethod
    def is_config(data: Mapping[str, Any]) -> bool:
        type_ = data.get('type')
        # A class can't come from a file: the dict was written in code.
        return isinstance(type_, type) or (isinstance(type_, str) and '.' in type_)

    def build(self, data: Any, path: FieldPath) -> Any:
        if not isinstance(data, Mapping | list | tuple):
            return data
        if len(path) > _MAX_DEPTH:
            raise self.error(path[:3], f'nested more than {_MAX_DEPTH} levels deep')
        if id(data) not in self._built:
            self._kept.append(data)
            if isinstance(data, list | tuple):
                built: Any = [self.build(item, (*path, i)) for i, item in enumerate(data)]
            elif self.is_config(data):
                built = self._instance(data, path)
            else:
                built = {key: self.build(value, (*path, key)) for key, value in data.items()}
            self._built[id(data)] = built
        return self._built[id(data)]

    def _instance(self, data: Mapping[str, Any], path: FieldPath) -> Any:
        target = data['type']
        if isinstance(target, str):
            try:
                target = self._resolve(target)
            except ConfigError as error:
                raise self.error((*path, 'type'), str(error)) from error.__cause__
        arguments = {
            key: self.build(value, (*path, key)) for key, value in data.items() if key != 'type'
        }
        if not isinstance(target, type):
            return target  # a function that was allowed by name; there is nothing to build
        try:
            with resolved_by(self._resolve):
                return target(**arguments)
        except (ConfigError, ExtraMissing) as error:
            raise self.error(path, f'{data["type"]}: {error}') from error
        except Exception as error:
            unexpected = _UNEXPECTED.search(str(error))
            name = unexpected.group(1) if unexpected else ''
            if isinstance(error, TypeError) and name in arguments:
                raise self.error((*path, name), f'{data["type"]} has no such argument') from error
            words = f'{type(error).__name__}: {error}'
            raise self.error(path, f'{data["type"]} could not be built ({words})') from error

    def _resolve(self, name: str) -> Any:
        exactly = name in self._allow
        if not exactly and not self._is_below_prefix(name):
            raise ConfigError(
                f'{name!r} is not allowed; to allow it, pass allow=({name!r},) to from_config'
            )
        try:
            target = import_from(name)
        except (ImportError, AttributeError) as error:
            raise ConfigError(f'{name!r} does not exist ({error})') from error
        if exactly:
            return target
        # Modules import classes and functions from elsewhere: what counts is where one is defined.
        defined = f'{getattr(target, "__module__", "")}.{getattr(target, "__qualname__", "")}'
        if not isinstance(target, type) or not self._is_below_prefix(defined):
            raise ConfigError(
                f'{name!r} is no class that is defined there; allow it by its full name'
            )
        return target

    def _is_below_prefix(self, name: str) -> bool:
        return any(name.startswith(prefix) for prefix in self._allow if prefix.endswith('.'))


def _place(path: FieldPath) -> str:
    field = ''.join(f'[{key}]' if isinstance(key, int) else f'.{key}' for key in path)
    return f'field {field.removeprefix(".")}' if field else 'top level'


def _load_yaml(path: Path) -> tuple[Any, dict[FieldPath, int]]:
    yaml = require('yaml', 'yaml')
    try:
        loader = _loader_class(yaml)(path.read_text(encoding='utf-8'))
        try:
            node = loader.get_single_node()
            lines = dict(_lines(node, (), path, set()))
            return (None if node is None else loader.construct_document(node)), lines
        finally:
            loader.dispose()
    except ConfigError:
        raise
    except yaml.YAMLError as error:
        mark = getattr(error, 'problem_mark', None)
        where = f'{path}:{mark.line + 1}' if mark else str(path)
        problem = getattr(error, 'problem', None) or str(error)
        raise ConfigError(f'{where}: this is not YAML: {problem}') from error
    except (ValueError, TypeError, RecursionError) as error:  # such as a date without a month
        raise ConfigError(f'{path}: this is not YAML: {error}') from error


def _loader_class(yaml: Any) -> Any:
    """``SafeLoader`` with its own way to make a date.

    The table that the loaders of a process share is changed by libraries (vLLM's choice of
    ``lm-format-enforcer`` makes dates texts), and a file must not mean something else by what was
    imported before.
    """

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        pass

    Loader.add_constructor(
        'tag:yaml.org,2002:timestamp', yaml.constructor.SafeConstructor.construct_yaml_timestamp
    )
    return Loader


def _lines(
    node: Any, path: FieldPath, file: Path, seen: set[int]
) -> Iterator[tuple[FieldPath, int]]:
    """Line of each field; that of an alias is where the anchor is."""
    if node is None or id(node) in seen:
        return
    yield path, node.start_mark.line + 1
    if node.id == 'scalar':
        return
    seen.add(id(node))
    if node.id == 'sequence':
        for position, item in enumerate(node.value):
            yield from _lines(item, (*path, position), file, seen)
        return
    names: set[str] = set()
    for key, value in node.value:
        line = key.start_mark.line + 1
        if key.id != 'scalar':
            raise ConfigError(f'{file}:{line}: {_place(path)}: the name of a field must be a text')
        if key.value in names and key.value != '<<':
            raise ConfigError(f'{file}:{line}: field {key.value!r} is there twice')
        names.add(str(key.value))
        yield (*path, key.value), line
        for field, at in _lines(value, (*path, key.value), file, seen):
            if field != (*path, key.value):
                yield field, at
