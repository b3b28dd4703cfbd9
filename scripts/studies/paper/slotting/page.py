"""Writes the section of table 2."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scripts.studies.paper.rows import Results, table

Floats = NDArray[np.float64]
PAPER = {
    "self": {"ips": (0.995, 0.041), "dm": (1.213, 0.010), "dr": (0.974, 0.039)},
    "argmax": {"ips": (1.000, 0.027), "dm": (1.211, 0.002), "dr": (0.991, 0.026)},
}
NAMES = {"ips": "IPS", "dm": "DM", "dr": "DR"}
COLUMNS = [(policy, e) for policy in ("self", "argmax") for e in NAMES]


def table2(results: Results, figure: Path) -> str:
    rows = [["the paper", *(_shown(*PAPER[policy][e]) for policy, e in COLUMNS)]]
    for logging in ("exact", "off"):
        for intercept in (False, True):
            of = {"data": "click-skip", "logging": logging, "intercept": intercept}
            rows.append([f"{logging}, {'intercept' if intercept else 'w·x'}", *_normalised(results, of)])
    real = [
        [f"{data.removeprefix('open bandit, ')}, {logging}", *_raw(results, {"data": data, "logging": logging})]
        for data in results.values("data")
        if data.startswith("open bandit")
        for logging in results.values("logging")
        if len(results.of("value", data=data, logging=logging))
    ]
    exact = {"data": "click-skip", "logging": "exact", "intercept": False}
    self_dm = float(results.of("normalised", **exact, policy="self", estimator="dm").mean())
    other = results.of("normalised", **{**exact, "intercept": True}, policy="self", estimator="dm")
    with_one = float(other.mean()) if len(other) else math.nan
    found = {(p, e): results.of("normalised", **exact, policy=p, estimator=e) for p, e in COLUMNS}
    apart = {p: _signed(*_mean(found[p, "ips"] - found[p, "dr"])) for p in ("self", "argmax")}
    gap = _spread_gap(found["argmax", "ips"], found["argmax", "dr"])
    below = {"dm": _signed(*_spread_gap(found["argmax", "dr"], found["argmax", "dm"]), "{:.3f}")}
    scale = {p: float(results.of("scale", **exact, policy=p)[0]) for p in ("self", "argmax")}
    truth = {p: float(results.of("truth", **exact, policy=p)[0]) / scale[p] for p in ("self", "argmax")}
    off = {p: _signed(*_mean(found[p, "dm"] - truth[p])) for p in ("self", "argmax")}
    clicks = [
        float(results.of("value", data=d, policy="self", estimator="ips").mean()) for d in results.values("data")[1:]
    ]
    rates = f"{min(clicks, default=math.nan):.1%} to {max(clicks, default=math.nan):.1%}"
    return f"""## Table 2: which result comes first (section 4.3)

We evaluate two policies. "Self" is the exploration policy on its own log. "Argmax" takes the action with the largest
r'(x, a) = w_a·x, which is fitted with importance weights 1/p. r̂ is fitted without weights. Cells are the mean ±
standard deviation over ten disjoint subsets, with the standard error of that deviation in parentheses, in units of the
last digit. They are divided by the mean reward (self) or by the mean of IPS (argmax). The paper's log is proprietary,
so we use two others. Standard errors are by the jackknife: one subset is left out at a time.

**A drawn log of clicks and skips.** We fit on 1 M rows and evaluate on 200,000. Contexts are query terms, and rewards
are 1, 0 and -1. With exact logging and w·x, the true values on this scale are {truth["self"]:.3f} (self) and
{truth["argmax"]:.3f} (argmax). "Off" means that recorded propensities differ slightly from those that were used.

{table(["logging, r̂", *(f"{p}, {NAMES[e]}" for p, e in COLUMNS)], rows)}

**The Open Bandit logs.** We fit on 5,000 rows and evaluate on ten subsets of 500. Values are not divided. For the
Thompson sampler, propensities are known only for logged actions, and DR of the sampler itself needs those of all
actions.

{table(["log", *(f"{p}, {NAMES[e]}" for p, e in COLUMNS)], real)}

**What came out.** All of this is about the drawn log, exact logging and w·x. IPS and DR agree, as in the paper: their
means differ by {apart["self"]} (self) and {apart["argmax"]} (argmax). DM differs from the truth by {off["self"]} and
{off["argmax"]}; its spread is below that of DR by {below["dm"]} (argmax). {_about_spreads(*gap)}

**What did not reproduce.** On the drawn log DM is {abs(1 - self_dm):.0%} too {"low" if self_dm < 1 else "high"}; the
paper's is 21% too high. The sign depends on how the world was drawn. With an intercept, DM is {with_one:.3f}. Least
squares then gets the mean reward of each action right, so self-evaluation cannot show how wrong r̂ is. With exact
logging, IPS of self is 1 by definition. In the paper it is not, so the paper divided by something else. The paper's DR
is 2.6% too low, and the paper suspects imperfect logging. Our imperfect logging does not show this. On the Open Bandit
logs, about {rates} of rows have a click, so a subset of 500 rows has two or three. This
is too few to say anything about argmax; self-evaluation shows only that the estimators agree.
"""


def _mean(values: Floats) -> tuple[float, float]:
    """The mean over subsets, and its standard error."""
    return float(values.mean()), float(values.std(ddof=1)) / math.sqrt(len(values))


def _spread_gap(one: Floats, other: Floats) -> tuple[float, float]:
    """How much the standard deviation of one estimator is above that of another on the same subsets."""
    return _jackknife(lambda keep: float(one[keep].std(ddof=1) - other[keep].std(ddof=1)), len(one))


def _jackknife(statistic: Callable[[NDArray[np.bool_]], float], n: int) -> tuple[float, float]:
    """A statistic of all subsets, and its standard error."""
    left_out = np.array([statistic(np.arange(n) != i) for i in range(n)])
    error = math.sqrt((n - 1) / n * float(((left_out - left_out.mean()) ** 2).sum()))
    return statistic(np.ones(n, bool)), error


def _about_spreads(gap: float, error: float) -> str:
    """What ten subsets say about the spreads of IPS and DR."""
    says = f"On argmax, DR's spread is below that of IPS by {_signed(gap, error, '{:.3f}')}."
    if gap > 2 * error:
        return says
    return f"{says} That is within two standard errors, so ten subsets do not show that DR's spread is smaller."


def _signed(value: float, error: float, form: str = "{:+.3f}") -> str:
    return f"{form.format(value)} ± {error:.3f}"


def _shown(mean: float, std: float, error: float | None = None, digits: int = 3) -> str:
    digit = "" if error is None else f" ({round(error * 10**digits):d})"
    return f"{mean:.{digits}f} ± {std:.{digits}f}{digit}"


def _cell(values: Floats, digits: int = 3) -> str:
    if not len(values):  # the quick form leaves some cases out, and some estimates need what the log lacks
        return ""
    std, error = _jackknife(lambda keep: float(values[keep].std(ddof=1)), len(values))
    return _shown(float(values.mean()), std, error, digits)


def _normalised(results: Results, of: dict[str, object]) -> list[str]:
    return [_cell(results.of("normalised", **of, policy=policy, estimator=e)) for policy, e in COLUMNS]


def _raw(results: Results, of: dict[str, object]) -> list[str]:
    return [_cell(results.of("value", **of, policy=policy, estimator=e), 4) for policy, e in COLUMNS]
