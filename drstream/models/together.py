"""Fits that take several passes over a log, side by side: one pass serves all fits that are not at their end.

A fit is a generator. It yields what it asks of a pass, and is sent the sums over all parts. So a fit on a whole log and
the fits on all folds but one are the same code, and no fit depends on which others run beside it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

from drstream.log import Events
from drstream.models.passes import Passes
from drstream.running import execution

Result = TypeVar("Result")
SIDE_BYTES = 1 << 30  # most that the arrays of all fits that run side by side may take, if that is more than one fit


class Task(Protocol):
    """What to sum over events. It can be pickled."""

    def start(self) -> Any:
        """Return the sums over no event. They have `merge`, which adds the sums over later events."""

    def add(self, sums: Any, block: Events) -> None: ...


class Asked(NamedTuple):
    """What a fit asks for. Passes whose reader has folds serve several fits, others are the fit's own."""

    passes: Passes
    task: Task
    rows: int  # of a block


Fit = Generator[Asked, Any, Result]


def alone(fit: Fit[Result]) -> Result:
    return _run({0: fit})[0]


def side_by_side(fits: Sequence[Fit[Result]], bytes_of_one: int) -> list[Result]:
    """Run fits, as many at a time as memory allows, and return their results. Fit f is about all folds but f.

    Passes of a fit's own, e.g. over a sample, run until it needs others. So only one fit at a time needs its sample.
    """
    most = max(1, SIDE_BYTES // max(1, bytes_of_one))
    results: dict[int, Result] = {}
    for first in range(0, len(fits), most):
        results |= _run({fold: fits[fold] for fold in range(first, min(first + most, len(fits)))})
    return [results[fold] for fold in range(len(fits))]


def _run(fits: dict[int, Fit[Result]]) -> dict[int, Result]:
    results: dict[int, Result] = {}
    asked: dict[int, Asked] = {}

    def go_on(fold: int, sums: Any) -> None:
        try:
            asked[fold] = fits[fold].send(sums)
            while asked[fold].passes.reader.folds is None:
                asked[fold] = fits[fold].send(_pass_over({fold: asked[fold]})[fold])
        except StopIteration as end:
            asked.pop(fold, None)
            results[fold] = end.value

    for fold in fits:
        go_on(fold, None)
    while asked:
        for fold, sums in _pass_over(asked).items():
            go_on(fold, sums)
    return results


def _pass_over(asked: dict[int, Asked]) -> dict[int, Any]:
    """Make one pass for all that was asked, and return the sums."""
    first = next(iter(asked.values()))
    tasks = {fold: ask.task for fold, ask in asked.items()}
    totals = {fold: task.start() for fold, task in tasks.items()}
    return first.passes.sum_up(partial(_sum_up, tasks, first.rows), totals, _merge)


def _merge(totals: dict[int, Any], found: dict[int, Any]) -> None:
    for fold, total in totals.items():
        total.merge(found[fold])


def _sum_up(tasks: dict[int, Task], rows: int, batches: Iterator[Events]) -> dict[int, Any]:
    """Sum over the events of one part, for each task without those of its fold."""
    sums = {fold: task.start() for fold, task in tasks.items()}
    for batch in batches:
        for block in batch.blocks(rows):
            execution.raise_if_stopped()
            own = -1 if batch.fold_starts is None else int(block.fold[0])
            for fold, task in tasks.items():
                if fold != own:
                    task.add(sums[fold], block)
    return sums
