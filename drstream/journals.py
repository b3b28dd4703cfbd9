"""Checkpoints of fits that take several passes: a journal of what each pass has summed up.

A fit is a function of the sums over its passes, and nothing else. So a run that goes on need not know how far a
descent had come: it makes all its steps again, with the sums of the journal, and reads the log only for the passes that
the journal does not have.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from drstream import states
from drstream.checkpoints import (
    CheckpointFile,
    doubts_of,
    files_of,
    kept_at_signals,
    marks_of,
    refuse_difference,
    refuse_parts,
    warn_of,
)
from drstream.errors import DrstreamError
from drstream.execution import Workers
from drstream.flat import Packed, pack, restore
from drstream.log import Log
from drstream.log.marks import Mark, Marker
from drstream.states import Arrays, StateError

KIND = "checkpoint of a fit"
LARGEST = 1 << 30  # bytes of sums that a journal holds; what comes after them is computed again
MADE_UP = (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError)


@dataclass
class Step:
    """A pass: its sums so far, and the number of parts that they are about."""

    total: Any
    parts: int = 0
    complete: bool = False
    whole: bool = True  # False while sums of a part are added


@dataclass
class Kept:
    """A pass as the file has it."""

    parts: int
    complete: bool
    sums: Packed


class Journal:
    """The passes of a fit, in order. Those of an earlier run need not be made again."""

    def __init__(self, file: CheckpointFile, identity: Mapping[str, Any], log: Log) -> None:
        from drstream import __version__

        marker = Marker(digests=True)
        self.file, self.identity = file, json.loads(json.dumps({"version": __version__, **identity}))
        self.marks: list[Mark] = [marker.mark(part) for part in log.parts(log.reader().columns)]
        self.kept: list[Kept] = self._read() if file.exists else []
        self.made = 0  # passes of this run
        self.now: Step | None = None

    def _read(self) -> list[Kept]:
        path = self.file.path
        header, arrays = states.from_bytes(states.read(path), path, KIND)
        try:
            identity, marks = header["identity"], marks_of(header["files"])
            kept = [_kept(number, words, arrays) for number, words in enumerate(header["passes"])]
        except MADE_UP as error:
            raise _made_up(path, error) from None
        refuse_difference(path, identity, self.identity)
        refuse_parts(path, marks, self.marks)
        warn_of(path, doubts_of(identity))
        return kept

    def next(self, like: Any) -> Step:
        """Begin a pass whose sums have the form of `like`, or go on with it."""
        self.now = Step(like)
        if self.made < len(self.kept):
            kept = self.kept[self.made]
            try:
                total = restore(like, kept.sums)
            except MADE_UP as error:
                raise _made_up(self.file.path, error) from None
            self.now = Step(total, kept.parts, kept.complete)
        self.made += 1
        return self.now

    def note(self) -> None:
        """Write the file, if it is time."""
        if self.file.due:
            with self.file.timed():
                self.keep()
                self.file.write(self.to_bytes())

    def end(self) -> None:
        """The pass is complete."""
        assert self.now is not None
        self.now.complete = True
        self.keep()
        self.now = None
        self.note()

    def keep(self) -> None:
        """Take up the sums of the pass so far, if there is space for them."""
        now = self.now
        if now is None or not now.whole:
            return
        before = self.kept[: self.made - 1]
        if len(before) < self.made - 1:  # it was full before
            return
        found = Kept(now.parts, now.complete, pack(now.total))
        if sum(one.sums.nbytes for one in before) + found.sums.nbytes <= LARGEST:
            self.kept = [*before, found]

    def stopped(self) -> None:
        """The run ends before its end."""
        with suppress(DrstreamError, OSError):
            self.keep()
            if self.kept:
                self.file.write(self.to_bytes())

    def to_bytes(self) -> bytes:
        passes, arrays = [], Arrays()
        for number, one in enumerate(self.kept):
            passes.append({"parts": one.parts, "complete": one.complete, "words": one.sums.words})
            arrays |= {f"{number}.floats": one.sums.floats, f"{number}.ints": one.sums.ints}
        header = {
            "kind": KIND,
            "version": self.identity["version"],
            "identity": self.identity,
            "files": files_of(self.marks),
            "passes": passes,
        }
        return states.to_bytes(header, arrays)


def _kept(number: int, words: Any, arrays: Arrays) -> Kept:
    parts, complete = words["parts"], words["complete"]
    if type(parts) is not int or parts < 0 or type(complete) is not bool:
        raise ValueError(f"pass {number}")
    floats, ints = arrays[f"{number}.floats"], arrays[f"{number}.ints"]
    return Kept(parts, complete, Packed(list(words["words"]), floats, np.asarray(ints, np.int64)))


def _made_up(path: str, error: Exception) -> StateError:
    return StateError(f"{path} is damaged: {error} does not fit. Delete it, and run again")


@contextmanager
def journaled(
    workers: Workers, path: Any, every: float, log: Log, identity: Mapping[str, Any]
) -> Iterator[tuple[Workers, CheckpointFile | None]]:
    """Yield workers whose fits keep a journal in a file, and the file, which the caller deletes at the end."""
    if path is None:
        yield workers, None
        return
    file = CheckpointFile.of(path, every, log)
    journal = Journal(file, identity, log)
    with kept_at_signals(file):
        try:
            yield replace(workers, journal=journal), file
        except BaseException:
            journal.stopped()
            raise
