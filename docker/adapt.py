"""What the image changes in the libraries that it has. Run once, when it is built.

A library that is not installed is passed over. What is not found in one that is, ends the build:
the library has changed, and this file has to follow.
"""

import dataclasses
from importlib.util import find_spec
from pathlib import Path

import matplotlib as mpl
from matplotlib import font_manager

FALLBACKS = ('Noto Sans SC', 'Noto Sans CJK JP', 'Noto Emoji')
"""Of the second one, what the first one lacks, such as Hangul."""

ALIASES = {
    'Noto Sans SC': (
        *('Arial Unicode MS', 'Heiti SC', 'Microsoft YaHei', 'Noto Sans CJK SC', 'PingFang SC'),
        *('SimHei', 'SimSun', 'Source Han Sans SC', 'STHeiti', 'WenQuanYi Micro Hei'),
        *('WenQuanYi Zen Hei',),
    ),
    'Noto Sans CJK JP': (
        *('AppleGothic', 'Hiragino Sans', 'IPAexGothic', 'Malgun Gothic', 'MS Gothic'),
        *('NanumGothic', 'Noto Sans CJK KR', 'Noto Sans CJK TC', 'Noto Sans JP', 'Noto Sans KR'),
        *('Microsoft JhengHei', 'PingFang TC', 'Yu Gothic'),
    ),
    'Noto Emoji': ('Apple Color Emoji', 'Noto Color Emoji', 'Segoe UI Emoji'),
}
"""Names by which code asks for such fonts, as it would on other systems."""

_FALL_BACK = """

# Added by the sandbox's image: the last fonts to look for a glyph in.
_FALLBACKS = [FontPath(path, 0) for path in {paths!r}]
_find = FontManager._find_fonts_by_props


def _find_with_fallbacks(self, *args, **kwargs):
    found = _find(self, *args, **kwargs)
    if 'afm' in (*args, *kwargs.values()):  # fonts that are part of every printer
        return found
    return found + [path for path in _FALLBACKS if path not in found]


FontManager._find_fonts_by_props = _find_with_fallbacks
"""


def give_fonts() -> None:
    """Have matplotlib find glyphs for Chinese, Japanese, Korean and emoji.

    A setting would not do: `font.family` can name fallbacks, but code that asks for a font of its
    own, as seaborn's themes do, would lose them.
    """
    manager = font_manager.fontManager
    there = {font.name: font for font in manager.ttflist}
    if paths := [there[name].fname for name in FALLBACKS if name in there]:
        with Path(font_manager.__file__).open('a', encoding='utf-8') as module:
            module.write(_FALL_BACK.format(paths=paths))
        for name, aliases in ALIASES.items():
            manager.ttflist += [dataclasses.replace(there[name], name=each) for each in aliases]
    cache = Path(mpl.get_cachedir(), f'fontlist-v{manager.__version__}.json')
    font_manager.json_dump(manager, cache)


def start_browser() -> None:
    """Have plotly's browser start where it can make no sandbox of its own, since ours forbids it.

    Its zygote goes with that sandbox. Nothing is said of a newer kaleido, which would need a
    browser that is not there and that nobody can install.
    """
    started = 'exec ./bin/kaleido "$@" --no-sandbox --no-zygote'
    replace('kaleido', 'executable/kaleido', './bin/kaleido $@', started)
    flag = 'ENABLE_KALEIDO_V0_DEPRECATION_WARNINGS = '
    replace('plotly', 'io/_kaleido.py', f'{flag}True', f'{flag}False')


def replace(library: str, file: str, old: str, new: str) -> None:
    """Replace the one place of a text in a library's file."""
    spec = find_spec(library)
    if spec is None or spec.origin is None:
        return
    path = Path(spec.origin).parent / file
    text = path.read_text(encoding='utf-8')
    if text.count(old) != 1:
        raise LookupError(f'{path} has not exactly one {old!r}')
    path.write_text(text.replace(old, new), encoding='utf-8')


if __name__ == '__main__':
    give_fonts()
    start_browser()
