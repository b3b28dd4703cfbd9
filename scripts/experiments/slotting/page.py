"""Writes the section of table 2."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from scripts.experiments.summary import Results, table

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
    self_dm = _spread(results, {**exact, "policy": "self", "estimator": "dm"})[0]
    with_one = _spread(results, {**exact, "intercept": True, "policy": "self", "estimator": "dm"})[0]
    spread = {e: _spread(results, {**exact, "policy": "argmax", "estimator": e})[1] for e in NAMES}
    scale = {p: float(results.of("scale", **exact, policy=p)[0]) for p in ("self", "argmax")}
    truth = {p: float(results.of("truth", **exact, policy=p)[0]) / scale[p] for p in ("self", "argmax")}
    clicks = [
        float(results.of("value", data=d, policy="self", estimator="ips").mean()) for d in results.values("data")[1:]
    ]
    return f"""## Table 2: which result comes first (section 4.3)

We evaluate two policies. "Self" is the exploration policy on its own log. "Argmax" takes the action with the largest
r'(x, a) = w_a·x, which is fitted with importance weights 1/p. r̂ is fitted without weights. Cells are the mean ±
standard deviation over ten disjoint subsets. They are divided by the mean reward (self) or by the mean of IPS (argmax).
The paper's log is proprietary, so we use two others.

**A drawn log of clicks and skips.** We fit on 1 M rows and evaluate on 200,000. Contexts are query terms, and rewards
are 1, 0 and -1. With exact logging and w·x, the true values on this scale are {truth["self"]:.3f} (self) and
{truth["argmax"]:.3f} (argmax). "Off" means that recorded propensities differ slightly from those that were used.

{table(["logging, r̂", *(f"{p}, {NAMES[e]}" for p, e in COLUMNS)], rows)}

**The Open Bandit logs.** We fit on 5,000 rows and evaluate on ten subsets of 500. Values are not divided. For the
Thompson sampler, propensities are known only for logged actions, and DR of the sampler itself needs those of all
actions.

{table(["log", *(f"{p}, {NAMES[e]}" for p, e in COLUMNS)], real)}

**What came out.** As in the paper, IPS and DR agree. DM has the smallest spread and the largest bias. On argmax, DR's
spread ({spread["dr"]:.3f}) is below that of IPS ({spread["ips"]:.3f}).

**What did not reproduce.** On the drawn log DM is {abs(1 - self_dm):.0%} too {"low" if self_dm < 1 else "high"}; the
paper's is 21% too high. The sign depends on how the world was drawn. With an intercept, DM is {with_one:.3f}. Least
squares then gets the mean reward of each action right, so self-evaluation cannot show how wrong r̂ is. With exact
logging, IPS of self is 1 by definition. In the paper it is not, so the paper divided by something else. The paper's DR
is 2.6% too low, and the paper suspects imperfect logging. Our imperfect logging does not show this. On the Open Bandit
logs, about {min(clicks):.1%} to {max(clicks):.1%} of rows have a click, so a subset of 500 rows has two or three. This
is too few to say anything about argmax; self-evaluation shows only that the estimators agree.
"""


def _spread(results: Results, of: dict[str, object]) -> tuple[float, float]:
    values = results.of("normalised", **of)
    return float(values.mean()), float(values.std(ddof=1))


def _shown(mean: float, std: float, digits: int = 3) -> str:
    return f"{mean:.{digits}f} ± {std:.{digits}f}"


def _normalised(results: Results, of: dict[str, object]) -> list[str]:
    return [_shown(*_spread(results, {**of, "policy": policy, "estimator": e})) for policy, e in COLUMNS]


def _raw(results: Results, of: dict[str, object]) -> list[str]:
    cells = []
    for policy, e in COLUMNS:
        values = results.of("value", **of, policy=policy, estimator=e)
        cells.append(_shown(float(np.mean(values)), float(np.std(values, ddof=1)), 4) if len(values) else "")
    return cells
