"""The other sides of eligible sets, and the check against NumPy on a small log."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from bench.common.logs import FEATURES
from bench.common.racing import THREADS
from bench.eligible.cases import SCAN, Case, model, world


def prepare(case: Case) -> Callable[[], Any]:
    return (lambda: scan(case)) if case.baseline == SCAN else (lambda: case.run(sets=False))


def scan(case: Case) -> int:
    """Decodes the columns, does nothing with them, and returns the number of rows."""
    metadata = pq.read_metadata(case.log.path)
    columns = [*case.log.columns, "items"]

    def read(group: int) -> int:
        with pq.ParquetFile(case.log.path, memory_map=True, metadata=metadata) as file:
            return file.read_row_group(group, columns=columns, use_threads=False).num_rows

    with ThreadPoolExecutor(THREADS) as pool:
        return sum(pool.map(read, range(metadata.num_row_groups)))


def check_parity(case: Case) -> None:
    """The values of a log of a thousand rows, event by event in NumPy."""
    small = Case(replace(case.log, rows=1_000), case.baseline)
    small.log.make()
    found = small.run(precision="float64")
    table = world(case.log.actions).table(1_000, seed=1)  # what make_log writes first
    X = np.column_stack([table[f"x{j}"].to_numpy() for j in range(FEATURES)]).astype(np.float64)
    scores, rhat = (
        X @ world(case.log.actions).taste.T + world(case.log.actions).appeal,
        model(case.log.actions).predict(X),
    )
    direct, weighted, robust = [], [], []
    for i, items in enumerate(table["items"].to_pylist()):
        a, r, p = (table[name][i].as_py() for name in ("action", "reward", "propensity"))
        exps = np.exp(scores[i, items])
        pi = dict(zip(items, exps / exps.sum(), strict=True))
        w, predicted = pi[a] / p, math.fsum(pi[k] * rhat[i, k] for k in items)
        direct.append(predicted)
        weighted.append(w * r)
        robust.append(predicted + w * (r - rhat[i, a]))
    for name, terms in (("dm", direct), ("ips", weighted), ("dr", robust)):
        wanted = np.mean(terms)
        assert abs(found[name].value - wanted) <= 1e-9 * abs(wanted), f"{name}: {found[name].value}, not {wanted}"
