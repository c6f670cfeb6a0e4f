"""The page in a real browser, with real kernels."""

import threading
from pathlib import Path

import nbformat
import pytest

from lagent.llms.scripted import Stall

from .conftest import wait_until

pytestmark = pytest.mark.browser

PHONE = {
    'viewport': {'width': 390, 'height': 844},
    'device_scale_factor': 2,
    'is_mobile': True,
    'has_touch': True,
}
SALES = 'month,revenue\nJanuary,3205\nFebruary,3765\nMarch,5310\n'
LOOK = "I look.\n\n```python\nimport pandas as pd\nsales = pd.read_csv('sales.csv')\nsales\n```"
PLOT = """```python
import matplotlib.pyplot as plt
sales.plot.bar(x='month', y='revenue')
plt.savefig('revenue.png')
plt.show()
sales.head(1).to_csv('best.csv', index=False)
```"""
ANSWER = '**March** was best: [best.csv](best.csv).\n\n![The revenue](revenue.png)'
COUNT = """```python
import time
for i in range(600):
    print('step', i, flush=True)
    time.sleep(0.1)
```"""


@pytest.fixture
def sales(tmp_path):
    path = tmp_path / 'sales.csv'
    path.write_text(SALES)
    return path


def log(visit, pane=1):
    return visit.page.locator(f'#log-{pane}').inner_text()


@pytest.mark.docker
def test_a_whole_conversation(served, visit, sales):
    page = served([LOOK, PLOT, ANSWER], backend='docker')
    window = visit(page)
    browser = window.page
    browser.set_input_files('#file-1', str(sales))
    browser.wait_for_selector('.uploaded')
    browser.click('.uploaded summary')
    assert 'January' in browser.inner_text('.uploaded table')
    browser.click('.uploaded summary')

    window.ask('Which month was best?')
    browser.wait_for_selector('.made')
    browser.wait_for_selector('#actions-1[data-busy=no]')
    assert browser.inner_text('.cell .table tbody tr:last-child').split() == ['2', 'March', '5310']
    for image in ('.cell figure img', '.prose img', '.made img'):
        browser.locator(image).scroll_into_view_if_needed()
        browser.wait_for_function(
            'name => document.querySelector(name).naturalWidth > 100', arg=image
        )
    assert window.count('.reply .code .k, .reply .code .kn') > 0  # highlighted

    with browser.expect_download() as waiting:
        browser.click('.prose a >> text=best.csv')
    assert waiting.value.suggested_filename == 'best.csv'
    assert Path(waiting.value.path()).read_text() == 'month,revenue\nJanuary,3205\n'
    browser.click('.more summary')
    with browser.expect_download() as waiting:
        browser.click('text=Download as notebook')
    notebook = nbformat.read(waiting.value.path(), 4)
    nbformat.validate(notebook)
    assert any('plt.savefig' in cell.source for cell in notebook.cells)

    browser.click('.files summary')
    names = browser.locator('.files li a').all_inner_texts()
    assert names == ['best.csv', 'revenue.png', 'sales.csv']

    before = log(window)
    browser.reload()
    browser.wait_for_selector('.made')
    assert log(window) == before
    window.clean()


def test_code_and_output_appear_while_it_runs_and_stop_interrupts_it(served, visit):
    page = served([COUNT, 'You stopped it.', 'Yes.'])
    window = visit(page)
    window.ask('Count')
    window.page.wait_for_selector('text=step 3')
    assert window.count('.cell.running') == 1
    assert window.page.title().startswith('●')
    window.page.click('button[aria-label=Stop]')
    window.page.wait_for_selector('.cell.interrupted')
    window.answered()
    assert 'You stopped it.' in log(window)
    window.ask('Still there?')
    window.page.wait_for_selector('text=Yes.')
    window.clean()


def test_a_model_that_says_nothing_can_be_left(served, visit):
    page = served([Stall(300, 'Never.'), 'There.'])
    window = visit(page)
    window.ask('Hello?')
    window.page.wait_for_selector('.thinking')
    window.page.keyboard.press('Escape')
    window.page.wait_for_selector('text=Interrupted')
    window.page.wait_for_selector('#actions-1[data-busy=no]')
    window.ask('And now?')
    window.page.wait_for_selector('text=There.')
    assert 'Never.' not in log(window)


