"""What code finds in the images: libraries, fonts, image export, and packages of one's own."""

from dataclasses import replace

import pytest

from sandbox import (
    AsyncSandbox,
    DockerBackend,
    ImageMissing,
    PolicyNotEnforced,
    Sandbox,
    SandboxPolicy,
)
from sandbox.backends.bubblewrap import BubblewrapBackend
from sandbox.backends.engine import engine
from sandbox.backends.local import LocalBackend
from sandbox.image import build_image, image_tag
from sandbox.layer import LOCK_LABEL, layers

pytestmark = pytest.mark.docker

ANALYSIS = SandboxPolicy(variant='analysis', memory=2 << 30, cpus=2, timeout=180)
PNG = b'\x89PNG\r\n\x1a\n'


@pytest.fixture(scope='module')
def box():
    with Sandbox(policy=ANALYSIS) as box:
        yield box


def run(box, code):
    result = box.execute(code)
    assert result.ok, result.text
    return result


@pytest.mark.analysis
def test_the_libraries_work_together(box):
    result = run(
        box,
        """
import io
import duckdb, numpy as np, pandas as pd, polars as pl, pyarrow.parquet, scipy.stats
import sklearn.linear_model, statsmodels.api as sm
from PIL import Image

pd.DataFrame({'x': np.arange(50.0), 'g': ['a', 'b'] * 25}).to_parquet('t.parquet')
table = pl.read_parquet('t.parquet')
by_group = table.group_by('g').agg(pl.col('x').sum()).sort('g')['x'].to_list()
total = duckdb.sql("select sum(x) from 't.parquet'").fetchall()[0][0]
x = table['x'].to_numpy()
fit = sklearn.linear_model.LinearRegression().fit(x[:, None], 3 * x + 1)
slope = sm.OLS(3 * x + 1, sm.add_constant(x)).fit().params[1]
pd.DataFrame({'x': x}).to_excel('t.xlsx')
rows = len(pd.read_excel('t.xlsx'))
size = Image.new('RGB', (3, 2)).resize((6, 4)).size
by_group, total, round(float(fit.coef_[0]), 6), round(float(slope), 6), rows, size, \
    round(float(scipy.stats.norm.cdf(0)), 3)
""",
    )
    assert result.result == '([600.0, 625.0], 1225.0, 3.0, 3.0, 50, (6, 4), 0.5)'


@pytest.mark.analysis
@pytest.mark.parametrize(
    'style',
    ['', 'import seaborn; seaborn.set_theme()', "plt.rcParams['font.family'] = ['serif']"],
    ids=['plain', 'seaborn', 'serif'],
)
def test_plots_have_glyphs_for_chinese_japanese_korean_and_emoji(box, style):
    result = run(
        box,
        f"""
import warnings
import matplotlib.pyplot as plt
{style}
with warnings.catch_warnings():
    warnings.simplefilter('error')
    figure, axes = plt.subplots()
    axes.set_title('销售额 繁體 あア 한국 😀📈')
    for kind in ('png', 'pdf', 'svg'):
        figure.savefig('plot.' + kind)
plt.close(); plt.rcdefaults()
""",
    )
    assert result.outputs == ()
    assert box.read('plot.png').startswith(PNG)


@pytest.mark.analysis
def test_a_plotly_figure_is_shown_as_data_and_as_an_image(box):
    shown = """
import plotly.express as px
fig = px.bar(x=['甲', '乙'], y=[1, 2], title='销售额 😀')
fig.show()
"""
    (display,) = [output for output in run(box, shown).outputs if output.kind == 'display']
    assert display.data['image/png'].startswith(PNG)
    assert 'application/vnd.plotly.v1+json' in display.data
    result = run(box, "fig.write_image('p.svg'); fig.write_image('p.pdf')")
    assert result.outputs == ()
    assert b'</svg>' in box.read('p.svg')
    assert box.read('p.pdf').startswith(b'%PDF')


async def use_after_preload(*modules):
    """Preload, then use libraries with threads in a forked kernel; return what was said."""
    use = """
import sys
import duckdb, pandas as pd, polars as pl
frame = pl.DataFrame({'x': list(range(200_000))})
total = frame.lazy().with_columns(pl.col('x') % 7).group_by('x').len().collect()['len'].sum()
rows = duckdb.sql('select count(*) from frame').fetchall()[0][0]
total, rows, len(pd.concat([frame.to_pandas()] * 2, ignore_index=True))
"""
    policy = replace(ANALYSIS, preload=modules)
    async with AsyncSandbox(policy=policy) as box:
        await box.start()
        await box._machine.warm()
        loaded = await box.execute(f'import sys\n[name in sys.modules for name in {modules!r}]')
        result = await box.execute(use)
        assert result.result == '(200000, 200000, 400000)', result.text
        return loaded.result, loaded.notices


@pytest.mark.analysis
async def test_pandas_pyarrow_and_duckdb_survive_a_preload():
    assert await use_after_preload('pandas', 'pyarrow', 'duckdb') == ('[True, True, True]', ())


@pytest.mark.analysis
async def test_polars_which_has_a_thread_is_not_preloaded_and_works():
    loaded, notices = await use_after_preload('polars')
    assert loaded == '[False]'
    assert notices == ('nothing was preloaded (a library has left a thread behind)',)


def test_the_small_image_has_no_such_libraries():
    with Sandbox(policy=SandboxPolicy(variant='minimal')) as box:
        code = 'from importlib.util import find_spec as f\n[bool(f(n)) for n in (%s)]'
        names = "'pandas', 'openpyxl', 'polars', 'plotly', 'pip'"
        assert run(box, code % names).result == '[True, True, False, False, False]'


def test_an_image_that_is_not_there_names_the_command():
    policy = SandboxPolicy(packages=('humanize==4.9.0', 'networkx>=3,<4'))
    with pytest.raises(ImageMissing) as caught:
        Sandbox(policy=policy).start()
    assert caught.value.hint == (
        "Build it once with: sandbox build --package humanize==4.9.0 --package 'networkx>=3,<4'"
    )


def test_packages_are_a_layer_that_is_built_once():
    wished = ('humanize==4.9.0',)
    tag = image_tag('minimal', wished)
    try:
        assert build_image(variant='minimal', packages=wished) == tag
        lines: list[str] = []
        assert build_image(variant='minimal', packages=wished, progress=lines.append) == tag
        assert lines == [f'{tag} is there already']
        assert (tag, list(wished)) in layers()
        with engine() as client:
            lock = client.images.get(tag).labels[LOCK_LABEL]
        assert lock.startswith('humanize==4.9.0 --hash=sha256:')
        with Sandbox(policy=SandboxPolicy(packages=wished)) as box:
            assert run(box, 'import humanize\nhumanize.intcomma(12345)').result == "'12,345'"
            refused = box.execute('import subprocess, sys\nsubprocess.check_call(["pip"])')
            assert refused.error.name == 'FileNotFoundError'
    finally:
        with engine() as client:
            client.images.remove(tag)


async def test_packages_are_refused_where_there_are_no_images():
    policy = SandboxPolicy(packages=('humanize',))
    backends = (LocalBackend(unsafe=True), DockerBackend(image='mine'))
    for backend in backends:
        with pytest.raises(PolicyNotEnforced, match='packages'):
            await backend.start(policy, labels={})
    # bubblewrap refuses whatever it does not enforce.
    for backend in (*backends, BubblewrapBackend()):
        assert policy.enforced_by(backend)['packages'] != 'enforced'
