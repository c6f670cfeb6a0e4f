"""What a model is told about the cells of one message."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lagent.actions.interpreter import CellResult

_LEAST_SHARE = 200  # characters of a cell's result that are shown, however many cells there are


def report(results: Sequence['CellResult'], cells: int, refusal: str = '') -> str:
    """The results of several cells, which share the room of one.

    Args:
        results: those of the cells that were run.
        cells: how many there were.
        refusal: why the next one was not run, if it wasn't an error of the last that ended them.

    Returns:
        An entry for each cell that was run, and one that says which were not, and why.
    """
    done = len(results)
    parts = []
    for number, result in enumerate(results, 1):
        limit = max(result.text_limit // done, _LEAST_SHARE)
        text = dataclasses.replace(result, text_limit=limit).text
        parts.append(f'[cell {number} of {cells}: {result.outcome}]\n{text}')
    if refusal:
        rest = '' if done + 1 == cells else '\nThe cells after it were not run either.'
        parts.append(f'[cell {done + 1} of {cells}: not run]\n{refusal}{rest}')
    elif done < cells:
        rest = f'Cell {cells} was' if done + 1 == cells else f'Cells {done + 1} to {cells} were'
        parts.append(f'{rest} not run, because cell {done} failed.')
    return '\n\n'.join(parts)