def test_code_that_will_not_be_interrupted_can_be_left(served, visit):
    stubborn = """```python
import time
print('begun')
end = time.time() + 8
while time.time() < end:
    try:
        time.sleep(0.1)
    except KeyboardInterrupt:
        print('no')
```"""
    page = served([stubborn, 'There.'])
    window = visit(page)
    window.ask('Go')
    window.page.wait_for_selector('text=begun')
    window.page.keyboard.press('Escape')
    window.page.wait_for_selector('text=stop again to end the turn')
    window.page.keyboard.press('Escape')
    window.page.wait_for_selector('text=Interrupted')
    window.ask('And now?')
    window.page.wait_for_selector('text=There.')


def test_two_sessions_beside_one_another(served, visit):
    meet = threading.Barrier(2)  # both are asked at the same time, or the test fails

    def reply(messages):
        question = [each['content'] for each in messages if each['role'] == 'user'][-1]
        if 'set' in question:
            meet.wait(60)
            name = question.split()[-1]
            return f"```python\nmine = '{name}'\nprint('set', mine)\n```"
        return 'ok' if 'set' in str(messages[-2:]) else '```python\nprint(mine * 2)\n```'

    page = served(reply)
    window = visit(page)
    browser = window.page
    browser.click('[data-new]')
    browser.wait_for_selector('#pane-2')
    browser.click('a.beside')
    browser.wait_for_selector('#pane-1 ~ #pane-2, #pane-2 ~ #pane-1')
    window.ask('set one', 1)
    window.ask('set two', 2)
    for pane, name in ((1, 'one'), (2, 'two')):
        browser.wait_for_selector(f'#pane-{pane} .output >> text=set {name}')
        window.answered()
    boxes = [browser.locator(f'#pane-{pane}').bounding_box() for pane in (1, 2)]
    assert boxes[0]['y'] == boxes[1]['y']
    assert abs(boxes[0]['x'] - boxes[1]['x']) >= boxes[0]['width'] - 1
    assert 'two' not in log(window, 1)
    assert 'one' not in log(window, 2)
    browser.click('#pane-2 .more summary')
    browser.click('#pane-2 [data-post=close]')
    browser.wait_for_function("() => document.querySelectorAll('.pane').length === 1")
    assert len(window.dialogs) == 1
    assert [session.number for session in page.sessions.all()] == [1]


def test_taking_back_and_starting_over(served, visit, sales):
    page = served(['One.', 'Two.'], files=[sales])
    window = visit(page)
    for question in ('first', 'second'):
        window.ask(question)
        window.answered()
    window.page.click('.more summary')
    window.page.click('[data-post=undo]')
    window.page.wait_for_selector('text=The question was taken back')
    assert 'second' not in log(window)
    assert 'One.' in log(window)
    window.page.click('.more summary')
    window.page.click('[data-post=reset]')
    window.answered()
    assert window.count('.uploaded') == 1
    assert 'One.' not in log(window)
    assert window.page.inner_text('.count') == '1'  # the first files are given again


def test_a_lost_connection_loses_and_doubles_nothing(served, visit):
    go = threading.Event()

    def reply(messages):
        if len(messages) > 3:
            return 'The end.'
        return "```python\nfor i in range(5):\n    print('line', i)\n```"

    def later(messages):
        assert go.wait(60)
        return reply(messages)

    page = served(later)
    window = visit(page)
    window.ask('Go')
    window.page.wait_for_selector('.thinking')
    page.stop()
    window.page.wait_for_selector('#lost >> text=trying again')
    go.set()
    page.idle()  # all of it happens while nobody is connected
    page.start()
    window.page.wait_for_selector('text=The end.')
    window.page.wait_for_function("() => document.querySelector('#lost').textContent === ''")
    assert [window.count(f'.{kind}') for kind in ('question', 'reply', 'cell')] == [1, 2, 1]
    assert log(window).count('line 4') == 1
    ids = window.page.evaluate("[...document.querySelectorAll('[id]')].map(each => each.id)")
    assert len(ids) == len(set(ids))


def test_files_are_dropped_and_pasted(served, visit):
    page = served([])
    window = visit(page)
    make = """([name, type]) => {
        const data = new DataTransfer();
        data.items.add(new File(['a,b\\n1,2\\n'], name, {type: 'text/csv'}));
        const event = type === 'paste'
            ? new ClipboardEvent(type, {bubbles: true, clipboardData: data})
            : new DragEvent(type, {bubbles: true, cancelable: true, dataTransfer: data});
        document.querySelector('#text-1').dispatchEvent(event);
    }"""
    window.page.evaluate(make, ['dropped.csv', 'dragover'])
    assert window.count('.pane.is-target') == 1
    window.page.evaluate(make, ['dropped.csv', 'drop'])
    window.page.evaluate(make, ['pasted.csv', 'paste'])
    window.page.wait_for_selector('.uploaded >> text=dropped.csv')
    window.page.wait_for_selector('.uploaded >> text=pasted.csv')
    assert window.count('.pane.is-target') == 0
    window.clean()


