"""Checkpoints: states of a pass that is not over. After a kill, it goes on from its checkpoint, to the same bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from drstream import execution
from drstream.checkpoints import CheckpointFile, doubts_of, kept_at_signals, other_part, refuse_difference, warn_of
from drstream.errors import DrstreamError, parameter
from drstream.evaluation.folding import Fold, Marked
from drstream.evaluation.state import CHECKPOINT, State
from drstream.evaluation.sums import Sums
from drstream.execution import Workers
from drstream.log import Log
from drstream.log.marks import Mark, Marker
from drstream.log.source import Part
from drstream.states import StateError


@dataclass
class Checkpoint:
    """A file that a pass writes now and then, and deletes when it is over."""

    file: CheckpointFile
    state: State  # of this run

    @classmethod
    def of(cls, path: Any, every: float, log: Log, state: State) -> Checkpoint | None:
        return None if path is None else cls(CheckpointFile.of(path, every, log), state)

    @property
    def path(self) -> str:
        return self.file.path

    def begin(self, keep: bool) -> Fold:
        """Return what an earlier run has summed up; nothing if there was none."""
        if not self.file.exists:
            return Fold(keep)
        found = State.of(self.path, CHECKPOINT)
        identity = found.identity or {}
        refuse_difference(
            self.path,
            {"version": found.version, **identity},
            {"version": self.state.version, **(self.state.identity or {})},
        )
        warn_of(self.path, doubts_of({name: identity.get(name) for name in ("policies", "models", "parameters")}))
        fold = found.fold
        if keep and not fold.keep:
            raise StateError(
                f"{self.path} was written without {parameter('state')}: leave it out, or delete {self.path}"
            )
        fold.keep = keep
        return fold

    def note(self, fold: Fold) -> None:
        """Write the file, if it is time."""
        if self.file.due:
            with self.file.timed():
                self.write(fold)

    def write(self, fold: Fold) -> None:
        state = State(self.state.identity, fold, self.state.log, version=self.state.version)
        self.file.write(state.to_bytes(CHECKPOINT))

    def remove(self) -> None:
        """The pass is over."""
        self.file.remove()


def fold_parts(
    task: Callable[[Part], list[Sums]],
    log: Log,
    columns: Sequence[str],
    workers: Workers,
    *,
    keep: bool = False,
    checkpoint: Checkpoint | None = None,
) -> Fold:
    """Run a pass, and return the states of its files; with a checkpoint, from where an earlier run has stopped.

    keep  Whether the states of single files are wanted.
    """
    fold = Fold(keep) if checkpoint is None else checkpoint.begin(keep)
    marker = Marker(digests=keep or checkpoint is not None)
    parts = log.parts(columns)
    if checkpoint is not None:
        parts = _after(list(fold.marks), iter(parts), marker, checkpoint.path)
    left = Marked(parts, marker)
    done, whole = 0, True
    with kept_at_signals(None if checkpoint is None else checkpoint.file):
        try:
            for tallies in execution.run(task, log, columns, workers, parts=left):
                whole = False  # if Ctrl-C comes while states are merged, those of the part may be there in part
                fold.add(left.marks[done], tallies)
                done, whole = done + 1, True
                if checkpoint is not None:
                    checkpoint.note(fold)
        except BaseException as error:
            wider = isinstance(error, DrstreamError) and error.n_actions  # the pass starts again, with more actions
            if checkpoint is not None and done and whole and not wider:
                with suppress(DrstreamError, OSError):
                    checkpoint.write(fold)
            raise
    return fold


def _after(done: Sequence[Mark], parts: Iterator[Part], marker: Marker, path: str) -> Iterator[Part]:
    """Return the parts after those that a checkpoint has, which must be the first ones of the log."""
    for mark in done:
        part = next(parts, None)
        found = None if part is None else marker.mark(part)
        if found != mark:
            raise other_part(path, mark, found)
    return parts
