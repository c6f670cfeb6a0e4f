"""Pictures from files and the web: checked before anything else reads them."""

import io
from typing import Any, NamedTuple

from lagent._extras import require

MAX_BYTES = 20 * 1024 * 1024
_MAX_PIXELS = 40_000_000
_AS_THEY_ARE = ('PNG', 'JPEG', 'GIF', 'BMP', 'TIFF')  # what a .pptx file may hold
_CONVERTED = ('WEBP',)


class Picture(NamedTuple):
    """A picture in a form that slides can hold."""

    data: bytes
    width: int
    height: int


def read_picture(data: bytes) -> Picture:
    """Check a picture, and convert it where that is needed.

    Args:
        data: content of a file.

    Returns:
        The picture, with its size in pixels.

    Raises:
        ValueError: it is no picture, a damaged one, or too large.
    """
    image_module: Any = require('PIL.Image', 'ppt')
    try:
        with image_module.open(io.BytesIO(data), formats=(*_AS_THEY_ARE, *_CONVERTED)) as image:
            width, height = image.size
            if width * height > _MAX_PIXELS:
                raise ValueError(f'An image may have {_MAX_PIXELS} pixels, not {width}x{height}.')
            image.load()
            if image.format in _CONVERTED:
                converted = io.BytesIO()
                image.save(converted, 'PNG')
                data = converted.getvalue()
    except (OSError, SyntaxError, image_module.DecompressionBombError) as error:
        raise ValueError(
            f'This is not a picture that can be used: {", ".join(_AS_THEY_ARE + _CONVERTED)}.'
        ) from error
    return Picture(data, width, height)
