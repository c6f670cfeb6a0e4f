"""A data analyst: files in, an answer with a plot out, and the whole session as a notebook.

Needs a Docker engine, the kernel image (`make image`) and the extra `notebook`. The model's replies
are written here, so that it runs offline; put `GPTAPI('gpt-4o')` in its place, and the rest stays.
"""

import tempfile
from pathlib import Path

from lagent.agents import DataAnalyst
from lagent.llms import ScriptedModel

# As a German spreadsheet writes it: semicolons, decimal commas, and an old encoding.
SALES = 'Stadt;Umsatz\nKöln;1.234,50\nMünchen;987,00\n'.encode('cp1252')

REPLIES = [
    'I will read the table and add up the column.\n'
    "```python\nimport pandas as pd\nsales = pd.read_csv('umsatz.csv')\n```",
    'The description says how to read it.\n'
    "```python\nsales = pd.read_csv('umsatz.csv', sep=';', encoding='cp1252', decimal=',', "
    "thousands='.')\nsales.Umsatz.sum()\n```\n"
    "```python\nsales.plot.bar(x='Stadt', title='Umsatz').figure.savefig('umsatz.png')\n```",
    'The total is 2,221.50. [The plot](plot.png) shows both cities.',
    'The total is 2,221.50. [The plot](umsatz.png) shows both cities.',
]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, DataAnalyst(ScriptedModel(REPLIES)) as analyst:
        table = Path(folder, 'umsatz.csv')
        table.write_bytes(SALES)
        analyst.upload(table)

        answer = analyst('What is the total of Umsatz? Plot it by city.')

        for message in analyst.agent.memory.get_memory():
            print(f'--- {message.sender}\n{message.content}')
        print('answer:', answer.content)
        for artifact in answer.extra_info['artifacts']:
            print('made:', artifact['preview'])
        notebook = analyst.export(Path(folder, 'out', 'session.ipynb'))
        print('exported:', sorted(path.name for path in notebook.parent.iterdir()))


if __name__ == '__main__':
    main()
