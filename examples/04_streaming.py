"""Two ways to watch: an agent whose answer grows, and events about everything that happens."""

import time

from lagent import Event, subscribe
from lagent.actions import Interpreter
from lagent.agents import Coder, StreamingAgent
from lagent.llms import ScriptedModel

CODE = 'Watch.\n```python\nimport time\nfor i in range(3):\n    print(i)\n    time.sleep(0.3)\n```'


def show(event: Event) -> None:
    """Print pieces as they come: chunks of the model's text, outputs of the kernel."""
    piece = event.data.text if event.effect.kind == 'kernel' and event.type == 'delta' else ''
    piece = event.data if event.effect.kind == 'model' and event.type == 'delta' else piece
    if piece:
        print(f'{time.strftime("%X")} {event.effect.kind:>6} {event.type} {piece!r}')


def main() -> None:
    agent = StreamingAgent(ScriptedModel(['One word after another.']))
    for message in agent('Say something'):
        print(f'{message.stream_state.name:>10}: {message.content}')

    with Coder(ScriptedModel([CODE, 'Done.']), Interpreter(timeout=10)) as coder, subscribe(show):
        print('answer:', coder('Count slowly').content)


if __name__ == '__main__':
    main()
