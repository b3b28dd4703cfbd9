"""The check that both sides read the same rows, and that estimates are those of NumPy, before the clock starts."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq

import drstream as drs
from bench.candidates import cases
from bench.candidates.log import CANDIDATES, ITEM_FEATURES, ITEMS, NAMES, STRUCTS, CandidateFile
from bench.common import logs
from bench.common.baselines import agree, contexts, estimates, softmax, textbook
from bench.evaluation.baselines import scan_row_groups

PARITY_ROWS = 5_000


def check_parity(case: cases.Case) -> None:
    assert scan_row_groups(case.log) == case.log.rows
    table = pq.ParquetFile(case.log.path).read_row_group(0).slice(0, PARITY_ROWS)
    X, Z = contexts(table), features(case.log, table)
    policy, model = cases.policy(case.interactions), cases.model(case.interactions)
    weights, products = policy.weights[logs.FEATURES :], policy.interactions
    by_context = 0.0 if products is None else np.einsum("nd,de,nme->nm", X, products, Z)
    pi = softmax(Z @ weights + by_context)
    coef, d = model.coef_[0], logs.FEATURES
    rhat = model.intercept_[0] + (X @ coef[:d])[:, None] + Z @ coef[d : d + ITEM_FEATURES]
    if case.interactions:
        rhat = rhat + np.einsum("nd,de,nme->nm", X, coef[d + ITEM_FEATURES :].reshape(d, -1), Z)
    a = table["action"].to_numpy()
    if case.log.layout == ITEMS:
        chosen = np.array(table["items"].to_pylist())
        a = (chosen == a[:, None]).argmax(axis=1)
    found = textbook(pi, rhat, a, table["reward"].to_numpy(), table["propensity"].to_numpy())
    log = drs.Log(table, candidates=case.log.candidates())
    ours = drs.evaluate(log, policy, model, cases.FOUR, interval="normal")
    agree(estimates(ours), {("policy", name): numbers for name, numbers in found.items()})


def features(log: CandidateFile, table: object) -> np.ndarray:
    """The features (n, m, d) of all candidates."""
    if log.layout == ITEMS:
        return log.items[np.array(table["items"].to_pylist())].astype(float)  # type: ignore[index]
    found = table["z"].to_pylist()  # type: ignore[index]
    if log.layout == STRUCTS:
        found = [[[one[name] for name in NAMES] for one in row] for row in found]
    return np.array(found).reshape(-1, CANDIDATES, ITEM_FEATURES)
