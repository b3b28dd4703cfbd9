"""What all observers share: memory for rows, those that the log itself gives, and the call that sums up."""

from __future__ import annotations

import numpy as np

from drstream.buffers import invalid_probabilities
from drstream.evaluation.bounds import refuse_outside
from drstream.evaluation.groupings import Grouped, index_of
from drstream.evaluation.plan import Plan
from drstream.evaluation.sums import Sums
from drstream.kernels import account as kernels
from drstream.kernels.moments import TILE
from drstream.kernels.observe import note_events
from drstream.log import Events
from drstream.log.spec import ROWS
from drstream.running.execution import raise_if_stopped
from drstream.types import Floats

NO_ACTIONS = np.empty(0, np.int32)
NO_TABLES = np.empty((0, 2), np.int64)


class Observer:
    """Observes batches, and adds them to sums."""

    def __init__(self, plan: Plan, rows: int = ROWS) -> None:
        self.plan, self.job, self.program = plan, plan.job, plan.program
        self._values = np.empty(len(self.program.rows) * rows)
        self._tile = np.empty((self.program.height, TILE))
        self._shift = np.empty(2 * plan.form.variables)

    def in_order(self, batch: Events) -> Events:
        """The events of a batch in the order in which they are observed."""
        by_fold = self.plan.reader.folds is not None and not self.job.candidates  # then each block has one model
        return batch.by_fold() if by_fold else batch

    def add(self, batch: Events, groups: dict[str, Grouped], sums: Sums) -> None:
        """Add the events of a batch."""
        values = self.observe(batch, sums)
        actions = NO_ACTIONS if self.job.candidates or self.job.ranking else batch.action
        note_events(batch.reward, actions, sums.other_than_clicks, sums.logged)
        if self.job.models.logger is not None:
            least = float(values[self.program.rows["p"]].min())
            sums.calibration.least_propensity = min(sums.calibration.least_propensity, least)
        if "rhat" in self.program.rows:
            unpredicted = self.job.models.unpredicted(batch)
            rhat = values[self.program.rows["rhat"]]
            sums.calibration.add(rhat, batch.reward, unpredicted)
        refuse_outside(self.plan, values, batch)
        self._account(values, groups, sums)

    def observe(self, batch: Events, sums: Sums) -> Floats:
        """Return the observations (rows, n) of a batch."""
        self.begin(batch)
        for block in batch.blocks(self.plan.block_rows, self.plan.block_candidates):
            raise_if_stopped()
            self.see(block, sums)
        return self.values

    def variables(self, batch: Events) -> Floats:
        """Return the variables (variables, n) of a batch, and leave its observations in `values`."""
        values = self.observe(batch, self.plan.create())
        out = np.empty((self.plan.form.variables, len(batch)))
        more = kernels.More(NO_TABLES, np.empty((0, kernels.BINS)))
        kernels.compute(self.program.code, values, more, self._tile, out)
        return out

    def begin(self, batch: Events) -> None:
        """Make rows for a batch, and fill in what the log itself gives."""
        rows = self.program.rows
        self.values = self._values[: len(rows) * len(batch)].reshape(len(rows), -1)
        self.values[rows["reward"]] = batch.reward
        self.values[rows["p"]] = batch.propensity if len(batch.propensity) else 1.0
        if "scale" in rows:
            self.values[rows["scale"]] = batch.row_weight
        if "mixture" in rows:
            self.values[rows["mixture"]] = batch.mixture
        overlaps = self.job.overlaps
        for name, row in rows.items():
            j, _, power = name.partition(".share.")
            if power and overlaps is not None:
                self.values[row] = overlaps.shares(int(j), batch.numbers, float(power))

    def see(self, block: Events, sums: Sums) -> None:
        """Fill in the observations of a block of the batch."""
        raise NotImplementedError

    def row(self, name: str, block: Events) -> Floats:
        """The numbers of a row for the events of a block."""
        found: Floats = self.values[self.program.rows[name], block.start : block.stop]
        return found

    def weigh_own(self, j: int, block: Events, p: Floats) -> None:
        """Have the user's own weights filled in, for policy j."""
        for group in self.job.terms.weighted:
            if callable(group.weight.kernel):
                pi = self.row(f"{j}.pi", block)
                group.weight.kernel(pi, p, *group.parameters, self.row(f"{j}.{group.weight.name}", block))

    def _account(self, values: Floats, groups: dict[str, Grouped], sums: Sums) -> None:
        form = self.plan.form
        index = index_of(form, groups, sums)
        tables: tuple[list[tuple[int, int]], list[tuple[int, int]]] = [], []
        for grouping in form.groupings:
            table = sums.tables[grouping.name]
            tables[grouping.sums].append((table.memory.ctypes.data, table.width))
        moments, of_sums = (np.array(found, np.int64).reshape(-1, 2) for found in tables)
        more = kernels.More(moments, sums.octaves) if self.program.rare or len(moments) or len(sums.octaves) else None
        into = kernels.Into(sums.whole, of_sums, sums.extremes)
        kernels.account(self.program.code, values, index, into, more, self._tile, self._shift)


def refuse(who: str, pi: Floats, block: Events, event: int) -> None:
    """Raise an error about the probabilities (K, n) of an event."""
    raise invalid_probabilities(who, pi[:, event], block.where(event), block.eligible, event)
