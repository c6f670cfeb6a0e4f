"""How values are represented: quickly where there is text only, and tables and charts as data, too.

A reader is found by the name of a type when a value of it is shown: none of them imports anything,
and a kernel that uses no such library never runs one.
"""

import warnings
from collections.abc import Callable, Mapping
from typing import Any

from IPython.core.formatters import BaseFormatter, DisplayFormatter

from . import charts, tables

Reader = Callable[[Any], dict[str, Any]]

_TABLES: dict[tuple[str, str], Reader] = {
    ('pandas', 'DataFrame'): tables.pandas_frame,
    ('pandas', 'Series'): tables.pandas_series,
    ('pandas.core.frame', 'DataFrame'): tables.pandas_frame,
    ('pandas.core.series', 'Series'): tables.pandas_series,
    ('polars.dataframe.frame', 'DataFrame'): tables.polars_frame,
    ('polars.series.series', 'Series'): tables.polars_series,
}
_CHARTS: dict[tuple[str, str], Reader] = {('matplotlib.figure', 'Figure'): charts.figure}


class DataFormatter(BaseFormatter):
    """Represents a value as data, beside what else it is represented by; it never fails.

    Readers have a registry of their own: matplotlib clears that of each formatter when it is told
    which images to make.
    """

    def __init__(self, mime: str, readers: Mapping[tuple[str, str], Reader], **kwargs: Any) -> None:
        super().__init__(format_type=mime, **kwargs)
        self._readers = readers

    def __call__(self, obj: Any) -> Any:
        """Return the data, or None where there is none, or it cannot be read."""
        if not self.enabled:
            return None
        try:
            for kind in type(obj).__mro__:
                read = self._readers.get((kind.__module__, kind.__name__))
                if read is not None:
                    with warnings.catch_warnings():
                        warnings.simplefilter('ignore')
                        return read(obj)
        except Exception:  # whatever a value does, it is shown in its other forms
            return None
        return None


class Display(DisplayFormatter):
    """Knows what has no representation but text, and asks no other formatter about it."""

    PLAIN = frozenset((int, float, complex, bool, str, bytes, list, tuple, dict, set, frozenset))

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        plain = self.formatters['text/plain']
        rich = [each for each in self.formatters.values() if each is not plain]
        self._others = [self.ipython_display_formatter, self.mimebundle_formatter, *rich]
        # At the end: what they read is represented by then, and drawn.
        for mime, readers in ((tables.MIME, _TABLES), (charts.MIME, _CHARTS)):
            self.formatters[mime] = DataFormatter(mime, readers, parent=self)

    def format(self, obj: Any, include: Any = None, exclude: Any = None) -> Any:
        """Return the representations of an object, and what is to be said of them."""
        if include is None and exclude is None and type(obj) in self.PLAIN and self._is_free(obj):
            text = self.formatters['text/plain'](obj)
            if isinstance(text, str):
                return {'text/plain': text}, {}
        return super().format(obj, include, exclude)

    def _is_free(self, obj: Any) -> bool:
        """Tell whether nobody has registered another formatter for what is usually plain."""
        for formatter in self._others:
            known = formatter._trait_values  # as they are now, without a call for each
            by_type = known.get('type_printers')
            if by_type is None or not by_type.keys().isdisjoint(type(obj).__mro__):
                return False
            if known.get('deferred_printers') or id(obj) in known.get('singleton_printers', ()):
                return False
        return True
