"""Agents made of agents: a chain, a list and a dict."""

from collections import UserDict, UserList
from collections.abc import AsyncGenerator, Generator, Hashable, Iterable, Iterator, Mapping
from itertools import cycle, islice
from typing import Any, Self

from lagent.agents.base import Agent, AsyncAgent
from lagent.agents.layer import Layer
from lagent.agents.streaming_agent import AsyncStreamingAgent, StreamingAgent
from lagent.errors import LagentError
from lagent.flow import Flow, arun, astream, call, each, run, stream
from lagent.schema import AgentMessage


class NoSuchAgent(LagentError, KeyError, IndexError):
    """A chain has no agent of that name or at that position."""

    code = 'no_such_agent'


class Sequential(Agent):
    """A chain: each agent is given the answer of the one before.

    Agents that are assigned to attributes are children, as everywhere, and no links.

    Args:
        agents: the agents, or one collection of them; pairs of name and agent, or a mapping, name
            the links, which are numbered otherwise.
        kwargs: see `Agent`.

    Raises:
        ValueError: there are no agents.
        AssertionError: something is no agent.
        KeyError: a name has a dot, or is an attribute's.
    """

    _links: dict[str, Any]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Prepare the register of links."""
        self = super().__new__(cls)
        object.__setattr__(self, '_links', {})  # early, as the register of children
        return self

    def __init__(self, *agents: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        for key, agent in _pairs(agents):
            self.add_agent(key, agent)
        if not self._links:
            raise ValueError('a Sequential needs at least one agent')

    def __setattr__(self, key: str, value: Any) -> None:
        if isinstance(value, Layer) and key in self._links:
            raise KeyError(f'{key!r} is a link: replace it by add_agent')
        super().__setattr__(key, value)

    def named_children(self) -> Iterator[tuple[str, Layer]]:
        """See `Layer.named_children`; the links come first."""
        yield from self._links.items()
        yield from super().named_children()

    def add_agent(self, name: Hashable, agent: Agent) -> None:
        """Append a link, or replace the one of that name.

        Args:
            name: the link's name.
            agent: the agent.

        Raises:
            AssertionError: it is no agent.
            KeyError: the name has a dot, which separates the parts of a path, or is the name of an
                attribute that holds an agent.
        """
        assert isinstance(agent, Layer), f'{agent!r} is no agent'
        key = str(name)
        if '.' in key:
            raise KeyError(f'the name of a link must have no dot: {key!r}')
        if key in self._agents:
            raise KeyError(f'the attribute {key!r} holds an agent: give the link another name')
        self._links[key] = agent

    def forward(
        self,
        *message: AgentMessage,
        session_id: Hashable = 0,
        exit_at: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """Pass messages through the chain.

        Args:
            message: what the first agent is given.
            session_id: the session.
            exit_at: index of the last link that answers; beyond the end the chain starts over.
                The last one by default.
            kwargs: given to every link.

        Returns:
            The last answer.

        Raises:
            AssertionError: `exit_at` is negative.
        """
        return run(self._chain(message, session_id, exit_at, kwargs))

    def _chain(
        self,
        message: tuple[AgentMessage, ...],
        session_id: Hashable,
        exit_at: int | None,
        kwargs: dict[str, Any],
    ) -> Flow[AgentMessage]:
        assert exit_at is None or exit_at >= 0, f'exit_at must not be negative: {exit_at}'
        links = len(self) if exit_at is None else exit_at + 1
        for agent in islice(cycle(self), links):
            message = ((yield from self._link(agent, message, session_id, kwargs)),)
        return message[0]

    def _link(
        self,
        agent: Any,
        message: tuple[AgentMessage, ...],
        session_id: Hashable,
        kwargs: dict[str, Any],
    ) -> Flow[AgentMessage]:
        answer: AgentMessage = yield from call(agent, *message, session_id=session_id, **kwargs)
        return answer

    def __getitem__(self, key: int | str) -> Any:
        if isinstance(key, str) and key in self._links:
            return self._links[key]
        if isinstance(key, int) and -len(self) <= key < len(self):
            return list(self._links.values())[key]
        raise NoSuchAgent(f'no agent {key!r}; there are {list(self._links)}')

    def __len__(self) -> int:
        return len(self._links)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._links.values())


class AsyncSequential(Sequential, AsyncAgent):
    """A `Sequential` whose `__call__` and `forward` are coroutines."""

    __call__ = AsyncAgent.__call__

    async def forward(
        self,
        *message: AgentMessage,
        session_id: Hashable = 0,
        exit_at: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """See `Sequential.forward`."""
        return await arun(self._chain(message, session_id, exit_at, kwargs))


class StreamingSequential(Sequential, StreamingAgent):
    """A `Sequential` of streaming agents that hands out every message of every link."""

    __call__ = StreamingAgent.__call__
    _answer = StreamingAgent._answer

    def forward(
        self,
        *message: AgentMessage,
        session_id: Hashable = 0,
        exit_at: int | None = None,
        **kwargs: Any,
    ) -> Generator[Any, None, None]:
        """See `Sequential.forward`.

        Yields:
            The messages of each link in turn.
        """
        return stream(self._chain(message, session_id, exit_at, kwargs))

    def _link(
        self,
        agent: Any,
        message: tuple[AgentMessage, ...],
        session_id: Hashable,
        kwargs: dict[str, Any],
    ) -> Flow[AgentMessage]:
        last: AgentMessage | None = None

        def show(item: AgentMessage) -> AgentMessage:
            nonlocal last
            last = item
            return item

        yield from each(agent(*message, session_id=session_id, **kwargs), show)
        return self._as_answer('') if last is None else last


class AsyncStreamingSequential(StreamingSequential, AsyncStreamingAgent):
    """A `StreamingSequential` whose call gives an asynchronous generator."""

    __call__ = AsyncStreamingAgent.__call__  # type: ignore[assignment]

    def forward(  # type: ignore[override]
        self,
        *message: AgentMessage,
        session_id: Hashable = 0,
        exit_at: int | None = None,
        **kwargs: Any,
    ) -> AsyncGenerator[Any, None]:
        """See `StreamingSequential.forward`."""
        return astream(self._chain(message, session_id, exit_at, kwargs))


class _Container(Agent):
    """A collection that is not called itself: a layer whose children are its items."""

    data: Any

    def __call__(self, *message: Any, **kwargs: Any) -> Any:
        """Refuse to be called.

        Raises:
            TypeError: always.
        """
        raise TypeError(f'{type(self).__name__} only holds agents; call one of its items')

    run = __call__

    def named_children(self) -> Iterator[tuple[str, Layer]]:
        """See `Layer.named_children`; keys and positions are the names."""
        items = self.data.items() if isinstance(self.data, dict) else enumerate(self.data)
        return ((str(key), agent) for key, agent in items)


class AgentList(_Container, UserList[Agent]):
    """A list of agents, which are children of the layer that the list is assigned to.

    Args:
        agents: the first items.

    Raises:
        TypeError: an item is no agent; a refused edit changes nothing.
    """

    def __init__(self, agents: Iterable[Agent] | None = None) -> None:
        Layer.__init__(self)
        UserList.__init__(self, _all_agents(agents or ()))

    def __setitem__(self, index: Any, value: Any) -> None:
        checked = _all_agents(value if isinstance(index, slice) else [value])
        self.data[index] = checked if isinstance(index, slice) else checked[0]

    def append(self, item: Agent) -> None:
        """See `list.append`."""
        self.data.extend(_all_agents([item]))

    def insert(self, i: int, item: Agent) -> None:
        """See `list.insert`."""
        self.data[i:i] = _all_agents([item])

    def extend(self, other: Iterable[Agent]) -> None:
        """See `list.extend`."""
        self.data.extend(_all_agents(other))

    def __iadd__(self, other: Iterable[Agent]) -> Self:
        self.extend(other)
        return self


class AgentDict(_Container, UserDict[str, Agent]):
    """A dict of agents, which are children of the layer that the dict is assigned to.

    Args:
        agents: the first items.

    Raises:
        TypeError: a value is no agent.
        KeyError: a key is no str, or has a dot, which separates the parts of a path.
    """

    def __init__(self, agents: Mapping[str, Agent] | None = None) -> None:
        Layer.__init__(self)
        UserDict.__init__(self, agents or {})

    def __setitem__(self, key: str, item: Agent) -> None:
        self.update({key: item})

    def update(self, *agents: Any, **named: Agent) -> None:
        """See `dict.update`."""
        changes = dict(*agents, **named)
        for key in changes:
            if not isinstance(key, str) or '.' in key:
                raise KeyError(f'a key must be a str without a dot: {key!r}')
        _all_agents(changes.values())
        self.data.update(changes)

    def __ior__(self, other: Any) -> Self:  # type: ignore[override,misc]
        self.update(other)
        return self


def _all_agents(agents: Iterable[Any]) -> list[Agent]:
    checked = list(agents)
    for agent in checked:
        if not isinstance(agent, Layer):
            raise TypeError(f'only agents can be held, not {type(agent).__name__}')
    return checked


def _pairs(agents: tuple[Any, ...]) -> Iterable[tuple[Any, Any]]:
    """Name and agent of each link, from the ways in which a chain may be written."""
    if len(agents) == 1 and not isinstance(agents[0], Agent) and isinstance(agents[0], Iterable):
        if isinstance(agents[0], Mapping):
            return agents[0].items()
        agents = tuple(agents[0])
    if all(isinstance(agent, tuple) and len(agent) == 2 for agent in agents):
        return agents
    return enumerate(agents)
