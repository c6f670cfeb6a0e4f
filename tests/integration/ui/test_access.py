"""The page by keys alone, read out by a screen reader, and in a narrow window."""

import pytest

pytestmark = pytest.mark.browser

NARROW = {'viewport': {'width': 375, 'height': 667}}
COUNT = """```python
import time
for i in range(600):
    print('step', i, flush=True)
    time.sleep(0.1)
```"""
WIDE = '\n\n'.join(
    (
        'It is `' + 'b' * 300 + '`.\n\n' + 'Word.\n\n' * 20,
        'Here $x = ' + ' + '.join('abcdefghijklmnopqrstuvwxyz') + '$ is.',
        '| month | ' + ' | '.join(('revenue',) * 16) + ' |\n' + '|--' * 17 + '|\n'
        '| March | ' + ' | '.join(('5310',) * 16) + ' |',
        '$$x = ' + ' + '.join('abcdefghijklmnopqrstuvwxyz') + '$$',
        '```\n' + 'c' * 300 + '\n```',
    )
)
# What is cut off, and what is scrolled but not by keys.
OUT_OF_REACH = """() => {
    const scrolls = (each) => ['auto', 'scroll'].includes(getComputedStyle(each).overflowX);
    const seen = [...document.querySelectorAll('.log .block, .log .block *')]
        .filter(each => each.checkVisibility());
    const cut = seen.filter(each => {
        for (let box = each.parentElement; !box.matches('.log'); box = box.parentElement) {
            if (scrolls(box)) return false;
        }
        return each.getBoundingClientRect().right > innerWidth;
    });
    const still = seen.filter(each =>
        scrolls(each) && each.scrollWidth > each.clientWidth && each.tabIndex < 0);
    return [...cut, ...still].map(each => each.outerHTML.slice(0, 80));
}"""


def box(window, selector):
    return window.page.locator(selector).bounding_box()


def is_focused(window, selector):
    return window.page.evaluate('name => document.activeElement.matches(name)', selector)


def test_a_screen_reader_is_told_each_part_once_when_it_is_whole(served, visit):
    code = "I look.\n\n```python\nfor i in range(50):\n    print('step', i, flush=True)\n```"
    window = visit(served([code, '**March** was best.\n\n| a |\n|---|\n| 1 |']))
    window.ask('Which month was best?')
    window.answered()
    heard = window.page.locator('#said p').all_inner_texts()
    assert [words.split(',')[0] for words in heard] == [
        'scripted replied: I look. Code.',
        'Code ran',
        'scripted replied: March was best. Table.',
    ]
    # Whatever else is read out by itself has nothing to do with the conversation.
    live = '[aria-live]:not([aria-live=off]), [role=status], [role=alert]'
    assert window.count(f'.log :is({live}), .log:not([aria-live=off])') == 0
    window.page.reload()
    window.page.wait_for_selector('text=March')
    assert window.count('#said p') == 0


def test_the_focus_stays_where_it_was(served, visit, tmp_path):
    path = tmp_path / 'sales.csv'
    path.write_text('a\n1\n')
    window = visit(served([COUNT, 'Stopped.', 'Yes.'], files=[path]))
    browser, keys = window.page, window.page.keyboard
    window.ask('Count')
    browser.wait_for_selector('text=step 3')
    browser.focus('pre.output')
    browser.wait_for_selector('text=step 6')
    assert is_focused(window, 'pre.output')
    browser.focus('.stop')
    keys.press('Enter')
    window.answered()
    assert is_focused(window, '.send')

    window.ask('Still there?')
    window.answered()
    browser.focus('.more summary')
    keys.press('Enter')
    for _ in range(2):
        keys.press('Tab')
    assert is_focused(window, '[data-post=undo]')
    keys.press('Enter')
    browser.wait_for_selector('text=The question was taken back')
    assert is_focused(window, '.more summary')
    assert window.count('.more[open]') == 0
    assert 'Yes.' not in browser.inner_text('#said')

    browser.focus('.files summary')
    keys.press('Space')
    keys.press('Tab')
    assert is_focused(window, '.files li a')
    added = {'name': 'before.csv', 'mimeType': 'text/csv', 'buffer': b'a\n1\n'}
    browser.set_input_files('#file-1', [added])
    browser.wait_for_selector('.files li >> text=before.csv')
    assert browser.evaluate('document.activeElement.textContent') == 'sales.csv'
    keys.press('Tab')  # to what the open menu would hide
    assert is_focused(window, '.more summary')
    assert window.count('.files[open]') == 0
    window.clean()


def test_what_is_wide_is_scrolled_in_its_own_box(served, visit, tmp_path):
    path = tmp_path / f'{"a_long_name_" * 8}.csv'
    path.write_text('a,b\n1,2\n')
    window = visit(served([WIDE], files=[path]), **NARROW)
    browser = window.page
    browser.click('.uploaded summary')
    window.ask('Show it')
    window.answered()
    browser.wait_for_selector('math')
    root = 'document.documentElement'
    assert browser.evaluate(f'[{root}.scrollWidth, {root}.scrollHeight]') == [375, 667]
    assert browser.evaluate(OUT_OF_REACH) == []
    table = '.prose .wide'
    assert browser.locator(f'{table} th >> text=month').bounding_box()['height'] < 50  # one line
    browser.focus(table)
    browser.keyboard.press('ArrowRight')
    browser.wait_for_function('name => document.querySelector(name).scrollLeft > 0', arg=table)
    window.clean()


@pytest.mark.parametrize('width', [375, 1280])
def test_the_page_fills_the_window_and_its_notices_cover_no_control(served, visit, width):
    page = served([])
    window = visit(page, viewport={'width': width, 'height': 667})
    foot = box(window, '.composer')
    assert foot['y'] + foot['height'] == 667
    window.page.evaluate("tell('This is a long notice. '.repeat(10))")
    told, field = box(window, '#told'), box(window, '.field')
    assert told['width'] > 300
    assert told['y'] + told['height'] <= field['y']
    page.stop()
    window.page.wait_for_selector('#lost >> text=trying again')
    lost, head, foot = (box(window, name) for name in ('#lost', '.brand', '.composer'))
    assert lost['width'] == width
    assert lost['y'] + lost['height'] <= head['y']
    assert foot['y'] + foot['height'] == 667
    page.start()
    window.page.wait_for_function("() => document.querySelector('#lost').textContent === ''")
