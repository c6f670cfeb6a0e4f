"""All HTML of the page: one environment of templates, which escapes whatever it is given."""

import functools
import threading
from collections import OrderedDict
from importlib import resources
from typing import Any
from urllib.parse import quote

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup

from lagent.ui.markdown import code_html, markdown_html, own_name
from lagent.ui.session import Session
from lagent.ui.sessions import Sessions
from lagent.utils.counts import many
from lagent.view.sizes import size_text

_CACHED = 16 << 20  # characters of blocks


class Page:
    """Renders the page and its parts.

    Args:
        sessions: what there is to show.
        base: path that all addresses of the page begin with.
        model: name of the model.
    """

    def __init__(self, sessions: Sessions, base: str, model: str) -> None:
        self._sessions = sessions
        self._environment = Environment(
            loader=DictLoader(_templates()),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters |= {
            'bytes': size_text,
            'many': many,
            'code': code_html,
            'path': quote,
        }
        self._environment.globals |= {
            'base': base,
            'model': model.rpartition('/')[2] if model.startswith('/') else model,
        }
        self._base = base
        self._lock = threading.Lock()
        self._cache: OrderedDict[tuple[int, int], tuple[int, str]] = OrderedDict()
        self._cached = 0

    def whole(self, shown: list[Session]) -> str:
        """The whole page.

        Args:
            shown: the sessions that it shows beside one another.

        Returns:
            HTML.
        """
        seen = self._sessions.changes.count
        panes = [Markup(self._pane(session, shown)) for session in shown]  # noqa: S704
        navigation = Markup(self._navigation(shown))  # noqa: S704
        return self.template('page', panes=panes, navigation=navigation, shown=shown, seen=seen)

    def since(self, seen: int, shown: list[Session]) -> list[str]:
        """What of the page has changed.

        Args:
            seen: the change up to which everything is known.
            shown: the sessions that the page shows.

        Returns:
            HTML of elements that each take the place of the one with their id, or else go into the
            one that `data-into` names.
        """
        parts: list[str] = []
        changes = [session.last_changes()[0] for session in self._sessions.all()]
        if max([self._sessions.last_change(), *changes]) > seen:
            parts.append(self._navigation(shown))
        for session in shown:
            if session.closed:
                parts.append(self.template('closed', session=session))
                continue
            changed, rewritten = session.last_changes()
            if changed > seen:
                parts += [self.template(name, session=session) for name in ('head', 'actions')]
            if rewritten > seen:
                parts.append(self._log(session))
            else:
                parts += [self._block(session, block) for block in session.since(seen)]
        return parts

    def template(self, name: str, **values: Any) -> str:
        """Any template.

        Args:
            name: its name.
            values: what it shows.

        Returns:
            HTML.
        """
        return self._environment.get_template(name).render(**values)

    def _navigation(self, shown: list[Session]) -> str:
        return self.template('sessions', sessions=self._sessions.all(), shown=shown)

    def _pane(self, session: Session, shown: list[Session]) -> str:
        parts = {name: Markup(self.template(name, session=session)) for name in ('head', 'actions')}  # noqa: S704
        log = Markup(self._log(session))  # noqa: S704
        return self.template('pane', session=session, log=log, shown=shown, **parts)

    def _log(self, session: Session) -> str:
        blocks = [Markup(self._block(session, block)) for block in session.since(0)]  # noqa: S704
        return self.template('log', session=session, blocks=blocks)

    def _block(self, session: Session, block: dict[str, Any]) -> str:
        key = (session.number, block['number'])
        known = self._cache.get(key)
        if known is not None and known[0] == block['changed']:
            return known[1]
        html = self.template(
            block['kind'],
            session=session,
            block=block,
            markdown=lambda text: markdown_html(text, functools.partial(self._link, session)),
        )
        with self._lock:
            self._cached += len(html) - len(self._cache.pop(key, (0, ''))[1])
            self._cache[key] = (block['changed'], html)
            while self._cached > _CACHED:
                self._cached -= len(self._cache.popitem(last=False)[1][1])
        return html

    def _link(self, session: Session, target: str) -> str | None:
        name = own_name(target)
        if not any(info.path == name for info, _ in session.files):
            return None
        return f'{self._base}/s/{session.number}/files?name={quote(name)}'


def _templates() -> dict[str, str]:
    folder = resources.files('lagent.ui').joinpath('templates')
    return {
        file.name.removesuffix('.html'): file.read_text('utf-8')
        for file in folder.iterdir()
        if file.name.endswith('.html')
    }
