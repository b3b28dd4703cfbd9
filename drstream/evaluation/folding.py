"""How the states of parts become one: in order, first those of each file, and then those of all files.

So a file has a state of its own, whatever other files a pass reads. States of single files, merged later, have the bits
of one pass over all of these files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from drstream.evaluation.sums import Sums
from drstream.log.marks import Mark, Marker
from drstream.log.source import Part

LARGEST = 1 << 28  # bytes of the states of single files that are kept; beyond, they become one


@dataclass
class Unit:
    """The states of a file, by reward. Or those of several files that were merged."""

    marks: list[Mark]
    tallies: list[Sums]

    def merge(self, other: Unit) -> None:
        self.marks += other.marks
        for tally, later in zip(self.tallies, other.tallies, strict=True):
            tally.merge(later)

    @property
    def nbytes(self) -> int:
        return sum(tally.nbytes for tally in self.tallies)


@dataclass
class Fold:
    """The states of a pass so far. With `keep`, those of single files; else that of all earlier files, and the last."""

    keep: bool = False
    units: list[Unit] = field(default_factory=list)
    single: bool = True  # whether each unit is one file
    _bytes: int = 0

    def add(self, mark: Mark, tallies: list[Sums]) -> None:
        """Add the states of the next part."""
        found = Unit([mark], tallies)
        if self.units and self.units[-1].marks[-1].file == mark.file:
            self.units[-1].merge(found)
            return
        self._close()
        self.units.append(found)

    def _close(self) -> None:
        """The last file is complete."""
        if not self.units:
            return
        self._bytes += self.units[-1].nbytes
        if not self.keep or self._bytes > LARGEST:
            self.single = self.single and len(self.units) == 1
            for unit in self.units[1:]:
                self.units[0].merge(unit)
            del self.units[1:]
            self._bytes = self.units[0].nbytes

    def total(self, create: Callable[[], list[Sums]]) -> list[Sums]:
        """Return the states of all parts together. `create` makes states of no events."""
        whole = Unit([], create())
        for unit in self.units:
            whole.merge(unit)
        return whole.tallies

    @property
    def marks(self) -> Iterator[Mark]:
        """The marks of all parts, in order."""
        return (mark for unit in self.units for mark in unit.marks)


@dataclass
class Marked:
    """Parts on their way to workers. Their marks wait until the states come back, in the same order."""

    parts: Iterable[Part]
    marker: Marker
    marks: list[Mark] = field(default_factory=list)

    def __iter__(self) -> Iterator[Part]:
        for part in self.parts:
            self.marks.append(self.marker.mark(part))
            yield part
