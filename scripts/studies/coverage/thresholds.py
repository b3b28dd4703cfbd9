"""How far normal intervals can be trusted: their coverage by how many events, and how many rewards, decide.

The sums are simulated without drstream's engine, as only the normal intervals of IPS and SNIPS are needed here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from scripts.studies.trials import generator

Floats = NDArray[np.float64]
KINDS, AT_ONCE, Z = 8, 1_000_000, 1.96
FAMILIES = {  # smallest propensity of the policy's action: numbers of rows
    0.002: (5_000, 10_000, 20_000, 40_000, 60_000),
    0.01: (1_000, 2_000, 5_000, 10_000),
    0.05: (200, 400, 1_000, 2_000),
}
RATES = (0.35, 0.9)  # of clicks
CLICKS = (5, 10, 15, 20, 30, 40, 60, 80)  # expected numbers of clicks
RARE = 0.005


def measure(seed: int, *, quick: bool) -> dict[str, Any]:
    """Return the coverage of normal intervals: for uneven weights, and for few clicks with equal weights."""
    logs = 200 if quick else 2_000
    weights = [
        uneven(generator(seed, 1, i, j), least, rows, rate, logs)
        for i, (least, sizes) in enumerate(FAMILIES.items())
        for rate in RATES
        for j, rows in enumerate(sizes)
    ]
    rng = generator(seed, 2)
    return {"seed": seed, "logs": logs, "weights": weights, "clicks": [few_clicks(rng, n, 10 * logs) for n in CLICKS]}


def uneven(rng: np.random.Generator, least: float, rows: int, rate: float, logs: int) -> dict[str, float]:
    """The policy's action has propensities from `least` to 0.5, by the kind of context."""
    p = np.geomspace(least, 0.5, KINDS)
    mean = rate + np.linspace(-0.1, 0.1, KINDS) * (1 if rate < 0.5 else 0.5)
    hits, facts = [], []
    size = max(1, AT_ONCE // rows)
    for first in range(0, logs, size):
        shape = min(size, logs - first), rows
        kind = rng.integers(0, KINDS, shape)
        w = (rng.random(shape) < p[kind]) / p[kind]
        r = (rng.random(shape) < mean[kind]).astype(float)
        hits.append(np.column_stack([covers(w * r, mean.mean()), covers_ratio(w, r, mean.mean())]))
        facts.append(about(w, r))
    ips, snips = np.concatenate(hits).mean(axis=0)
    ess, large, rare, large_rare = np.median(np.concatenate(facts), axis=0)
    found = {"least": least, "rate": rate, "rows": rows, "ips": ips, "snips": snips}
    return found | {"ess": ess, "large": large, "rare": rare, "large_rare": large_rare}


def few_clicks(rng: np.random.Generator, clicks: int, logs: int) -> dict[str, float]:
    """All weights are the same, so that counts of events and of clicks tell all."""
    p = 0.1
    rows = round(clicks / (RARE * p))
    shown = rng.binomial(rows, p, logs)
    clicked = rng.binomial(shown, RARE)
    ips = clicked / p / rows
    half = Z * np.sqrt((clicked / p**2 / rows - ips**2) / rows)
    snips = clicked / shown
    half_ratio = Z * np.sqrt(snips * (1 - snips) / shown)
    hits = [np.mean(np.abs(ips - RARE) <= half), np.mean(np.abs(snips - RARE) <= half_ratio)]
    return {"clicks": clicks, "ips": float(hits[0]), "snips": float(hits[1])}


def covers(scores: Floats, truth: float) -> NDArray[np.bool_]:
    half = Z * scores.std(axis=1) / np.sqrt(scores.shape[1])
    return np.abs(scores.mean(axis=1) - truth) <= half


def covers_ratio(w: Floats, r: Floats, truth: float) -> NDArray[np.bool_]:
    value = (w * r).sum(axis=1) / w.sum(axis=1)
    half = Z * (w * (r - value[:, None])).std(axis=1) / w.mean(axis=1) / np.sqrt(w.shape[1])
    return np.abs(value - truth) <= half


def about(w: Floats, r: Floats) -> Floats:
    """Return ESS, Σ w² / max w², effective events of the rarer kind, and their Σ w² / max w², for each log."""
    largest = w.max(axis=1) ** 2
    squares = (w**2).sum(axis=1)
    of_kinds = [((w * k).sum(axis=1), (w**2 * k).sum(axis=1)) for k in (r, 1 - r)]
    rare = np.min([total**2 / np.maximum(squared, 1e-300) for total, squared in of_kinds], axis=0)
    large_rare = np.min([squared for _, squared in of_kinds], axis=0) / largest
    return np.column_stack([w.sum(axis=1) ** 2 / squares, squares / largest, rare, large_rare])
