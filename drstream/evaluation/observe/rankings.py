"""Observations on a log of rankings: a policy gives its probabilities of the shown items, in flat arrays.

`kernels/rankings.py` makes weights and terms of lists from them.
"""

from __future__ import annotations

import numpy as np

from drstream.evaluation.observe.base import Observer
from drstream.evaluation.rankings import ListWeight
from drstream.evaluation.sums import Sums
from drstream.kernels import rankings as kernels
from drstream.log import Events
from drstream.models.positions import Positions
from drstream.policies.rankings import RankedColumn, event_of
from drstream.types import Floats

NONE = np.empty(0)


class RankingObserver(Observer):
    """Asks policies for the probabilities of shown lists, or of their items."""

    def see(self, block: Events, sums: Sums) -> None:
        plan, rows, lists = self.plan, self.program.rows, block.lists
        sizes = np.diff(lists.starts)
        self.row("length", block)[:] = sizes
        sums.items += int(sizes.sum())
        if "joint" in rows:
            self.row("joint", block)[:] = lists.joint
        shown, model = NONE, self.job.models.model
        if isinstance(model, Positions):
            shown = model.of_shown(block, lists.starts)
            sums.calibration.add(shown, lists.reward)
        for j, policy in enumerate(self.job.policies):
            assert isinstance(policy, RankedColumn)
            whole = self.row(f"{j}.pi", block) if f"{j}.pi" in rows else np.empty(len(block))
            if plan.lists is None or not plan.lists.listed:
                whole[:] = policy.of_lists(block)
            else:
                self._see_items(j, policy, block, whole, shown)
            self.weigh_own(j, block, lists.joint)

    def _see_items(self, j: int, policy: RankedColumn, block: Events, whole: Floats, shown: Floats) -> None:
        assert self.plan.lists is not None
        lists = block.lists
        pi = policy.of_items(block, lists.starts)
        pseudo, ratio, product = np.empty(len(block)), np.empty(len(pi)), np.empty(len(pi))
        first_bad = kernels.weigh(lists.starts, pi, lists.propensity, ratio, product, whole, pseudo)
        if first_bad >= 0:
            raise policy.invalid(pi[first_bad], block.where(event_of(lists.starts, first_bad)))
        whole *= lists.joint  # the weight of the list, until here
        model = self.job.models.model
        expected = model.of_policy(j, block, lists.starts) if isinstance(model, Positions) else NONE
        weights = {"positions": ratio, "cascade": product}
        for group in self.job.terms.weighted:
            weight = group.weight
            if not isinstance(weight, ListWeight):
                continue
            if not weight.by_position:
                self.row(f"{j}.{weight.name}", block)[:] = pseudo
                continue
            out = np.empty((len(group.terms), len(block)))
            codes, positions = self.plan.lists.codes(group), self.plan.lists.positions
            v = weights[str(weight.kernel)]
            kernels.fill_terms(codes, positions, lists.starts, v, lists.reward, shown, expected, out)
            for term, found in zip(group.terms, out, strict=True):
                self.row(f"{j}.{weight.name}.{term}", block)[:] = found
