"""Baselines and checks that several topics share: the bare scan, and the textbook's formulas in NumPy."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

import drstream as drs
from bench.common import logs, racing

SCAN = "pyarrow scan"
PARITY = 1e-9  # relative
PARITY_FLOAT32 = 1e-5  # the same, if a side computes scores in float32
PARITY_ROWS = 50_000
Z = NormalDist().inv_cdf(0.975)

Numbers = tuple[float, float, float, float]  # value, standard error, interval
Estimates = dict[tuple[str, str], Numbers]  # by policy and estimator


def scan(log: logs.LogFile) -> int:
    """Decodes the columns, does nothing with them, and returns the number of rows."""
    pa.set_cpu_count(racing.THREADS)
    return sum(batch.num_rows for batch in ds.dataset(log.path).to_batches(columns=log.columns))


def textbook(pi: np.ndarray, rhat: np.ndarray, a: np.ndarray, r: np.ndarray, p: np.ndarray) -> dict[str, Numbers]:
    """The textbook's formulas, from probabilities and predictions (n, K)."""
    rows = np.arange(len(a))
    w = pi[rows, a] / p
    b = (pi * rhat).sum(axis=1)
    snips = (w * r).sum() / w.sum()
    terms = {
        "dm": b,
        "ips": w * r,
        "snips": snips + w * (r - snips) / w.mean(),  # by its influence function
        "dr": b + w * (r - rhat[rows, a]),
    }
    return {name: numbers(psi.mean(), psi.std(ddof=1) / math.sqrt(len(psi))) for name, psi in terms.items()}


def from_moments(n: int, moments: Sequence[float]) -> dict[str, Numbers]:
    """The same from sums: Σw, Σw², Σy, Σy², Σwy, Σb, Σb², Σψ, Σψ²; y = w r, b is DM's term, ψ is DR's."""
    w, ww, y, yy, wy, b, bb, dr, dr_dr = moments
    snips = y / w
    residuals = (yy - 2 * snips * wy + snips**2 * ww) / (w / n) ** 2
    sums = {"dm": (b, bb), "ips": (y, yy), "dr": (dr, dr_dr)}
    found = {name: numbers(s / n, math.sqrt((ss - s * s / n) / (n - 1) / n)) for name, (s, ss) in sums.items()}
    return {**found, "snips": numbers(snips, math.sqrt(residuals / (n - 1) / n))}


def numbers(value: float, stderr: float) -> Numbers:
    return value, stderr, value - Z * stderr, value + Z * stderr


def contexts(table: pa.Table) -> np.ndarray:
    if "x" in table.column_names:
        return np.array(table["x"].to_pylist(), dtype=np.float64)
    features = sum(name[0] == "x" for name in table.column_names)
    return np.column_stack([table[f"x{j}"].to_numpy() for j in range(features)]).astype(np.float64)


def softmax(scores: np.ndarray) -> np.ndarray:
    exps = np.exp(scores - scores.max(axis=1, keepdims=True))
    return exps / exps.sum(axis=1, keepdims=True)


# Parity


def exactly() -> dict[str, str]:
    """Options with which `evaluate` computes in float64, so that it can be compared to PARITY."""
    return {"precision": "float64"} if "precision" in inspect.signature(drs.evaluate).parameters else {}


def estimates(result: drs.Evaluation) -> Estimates:
    keys = [(policy, estimator) for policy in result.policies for estimator in result.estimators]
    return {key: (e.value, e.stderr, e.low, e.high) for key in keys for e in [result[key]]}


def agree(ours: Estimates, other: Estimates, rtol: float = PARITY) -> None:
    """DM has no interval if its model was fitted on the same events. Then values and standard errors agree."""
    assert ours.keys() == other.keys()
    for key, found in ours.items():
        shown = 2 if key[1] == "dm" and math.isnan(found[2]) else 4
        np.testing.assert_allclose(found[:shown], other[key][:shown], rtol=rtol, err_msg=str(key))
