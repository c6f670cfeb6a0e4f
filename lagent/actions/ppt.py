"""Making slides: .pptx files with titles, bullet points and pictures."""

import asyncio
import io
import os
import secrets
import threading
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lagent._extras import require
from lagent.actions.base_action import AsyncActionMixin, BaseAction, tool_api
from lagent.actions.description import SESSION_PARAMETER
from lagent.actions.parser import BaseParser, JsonParser
from lagent.actions.web.address import AddressGuard
from lagent.actions.web.cache import BoundedCache
from lagent.actions.web.client import HttpClient, HttpLimits
from lagent.actions.web.picture import MAX_BYTES, Picture, read_picture
from lagent.actions.web.tool import web_api
from lagent.context import DEFAULT_SESSION
from lagent.portal import blocking

Theme = Mapping[str, Any]

THEME_MAPPING: dict[str, Theme] = {
    'Default': {
        'template': None,
        'title': 'Title Slide',
        'single': 'Title and Content',
        'two': 'Two Content',
    }
}

_DECKS = 64  # sessions whose unfinished slides are kept
_MAX_PAGES, _MAX_ITEMS, _MAX_CHARS = 500, 100, 5_000
_MAX_PICTURES = 200 * 1024 * 1024  # bytes of all pictures of a file
_SPAN = '[SPAN]'


class _PPT(BaseAction):
    network = True

    def __init__(
        self,
        theme_mapping: Mapping[str, Theme] | None = None,
        description: dict[str, Any] | None = None,
        parser: type[BaseParser] = JsonParser,
        *,
        folder: str | os.PathLike[str] = '.',
        allow_networks: Iterable[str] = (),
    ) -> None:
        super().__init__(description, parser)
        self.theme_mapping = theme_mapping or THEME_MAPPING
        self.folder = Path(folder).resolve()
        self._client = HttpClient(
            HttpLimits(timeout=20.0, max_bytes=MAX_BYTES, max_redirects=5),
            guard=AddressGuard(allow_networks),
        )
        self._decks: BoundedCache[Hashable, _Deck] = BoundedCache(_DECKS)

    def _open_deck(self, theme: str, location: str) -> '_Deck':
        if theme not in self.theme_mapping:
            raise ValueError(f'The theme is one of {[*self.theme_mapping]}, not {theme!r:.80}.')
        path = self._path(location)
        if path.suffix.lower() != '.pptx':
            raise ValueError(f'The name of the file must end with .pptx, unlike {path.name!r}.')
        if not path.parent.is_dir():
            raise ValueError(f'There is no folder {str(path.parent)!r} to put the file in.')
        template = self.theme_mapping[theme]['template']
        slides = require('pptx', 'ppt').Presentation(None if template is None else str(template))
        return _Deck(slides, self.theme_mapping[theme], path)

    def _deck(self, session_id: Hashable) -> '_Deck':
        deck = self._decks.get(session_id)
        if deck is None:
            raise ValueError('There is no file to work on: call create_file first.')
        return deck

    def _path(self, location: str) -> Path:
        path = Path(location)
        if not path.is_absolute():
            raise ValueError(f'The location must be an absolute path, unlike {location!r:.200}.')
        path = path.resolve()
        if not path.is_relative_to(self.folder):
            raise ValueError(f'The location must be in {str(self.folder)!r}.')
        return path

    async def _picture(self, image: str) -> Picture:
        if image.lower().startswith(('http://', 'https://')):
            data = (await self._client.get(image)).body
        else:
            data = await asyncio.to_thread(_file_content, self._path(image))
        return await asyncio.to_thread(read_picture, data)


class AsyncPPT(AsyncActionMixin, _PPT):
    """Create ppt slides with text, paragraphs and images in good looking styles.

    Note:
        The awaited form of `PPT`, with the same arguments.
    """

    @tool_api(explode_return=True, exclude_arguments=[SESSION_PARAMETER])
    async def create_file(
        self, theme: str, abs_location: str, session_id: Hashable = DEFAULT_SESSION
    ) -> dict[str, str]:
        """Create a pptx file with specific themes.

        Args:
            theme (:class:`str`): the theme used, such as Default.
            abs_location (:class:`str`): the ppt file's absolute location
            session_id: whose file.

        Returns:
            :class:`dict`: operation status
                * status: the result of the execution
        """
        self._decks[session_id] = await asyncio.to_thread(self._open_deck, theme, abs_location)
        return {'status': 'created a ppt file.'}

    @tool_api(explode_return=True, exclude_arguments=[SESSION_PARAMETER])
    async def add_first_page(
        self, title: str, subtitle: str, session_id: Hashable = DEFAULT_SESSION
    ) -> dict[str, str]:
        """Add the first page of ppt.

        Args:
            title (:class:`str`): the title of ppt
            subtitle (:class:`str`): the subtitle of ppt
            session_id: whose file.

        Returns:
            :class:`dict`: operation status
                * status: the result of the execution
        """
        await asyncio.to_thread(self._deck(session_id).add_page, 'title', title, [subtitle])
        return {'status': 'added page'}

    @tool_api(explode_return=True, exclude_arguments=[SESSION_PARAMETER])
    async def add_text_page(
        self, title: str, bullet_items: str, session_id: Hashable = DEFAULT_SESSION
    ) -> dict[str, str]:
        """Add text page of ppt.

        Args:
            title (:class:`str`): the title of the page
            bullet_items (:class:`str`): the bullet items as one string, with [SPAN] between them
            session_id: whose file.

        Returns:
            :class:`dict`: operation status
                * status: the result of the execution
        """
        items = _items(bullet_items)
        await asyncio.to_thread(self._deck(session_id).add_page, 'single', title, items)
        return {'status': 'added page'}

    @tool_api(explode_return=True, exclude_arguments=[SESSION_PARAMETER])
    @web_api
    async def add_text_image_page(
        self,
        title: str,
        bullet_items: str,
        image: str,
        session_id: Hashable = DEFAULT_SESSION,
    ) -> dict[str, str]:
        """Add a text page with one image.

        Args:
            title (:class:`str`): the title of the page
            bullet_items (:class:`str`): the bullet items as one string, with [SPAN] between them
            image (:class:`str`): the absolute path of the image, or its URL
            session_id: whose file.

        Returns:
            :class:`dict`: operation status
                * status: the result of the execution
        """
        deck, items = self._deck(session_id), _items(bullet_items)
        picture = await self._picture(image)
        await asyncio.to_thread(deck.add_page, 'two', title, items, picture)
        return {'status': 'added page'}

    @tool_api(explode_return=True, exclude_arguments=[SESSION_PARAMETER])
    async def submit_file(self, session_id: Hashable = DEFAULT_SESSION) -> dict[str, str]:
        """Submit your work. YOU MUST use it when all steps are done.

        Args:
            session_id: whose file.

        Returns:
            :class:`dict`: operation status
                * status: the result of the execution
        """
        deck = self._deck(session_id)
        await asyncio.to_thread(deck.save)
        return {'status': f'submitted. view ppt at {deck.location}'}


