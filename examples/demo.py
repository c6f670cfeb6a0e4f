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
from lagent.console import ConsoleView, printable
from lagent.llms import HFTransformerChat, ScriptedModel
from lagent.llms.from_env import model_from_env
from lagent.schema import AgentMessage

CACHE = Path(__file__).parents[1] / '.cache'
TABLE = CACHE / 'data' / 'penguins.csv'
SMALL_MODEL = CACHE / 'models' / 'SmolLM2-135M-Instruct'
QUESTION = 'What is the mean body_mass_g?'
COLUMNS = TABLE.read_text().partition('\n')[0].replace(',', ', ')
CONTEXT = f'The file penguins.csv has the columns {COLUMNS}. '

PLOT = """The variable df is still there; I plot it.
```python
import matplotlib.pyplot as plt

ax = df.groupby('species')['body_mass_g'].mean().plot.barh(color='steelblue')
ax.set_xlabel('mean body mass (g)')
plt.tight_layout()
plt.savefig('body_mass.png', dpi=120)
```"""


def shot(question: str, code: str) -> list[dict[str, str]]:
    return [
        {'role': 'user', 'content': question},
        {'role': 'assistant', 'content': f'```python\n{code}\n```'},
    ]


# What a model of 135 million parameters needs to be shown before it writes such a line itself.
SHOTS = [
    {'role': 'system', 'content': 'You answer questions by writing Python that prints the answer.'},
    *shot('What is 17 + 25?', 'print(17 + 25)'),
    *shot(
        'The file cars.csv has the columns brand, price, year. What is the largest price?',
        "import pandas as pd\n\ndf = pd.read_csv('cars.csv')\nprint(df['price'].max())",
    ),
    *shot(
        'The file staff.csv has the columns name, age, city. How many rows are there?',
        "import pandas as pd\n\ndf = pd.read_csv('staff.csv')\nprint(len(df))",
    ),
]


def ran(message: AgentMessage) -> bool:
    """The small model's sentences are worth little: the answer is what the code printed."""
    return message.sender == 'interpreter' and message.formatted is not None


def make_coder(interpreter: Interpreter) -> tuple[Coder, str]:
    named = ('MODEL', 'OPENAI_BASE_URL', 'OPENAI_API_KEY', 'ANTHROPIC_API_KEY')
    if any(os.environ.get(name) for name in named):
        llm: Any = model_from_env(os.environ.get('MODEL'), os.environ.get('OPENAI_BASE_URL'))
        return Coder(llm, interpreter), 'your model'
    llm = HFTransformerChat(
        str(SMALL_MODEL),
        prefill='```python\n',
        stop_words=['```'],
        temperature=0.0,
        max_new_tokens=96,
    )
    coder = Coder(llm, interpreter, SHOTS, finish_condition=ran)
    return coder, 'a very small model: it shows the pipeline, not what agents can do'


def main() -> None:
    console = Console(highlight=False)
    clock = Clock(console)
    question = os.environ.get('QUESTION') or QUESTION

    with Interpreter(files=[TABLE], timeout=60) as interpreter:
        with console.status('Loading the model …'):
            coder, label = make_coder(interpreter)
        clock.lap('model loaded')
        with console.status('Starting a sandbox …'):
            files = interpreter.files('demo')
        clock.lap(f'sandbox started, {files[0].path} uploaded ({files[0].size:,} bytes)')

        console.rule(f'first turn: {label}')
        console.print(Panel(question, title='question', border_style='blue'))
        with subscribe(ConsoleView(console)):
            answer = coder(f'{CONTEXT}{question}', session_id='demo')
        console.print(
            Panel(printable(answer.content).strip(), title='answer', border_style='green')
        )

        console.rule('second turn: a scripted reply, not a model; same session, same variables')
        scripted = Coder(ScriptedModel([PLOT]), interpreter, finish_condition=ran)
        with subscribe(ConsoleView(console)):
            scripted('Plot the mean body mass by species.', session_id='demo')
        plot = interpreter.download('body_mass.png', to=CACHE, session_id='demo')
        console.print(f'plot saved: {plot.relative_to(Path.cwd())}', style='green')
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
