"""The terms of a block of events: policies and model fill their buffers, kernels make the terms of every policy."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from drstream.buffers import bad_prediction, refuse
from drstream.kernels import terms as kernels
from drstream.log import Block
from drstream.models.calibration import Calibration
from drstream.moments import State
from drstream.types import Floats, Ints

if TYPE_CHECKING:
    from drstream.evaluation.plan import Plan


def term_names(*, model: bool, sndr: bool, capped: bool) -> tuple[str, ...]:
    """A policy's terms in the order of their rows; `estimators` says what they are."""
    names = ["w", "u", "y"]
    names += ["b", "dr"] if model else []
    names += ["z"] if sndr else []
    names += ["wc", "yc"] if capped else []
    names += ["drc"] if capped and model else []
    return tuple(names)


@dataclass
class Tally:
    """The state of a pass over some events."""

    moments: State
    largest: Floats  # weight and capped weight of each policy
    capped: Ints  # weights that the caps changed, of each policy
    calibration: Calibration  # of r̂
    skipped: Counter[str] = field(default_factory=Counter)  # bad rows by reason


class PolicyRows(NamedTuple):
    """Where a policy's terms go: views of the matrix of all terms."""

    weighted: Floats  # w, u, y
    robust: Floats  # b, dr
    z: Floats | None
    capped: Floats | None  # wc, yc
    capped_dr: Floats | None


class Room:
    """Buffers of one worker, used again for each block, and their views for blocks of n events."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        rows = plan.block_rows
        self._terms = np.empty(plan.layout.variables * rows)
        self._pi, self._rhat = np.empty((2, plan.n_actions * rows))
        self._vectors = np.empty((6, rows))
        self.n = -1

    def fit(self, n: int) -> Room:
        """Views for n events; they change with the last block of a batch only."""
        if n != self.n:
            self.n = n
            self.terms = self._terms[: self.plan.layout.variables * n].reshape(-1, n)
            self.pi = self._pi[: self.plan.n_actions * n].reshape(-1, n)
            self.rhat = self._rhat[: self.plan.n_actions * n].reshape(-1, n)
            self.logged_pi, self.logged_rhat, self.sums, self.zeros, self.ones, self.p = self._vectors[:, :n]
            self.zeros[:] = 0
            self.ones[:] = 1
            self.policies = [self._rows(j) for j in range(len(self.plan.policies))]
        return self

    def _rows(self, policy: int) -> PolicyRows:
        names = self.plan.terms
        first = 1 + policy * len(names)

        def one(name: str) -> Floats | None:
            return self.terms[first + names.index(name)] if name in names else None

        capped = first + names.index("wc") if "wc" in names else 0
        return PolicyRows(
            self.terms[first : first + 3],
            self.terms[first + 3 : first + 5],
            one("z"),
            self.terms[capped : capped + 2] if capped else None,
            one("drc"),
        )


def block_terms(plan: Plan, block: Block, room: Room, tally: Tally) -> Floats:
    """The terms (variables, n) of a block's events: the reward, then those of each policy."""
    room.fit(len(block))
    action, r = block.action, block.reward
    p = plan.used.propensities(block, room.pi, room.p) if plan.weighs else room.ones
    if plan.used.logger is not None:
        tally.calibration.least_propensity = min(tally.calibration.least_propensity, float(p.min()))
    room.terms[0] = r
    if plan.model is not None:
        plan.model.fill(block, room.rhat)
        plan.used.hold(room.rhat, tally.calibration)
        _check_predictions(kernels.logged_prediction(room.rhat, action, room.logged_rhat), room.rhat, block)
        tally.calibration.add(room.logged_rhat, r)
    for j, policy in enumerate(plan.policies):
        rows = room.policies[j]
        if policy.only_logged:
            logged_pi = policy.logged(block)
        else:
            logged_pi = room.logged_pi
            policy.fill(block, room.pi)
            first_bad = kernels.first_improper(room.pi, room.sums)
            refuse(first_bad, f"policy {policy.name!r}", room.pi, room.sums, block)
            kernels.logged_probability(room.pi, action, logged_pi)
        kernels.weigh(logged_pi, p, r, plan.typical_reward, rows.weighted, tally.largest[j])
        if rows.capped is not None:
            limits = plan.floor, plan.cap
            tally.capped[j] += kernels.weigh_capped(logged_pi, p, r, *limits, rows.capped, tally.largest[j, 1:])
        if plan.model is not None:
            kernels.robust(room.pi, room.rhat, rows.weighted[0], r, room.logged_rhat, rows.robust)
        if rows.z is not None:
            kernels.corrected(room.zeros, rows.weighted[0], r, room.logged_rhat, rows.z)
        if rows.capped_dr is not None and rows.capped is not None:
            kernels.corrected(rows.robust[0], rows.capped[0], r, room.logged_rhat, rows.capped_dr)
    return room.terms


def _check_predictions(first_bad: int, rhat: Floats, block: Block) -> None:
    if first_bad >= 0:
        action, event = divmod(first_bad, len(block))
        raise bad_prediction(rhat[action, event], action, block.row(event))
