"""What a replay of one policy returns."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from drstream.errors import NotEnoughEventsError, printable
from drstream.findings import Finding
from drstream.intervals import student, t_score
from drstream.replaying.grid import Choice, Shared, Tried, choose, learned_range
from drstream.replaying.needed import FAILURE, events_needed, with_pilot
from drstream.replaying.notes import notes_on
from drstream.replaying.options import AUTO, LaneOptions
from drstream.replaying.outcome import Outcome
from drstream.results import Estimate, ModelSummary, Note, WithModels, as_frame, plain, stamped
from drstream.types import Floats, Ints
from drstream.views import Reported

if TYPE_CHECKING:
    import pandas as pd


MEASURED = 50  # minimum number of simulated steps from which a bias mass ε_t is measured
NOTHING = Estimate(math.nan, math.nan, math.nan, math.nan, n=0)


class Replay(WithModels, Reported):
    """How a policy would have fared in its first T steps, estimated from replicates of that simulation.

    value, low, high    Average reward per step: the mean over replicates, with a t interval (NaN for one replicate).
                        With bias="auto", the interval carries the bias that was measured.
    cumulative          The reward of all T steps, with the interval cumulative_low to cumulative_high.
    pooled              ΣV / ΣC over all replicates. It is less biased than `value` if replicates are short.
    by_step             The mean over t of the reward of step t. It weighs all steps alike, but has more spread.
    complete            Number of complete replicates.
    replicates          pa.Table of replicates: cumulative, average, weight (C), steps, events, first_row, last_row,
                        shard, and bias, the target of the bias mass.
    curve               pa.Table by simulated time t: reward, average up to t, cumulative, c.
    grid                pa.Table: every target of the bias mass that was tried, and whether it is part of the result.
    acceptance          Share of the events that were accepted.
    violations          Share of the events with c π/p > 1, which cause bias.
    bias_mass           ε of section 5.4, averaged over the steps.
    bias_bound          An estimate of Theorem 5.1's bound on |bias of ΣcV| / T.
    events, left_over   Number of events that were replayed, and how many of them are in the incomplete tail.
    pilot_events        Number of events at the start of the log that set the multiplier and do not count.
    r2, calibration     Quality of the reward model on the logged events.
    clamped             Share of the predictions that were out of range.
    notes               Warnings and remarks about the result.
    provenance          What the result was made from: version, log, filter, seed, models, parameters.
    """

    def __init__(
        self,
        options: LaneOptions,
        outcome: Outcome,
        labels: Sequence[Any],
        models: ModelSummary,
        skipped: dict[str, int],
        confidence: float,
        shards: int,
        precision: str,
    ) -> None:
        self.policy, self.method, self.horizon = options.policy, options.method, options.horizon
        self.q, self.c_max, self.seed = options.q, options.c_max, options.seed
        self.bias: float | str | None = options.bias  # target of the bias mass, "auto", or None if c follows q
        self.shards, self.confidence = shards, confidence
        self.precision = precision  # of the products that made the predictions: "float32" or "float64"
        self.adaptive = options.adaptive  # c follows the quantile q, or a target of the bias mass
        self.labels = list(labels)
        self.skipped = skipped
        self.models = models
        self.events = outcome.events
        self.left_over = outcome.left_over
        self.cut_off = outcome.cut_off  # replicates that were begun and are not complete
        self.pilot_events, self.pilot_cut = outcome.pilot_events, outcome.pilot_cut
        self.acceptance = _share(outcome.accepted, outcome.considered)
        self.violations = _share(outcome.violations, outcome.considered)
        self.max_weight = outcome.largest_weight if outcome.events else math.nan
        self.interrupted = outcome.interrupted
        self._options, self._outcome = options, outcome
        self.provenance: dict[str, Any] = {}
        self.doubts: Sequence[Finding] = ()  # that were made before the first event
        self._tried: list[Replay] = [self]
        self._choice: Choice | None = None

    @classmethod
    def of_grid(cls, tried: Sequence[Replay], shared: Shared) -> Replay:
        """Pool simulations with growing targets of the bias mass, as far as their bias is small."""
        first, last = tried[0], tried[-1]
        choice, used = None, list(tried)
        if any(one.complete for one in tried):
            found = [Tried(one._outcome.replicates["average"], one._mass) for one in tried]
            learned = learned_range(Outcome.pool([one._outcome for one in tried]).curve)
            with np.errstate(all="ignore"):  # weights of 1e200 and more give no interval
                choice = choose(found, shared, learned, first.confidence)
            used = used[: choice.lanes]
        options = first._options if choice else last._options
        outcome = Outcome.pool([one._outcome for one in used]) if choice else last._outcome
        shared_by_all = first.labels, first.models, first.skipped, first.confidence, first.shards, first.precision
        run = cls(options, outcome, *shared_by_all)
        run.bias, run.seed = AUTO, first.seed
        run._tried, run._choice = list(tried), choice
        return run

    # Replicates

    @property
    def complete(self) -> int:
        """Number of complete replicates."""
        return len(self._outcome.replicates)

    @property
    def replicates(self) -> pa.Table:
        """One row for each complete replicate."""
        found = self._outcome.replicates
        columns = {name: np.ascontiguousarray(found[name]) for name in found.dtype.names or ()}
        table = pa.table({**columns, "shard": self._outcome.shard, "bias": self._outcome.target})
        return stamped(table, self.provenance)

    @property
    def value(self) -> float:
        """The average reward per step, the mean over replicates."""
        return self.average.value

    @property
    def stderr(self) -> float:
        """Standard error of `value`."""
        return self.average.stderr

    @property
    def low(self) -> float:
        """Lower bound of the interval of `value`."""
        return self.average.low

    @property
    def high(self) -> float:
        """Upper bound of the interval of `value`."""
        return self.average.high

    @property
    def average(self) -> Estimate:
        """The average reward per step."""
        if self._choice is not None:
            found = self._choice
            return Estimate(found.value, found.stderr, found.low, found.high, n=found.n)
        return self._over_replicates(self._outcome.replicates["average"])

    @property
    def total(self) -> Estimate:
        """The reward of all T steps.

        With `bias`, it is T times the average: V itself is too large by the bias mass, because C exceeds T. Otherwise
        it is V, as in Algorithm 1.
        """
        if self.bias is None:
            return self._over_replicates(self._outcome.replicates["cumulative"])
        mean = self.average
        value, stderr, low, high = (self.horizon * x for x in (mean.value, mean.stderr, mean.low, mean.high))
        return Estimate(value, stderr, low, high, mean.n)

    @property
    def cumulative(self) -> float:
        """The reward of all T steps, the mean over replicates."""
        return self.total.value

    @property
    def cumulative_low(self) -> float:
        """Lower bound of the interval of `cumulative`."""
        return self.total.low

    @property
    def cumulative_high(self) -> float:
        """Upper bound of the interval of `cumulative`."""
        return self.total.high

    @property
    def pooled(self) -> Estimate:
        """The ratio of sums ΣV / ΣC, with the delta method's t interval.

        `value` is a mean of ratios, which is biased if C varies much between replicates. The ratio of sums is less so.
        """
        if not self.complete:
            raise self.failure
        found = self._outcome.replicates
        weights = found["steps"].astype(np.float64) if self.method == "rs" else found["weight"]
        ratio = math.fsum(found["cumulative"]) / math.fsum(weights)
        spread = self._over_replicates((found["cumulative"] - ratio * weights) / weights.mean())
        return Estimate(ratio, spread.stderr, ratio + spread.low, ratio + spread.high, self.complete)

    @property
    def by_step(self) -> float:
        """The mean over t of the reward of step t, which is Σ c V_k / Σ c over all events that simulate step t."""
        steps = np.diff(self._ends, prepend=0)
        return float(self.curve["reward"].to_numpy() @ steps / self.horizon)

    def _over_replicates(self, values: Floats) -> Estimate:
        """The mean of one value for each replicate. Those of a grid share events, which widens the interval."""
        if not self.complete:
            raise self.failure
        value, stderr, low, high = student(values, self.confidence)
        wider = self._widening
        return Estimate(
            value, stderr * wider, value + (low - value) * wider, value + (high - value) * wider, self.complete
        )

    @property
    def _widening(self) -> float:
        """How much wider than for independent replicates intervals are, because replicates of a grid share events."""
        if self._choice is None or self.complete < 2:
            return 1.0
        _, alone, *_ = student(self._outcome.replicates["average"], self.confidence)
        return max(self._choice.stderr / alone, 1.0) if alone > 0 else 1.0

    @property
    def shift(self) -> float:
        """The measured bias of `value`, with the opposite sign. It extends the interval. 0 unless bias="auto"."""
        if self._choice is None or math.isnan(self._choice.slope):
            return 0.0
        return -self._choice.slope * self._choice.mass

    @property
    def grid(self) -> pa.Table:
        """Every target of the bias mass that was tried, with its simulation. Those in the result are marked."""
        rows = []
        for i, one in enumerate(self._tried):
            known = bool(one.complete)
            mean = one.average if known else NOTHING
            rows.append(
                {
                    "bias": math.nan if one.bias is None else one.bias,
                    "seed": one.seed,
                    "c": one.multiplier if known else math.nan,
                    "bias_mass": one.bias_mass if known else math.nan,
                    "value": mean.value,
                    "stderr": mean.stderr,
                    "low": mean.low,
                    "high": mean.high,
                    "replicates": one.complete,
                    "acceptance": one.acceptance,
                    "pilot_events": one.pilot_events,
                    "pooled": self._choice is None or i < self._choice.lanes,
                }
            )
        return stamped(pa.Table.from_pylist(rows), self.provenance)

    # Bias

    @property
    def bias_mass(self) -> float:
        """ε = E[(c w - 1)+] / E[c w]: the share of the policy's probability that was lost in complete replicates."""
        return math.nan if self.method == "dm" else self._mass  # the bias of dm is the model's

    @property
    def _mass(self) -> float:
        curve = self._outcome.curve
        with np.errstate(invalid="ignore"):
            return float(curve["all_mass"].sum() / curve["all_importance"].sum())

    @property
    def multiplier(self) -> float:
        """The mean multiplier c over the steps of complete replicates."""
        steps = np.diff(self._ends, prepend=0)
        return float(self._outcome.curve["mean_c"] @ steps / self.horizon)

    @property
    def bias_bound(self) -> float:
        """An estimate of a bound, per step, on the bias of V that comes from accepting too few of some events.

        It is Theorem 5.1 with the measured bias mass of each step: Σ_t (T - t + 1) ε_t / (1 - ε_t), divided by T. If
        all steps have the same ε, this is (T + 1)/2 ε / (1 - ε). The bound is multiplied by the range of the rewards
        and 0, which is 1 in the paper. The theorem needs the largest ε of all histories. A mean of measured ones is
        an estimate, and tends to be too small.
        """
        if self.method == "dm" or not self.complete:
            return math.nan
        pooled = -(-MEASURED // self.complete)  # points of the curve for an ε_t, to have MEASURED simulated steps
        groups = np.arange(len(self._ends)) // pooled
        curve = self._outcome.curve
        lost, importance = (np.bincount(groups, curve[name])[groups] for name in ("all_mass", "all_importance"))
        with np.errstate(all="ignore"):
            mass = np.where(lost > 0, lost / importance, 0.0)
            odds = np.where(mass < 1, mass / (1 - mass), np.inf)
        ends = self._ends
        starts = np.concatenate([[0], ends[:-1]])
        remaining = (ends - starts) * (2 * self.horizon - starts - ends + 1) / 2  # Σ (T - t + 1) over a bin's steps
        with np.errstate(invalid="ignore"):
            total = float(np.where(odds > 0, remaining * odds, 0.0).sum())
        return total / self.horizon * self._reward_range

    @property
    def _reward_range(self) -> float:
        low, high = self._outcome.rewards
        return max(high, 0.0) - min(low, 0.0)

    # Curve

    @property
    def _ends(self) -> Ints:
        """The last step of each point of the curve."""
        steps = self._options.bin_steps
        return np.minimum(np.arange(1, self._options.bins + 1) * steps, self.horizon)

    @property
    def curve(self) -> pa.Table:
        """The learning curve by simulated time t. If T is above 10,000, a point stands for more than one step.

        `reward` is that of step t, and `average` is the mean reward up to t (the last is `value`); both have an
        interval. `cumulative` is the sum of rewards up to t (the last is that of the replay): with `bias`, t times
        `average`. The columns `c`, `c_least` and `c_largest` are the mean, the smallest and the largest multiplier.
        """
        if not self.complete:
            raise self.failure
        curve, n = self._outcome.curve, self.complete
        weight = curve["mean_weight"]
        reward = curve["mean_reward"] / weight  # Σ c V_k over Σ c, of all events that simulate step t
        squares = curve["m2_reward"] - 2 * reward * curve["co_moment"] + reward**2 * curve["m2_weight"]
        wider = self._widening
        half = wider * _half_widths(np.maximum(squares, 0.0), n, self.confidence) / weight
        average, width = curve["mean_average"].copy(), wider * _half_widths(curve["m2_average"], n, self.confidence)
        columns = {"t": self._ends, "reward": reward, "low": reward - half, "high": reward + half}
        columns |= {"average": average, "average_low": average - width, "average_high": average + width}
        columns |= {
            "cumulative": curve["mean_reward"].cumsum() if self.bias is None else self._ends * average,
            "c": curve["mean_c"].copy(),
            "c_least": curve["least_c"].copy(),
            "c_largest": curve["largest_c"].copy(),
        }
        return stamped(pa.table(columns), self.provenance)

    # Failure

    @property
    def how_far(self) -> str:
        outcome = self._outcome
        if not outcome.events:
            return "no event had been replayed"
        steps = f"{outcome.steps_left_over:,} steps" + (" at most" if self.shards > 1 else "")
        return f"{outcome.events:,} events simulated {steps}, {self.acceptance:.3%} of the events were accepted"

    @property
    def failure(self) -> NotEnoughEventsError:
        """The error that no replicate is complete. It says how many events are needed by the bound of section 5.3."""
        outcome = self._outcome
        if outcome.events == 0 and outcome.pilot_events == 0:
            return NotEnoughEventsError("the log is empty: there is no event to replay")
        if outcome.events == 0:
            return NotEnoughEventsError(f"no event is left after the pilot, which took {outcome.pilot_events:,}")
        rate = max(outcome.accepted, 1) / outcome.considered
        pilot = 0 if self.bias is None else math.ceil(self.horizon / rate)
        one, ten = (with_pilot(events_needed(m, self.horizon, rate), pilot) for m in (1, 10))
        each = f" of each of {self.shards} shards" if self.shards > 1 else ""
        more = "more than" if not outcome.accepted else "about"
        remedy = "dr-ns" if not self.adaptive else "a larger q" if self.bias is None else "a larger bias"
        if self.bias == AUTO:
            remedy = f"a larger bias than {self._options.bias:g}, the largest that was tried"
        error = NotEnoughEventsError(
            f"no replicate of {self.horizon:,} steps is complete: {self.how_far} (policy {self.policy!r}, "
            f"{self.method}, {self.level}). It takes {more} {one:,} events{each} for one replicate and {ten:,} for "
            f"ten, with probability {1 - FAILURE:.0%} if events are accepted at this rate. Give more events, "
            f"{'fewer shards, ' if each else ''}a shorter horizon, or {remedy}"
            + ("" if outcome.accepted else ". Or does the policy never take an action of the log?")
        )
        error.steps, error.acceptance = outcome.steps_left_over, self.acceptance
        error.events_for_one, error.events_for_ten = one, ten
        return error

    # Output

    @property
    def notes(self) -> list[Note]:
        """Warnings and remarks about the result. Each note has a kind."""
        return notes_on(self)

    @property
    def level(self) -> str:
        """What the multiplier c follows, in words."""
        value = self.level_value
        most = f", c <= {self.c_max:.4g}" if self.level_name == "q" else ""
        return f"{self.level_name} = {value if isinstance(value, str) else f'{value:.4g}'}{most}"

    @property
    def level_name(self) -> str:
        """The parameter that the multiplier follows: "bias", "q", or "c" if it is constant."""
        return "c" if not self.adaptive else "q" if self.bias is None else "bias"

    @property
    def level_value(self) -> float | str:
        """The value of that parameter. With c, the multiplier itself."""
        return self.c_max if not self.adaptive else self.q if self.bias is None else self.bias

    def row(self) -> dict[str, Any]:
        """The result as one row. Values that need a complete replicate are NaN if there is none."""
        known = bool(self.complete)
        average = self.average if known else NOTHING
        return {
            "policy": self.policy,
            "method": self.method,
            "level": self.level,
            "bias": math.nan if self.bias == AUTO else self._largest_target,
            "largest_target": self._largest_target,
            "q": self.q if self.adaptive else math.nan,
            "seed": self.seed,
            "horizon": self.horizon,
            "c": self.multiplier if known else math.nan,
            "value": average.value,
            "stderr": average.stderr,
            "low": average.low,
            "high": average.high,
            "pooled": self.pooled.value if known else math.nan,
            "cumulative": self.cumulative if known else math.nan,
            "cumulative_low": self.cumulative_low if known else math.nan,
            "cumulative_high": self.cumulative_high if known else math.nan,
            "replicates": self.complete,
            "events": self.events,
            "left_over": self.left_over,
            "pilot_events": self.pilot_events,
            "acceptance": self.acceptance,
            "violations": self.violations,
            "bias_mass": self.bias_mass,
            "bias_bound": self.bias_bound,
            "max_weight": self.max_weight,
            "c_max": self.c_max,
            "shards": self.shards,
            "confidence": self.confidence,
            "precision": self.precision,
            "interrupted": self.interrupted,
        }

    @property
    def _largest_target(self) -> float:
        """The largest target of the bias mass in the result; NaN if c follows something else."""
        if self._choice is None:
            return math.nan if self._options.bias is None else self._options.bias
        return float(self._tried[self._choice.lanes - 1]._options.bias or math.nan)

    def to_arrow(self) -> pa.Table:
        """The result as a table of one row. The tables `replicates` and `curve` are attributes."""
        return stamped(pa.Table.from_pylist([self.row()]), self.provenance)

    def to_pandas(self) -> pd.DataFrame:
        """The table of `to_arrow` as a pandas frame."""
        return as_frame(self.to_arrow())

    def to_dict(self) -> dict[str, Any]:
        """The result as a dictionary, as in JSON."""
        return plain(
            {
                **self.row(),
                "provenance": self.provenance,
                "grid": self.grid.to_pylist(),
                "actions": self.labels,
                "skipped": self.skipped,
                **self.about_models(),
                "notes": self.notes,
            }
        )

    def to_json(self, indent: int | None = 2) -> str:
        """The result as JSON. Undefined values are null."""
        return json.dumps(self.to_dict(), indent=indent)

    @property
    def targets(self) -> str:
        """The targets of the bias mass in the result, in words; empty if c follows something else."""
        used = self._tried if self._choice is None else self._tried[: self._choice.lanes]
        return ", ".join(f"{one._options.bias:g}" for one in used if one._options.bias is not None)

    @property
    def about_bias(self) -> str:
        mass, found = f"bias mass {self.bias_mass:.3g}", self._choice
        if found is not None and not math.isnan(found.slope):
            return f"{mass}, measured bias {found.slope * found.mass:+.2g} ± {found.slope_error * found.mass:.2g}"
        if self.bias_bound <= self._reward_range:
            return f"{mass}, estimated bound on |bias of ΣcV|: {self.bias_bound:.4g} T"
        return f"{mass}, too large for a bound on the bias"

    @printable
    def __repr__(self) -> str:
        head = f"Replay of {self.policy!r} by {self.method}, T = {self.horizon:,} steps"
        mass = f"; {self.about_bias}" if self.complete and self.method != "dm" else ""
        lines = [f"{head}, {self.level}, seed {self.seed}"]
        if self.complete:
            how = f"{self.complete:,}, each of {self.horizon:,} steps"
            if self._choice is not None:
                how += f", with targets {self.targets} of the bias mass"
            lines += [
                f"  reward per step    {_with_interval(self.value, self.low, self.high)}",
                f"  cumulative reward  {_with_interval(self.cumulative, self.cumulative_low, self.cumulative_high)}",
                f"  replicates         {how}",
            ]
        lines += [
            f"  events             {self.events:,}, {self.acceptance:.3%} accepted, {self.left_over:,} left over",
            f"  violations         {self.violations:.3%} of events with c w > 1{mass}",
        ]
        if self.bias is not None:
            lines.append(f"  pilot              {self.pilot_events:,} events, which set c and do not count")
        if how := self.how():
            lines.append(f"  models             {how}")
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])


def _share(part: int, whole: int) -> float:
    return part / whole if whole else math.nan


def _half_widths(squares: Floats, n: int, confidence: float) -> Floats:
    """Half widths of t intervals for means over n replicates, from sums of squared deviations."""
    if n < 2:
        return np.full(len(squares), math.nan)
    return t_score(confidence, n - 1) * np.sqrt(squares / (n - 1) / n)


def _with_interval(value: float, low: float, high: float) -> str:
    return f"{value:.6g} [{low:.6g}, {high:.6g}]" if low == low else f"{value:.6g}"