class PPT(_PPT):
    """Create ppt slides with text, paragraphs and images in good looking styles.

    Note:
        Each session works on a file of its own, which is written by `submit_file`, whole or not
        at all. Pictures with a URL are fetched from public addresses only.

    Args:
        theme_mapping: themes by name, each with a ``template`` (path of a .pptx file, or None for
            the built-in one) and the names of its layouts: ``title`` of the first page,
            ``single`` of a page with text, ``two`` of a page with text and image.
        description: replaces what models are told.
        parser: class that reads the inputs.
        folder: the only folder in which files are written and pictures read; by default the one
            that this process works in.
        allow_networks: networks beside the public internet that pictures may be fetched from.
    """

    create_file = blocking(AsyncPPT.create_file)
    add_first_page = blocking(AsyncPPT.add_first_page)
    add_text_page = blocking(AsyncPPT.add_text_page)
    add_text_image_page = blocking(AsyncPPT.add_text_image_page)
    submit_file = blocking(AsyncPPT.submit_file)


@dataclass
class _Deck:
    """The slides of one session; its methods block."""

    slides: Any
    theme: Theme
    location: Path
    picture_bytes: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add_page(
        self, kind: str, title: str, items: list[str], picture: Picture | None = None
    ) -> None:
        with self.lock:
            if len(self.slides.slides) >= _MAX_PAGES:
                raise ValueError(f'A file has at most {_MAX_PAGES} pages; submit this one.')
            size = 0 if picture is None else len(picture.data)
            if self.picture_bytes + size > _MAX_PICTURES:
                raise ValueError('The pictures of this file are too large together.')
            layout = self.slides.slide_layouts.get_by_name(self.theme[kind])
            if layout is None:
                raise ValueError(f'The template has no layout named {self.theme[kind]!r}.')
            slide = self.slides.slides.add_slide(layout)
            if slide.shapes.title is not None:
                slide.shapes.title.text = title[:_MAX_CHARS]
            rest = [one for one in slide.placeholders if one.placeholder_format.idx != 0]
            if rest and any(items):
                _write(rest[0].text_frame, items)
            if picture is not None:
                self.picture_bytes += size
                self._place(slide, rest[1] if len(rest) > 1 else None, picture)

    def _place(self, slide: Any, place: Any, picture: Picture) -> None:
        """Put a picture in the middle of a placeholder, or of the page, as large as fits."""
        left, top = (0, 0) if place is None else (place.left, place.top)
        width, height = (
            (self.slides.slide_width, self.slides.slide_height)
            if place is None
            else (place.width, place.height)
        )
        scale = min(width / picture.width, height / picture.height)
        wide, high = max(1, int(picture.width * scale)), max(1, int(picture.height * scale))
        slide.shapes.add_picture(
            io.BytesIO(picture.data),
            left + (width - wide) // 2,
            top + (height - high) // 2,
            wide,
            high,
        )
        if place is not None:
            place.element.getparent().remove(place.element)

    def save(self) -> None:
        # Beside the file first, so that it is there whole or not at all.
        beside = self.location.with_name(f'.{secrets.token_hex(8)}.pptx')
        try:
            with self.lock, beside.open('xb') as file:
                self.slides.save(file)
            beside.replace(self.location)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise


def _write(frame: Any, items: list[str]) -> None:
    for number, item in enumerate(items):
        paragraph = frame.add_paragraph() if number else frame.paragraphs[0]
        paragraph.text = item
        paragraph.level = 0


def _items(text: str) -> list[str]:
    items = [item.strip()[:_MAX_CHARS] for item in text.split(_SPAN)]
    if len(items) > _MAX_ITEMS:
        raise ValueError(f'A page has at most {_MAX_ITEMS} bullet items.')
    return items


def _file_content(path: Path) -> bytes:
    if not path.is_file():
        raise ValueError(f'There is no file {str(path)!r}.')
    with path.open('rb') as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f'An image may have {MAX_BYTES} bytes, and {path.name!r} has more.')
    return content
