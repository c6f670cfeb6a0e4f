"""Layers: objects with children, and the state of the whole tree."""

import warnings
from collections.abc import Hashable, Iterator, Mapping
from contextvars import ContextVar
from reprlib import recursive_repr
from typing import Any, ClassVar, Self

from lagent._variables import reset
from lagent.actions.closing import Closing, close_all
from lagent.agents.state import StateDict
from lagent.flow import Flow
from lagent.hooks import Hookable
from lagent.memory import Memory, MemoryManager

_closing_layers: ContextVar[frozenset[int]] = ContextVar('closing_layers', default=frozenset())


class Layer(Closing, Hookable):
    """An object whose layers among its attributes are its children.

    Assigning a layer to an attribute registers it, assigning something else or deleting the
    attribute takes it out again, as in `torch.nn.Module`. Layers inside plain lists or dicts are
    not seen.

    A layer that is closed closes its children and what runs their tools and code. It may be used
    again as far as those may.

    Attributes:
        name: the name under which the layer speaks; None for a mere container.
        memory: its memories by session; None when it keeps none.
    """

    name: str | None = None
    memory: MemoryManager | None = None
    _agents: dict[str, 'Layer']
    _part_names: ClassVar[frozenset[str]] = frozenset()

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Prepare the register of children."""
        self = super().__new__(cls)
        # Here and not in the constructor, so that a subclass may assign children before it calls
        # the constructor of its base.
        object.__setattr__(self, '_agents', {})
        return self

    def __setattr__(self, key: str, value: Any) -> None:
        if isinstance(value, Layer):
            self._agents[key] = value
        else:
            self._agents.pop(key, None)
        super().__setattr__(key, value)

    def __delattr__(self, key: str) -> None:
        self._agents.pop(key, None)
        super().__delattr__(key)

    def named_children(self) -> Iterator[tuple[str, 'Layer']]:
        """The layer's own children.

        Yields:
            Name and child, in the order of assignment.
        """
        yield from self._agents.items()

    def named_layers(self) -> Iterator[tuple[str, 'Layer']]:
        """The layer and everything below it, depth first.

        Yields:
            Dotted path and layer; the path of the layer itself is ``''``. A layer that is reached
            on several paths appears once, on the first.
        """
        seen: set[int] = set()

        def walk(path: str, layer: 'Layer') -> Iterator[tuple[str, 'Layer']]:
            if id(layer) in seen:
                return
            seen.add(id(layer))
            yield path, layer
            for name, child in layer.named_children():
                yield from walk(f'{path}.{name}' if path else name, child)

        return walk('', self)

    def state_dict(self, session_id: Hashable = 0) -> StateDict:
        """What the tree remembers of a session.

        Args:
            session_id: the session.

        Returns:
            For each layer with a memory, under the key ``<dotted path>.memory``, its messages as
            dicts. A layer that does not know the session has none, and a `UserWarning` says so.
        """
        state = StateDict()
        for key, manager in self._memories():
            memory = manager.get(session_id)
            if memory is None:
                warnings.warn(f'No session id {session_id} in {key}', UserWarning, stacklevel=2)
            state[key] = [] if memory is None else memory.save()
        return state

    def load_state_dict(
        self,
        state_dict: Mapping[str, list[dict[str, Any]] | None],
        session_id: Hashable = 0,
        strict: bool | None = None,
    ) -> None:
        """Replace what the tree remembers of a session; other sessions are left alone.

        Args:
            state_dict: what `state_dict` gave, of a tree of the same shape.
            session_id: the session to load into.
            strict: with True keys that the tree doesn't know are an error, with False they are
                ignored and layers whose keys are missing keep their memory. By default, as in
                InternLM's, missing keys are an error and unknown ones give a `UserWarning`.

        Raises:
            KeyError: keys are missing or unknown; nothing was changed.
            TypeError: an entry is no list of messages; nothing was changed.
            ValueError: a later version of lagent wrote it; nothing was changed.
            pydantic.ValidationError: a message is malformed; nothing was changed.
        """
        StateDict.check_version(state_dict)
        managers = dict(self._memories())
        missing = [key for key in managers if key not in state_dict]
        unknown = [key for key in state_dict if key not in managers]
        if strict is False:
            managers = {key: manager for key, manager in managers.items() if key in state_dict}
        elif missing:
            raise KeyError(f'Missing keys in state_dict: {missing}')
        elif unknown and strict:
            raise KeyError(f'Unknown keys in state_dict: {unknown}')
        elif unknown:
            warnings.warn(f'Unknown keys in state_dict: {unknown}', UserWarning, stacklevel=2)
        # Read completely before anything is replaced: a bad entry must not leave half a tree.
        loaded = {}
        for key in managers:
            scratch = Memory()
            scratch.load(state_dict[key] or [])
            loaded[key] = scratch.get_memory()
        for key, manager in managers.items():
            manager.create_instance(session_id).load(loaded[key])

    def reset(
        self, session_id: Hashable = 0, keypath: str | None = None, recursive: bool = False
    ) -> None:
        """Forget a session.

        Args:
            session_id: the session.
            keypath: dotted path of the one layer below this one that is to forget it; this layer
                itself when not given.
            recursive: whether everything below this layer forgets it, too.

        Raises:
            AssertionError: both `keypath` and `recursive` are given.
            KeyError: there is no layer at `keypath`.
        """
        assert not (keypath and recursive), 'keypath and recursive exclude each other'
        layer: Layer = self
        for name in keypath.split('.') if keypath else ():
            children = dict(layer.named_children())
            if name not in children:
                raise KeyError(f'{layer._title()} has no child {name!r} (path {keypath!r})')
            layer = children[name]
        for _, target in layer.named_layers() if recursive else [('', layer)]:
            if target.memory is not None:
                target.memory.reset(session_id)

    def _parts(self) -> Iterator[tuple[str, Any]]:
        """Name and object of what the layer works with: children, executors, an agent's model."""
        yield from self.named_children()
        for name, value in vars(self).items():
            is_executor = isinstance(value, Hookable) and not isinstance(value, Layer)
            if is_executor or (name in self._part_names and value is not None):
                yield name, value

    def _own_parts(self) -> list[Any]:
        """What is closed with the layer."""
        return [part for _, part in self._parts()]

    def _closing(self) -> Flow[None]:
        above = _closing_layers.get()
        if id(self) in above:  # it is below itself
            return
        token = _closing_layers.set(above | {id(self)})
        try:
            yield from close_all(self._own_parts())
        finally:
            reset(_closing_layers, token)

    def _memories(self) -> Iterator[tuple[str, MemoryManager]]:
        for path, layer in self.named_layers():
            if layer.memory is not None:
                yield f'{path}.memory' if path else 'memory', layer.memory

    def _title(self) -> str:
        named = '' if self.name is None else f'name={self.name!r}'
        return f'{type(self).__name__}({named})'

    @recursive_repr()
    def __repr__(self) -> str:
        title = f'{type(self).__name__}(' if self.name is None else f'{self._title()}('
        parts = [f'({name}): {part!r}'.replace('\n', '\n  ') for name, part in self._parts()]
        if not parts:
            return self._title()
        return '\n  '.join([title, *parts]) + '\n)'
