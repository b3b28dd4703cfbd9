"""Merges the sums of parts, for each pass: first those of each file, and then those of all files, in order.

So a file has sums of its own, whatever other files a pass reads. States of single files, merged later, have the bits of
one pass over all of these files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from drstream.evaluation.form import SumsForm
from drstream.evaluation.states.packing import Packed, check_keys, pack, pack_tables, stack, unpack, unstack
from drstream.evaluation.sums import Sums
from drstream.log import Log
from drstream.running import execution
from drstream.running.execution import Workers
from drstream.sources.base import Part
from drstream.states import marks
from drstream.states.checkpoint import EVALUATION, Checkpoint, sum_parts
from drstream.states.marks import Mark, Marker

LARGEST = 1 << 28  # bytes of the sums of single files that are kept; beyond, they become one


@dataclass
class Unit:
    """The packed sums of a file, by reward, but those by bucket. Or of several files that were merged."""

    marks: list[Mark]
    sums: list[Packed]

    @property
    def nbytes(self) -> int:
        tables = [table["records"] for one in self.sums for table in one["tables"].values()]
        return sum(array.nbytes for array in (*tables, *(one["whole"] for one in self.sums)))


@dataclass
class ByFile:
    """What a pass has summed up so far, by reward.

    create  Makes sums of no event.
    keep    Whether sums of single files are wanted, for a state.
    whole   Sums of all complete files.
    last    Sums of the file under way, and its parts.
    units   Complete files, if they are wanted.
    """

    create: Callable[[], list[Sums]]
    keep: bool = False
    whole: list[Sums] = field(default_factory=list)
    last: list[Sums] = field(default_factory=list)
    parts: list[Mark] = field(default_factory=list)
    units: list[Unit] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.whole = self.whole or self.create()

    def add(self, found: tuple[Mark, list[Sums]]) -> None:
        """Add the sums of the next part."""
        mark, sums = found
        if self.parts and self.parts[-1].file == mark.file:
            _merge(self.last, sums)
        else:
            self.close()
            self.last = sums
        self.parts.append(mark)

    def close(self) -> list[Sums]:
        """The last file is complete. Return the sums of all files."""
        if self.parts:
            _merge(self.whole, self.last)
        if self.parts and self.keep:
            self.units.append(Unit(self.parts, [pack(one, _names(one, buckets=False)) for one in self.last]))
            if sum(unit.nbytes for unit in self.units) > LARGEST:
                self.units = [self._as_one()]
        self.last, self.parts = [], []
        return self.whole

    def _as_one(self) -> Unit:
        total = self.create()
        for unit in self.units:
            _merge(total, _unpacked(unit.sums, forms_of(total)))
        found = [pack(one, _names(one, buckets=False)) for one in total]
        return Unit([mark for unit in self.units for mark in unit.marks], found)

    def buckets(self) -> list[Packed]:
        """The sums by bucket of all complete files."""
        return [pack_tables(one, _names(one, buckets=True)) for one in self.whole]

    # In a checkpoint

    def stored(self) -> dict[str, Any]:
        return {
            "whole": [pack(one, list(one.tables)) for one in self.whole],
            "last": [pack(one, list(one.tables)) for one in self.last],
            "parts": marks.to_words(self.parts),
            "units": pack_units(self.units),
        }

    def restored(self, found: Any) -> ByFile:
        forms, parts = forms_of(self.whole), marks.from_words(found["parts"])
        whole, last = _unpacked(found["whole"], forms), _unpacked(found["last"], forms) if parts else []
        for one in (*whole, *last):
            check_keys(one)
        return ByFile(self.create, self.keep, whole, last, parts, unpack_units(found["units"], forms))


def pack_units(units: Sequence[Unit]) -> dict[str, Any] | None:
    if not units:
        return None
    rewards = zip(*(unit.sums for unit in units), strict=True)
    return {"files": [marks.to_words(unit.marks) for unit in units], "sums": [stack(many) for many in rewards]}


def unpack_units(found: Any, forms: Sequence[tuple[SumsForm, float]]) -> list[Unit]:
    """Return units, after a check that they hold such sums."""
    if found is None:
        return []
    rewards = zip(*map(unstack, found["sums"]), strict=True)
    units = [Unit(marks.from_words(of_unit), list(sums)) for of_unit, sums in zip(found["files"], rewards, strict=True)]
    for unit in units:
        _unpacked(unit.sums, forms)
    return units


def sum_up(
    task: Callable[[Part], list[Sums]],
    log: Log,
    columns: Sequence[str],
    workers: Workers,
    sums: ByFile,
    kept: Checkpoint | None = None,
    about: Any = None,
) -> ByFile:
    """Run a pass, from where the checkpoint of an earlier run has it.

    about  What the pass is about, as JSON.
    """
    marker = Marker(digests=sums.keep) if kept is None else kept.marker

    def run(done: int) -> Iterator[tuple[Mark, list[Sums]]]:
        seen: list[Mark] = []

        def parts() -> Iterator[Part]:
            for part in islice(log.parts(columns), done, None):
                seen.append(marker.mark(part))
                yield part

        found = execution.run(task, log, columns, workers, parts=parts())
        return ((seen[i], one) for i, one in enumerate(found))

    return sum_parts(kept, run, sums, ByFile.add, EVALUATION, about)


def _merge(sums: list[Sums], later: list[Sums]) -> None:
    for one, other in zip(sums, later, strict=True):
        one.merge(other)


def _names(sums: Sums, *, buckets: bool) -> list[str]:
    return [grouping.name for grouping in sums.form.groupings if grouping.sums == buckets]


def forms_of(sums: Sequence[Sums]) -> list[tuple[SumsForm, float]]:
    """What sums of no event are made of, by reward."""
    return [(one.form, one.calibration.pivot) for one in sums]


def _unpacked(packed: list[Packed], forms: Sequence[tuple[SumsForm, float]]) -> list[Sums]:
    return [unpack(one, *form) for one, form in zip(packed, forms, strict=True)]
