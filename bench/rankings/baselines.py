"""The check that drstream's estimates of rankings are those of NumPy."""

from __future__ import annotations

import numpy as np
import pyarrow.dataset as ds

from bench.common.baselines import PARITY, PARITY_ROWS
from bench.rankings import cases


def check_parity(case: cases.Case) -> None:
    """Runs before the clock starts, on the first lists."""
    head = ds.dataset(case.log.path).head(PARITY_ROWS).combine_chunks()
    flat = {name: head[name].combine_chunks() for name in cases.COLUMNS}
    starts = flat["new"].offsets.to_numpy()[:-1] - flat["new"].offsets[0].as_py()
    p, r, new = (flat[name].flatten().to_numpy().astype(float) for name in ("propensity", "reward", "new"))
    w = new / p
    logs = np.cumsum(np.log(w))
    before = np.concatenate([[0.0], logs])[np.repeat(starts, np.diff([*starts, len(w)]))]
    whole, total = np.multiply.reduceat(w, starts), np.add.reduceat(r, starts)
    wanted = {
        "iips": np.add.reduceat(w * r, starts),
        "rips": np.add.reduceat(np.exp(logs - before) * r, starts),
        "pi": (1 + np.add.reduceat(w - 1, starts)) * total,
        "ips": whole * total,
    }
    found = cases.evaluate(head)
    for name, scores in wanted.items():
        np.testing.assert_allclose(found["new", name].value, scores.mean(), rtol=PARITY, err_msg=name)
