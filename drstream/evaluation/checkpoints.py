"""Checkpoints: states of a pass that is not over. After a kill, it goes on from its checkpoint, to the same bits."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from drstream import execution
from drstream.errors import DrstreamError, parameter, warn_user
from drstream.evaluation.folding import Fold, Marked
from drstream.evaluation.identity import doubts, refuse_difference
from drstream.evaluation.state import CHECKPOINT, State
from drstream.evaluation.tally import Tally
from drstream.execution import Workers
from drstream.log import Log
from drstream.log.marks import Mark, Marker
from drstream.log.source import Part
from drstream.parameters import number
from drstream.states import StateError, write

EVERY = 30.0  # seconds
COST = 1 / 50  # most of the time that checkpoints may take


@dataclass
class Checkpoint:
    """A file that a pass writes now and then, and deletes when it is over."""

    path: str
    every: float
    state: State  # of this run
    _last: float = 0.0

    @classmethod
    def of(cls, path: Any, every: float, log: Log, state: State) -> Checkpoint | None:
        if path is None:
            return None
        seconds = number("checkpoint_every", every, 0, error=DrstreamError)
        source = log.source
        if getattr(source, "one_shot", False) or not getattr(source, "repeatable", True):
            raise StateError(
                f"{parameter('checkpoint')}: a {source.name} can be read only once, so a pass cannot go on after it "
                "was stopped. Pass a Parquet path or a pyarrow Table"
            )
        check_folder(path, "checkpoint", log)
        return cls(os.fspath(path), seconds, state)

    def begin(self, keep: bool) -> Fold:
        """Return what an earlier run has summed up; nothing if there was none."""
        self._last = time.monotonic()
        if not os.path.exists(self.path):
            return Fold(keep)
        found = State.of(self.path, CHECKPOINT)
        refuse_difference(
            {"version": found.version, **(found.identity or {})},
            {"version": self.state.version, **(self.state.identity or {})},
            (self.path, ""),
            checkpoint=True,
        )
        unknown = doubts(found.identity or {"policies": {}, "models": {}, "parameters": {}})
        if unknown:
            texts = sorted({text for one in unknown.values() for text in one})
            warn_user(
                f"the run goes on from {self.path}, and nobody can vouch that {', '.join(texts)} is still the same: "
                "give it a name that changes when it does, drs.policies.named('v1', ...), or delete the checkpoint"
            )
        fold = found.fold
        if keep and not fold.keep:
            raise StateError(
                f"{self.path} was written without {parameter('state')}: leave it out, or delete {self.path}"
            )
        fold.keep = keep
        return fold

    def note(self, fold: Fold) -> None:
        """Write the file, if it is time."""
        started = time.monotonic()
        if started - self._last >= self.every:
            self.write(fold)
            took = time.monotonic() - started
            self._last = time.monotonic() + max(0.0, took / COST - self.every)  # a large state is written less often

    def write(self, fold: Fold) -> None:
        state = State(self.state.identity, fold, self.state.log, version=self.state.version)
        write(self.path, state.to_bytes(CHECKPOINT))

    def remove(self) -> None:
        """The pass is over."""
        with suppress(OSError):
            Path(self.path).unlink(missing_ok=True)


def check_folder(path: Any, name: str, log: Log) -> None:
    """Raise an error before a long pass if its file could not be written, or is one of the log."""
    if not isinstance(path, str | os.PathLike):
        raise StateError(f"{parameter(name, path)}: it must be the path of a file")
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise StateError(f"{parameter(name, os.fspath(path))}: there is no folder {folder!r}")
    if os.path.realpath(path) in {os.path.realpath(key) for key in log.source.keys if isinstance(key, str)}:
        raise StateError(f"{parameter(name, os.fspath(path))} is a file of the log itself: choose another name")
    if os.path.isdir(path):
        raise StateError(f"{parameter(name, os.fspath(path))} is a folder: give the path of a file")


def fold_parts(
    task: Callable[[Part], list[Tally]],
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
    done = 0
    try:
        for tallies in execution.run(task, log, columns, workers, parts=left):
            fold.add(left.marks[done], tallies)
            done += 1
            if checkpoint is not None:
                checkpoint.note(fold)
    except BaseException as error:
        wider = isinstance(error, DrstreamError) and error.n_actions  # the pass starts again, with more actions
        if checkpoint is not None and done and not wider:
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
            raise StateError(
                f"{path} is a checkpoint of another log: it has {mark}{_about(mark)}, and now this part is "
                f"{'not there' if found is None else f'{found}{_about(found)}'}. Give the same log, or delete the "
                "checkpoint"
            )
    return parts


def _about(mark: Mark) -> str:
    words = [f"{mark.rows:,} rows"]
    if mark.size is not None:
        words.append(f"{mark.size:,} bytes")
    if mark.modified is not None:
        words.append(f"written {datetime.fromtimestamp(mark.modified / 1e9, UTC).isoformat(timespec='microseconds')}")
    return f" ({', '.join(words)}, sha256 {mark.digest[:12]})"
