"""Agents that the tests of this folder serve, also from a process of their own."""

from lagent.agents import Agent, AsyncAgent, AsyncStreamingAgent, StreamingAgent
from lagent.schema import AgentMessage


class Served(Agent):
    def __init__(self, greeting='hello', **kwargs):
        super().__init__(**kwargs)
        self.greeting = greeting

    def forward(self, *message, session_id=0, **kwargs):
        if message[-1].content == 'crash':
            raise RuntimeError('secret detail')
        return AgentMessage(
            sender=self.name,
            content=f'{self.greeting} {"+".join(str(m.content) for m in message)}',
            extra_info={'session': session_id, 'options': kwargs},
        )


class AsyncServed(AsyncAgent, Served):
    __call__ = AsyncAgent.__call__

    async def forward(self, *message, session_id=0, **kwargs):
        return Served.forward(self, *message, session_id=session_id, **kwargs)


class Streamed(StreamingAgent):
    def forward(self, *message, session_id=0, **kwargs):
        yield from ('hel', 'hello')


class AsyncStreamed(AsyncStreamingAgent):
    async def forward(self, *message, session_id=0, **kwargs):
        for text in ('hel', 'hello'):
            yield text


class Unbuildable(Agent):
    def __init__(self):
        raise SystemExit(3)
