"""Which errors of effects have ended an attempt at a run: those are tried again."""

from collections import defaultdict

from lagent.journal.contract import Record


class ErrorTracker:
    """The errors of an attempt, and which of them its code has gone on after."""

    def __init__(self) -> None:
        self._all: list[tuple[BaseException, Record]] = []
        self._last: dict[int, list[str]] = defaultdict(list)
        self._survived: set[str] = set()

    def add(self, error: BaseException, record: Record, task: int) -> None:
        """Note an error.

        Args:
            error: what an effect has raised, or is known to have raised.
            record: its record.
            task: who asked for the effect.
        """
        self._all.append((error, record))
        self._last[task].append(record.position)

    def went_on(self, task: int, before: str | None) -> None:
        """Note that a task asks for another effect.

        Args:
            task: the task.
            before: the effect that it has had before, or the task that has begun it.
        """
        self._survived.update(self._last.pop(task, ()))
        if before is not None:
            self._survived.add(before)

    def that_ended(self, outcome: BaseException) -> dict[str, float]:
        """The errors that have ended the attempt.

        Args:
            outcome: what it has ended with.

        Returns:
            Their times, by the positions of their effects. What it was only raised in the course of
            is one of them if nobody has gone on after it.
        """
        causes, implied = _causes(outcome), _causes(outcome, implied=True)
        return {
            record.position: record.time
            for error, record in self._all
            if any(error is cause for cause in causes)
            or (record.position not in self._survived and any(error is one for one in implied))
        }


def _causes(error: BaseException, *, implied: bool = False) -> list[BaseException]:
    """An exception, those that it is said to be raised from, and those that it is a group of.

    Args:
        error: the exception.
        implied: also those while which it was raised, where it does not say from what.
    """
    found: list[BaseException] = []
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and not any(one is other for other in found):
            found.append(one)
            waiting.append(one.__cause__)
            waiting.append(one.__context__ if implied and not one.__suppress_context__ else None)
            waiting.extend(one.exceptions if isinstance(one, BaseExceptionGroup) else ())
    return found
