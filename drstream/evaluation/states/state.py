"""States: what a pass has summed up, for which parts of which log, and what it is about."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from drstream.errors import DrstreamError, StateError
from drstream.evaluation.header import Header
from drstream.evaluation.states.by_file import ByFile, Unit, pack_units, unpack_units
from drstream.evaluation.states.header import header_from_dict
from drstream.evaluation.states.packing import Packed, unpack, unpack_tables
from drstream.evaluation.sums import Sums
from drstream.findings import Finding
from drstream.states import arrays, tree
from drstream.states.arrays import Arrays
from drstream.states.checkpoint import MADE_UP
from drstream.states.marks import Mark

EVALUATION = "evaluation"
Others = dict[str, dict[str, dict[str, int]]]  # by reward, who, and column: events of unknown categories


@dataclass
class State:
    """What `evaluate` has summed up over some logs. `drs.merge` makes a result of one or several.

    identity  Digests of policies, models, parameters and columns. States that are merged agree in it.
    log       Name of the log.
    rows      Number of rows in it, also of those that were not used.
    units     The sums of each file.
    buckets   Sums by bucket of all files, by reward.
    doubts    Findings that were made before the pass.
    name      The file, for messages.
    """

    identity: dict[str, Any] | None  # None: a state of no rows, from `partial`
    log: str = ""
    rows: int | None = None
    others: Others = field(default_factory=dict)
    version: str = ""
    units: list[Unit] = field(default_factory=list)
    buckets: list[Packed] = field(default_factory=list)
    doubts: list[Finding] = field(default_factory=list)
    name: str = "a state"

    def take(self, sums: ByFile, doubts: Sequence[Finding]) -> None:
        """Take the sums of a complete pass, and the findings that were made before it."""
        self.units, self.buckets, self.doubts = sums.units, sums.buckets(), list(doubts)

    @property
    def headers(self) -> list[Header]:
        """One for each reward."""
        assert self.identity is not None
        return [header_from_dict(one, self.others.get(name, {})) for name, one in self.identity["rewards"].items()]

    @property
    def marks(self) -> list[Mark]:
        """The parts of logs that it has the sums of."""
        return [mark for unit in self.units for mark in unit.marks]

    @property
    def n(self) -> int:
        """Number of events."""
        return sum(int(unit.sums[0]["whole"][0]) for unit in self.units)

    def add_to(self, sums: Sequence[Sums]) -> None:
        """Add what it has to sums of earlier events."""
        for unit in self.units:
            for one, packed in zip(sums, unit.sums, strict=True):
                one.merge(unpack(packed, one.form, one.calibration.pivot))
        for one, tables in zip(sums, self.buckets if self.units else [], strict=bool(self.units)):
            later = Sums(one.form, one.calibration.pivot)
            unpack_tables(tables, later)
            one.merge(later)

    def to_bytes(self) -> bytes:
        """The state as the bytes of a file."""
        return arrays.to_bytes(EVALUATION, *self._packed())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file, which appears only when it is complete."""
        arrays.save(path, EVALUATION, *self._packed())

    def _packed(self) -> tuple[dict[str, Any], Arrays]:
        found = Arrays()
        words = {name: getattr(self, name) for name in ("version", "identity", "log", "rows", "others")}
        words["doubts"] = [finding.to_dict() for finding in self.doubts]
        sums = {"units": pack_units(self.units), "buckets": self.buckets}
        return {**words, "sums": tree.pack(sums, found)}, found

    @classmethod
    def of(cls, source: Any) -> State:
        """Return the state in a file, or in bytes."""
        if isinstance(source, cls):
            return source
        if not isinstance(source, str | os.PathLike | bytes | bytearray | memoryview):
            kind = type(source).__name__
            raise StateError(f"a {kind} is not a state: give the path of one, its bytes, or drs.partial's")
        source = source if isinstance(source, str | os.PathLike) else bytes(source)
        words, found = arrays.load(source, EVALUATION)
        state = cls(None, name="a state in memory") if isinstance(source, bytes) else cls(None, name=os.fspath(source))
        try:
            state._restore(words, found)
        except MADE_UP as error:
            if isinstance(error, DrstreamError):
                raise
            raise StateError(f"{state.name} is damaged: {error} does not fit. Make it again") from None
        return state

    def _restore(self, words: dict[str, Any], found: Arrays) -> None:
        self.identity, self.log, self.rows = words["identity"], words["log"], words["rows"]
        self.others, self.version = words["others"], words["version"]
        self.doubts = [Finding.from_dict(one) for one in words["doubts"]]
        sums = tree.unpack(words["sums"], found)
        if found:
            raise ValueError(f"array {next(iter(found))!r}")
        if self.identity is not None and sums["units"] is not None:
            forms = [(one.form, one.pivot) for one in self.headers]
            self.units, self.buckets = unpack_units(sums["units"], forms), sums["buckets"]
            self.add_to([Sums(*form) for form in forms])  # raises an error if it cannot be added
        elif sums["units"] is not None:
            raise ValueError("sums of nothing")

    def __repr__(self) -> str:
        files = len({mark.file for mark in self.marks})
        return f"State of {self.n:,} events from {files} file{'s' * (files != 1)}"
