"""Makes table 2."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from scripts.studies.paper.rows import Results
from scripts.studies.results import Found

Floats = NDArray[np.float64]
PAPER = {
    "self": {"ips": (0.995, 0.041), "dm": (1.213, 0.010), "dr": (0.974, 0.039)},
    "argmax": {"ips": (1.000, 0.027), "dm": (1.211, 0.002), "dr": (0.991, 0.026)},
}
NAMES = {"ips": "IPS", "dm": "DM", "dr": "DR"}
COLUMNS = [(policy, e) for policy in ("self", "argmax") for e in NAMES]


def table2(results: Results, found: Found) -> None:
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
    values = {(p, e): results.of("normalised", **exact, policy=p, estimator=e) for p, e in COLUMNS}
    scale = {p: float(results.of("scale", **exact, policy=p)[0]) for p in ("self", "argmax")}
    truth = {p: float(results.of("truth", **exact, policy=p)[0]) / scale[p] for p in ("self", "argmax")}
    clicks = [
        float(results.of("value", data=d, policy="self", estimator="ips").mean()) for d in results.values("data")[1:]
    ]
    found.figures |= {
        f"Table 2: {what} ({p})": text
        for p in ("self", "argmax")
        for what, text in {
            "true value": f"{truth[p]:.3f}",
            "IPS - DR": _signed(*_mean(values[p, "ips"] - values[p, "dr"])),
            "DM - truth": _signed(*_mean(values[p, "dm"] - truth[p])),
            "spread of IPS above that of DR": _signed(*_spread_gap(values[p, "ips"], values[p, "dr"]), "{:.3f}"),
            "spread of DR above that of DM": _signed(*_spread_gap(values[p, "dr"], values[p, "dm"]), "{:.3f}"),
        }.items()
    }
    found.figures |= {
        "Table 2: error of DM (self)": f"{self_dm - 1:+.0%}",
        "Table 2: error of DM, the paper": f"{PAPER['self']['dm'][0] - 1:+.0%}",
        "Table 2: DM with an intercept (self)": f"{with_one:.3f}",
        "Table 2: click rates of Open Bandit": (
            f"{min(clicks, default=math.nan):.1%} to {max(clicks, default=math.nan):.1%}"
        ),
    }
    names = [f"{p}, {NAMES[e]}" for p, e in COLUMNS]
    found.table("Table 2: a drawn log of clicks and skips", ["logging, r̂", *names], rows)
    found.table("Table 2: the Open Bandit logs", ["log", *names], real)


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


def _signed(value: float, error: float, form: str = "{:+.3f}") -> str:
    return f"{form.format(value)} ± {error:.3f}"


def _shown(mean: float, std: float, error: float | None = None, digits: int = 3) -> str:
    digit = "" if error is None else f" ({round(error * 10**digits):d})"
    return f"{mean:.{digits}f} ± {std:.{digits}f}{digit}"


def _cell(values: Floats, digits: int = 3) -> str:
    values = values[np.isfinite(values)]  # IPS is undefined in a subset where no event has a weight
    if not len(values):  # the quick form leaves some cases out, and some estimates need what the log lacks
        return ""
    std, error = _jackknife(lambda keep: float(values[keep].std(ddof=1)), len(values))
    return _shown(float(values.mean()), std, error, digits)


def _normalised(results: Results, of: dict[str, object]) -> list[str]:
    return [_cell(results.of("normalised", **of, policy=policy, estimator=e)) for policy, e in COLUMNS]


def _raw(results: Results, of: dict[str, object]) -> list[str]:
    return [_cell(results.of("value", **of, policy=policy, estimator=e), 4) for policy, e in COLUMNS]
