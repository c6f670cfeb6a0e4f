"""The main job, with a real model and a real table; `make demo` runs it.

A question goes to a model, the model writes code, the code runs in a container, and the answer is
taken from the execution. Then a scripted turn plots the variables that are still there. The model
is a very small local one, or yours: MODEL, OPENAI_BASE_URL, OPENAI_API_KEY, ANTHROPIC_API_KEY.
"""

import os
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.panel import Panel

from lagent import subscribe
from lagent.actions import Interpreter
from lagent.agents import Coder
from lagent.agents.coder import CODER_PROMPT
from lagent.console import ConsoleView, printable
from lagent.llms import HFTransformerChat, ScriptedModel
from lagent.llms.from_env import model_from_env
from lagent.schema import AgentMessage

CACHE = Path(__file__).parents[1] / '.cache'
TABLE = CACHE / 'data' / 'penguins.csv'
SMALL_MODEL = CACHE / 'models' / 'SmolLM2-135M-Instruct'
QUESTION = "What is the mean of 'flipper_length_mm' in penguins.csv?"

PLOT = """The variable df is still there; I plot it.
```python
import matplotlib.pyplot as plt

ax = df.groupby('species')['body_mass_g'].mean().plot.barh(color='steelblue')
ax.set_xlabel('mean body mass (g)')
plt.tight_layout()
plt.savefig('body_mass.png', dpi=120)
```"""


def shot(question: str, table: str, expression: str) -> list[dict[str, str]]:
    code = f"import pandas as pd\n\ndf = pd.read_csv('{table}')\nprint({expression})"
    return [
        {'role': 'user', 'content': question},
        {'role': 'assistant', 'content': f'```python\n{code}\n```'},
    ]


# What a model of 135 million parameters needs to be shown before it writes such a line itself.
SHOTS = [
    {
        'role': 'system',
        'content': 'You answer questions by writing Python code. Print the answer.',
    },
    *shot('How many rows are in people.csv?', 'people.csv', 'len(df)'),
    *shot("What is the total of 'distance' in trips.csv?", 'trips.csv', "df['distance'].sum()"),
    *shot("What is the mean of 'amount' in orders.csv?", 'orders.csv', "df['amount'].mean()"),
    *shot("What is the maximum of 'profit' in shops.csv?", 'shops.csv', "df['profit'].max()"),
]


def ran(message: AgentMessage) -> bool:
    """The small model's sentences are worth little: the answer is what the code printed."""
    return message.sender == 'interpreter' and message.formatted is not None


def make_coder(interpreter: Interpreter) -> tuple[Coder, str]:
    named = ('MODEL', 'OPENAI_BASE_URL', 'OPENAI_API_KEY', 'ANTHROPIC_API_KEY')
    if any(os.environ.get(name) for name in named):
        llm: Any = model_from_env(os.environ.get('MODEL'), os.environ.get('OPENAI_BASE_URL'))
        template = f'{CODER_PROMPT}\nFiles in the working directory: {TABLE.name}\n'
        return Coder(llm, interpreter, template), 'your model'
    os.environ.setdefault('HF_HUB_DISABLE_PROGRESS_BARS', '1')  # there is a spinner already
    llm = HFTransformerChat(
        str(SMALL_MODEL),
        prefill='```python\n',
        stop_words=['```'],
        temperature=0.0,
        max_new_tokens=80,
    )
    coder = Coder(llm, interpreter, SHOTS, finish_condition=ran)
    return coder, 'a very small model: it shows the pipeline, not what agents can do'


def main() -> None:
    console = Console(highlight=False)
    clock = Clock(console)
    question = os.environ.get('QUESTION') or QUESTION

    backend = os.environ.get('BACKEND') or 'docker'
    with Interpreter(backend=backend, files=[TABLE], timeout=60) as interpreter:
        with console.status('Loading the model …'):
            coder, label = make_coder(interpreter)
        clock.lap('model loaded')
        with console.status('Starting a sandbox …'):
            files = interpreter.files('demo')
        clock.lap(f'sandbox started, {files[0].path} uploaded ({files[0].size:,} bytes)')

        console.rule(f'first turn: {label}')
        console.print(Panel(question, title='question', border_style='blue'))
        with subscribe(ConsoleView(console)):
            answer = coder(question, session_id='demo')
        console.print(
            Panel(printable(answer.content).strip(), title='answer', border_style='green')
        )

        console.rule('second turn: a scripted reply, not a model; same session, same variables')
        scripted = Coder(ScriptedModel([PLOT]), interpreter, finish_condition=ran)
        with subscribe(ConsoleView(console)):
            scripted('Plot the mean body mass by species.', session_id='demo')
        plot = interpreter.download('body_mass.png', to=CACHE, session_id='demo')
        console.print(f'plot saved: {plot.relative_to(Path.cwd())}', style='green')
        clock.lap('both turns')
    clock.lap('sandbox removed')


class Clock:
    """Prints what was done and how long it took."""

    def __init__(self, console: Console) -> None:
        self.console, self.last = console, time.monotonic()

    def lap(self, what: str) -> None:
        now = time.monotonic()
        self.console.print(f'[dim]{now - self.last:6.1f} s  {what}[/]')
        self.last = now


if __name__ == '__main__':
    main()
