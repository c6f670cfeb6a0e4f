"""What the small real model can do as an agent that writes code: a few kinds of questions.

The recipe: a shot for each kind, the column's name in quotes, the opening of a code block as the
beginning of the reply, its closing as the stop word, temperature 0. The demo relies on it.
"""

from pathlib import Path

import pytest

from lagent.llms import HFTransformerChat

pytestmark = [pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(600)]

OPENING = '```python\n'
CODE = "import pandas as pd\n\ndf = pd.read_csv('{}')\nprint({})\n"
SYSTEM = 'You answer questions by writing Python code. Print the answer.'


def shot(question: str, table: str, expression: str) -> list[dict[str, str]]:
    code = f'{OPENING}{CODE.format(table, expression)}```'
    return [{'role': 'user', 'content': question}, {'role': 'assistant', 'content': code}]


SHOTS = [
    {'role': 'system', 'content': SYSTEM},
    *shot('How many rows are in people.csv?', 'people.csv', 'len(df)'),
    *shot("What is the total of 'distance' in trips.csv?", 'trips.csv', "df['distance'].sum()"),
    *shot("What is the mean of 'amount' in orders.csv?", 'orders.csv', "df['amount'].mean()"),
    *shot("What is the maximum of 'profit' in shops.csv?", 'shops.csv', "df['profit'].max()"),
]


@pytest.fixture(scope='module')
def llm(model_path: Path) -> HFTransformerChat:
    return HFTransformerChat(
        str(model_path), prefill=OPENING, stop_words=['```'], temperature=0, max_new_tokens=96
    )


@pytest.mark.parametrize(
    ('question', 'expressions'),
    [
        ('How many rows are in penguins.csv?', {'len(df)'}),
        ("What is the mean of 'body_mass_g' in penguins.csv?", {"df['body_mass_g'].mean()"}),
        ("What is the total of 'body_mass_g' in penguins.csv?", {"df['body_mass_g'].sum()"}),
        (
            "What is the maximum of 'body_mass_g' in penguins.csv?",
            {f"max(df['body_mass_g']{values})" for values in ('', '.values')}
            | {"df['body_mass_g'].max()"},
        ),
        (
            "What is the mean of 'flipper_length_mm' in penguins.csv?",
            {"df['flipper_length_mm'].mean()"},
        ),
    ],
)
def test_it_writes_the_right_code(
    llm: HFTransformerChat, question: str, expressions: set[str]
) -> None:
    reply = llm.chat([*SHOTS, {'role': 'user', 'content': question}])
    assert reply in {OPENING + CODE.format('penguins.csv', it) for it in expressions}
    assert (reply.finish_reason, reply.stop_reason) == ('stop', '```')