def test_a_file_that_is_refused_is_told(served, visit, monkeypatch):
    monkeypatch.setattr('lagent.ui.app.MAX_UPLOAD', 10)
    window = visit(served([]))
    files = [{'name': 'large.csv', 'mimeType': 'text/csv', 'buffer': b'x' * 100}]
    window.page.set_input_files('#file-1', files)
    window.page.wait_for_selector('#told >> text=large.csv')
    assert window.count('.sending li') == 0


def test_by_keyboard_alone(served, visit, sales):
    window = visit(served(['One.', 'Two.'], files=[sales]))
    browser, keys = window.page, window.page.keyboard

    def tab_to(selector):
        for _ in range(40):
            if browser.evaluate('name => document.activeElement.matches(name)', selector):
                style = 'getComputedStyle(document.activeElement)'
                shown = browser.evaluate(f'{style}.outlineStyle !== "none"')
                assert shown or selector == 'textarea'  # whose frame shows it
                return
            keys.press('Tab')
        pytest.fail(f'the Tab key does not lead to {selector}')

    assert browser.evaluate('document.activeElement.id') == 'text-1'
    keys.type('first')
    keys.press('Shift+Enter')
    keys.type('line')
    assert browser.input_value('textarea') == 'first\nline'
    keys.press('Enter')
    window.answered()
    assert browser.inner_text('.question p') == 'first\nline'
    tab_to('.files summary')
    keys.press('Enter')
    tab_to('.files a')
    with browser.expect_download() as waiting:
        keys.press('Enter')
    assert waiting.value.suggested_filename == 'sales.csv'
    keys.press('Escape')
    assert browser.evaluate("document.activeElement.matches('.files summary')")
    assert not browser.evaluate("document.querySelector('.files').open")
    for selector in ('.more summary', '.log', 'textarea', '[data-attach]', '.send', '.side nav a'):
        tab_to(selector)
    tab_to('.skip')
    keys.press('Enter')
    assert browser.evaluate('document.activeElement.id') == 'text-1'
    tab_to('[data-new]')
    keys.press('Enter')
    browser.wait_for_selector('#pane-2')
    window.clean()


def test_on_a_phone(served, visit, sales):
    wide = "```python\nprint('x' * 500)\npd = __import__('pandas')\n"
    wide += 'pd.DataFrame([range(30)])\n```'
    long = 'A' * 300 + ' `' + 'b' * 300 + '`\n\n| ' + ' | '.join('abcdefghijklmnop') + ' |\n'
    long += '|' + '--|' * 16 + '\n\n```\n' + 'c' * 300 + '\n```'
    page = served([wide, long], files=[sales])
    window = visit(page, **PHONE)
    browser = window.page

    def fits():
        assert browser.evaluate('document.documentElement.scrollWidth') == 390
        assert browser.evaluate('innerWidth') == 390
        small = browser.evaluate("""[...document.querySelectorAll(
                'button, summary, .side a, .sheet a, textarea')]
            .filter(each => each.checkVisibility() && !each.closest('.skip'))
            .map(each => [each.outerHTML.slice(0, 60), each.getBoundingClientRect()])
            .filter(([_, box]) => box.height < 44 || box.width < 44)""")
        assert small == []

    browser.wait_for_selector('.uploaded')
    fits()
    window.ask('Show it')
    window.answered()
    browser.wait_for_selector('text=AAAA')
    fits()
    for menu in ('.files summary', '.more summary', '#menu > summary', '.uploaded summary'):
        browser.tap(menu)
        fits()
        browser.tap(menu)
    browser.tap('#menu > summary')
    browser.tap('[data-new]')
    browser.wait_for_selector('#pane-2')
    fits()
    window.clean()


def test_pages_that_nobody_looks_at_hold_no_connection(served, visit):
    page = served(['Hi.'])
    window = visit(page)
    wait_until(lambda: page.pages.live._readers == 1)
    hide = """value => {
        Object.defineProperty(document, 'hidden', {value, configurable: true});
        document.dispatchEvent(new Event('visibilitychange'));
    }"""
    window.page.evaluate(hide, True)
    page.sessions.get(1).ask('Hello?')
    wait_until(lambda: page.pages.live._readers == 0)
    assert window.count('.reply') == 0
    window.page.evaluate(hide, False)
    window.page.wait_for_selector('text=Hi.')
