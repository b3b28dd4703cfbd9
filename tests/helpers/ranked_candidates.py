"""Logs of rankings whose items are candidates with features, and a policy on them in plain Python."""

import numpy as np
import pyarrow as pa

W = np.array([0.0, 0.0, 0.5, -1.0])  # of a context of 2 features, then of a candidate of 2
INTERACTIONS = np.array([[0.4, -0.2], [0.1, 0.3]])


def softmax(scores):
    exps = np.exp(scores - scores.max())
    return exps / exps.sum()


def draw(rows, seed=0, text=False):
    """A table of rankings of candidates, and the probabilities of two policies, in plain Python."""
    rng = np.random.default_rng(seed)
    columns = {
        name: [] for name in ("shown", "place", "p", "r", "x0", "x1", "offered", "z", "soft", "even", "all", "whole")
    }
    for _ in range(rows):
        count, length = int(rng.integers(2, 7)), int(rng.integers(1, 4))
        ids, z, x = rng.permutation(50)[:count], rng.normal(size=(count, 2)).round(2), rng.normal(size=2).round(2)
        place = rng.integers(0, count, length)  # drawn evenly for each position
        soft = softmax(z @ (W[2:] + x @ INTERACTIONS))
        names = [f"item {i}" for i in ids] if text else ids.tolist()
        row = {
            "shown": [names[k] for k in place],
            "place": place,
            "p": np.full(length, 1 / count),
            "whole": count**-length,
        }
        row |= {
            "r": rng.integers(0, 2, length).astype(float),
            "x0": x[0],
            "x1": x[1],
            "offered": names,
            "z": z.tolist(),
        }
        row |= {"soft": soft[place], "even": np.full(length, 1 / count), "all": soft}
        for name, value in row.items():
            columns[name].append(value)
    return pa.table(columns)
