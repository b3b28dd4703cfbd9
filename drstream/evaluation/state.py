"""States that last: what a pass has summed up, for which parts of which log, and what it is about."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any

from drstream import states
from drstream.checkpoints import files_of, marks_of
from drstream.errors import DrstreamError
from drstream.evaluation.folding import Fold, Unit
from drstream.evaluation.outline import Outline
from drstream.evaluation.packing import pack, unpack
from drstream.evaluation.saved import outline_from_dict
from drstream.log.marks import Mark
from drstream.states import Arrays, StateError

EVALUATION, CHECKPOINT = "evaluation", "checkpoint of an evaluation"
MADE_UP = (ValueError, KeyError, TypeError, IndexError, AttributeError, AssertionError, ArithmeticError, RecursionError)
Others = dict[str, dict[str, dict[str, int]]]  # by reward, who, and column: events of unknown categories


@dataclass
class State:
    """What `evaluate` has summed up over some logs. `drs.merge` makes a result of one or several.

    name      The file, for messages.
    identity  Digests of policies, models, parameters and columns. States that are merged agree in it.
    log       Name of the log.
    rows      Number of rows in it, also of those that were not used.
    """

    identity: dict[str, Any] | None  # None: a state of no rows, from `partial`
    fold: Fold
    log: str = ""
    rows: int | None = None
    others: Others = field(default_factory=dict)
    version: str = ""
    name: str = "a state"

    @property
    def outlines(self) -> list[Outline]:
        """One for each reward."""
        assert self.identity is not None
        return [outline_from_dict(one, self.others.get(name, {})) for name, one in self.identity["rewards"].items()]

    @property
    def marks(self) -> list[Mark]:
        """The parts of logs that it has the sums of."""
        return list(self.fold.marks)

    @property
    def n(self) -> int:
        """Number of events."""
        return sum(unit.tallies[0].count for unit in self.fold.units)

    def to_bytes(self, kind: str = EVALUATION) -> bytes:
        """The state as the bytes of a file."""
        units, arrays = [], Arrays()
        for number, unit in enumerate(self.fold.units):
            words = []
            for reward, tally in enumerate(unit.tallies):
                about, found = pack(tally)
                words.append(about)
                arrays |= {f"{number}.{reward}.{name}": array for name, array in found.items()}
            units.append({"files": files_of(unit.marks), "rewards": words})
        header = {
            "kind": kind,
            "version": self.version,
            "identity": self.identity,
            "log": self.log,
            "rows": self.rows,
            "others": self.others,
            "keep": self.fold.keep,
            "single": self.fold.single,
            "units": units,
        }
        return states.to_bytes(header, arrays)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file, which appears only when it is complete."""
        states.write(path, self.to_bytes())

    @classmethod
    def of(cls, source: Any, kind: str = EVALUATION) -> State:
        """Return the state in a file, or in bytes."""
        if isinstance(source, cls):
            return source
        if isinstance(source, bytes | bytearray | memoryview):
            return cls._from(bytes(source), "a state in memory", kind)
        if isinstance(source, str | os.PathLike):
            return cls._from(states.read(source), os.fspath(source), kind)
        raise StateError(f"a {type(source).__name__} is not a state: give the path of one, its bytes, or drs.partial's")

    @classmethod
    def _from(cls, data: bytes, name: str, kind: str) -> State:
        header, arrays = states.from_bytes(data, name, kind)
        try:
            found = cls(
                header["identity"],
                Fold(keep=True),
                header["log"],
                header["rows"],
                header["others"],
                header["version"],
                name,
            )
            found._restore(header, arrays)
        except MADE_UP as error:
            raise made_up(name, error) from None
        return found

    def _restore(self, header: dict[str, Any], arrays: Arrays) -> None:
        outlines = [] if self.identity is None else self.outlines
        for number, unit in enumerate(header["units"]):
            tallies = [
                unpack((words, _under(f"{number}.{reward}.", arrays)), outline.form, outline.pivot)
                for reward, (outline, words) in enumerate(zip(outlines, unit["rewards"], strict=True))
            ]
            self.fold.units.append(Unit(marks_of(unit["files"]), tallies))
        self.fold.keep, self.fold.single = bool(header["keep"]), bool(header["single"])
        if arrays:
            raise ValueError(f"array {next(iter(arrays))!r}")

    def __repr__(self) -> str:
        files = len({mark.file for mark in self.marks})
        return f"State of {self.n:,} events from {files} file{'s' * (files != 1)}"


def _under(prefix: str, arrays: Arrays) -> Arrays:
    """Take out the arrays whose names begin so."""
    return {name.removeprefix(prefix): arrays.pop(name) for name in list(arrays) if name.startswith(prefix)}


def made_up(name: str, error: Exception) -> DrstreamError:
    """What to raise for a file whose checksum is right, and whose contents are not those of a state."""
    if isinstance(error, DrstreamError):
        return error
    return StateError(f"{name} is damaged: {error} does not fit. Write it again")


def normal(identity: Any) -> Any:
    """The same as JSON gives it back."""
    return json.loads(json.dumps(identity))
