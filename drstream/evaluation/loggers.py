"""A log of several loggers: the weights of each policy on the events of each logger, and the findings that follow.

Each logger's own events estimate the same value of a policy, if that logger covers the policy. So on each, the mean
weight must be 1, and the estimates must agree, up to chance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from drstream.evaluation.checks import FAR_LEVEL, HARMLESS, VERY_FEW, VERY_FEW_CARRIERS, VERY_WRONG, PolicyFacts
from drstream.evaluation.estimators import ALL, IMPORTANCE
from drstream.evaluation.statistics import Statistics
from drstream.evaluation.tables import array_of
from drstream.findings import LOOK, OK, STOP, Finding
from drstream.intervals.statistic import Statistic
from drstream.intervals.tails import carried_by

IPS = ALL["ips"]
OVERLAP, WEIGHTS, AGREE = "logger overlap", "logger weights", "loggers agree"


@dataclass(frozen=True)
class OfLogger:
    """What the events of one logger say about one policy. Unknown numbers are NaN."""

    policy: str
    logger: Any
    rows: int
    share: float  # of the rows of all loggers
    mean_reward: float
    mean_weight: float  # it should be 1
    mean_weight_stderr: float
    ess: float
    max_weight: float
    value: float  # the IPS estimate from these events alone
    stderr: float
    carriers: float = math.nan  # how many events carry the estimate

    @property
    def covers(self) -> bool:
        """Whether some of the events have weight; true if it is unknown."""
        return self.max_weight != 0

    @property
    def wrong(self) -> bool:
        """Whether the mean weight is further from 1 than chance allows."""
        facts = PolicyFacts(self.policy, self.rows, self.mean_weight, self.mean_weight_stderr)
        return self.covers and abs(facts.z) > facts.far and abs(self.mean_weight - 1) >= HARMLESS

    @property
    def telling(self) -> bool:
        """Whether the estimate and its standard error can be compared with others."""
        enough = self.ess >= VERY_FEW and self.carriers >= VERY_FEW_CARRIERS
        return enough and self.stderr > 0 and not self.wrong


def rows_of(
    loggers: Mapping[Any, Statistics], policies: Sequence[str], stderr: Callable[[Statistic], float]
) -> list[OfLogger]:
    """One row for each policy and logger."""
    n = sum(sums.n for sums in loggers.values())
    found = []
    for j, policy in enumerate(policies):
        for logger, sums in loggers.items():
            common = policy, logger, sums.n, sums.n / n, sums.baseline().value
            column = f"{IMPORTANCE.name}.weight"
            if column not in sums.weights:  # no estimator needed weights
                found.append(OfLogger(*common, *[math.nan] * 6))
                continue
            kind = sums.weights.index(column)
            mean, ips, seen = sums.mean_weight(j, kind), sums.value(j, IPS), sums.inspected
            weights = mean.value, stderr(mean), sums.ess(j, kind), float(seen.largest[j, kind])
            found.append(OfLogger(*common, *weights, ips.value, stderr(ips), carried_by(ips)))
    return found


def table_of(rows: Sequence[OfLogger]) -> pa.Table:
    found = [{name: value for name, value in asdict(row).items() if name != "carriers"} for row in rows]
    table = pa.Table.from_pylist([{**row, "logger": None} for row in found])
    return table.set_column(1, "logger", array_of([row.logger for row in rows]))


def findings_about(rows: Sequence[OfLogger], *, plain: bool) -> list[Finding]:
    """The findings about one policy. `plain`: whether an estimator divides by each logger's own propensities."""
    if math.isnan(rows[0].max_weight):
        return []
    found = [_overlap(rows), _weights(rows, plain=plain), _agreement([row for row in rows if row.telling])]
    return [finding for finding in found if finding is not None]


def _overlap(rows: Sequence[OfLogger]) -> Finding | None:
    """A logger that never takes the actions of the policy: its events count as 0."""
    policy, without = rows[0].policy, [row for row in rows if not row.covers]
    share = sum(row.share for row in without)
    if not without:
        return Finding(OK, OVERLAP, policy, 0.0, f"Each logger has events with weight for {policy}.")
    if len(without) == len(rows):
        return None  # the check of the effective sample size says so
    text = (
        f"No event of {_names(without)} has weight for {policy}: {share:.2%} of the rows. Estimators that divide by "
        "each logger's own propensities take the policy's reward there as 0. Leave these rows out (filter), or use the "
        "balanced estimators, which let loggers stand in for each other."
    )
    return Finding(LOOK, OVERLAP, policy, share, text)


def _weights(rows: Sequence[OfLogger], *, plain: bool) -> Finding:
    """Mean weights of single loggers that are not 1. Those of several can cancel in the mean of all."""
    policy, wrong = rows[0].policy, [row for row in rows if row.wrong]
    far = sum(row.share * abs(row.mean_weight - 1) for row in wrong)
    if not wrong:
        return Finding(OK, WEIGHTS, policy, far, f"The mean weight of {policy} agrees with 1 for each logger.")
    shown = ", ".join(
        f"{row.mean_weight:.4g} ± {row.mean_weight_stderr:.2g} for logger {row.logger!r}" for row in wrong[:5]
    )
    text = (
        f"The mean weight of {policy} is {shown}{', ...' if len(wrong) > 5 else ''}, but it should be 1. Either the "
        "propensities of this logger are wrong, or it never takes some actions of the policy, or rare events with "
        "large weights are missing. Evaluate each logger alone, and audit its rows."
    )
    return Finding(STOP if plain and far > VERY_WRONG else LOOK, WEIGHTS, policy, far, text)


def _agreement(rows: Sequence[OfLogger]) -> Finding | None:
    """Cochran's test that all loggers estimate the same value."""
    from scipy.special import gammaincc

    if len(rows) < 2:
        return None
    policy, precisions = rows[0].policy, [row.stderr**-2 for row in rows]
    mean = sum(row.value * weight for row, weight in zip(rows, precisions, strict=True)) / sum(precisions)
    q = sum((row.value - mean) ** 2 * weight for row, weight in zip(rows, precisions, strict=True))
    p = float(gammaincc((len(rows) - 1) / 2, q / 2))
    if p >= 1 - FAR_LEVEL:
        return Finding(OK, AGREE, policy, p, f"The loggers agree about {policy} (p = {p:.2g}).")
    extremes = min(rows, key=lambda row: row.value), max(rows, key=lambda row: row.value)
    shown = " and ".join(f"{row.value:.4g} ± {row.stderr:.2g} from logger {row.logger!r}" for row in extremes)
    text = (
        f"The loggers disagree about {policy}: IPS is {shown} (p = {p:.2g}). Either rewards or contexts differ between "
        "loggers, e.g. because they ran at other times or for other users, or propensities of one are wrong. The "
        "estimate is about the mix of the log. Evaluate each logger alone."
    )
    return Finding(LOOK, AGREE, policy, p, text)


def _names(rows: Sequence[OfLogger]) -> str:
    shown = ", ".join(repr(row.logger) for row in rows[:5]) + (", ..." if len(rows) > 5 else "")
    return f"logger{'s' * (len(rows) > 1)} {shown}"
