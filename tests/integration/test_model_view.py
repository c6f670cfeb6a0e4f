"""What a model is shown of cells that real kernels have run."""

import json

import pytest

from lagent.actions import Interpreter
from lagent.llms import HFTransformer
from lagent.prompts.parsers import CodeParser
from lagent.schema import AgentMessage
from lagent.view import ModelView, estimate_tokens

BACKENDS = [
    pytest.param({'backend': 'local', 'unsafe': True}, id='local'),
    pytest.param({'backend': 'docker'}, id='docker', marks=pytest.mark.docker),
]
PIXEL = (
    'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E'
    'rkJggg=='
)

pytestmark = pytest.mark.kernel


@pytest.fixture(scope='module', params=BACKENDS)
def interpreter(request):
    with Interpreter(timeout=60, **request.param) as interpreter:
        yield interpreter


@pytest.fixture
def shown(interpreter):
    """Runs cells and gives what the model is shown; it must always survive JSON."""

    def show(*cells, view=None):
        interpreter.view = view or ModelView()
        text = '\n\n'.join(f'```python\n{cell}\n```' for cell in cells)
        parsed = CodeParser().parse_response(text)
        answer = interpreter(AgentMessage(content=text, formatted=parsed))
        json.loads(answer.model_dump_json())
        return answer.content

    return show


def test_no_kind_of_output_hides_another(shown):
    code = (
        'import sys, base64, time\nfrom IPython.display import display, HTML, Image\n'
        "print('one'); sys.stdout.flush(); time.sleep(0.3); print('two', flush=True)\n"
        "sys.stderr.write('careful\\n')\nsys.stderr.flush()\ndisplay(HTML('<b>bold</b>'))\n"
        f"display(Image(data=base64.b64decode('{PIXEL}')))\n'last'"
    )
    lines = shown(code).splitlines()
    assert lines[:4] == ['one', 'two', '[stderr]', 'careful']
    assert lines[-2:] == ['[image: png 1x1, 70 bytes]', "'last'"]
    assert len(lines) == 7  # with what stands for the HTML


def test_huge_outputs_are_cut_and_counted(shown):
    view = ModelView(tokens=1_000)
    printed = shown('print("x" * 3_000_000)', view=view)
    assert estimate_tokens(printed) <= 1_000
    count = 3_000_001 - printed.replace('.txt', '').partition('[full')[0].count('x')
    assert f'[... {count - 1:,} characters left out; all of it is in .outputs/' in printed
    deep = shown('def r(n):\n    return r(n + 1)\nr(0)', view=view)
    assert 'RecursionError: maximum recursion depth exceeded' in deep
    assert 'frames of your code left out' in deep
    assert estimate_tokens(deep) <= 1_000
    many = shown('print(list(range(1_000_000)))', view=view)
    assert many.startswith('[0, 1, 2,')
    assert '999999]' in many
    assert estimate_tokens(many) <= 1_000


def test_half_a_surrogate_pair_reaches_neither_model_nor_json(shown):
    text = shown("raise ValueError('bad \\ud8ff name')")
    assert 'ValueError' in text
    text.encode()
    assert shown("print('a\\udcff b')").encode()


@pytest.mark.docker
def test_a_figure_that_is_also_the_last_value_is_shown_once(shown):
    code = 'import matplotlib.pyplot as plt\nfig, ax = plt.subplots()\nax.plot([3, 1, 2])\nfig'
    view = ModelView(images='content')
    text, image = shown(code, view=view)
    assert text['text'].count('[image: png') == 1
    assert image['image_url']['url'].startswith('data:image/png;base64,iVBOR')
    assert shown("print('no figure here')", view=view) == 'no figure here'


@pytest.mark.docker
def test_a_traceback_through_a_library_is_the_users_line_and_the_error(shown):
    code = "import pandas as pd\ntable = pd.DataFrame({'a': [1]})\ntable['b']"
    text = shown(code)
    assert "----> 3 table['b']" in text
    assert 'frames inside pandas left out ...]' in text
    assert text.endswith("KeyError: 'b'")
    assert len(text) < 600


@pytest.mark.docker
def test_a_wide_table_is_shortened(shown):
    text = shown("import pandas as pd\npd.DataFrame({f'c{n}': range(99) for n in range(60)})")
    *lines, shape, names = text.splitlines()
    assert shape == '[99 rows x 60 columns]'
    assert names.startswith('[not shown: c5 (int64), c6 (int64), ')
    assert names.endswith(', c24 (int64), and 30 more]')
    assert len(lines) <= 21


@pytest.mark.model
def test_a_real_tokenizer_counts(shown, model_path):
    tokenizer = HFTransformer(str(model_path), tokenizer_only=True).tokenize
    view = ModelView(tokens=200, tokenizer=tokenizer)
    text = shown("print('数据分析 and some words, 3.14159\\n' * 5_000)", view=view)
    assert 120 <= len(tokenizer(text)) <= 210
    assert 'characters left out' in text
