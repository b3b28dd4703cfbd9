"""The state of a pass: all that it has summed up over some events, for one reward. States of parts merge, in order."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from drstream.evaluation.form import Form
from drstream.evaluation.totals import Lengths, Segments, Totals
from drstream.kernels import terms as kernels
from drstream.log import Block
from drstream.models.calibration import Calibration
from drstream.types import Floats, Ints


@dataclass
class Outside:
    """How many numbers are outside of a bound, and the first of them."""

    count: int
    first: float
    where: str

    def merge(self, later: Outside) -> None:
        self.count += later.count


@dataclass
class Tally:
    """The state of a pass over some events."""

    totals: Totals
    reduced: Ints  # number of weights smaller than ν / p, by policy and kind of weight
    mass: Floats  # sum of ν(a|x) over events, by policy and action; empty if no policy tells it
    even: Floats  # the same of the policy that takes all eligible actions equally often; empty without eligible sets
    logged: Ints  # number of events, by logged action
    calibration: Calibration  # of r̂
    other_than_clicks: int = 0  # number of rewards that are neither 0 nor 1
    outside: dict[tuple[str, str | None], Outside] = field(default_factory=dict)  # by what, and policy
    skipped: Counter[str] = field(default_factory=Counter)  # bad rows by reason
    segments: Segments | None = None
    loggers: Segments | None = None  # by logger
    lengths: Lengths | None = None  # of the lists of rankings

    @property
    def nbytes(self) -> int:
        """About how many bytes a file needs for it."""
        divided = [totals for found in (self.segments, self.loggers) if found for totals in found.totals.values()]
        arrays = self.reduced.nbytes + self.mass.nbytes + self.even.nbytes + self.logged.nbytes
        return arrays + sum(totals.nbytes for totals in [self.totals, *divided])

    def note_outside(
        self,
        what: str,
        policy: str | None,
        values: Floats,
        low: float,
        high: float,
        block: Block,
        starts: Ints | None = None,
    ) -> None:
        """Count the values outside of [low, high]. They are by event, or by action and event.

        starts  Where the values of each event begin, if they are of its candidates.
        """
        first = np.zeros(1, np.int64)
        count = int(kernels.count_outside(values.reshape(-1), low, high, first))
        if count:
            place = int(first[0])
            event = place % len(block) if starts is None else int(np.searchsorted(starts, place, side="right")) - 1
            where = block.where(event)
            found = Outside(count, float(values.reshape(-1)[first[0]]), where)
            if (what, policy) in self.outside:
                self.outside[what, policy].merge(found)
            else:
                self.outside[what, policy] = found

    def merge(self, later: Tally) -> None:
        self.totals.merge(later.totals)
        mine, others = (self.reduced, self.mass, self.logged), (later.reduced, later.mass, later.logged)
        kernels.merge_counts(*mine, *others)
        if len(self.even):
            self.even += later.even
        self.calibration.merge(later.calibration)
        self.other_than_clicks += later.other_than_clicks
        if later.skipped:
            self.skipped.update(later.skipped)
        self.lengths = self.lengths if later.lengths is None else later.lengths.merged(self.lengths)
        for key, found in later.outside.items():
            if key in self.outside:
                self.outside[key].merge(found)
            else:
                self.outside[key] = Outside(found.count, found.first, found.where)
        if self.segments is not None and later.segments is not None:
            self.segments.merge(later.segments)
        if self.loggers is not None and later.loggers is not None:
            self.loggers.merge(later.loggers)


def new_tally(form: Form, typical_reward: float) -> Tally:
    """A state of no events."""
    return Tally(
        totals=form.shape.create(),
        reduced=np.zeros((form.policies, len(form.weights)), np.int64),
        mass=np.zeros((form.policies, form.actions)),
        even=np.zeros(form.actions if form.with_sets else 0),
        logged=np.zeros(form.actions, np.int64),
        calibration=Calibration(typical_reward),
        segments=form.segments(),
        loggers=form.loggers(),
    )
