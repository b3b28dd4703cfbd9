"""What a pass sums up over events: a record of all of them, and tables of records by groups of events.

Groups are segments, loggers, stretches of time, buckets, and pairs of these. A bucket holds the events whose cluster
(or row) has the same hash: intervals that do without the independence of events are made of sums by bucket. A stretch
is a part of the log in its order: intervals that hold at all times are made of sums by stretch. `groupings.py` says
which group an event belongs to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from drstream.evaluation.form import SumsForm
from drstream.kernels import account as kernels
from drstream.models.calibration import Calibration
from drstream.moments import Layout
from drstream.types import Floats, Ints


@dataclass
class GroupTable:
    """Records of groups. Each key has `per` of them, one after the other: one, or one for each bucket."""

    width: int  # fields of a record
    per: int = 1
    places: dict[Any, int] = field(default_factory=dict)  # of keys
    memory: Floats = field(init=False)  # records, and room for more

    def __post_init__(self) -> None:
        self.memory = np.empty((0, self.width))

    @property
    def records(self) -> Floats:
        return self.memory[: len(self.places) * self.per]

    def places_of(self, keys: Sequence[Hashable]) -> Ints:
        """Return the places of keys. New ones get records of zeros."""
        places = self.places
        found = np.array([places.setdefault(key, len(places)) for key in keys], np.int64)
        needed = len(places) * self.per
        if needed > len(self.memory):
            room = np.zeros((max(needed, 2 * len(self.memory)), self.width))
            room[: len(self.memory)] = self.memory
            self.memory = room
        return found

    def of(self, key: Hashable) -> Floats:
        """The records of a key (per, width)."""
        first = self.places[key] * self.per
        return self.memory[first : first + self.per]

    def merge(self, other: GroupTable, layout: Layout | None) -> None:
        """Add a table of other events. `layout` is that of moments; None: the records are sums."""
        blocks = self.places_of(list(other.places))
        place = (blocks[:, None] * self.per + np.arange(self.per)).reshape(-1)
        if layout is None:
            kernels.merge_sums(place, self.records, other.records)
        else:
            layout.merge(self.records, other.records, place)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "memory": self.records}


class Sums:
    """The state of a pass over some events, for one reward. States of parts merge, in order."""

    def __init__(self, form: SumsForm, typical_reward: float) -> None:
        self.form = form
        layout = form.layout
        self.whole = layout.create()
        self.tables = {g.name: GroupTable(form.width(g), g.per) for g in form.groupings}
        self.mass = np.zeros((form.policies, form.actions))  # sum of ν(a|x) over events, by policy and action
        self.logged = np.zeros(form.actions, np.int64)  # number of events, by logged action
        self.octaves = np.zeros((layout.weights if form.octaves else 0, kernels.BINS))  # of weights by size
        self.extremes = np.tile([np.inf, -np.inf], (len(form.watched), 1))  # of rows
        self.calibration = Calibration(typical_reward)  # of r̂
        self.other_than_clicks = np.zeros(1, np.int64)  # number of rewards that are neither 0 nor 1
        self.items = 0  # in all lists of rankings
        self.skipped: Counter[str] = Counter()  # bad rows by reason

    @property
    def count(self) -> int:
        return int(self.whole[0])

    def extremes_of(self, row: str) -> tuple[float, float]:
        """The smallest and the largest number of a row."""
        low, high = self.extremes[self.form.watched.index(row)]
        return float(low), float(high)

    def merge(self, later: Sums) -> None:
        layout = self.form.layout
        layout.merge(self.whole, later.whole)
        for grouping in self.form.groupings:
            table = later.tables[grouping.name]
            self.tables[grouping.name].merge(table, None if grouping.sums else layout)
        self.mass += later.mass
        self.logged += later.logged
        self.octaves += later.octaves
        np.minimum(self.extremes[:, 0], later.extremes[:, 0], out=self.extremes[:, 0])
        np.maximum(self.extremes[:, 1], later.extremes[:, 1], out=self.extremes[:, 1])
        self.calibration.merge(later.calibration)
        self.other_than_clicks += later.other_than_clicks
        self.items += later.items
        self.skipped.update(later.skipped)

    @property
    def nbytes(self) -> int:
        """About how many bytes a file needs for it."""
        tables = sum(table.records.nbytes for table in self.tables.values())
        return tables + self.whole.nbytes + self.mass.nbytes + self.logged.nbytes + self.octaves.nbytes
