"""The web page `lagent ui`: sessions of a data analyst in a browser, on one's own machine.

The server renders every part of the page, in `render` and `templates/`; the browser runs a small
script of its own that puts the parts in place, and nothing else. What a kernel or a model wrote is
text to the templates, or was cleaned, or is served apart with policies that let nothing run.
"""

from lagent._extras import require

for _module in ('jinja2', 'latex2mathml', 'markdown_it', 'nh3', 'pygments', 'starlette', 'uvicorn'):
    require(_module, 'ui')

from lagent.ui.server import serve  # noqa: E402 - what is missing is told first

__all__ = ['serve']
