"""A coder: the model writes code, a container runs it, and the model reads what came out.

Needs a Docker engine and the kernel image (`make image`). The model's replies are written here, so
that it runs offline; put `GPTAPI('gpt-4o')` in its place, and the rest stays as it is.
"""

import tempfile
from pathlib import Path

from lagent.agents import Coder
from lagent.llms import ScriptedModel

SALES = 'month,revenue\njan,120\nfeb,90\nmar,150\n'

REPLIES = [
    'I will load the table.\n'
    "```python\nimport pandas as pd\ndf = pd.read_csv('sales.csv')\nprint(df.revnue.max())\n```",
    'A typo; once more.\n'
    '```python\ndf.loc[df.revenue.idxmax()]\n```\n'
    "```python\ndf.plot.bar(x='month').figure.savefig('sales.png')\n```",
    'March had the highest revenue, 150. The plot is in sales.png.',
]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, Coder(ScriptedModel(REPLIES)) as coder:
        table = Path(folder, 'sales.csv')
        table.write_text(SALES)
        coder.interpreter.upload(table)

        answer = coder('Which month of sales.csv had the highest revenue? Plot all months.')

        for message in coder.agent.memory.get_memory():
            print(f'--- {message.sender}\n{message.content}')
        plot = coder.interpreter.download('sales.png', to=folder)
        print(f'--- {plot.name}: {plot.stat().st_size:,} bytes')
        print('answer:', answer.content)


if __name__ == '__main__':
    main()
