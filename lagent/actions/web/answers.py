"""Finding things in JSON documents that may have any form."""

from typing import Any


def pick(data: Any, *path: str | int) -> Any:
    """A value somewhere in a JSON document that may have any form.

    Args:
        data: the document.
        path: keys of objects and indexes of arrays.

    Returns:
        The value, or None where the path doesn't lead to one.
    """
    for step in path:
        if isinstance(step, str) and isinstance(data, dict):
            data = data.get(step)
        elif isinstance(step, int) and isinstance(data, list) and step < len(data):
            data = data[step]
        else:
            return None
    return data


def objects(data: Any, *path: str | int) -> list[dict[str, Any]]:
    """The objects of an array in a JSON document.

    Args:
        data: the document.
        path: where the array is.

    Returns:
        Its objects; no object where there is no array.
    """
    found = pick(data, *path)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def words(value: Any, limit: int = 2_000) -> str:
    """A text in a JSON document, on one line and bounded.

    Args:
        value: a text, a number, a list of such, or None.
        limit: characters that are kept.
    """
    if isinstance(value, list):
        value = ' '.join(words(one, limit) for one in value[:20])
    text = ' '.join(str(value).split()) if isinstance(value, str | int | float) else ''
    return text if len(text) <= limit else f'{text[:limit]}...'
