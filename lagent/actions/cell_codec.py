"""Results of cells as they are recorded: without all that is as in a cell that did nothing."""

from typing import Any

_OUTPUT: dict[str, Any] = {
    'text': '',
    'data': {},
    'metadata': {},
    'display_id': None,
    'left_out': {},
    'ansi': '',
    'cut': None,
}


def compact(values: dict[str, Any], blank: dict[str, Any]) -> dict[str, Any]:
    """Leave out what a reader knows.

    Args:
        values: a result as a dict.
        blank: that of a cell without outputs.

    Returns:
        The outcome, and what differs.
    """
    short = {key: value for key, value in values.items() if key == 'outcome' or value != blank[key]}
    if 'outputs' in short:
        short['outputs'] = [
            {key: value for key, value in output.items() if value != _OUTPUT.get(key, ...)}
            for output in short['outputs']
        ]
    return short


def complete(values: dict[str, Any], blank: dict[str, Any]) -> dict[str, Any]:
    """Put back in what `compact` left out.

    Args:
        values: what it gave, or a whole dict.
        blank: the dict of a cell without outputs.

    Returns:
        A whole dict.
    """
    outputs = [{**_OUTPUT, **output} for output in values.get('outputs', ())]
    return {**blank, **values, 'outcome': values['outcome'], 'outputs': outputs}
