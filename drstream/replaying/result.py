"""What a replay of one policy returns."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from drstream.errors import NotEnoughEventsError
from drstream.intervals import student, t_score
from drstream.replaying.options import LaneOptions
from drstream.replaying.outcome import Outcome
from drstream.results import Estimate, ModelSummary, Note, WithModels, plain
from drstream.types import Floats, Ints

if TYPE_CHECKING:
    import pandas as pd


MEASURED = 50  # minimum number of simulated steps from which a bias mass ε_t is measured
INFLATION = 1.1  # of C over T, which is 1 / (1 - ε) on average; above this a note is made
FAILURE = 0.05  # δ of section 5.3's bound on the number of events


class Replay(WithModels):
    """How a policy would have fared in its first T steps, estimated from replicates of that simulation.

    value, low, high    Average reward per step: the mean over replicates, with a t interval (NaN for one replicate).
    cumulative          Mean of the cumulative reward, with the interval cumulative_low to cumulative_high.
    pooled              ΣV / ΣC over all replicates. It is less biased than `value` if replicates are short.
    complete            Number of complete replicates.
    replicates          pa.Table of replicates: cumulative, average, weight (C), steps, events, first_row, last_row,
                        shard.
    curve               pa.Table by simulated time t: reward, average up to t, cumulative, c.
    acceptance          Share of the events that were accepted.
    violations          Share of the events with c π/p > 1, which cause bias.
    bias_mass           ε of section 5.4, averaged over the steps.
    bias_bound          Theorem 5.1's bound on |bias of cumulative| / T.
    events, left_over   Number of events that were read, and how many of them are in the incomplete tail.
    r2, calibration     Quality of the reward model on the logged events.
    clamped             Share of the predictions that were out of range.
    notes               Warnings and remarks about the result.
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
    ) -> None:
        self.policy, self.method, self.horizon = options.policy, options.method, options.horizon
        self.q, self.c_max, self.seed = options.q, options.c_max, options.seed
        self.shards, self.confidence = shards, confidence
        self.adaptive = options.adaptive  # c follows the quantile q
        self.labels = list(labels)
        self.skipped = skipped
        self.models = models
        self.events = outcome.events
        self.left_over = outcome.left_over
        self.acceptance = _share(outcome.accepted, outcome.events)
        self.violations = _share(outcome.violations, outcome.events)
        self.max_weight = outcome.largest_weight if outcome.events else math.nan
        self.interrupted = outcome.interrupted
        self._options, self._outcome = options, outcome

    # Replicates

    @property
    def complete(self) -> int:
        """Number of complete replicates."""
        return len(self._outcome.replicates)

    @property
    def replicates(self) -> pa.Table:
        found = self._outcome.replicates
        columns = {name: np.ascontiguousarray(found[name]) for name in found.dtype.names or ()}
        return pa.table({**columns, "shard": self._outcome.shard})

    @property
    def value(self) -> float:
        return self.average.value

    @property
    def stderr(self) -> float:
        return self.average.stderr

    @property
    def low(self) -> float:
        return self.average.low

    @property
    def high(self) -> float:
        return self.average.high

    @property
    def average(self) -> Estimate:
        """The average reward per step."""
        return self._over_replicates("average")

    @property
    def cumulative(self) -> float:
        return self._over_replicates("cumulative").value

    @property
    def cumulative_low(self) -> float:
        return self._over_replicates("cumulative").low

    @property
    def cumulative_high(self) -> float:
        return self._over_replicates("cumulative").high

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
        residuals = (found["cumulative"] - ratio * weights) / weights.mean()
        _, stderr, low, high = student(residuals, self.confidence)
        return Estimate(ratio, stderr, ratio + low, ratio + high, self.complete)

    def _over_replicates(self, column: str) -> Estimate:
        if not self.complete:
            raise self.failure
        return Estimate(*student(self._outcome.replicates[column], self.confidence), n=self.complete)

    # Bias

    @property
    def bias_mass(self) -> float:
        """ε = E[(c w - 1)+] / c: the mean over the simulated steps of complete replicates, weighted by their Σ c."""
        if self.method == "dm":
            return math.nan  # its bias is the model's
        with np.errstate(invalid="ignore"):
            return float(self._outcome.curve["all_mass"].sum() / self._weights.sum())

    @property
    def bias_bound(self) -> float:
        """A bound, per step, on the bias of the cumulative reward that comes from accepting too few of some events.

        It is Theorem 5.1 with the bias mass of each step in place of the largest one: Σ_t (T - t + 1) ε_t / (1 - ε_t),
        divided by T. If all steps have the same ε, this is (T + 1)/2 ε / (1 - ε). The bound is multiplied by the range
        of the rewards and 0, which is 1 in the paper.
        """
        if self.method == "dm" or not self.complete:
            return math.nan
        pooled = -(-MEASURED // self.complete)  # points of the curve for an ε_t, to have MEASURED simulated steps
        groups = np.arange(len(self._ends)) // pooled
        measured, weights = (
            np.bincount(groups, values)[groups] for values in (self._outcome.curve["all_mass"], self._weights)
        )
        with np.errstate(all="ignore"):
            mass = np.where(measured > 0, measured / weights, 0.0)
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

    @property
    def _weights(self) -> Floats:
        """Σ c of each point of the curve, over all replicates; for rejection sampling, the number of steps."""
        return self._outcome.curve["mean_weight"] * self.complete

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
        interval. `cumulative` is the sum of rewards up to t (the last is that of the replay). The columns `c`,
        `c_least` and `c_largest` are the mean, the smallest and the largest multiplier.
        """
        if not self.complete:
            raise self.failure
        curve, n = self._outcome.curve, self.complete
        weight = curve["mean_weight"]
        reward = curve["mean_reward"] / weight  # Σ c V_k over Σ c, of all events that simulate step t
        squares = curve["m2_reward"] - 2 * reward * curve["co_moment"] + reward**2 * curve["m2_weight"]
        half = _half_widths(np.maximum(squares, 0.0), n, self.confidence) / weight
        average, width = curve["mean_average"].copy(), _half_widths(curve["m2_average"], n, self.confidence)
        columns = {"t": self._ends, "reward": reward, "low": reward - half, "high": reward + half}
        columns |= {"average": average, "average_low": average - width, "average_high": average + width}
        columns |= {
            "cumulative": curve["mean_reward"].cumsum(),
            "c": curve["mean_c"].copy(),
            "c_least": curve["least_c"].copy(),
            "c_largest": curve["largest_c"].copy(),
        }
        return pa.table(columns)

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
        if outcome.events == 0:
            return NotEnoughEventsError("the log is empty: there is no event to replay")
        rate = max(outcome.accepted, 1) / outcome.events
        one, ten = (math.ceil((m * self.horizon + math.log(math.e / FAILURE)) / rate) for m in (1, 10))
        each = f" of each of {self.shards} shards" if self.shards > 1 else ""
        more = "more than" if not outcome.accepted else "about"
        adaptive = self.adaptive
        how = f"{self.method}, q = {self.q:g}" if adaptive else f"{self.method}, c = {self.c_max:.3g}"
        error = NotEnoughEventsError(
            f"no replicate of {self.horizon:,} steps is complete: {self.how_far} (policy {self.policy!r}, {how}). "
            f"It takes {more} {one:,} events{each} for one replicate and {ten:,} for ten (section 5.3, with "
            f"probability {1 - FAILURE:.0%}). Give more events, {'fewer shards, ' if each else ''}a shorter horizon, "
            f"or {'a larger q' if adaptive else 'dr-ns'}"
        )
        error.steps, error.acceptance = outcome.steps_left_over, self.acceptance
        error.events_for_one, error.events_for_ten = one, ten
        return error

    # Output

    @property
    def notes(self) -> list[Note]:
        """Warnings and remarks about the result. Each note has a kind."""
        found = [] if self.complete else [Note(str(self.failure), "incomplete")]
        if self.interrupted:
            text = f"interrupted after {self.events:,} events: only complete replicates are counted"
            found.append(Note(text, "interrupted"))
        if self.complete == 1:
            found.append(Note("one replicate only: there is no interval", "one replicate"))
        if self.complete > 1 and self.stderr == 0:
            text = "all replicates have the same value: an interval without width does not mean certainty"
            found.append(Note(text, "no width"))
        found += self._note_on_inflation()
        low, high = self._outcome.rewards
        if self._options.unit_rewards and self.events and not 0 <= low <= high <= 1:
            text = f"the policy takes rewards to lie in [0, 1]; here they lie in [{low:g}, {high:g}]"
            found.append(Note(text, "reward range"))
        if self._outcome.sketch_from is not None:
            text = (
                f"from row {self._outcome.sketch_from:,} on, c is a sketch's quantile, up to 0.8 % too small: "
                'tracker="exact" keeps all values'
            )
            found.append(Note(text, "sketch"))
        if self.skipped:
            reasons = ", ".join(f"{n:,} ({why})" for why, n in self.skipped.items())
            found.append(Note(f"rows skipped: {reasons}", "skipped"))
        return found

    def _note_on_inflation(self) -> list[Note]:
        if not self.complete or self.method == "rs":
            return []
        inflation = math.fsum(self._outcome.replicates["weight"]) / self.complete / self.horizon
        if inflation <= INFLATION:
            return []
        text = (
            f"c is too large for this policy: replicates weigh {inflation:.3g} T instead of T, so `cumulative` is "
            "about as much too large, and `value` leans on the first steps: use a smaller q or c_max, or dr-ns-wc"
        )
        return [Note(text, "inflation")]

    def row(self) -> dict[str, Any]:
        """The result as one row. Values that need a complete replicate are NaN if there is none."""
        known = bool(self.complete)
        average = self.average if known else Estimate(math.nan, math.nan, math.nan, math.nan, n=0)
        return {
            "policy": self.policy,
            "method": self.method,
            "q": self.q if self.adaptive else math.nan,
            "seed": self.seed,
            "horizon": self.horizon,
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
            "acceptance": self.acceptance,
            "violations": self.violations,
            "bias_mass": self.bias_mass,
            "bias_bound": self.bias_bound,
            "max_weight": self.max_weight,
            "c_max": self.c_max,
            "shards": self.shards,
            "confidence": self.confidence,
            "interrupted": self.interrupted,
        }

    def to_arrow(self) -> pa.Table:
        """The result as a table of one row. The tables `replicates` and `curve` are attributes."""
        return pa.Table.from_pylist([self.row()])

    def to_pandas(self) -> pd.DataFrame:
        return self.to_arrow().to_pandas()

    def to_dict(self) -> dict[str, Any]:
        return plain(
            {**self.row(), "actions": self.labels, "skipped": self.skipped, **self.about_models(), "notes": self.notes}
        )

    def to_json(self, indent: int | None = 2) -> str:
        """The result as JSON. Undefined values are null."""
        return json.dumps(self.to_dict(), indent=indent)

    def __repr__(self) -> str:
        head = f"Replay of {self.policy!r} by {self.method}, T = {self.horizon:,} steps"
        mass = f"; bias mass {self.bias_mass:.3g}, "
        if self.bias_bound <= self._reward_range:
            mass += f"|bias of the sum| <= {self.bias_bound:.4g} T"
        else:
            mass += "too large for a bound on the bias"
        mass = mass if self.complete and self.method != "dm" else ""
        level = f"q = {self.q:g}, c <= {self.c_max:.4g}" if self.adaptive else f"c = {self.c_max:.4g}"
        lines = [f"{head}, {level}, seed {self.seed}"]
        if self.complete:
            lines += [
                f"  reward per step    {_with_interval(self.value, self.low, self.high)}",
                f"  cumulative reward  {_with_interval(self.cumulative, self.cumulative_low, self.cumulative_high)}",
                f"  replicates         {self.complete:,}, each of {self.horizon:,} steps",
            ]
        lines += [
            f"  events             {self.events:,}, {self.acceptance:.3%} accepted, {self.left_over:,} left over",
            f"  violations         {self.violations:.3%} of events with c w > 1{mass}",
        ]
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
