"""Randomised experiments: a policy that always takes one action is worth what that action's own arm earned."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

import drstream as drs
from scripts.studies import data
from scripts.studies.real_logs.rows import Halves, beside, bounds, findings
from scripts.studies.trials import Row, Setting

SPLITS, FEW_SPLITS = 200, 5
FOLDS = 5
REWARDS = ("visit", "conversion", "spend")
SEGMENTS = ["mens", "womens"]  # what the customer bought before
DESIGN = (5 / 8, 1 / 8, 1 / 8, 1 / 8)  # shares of the arms in the full experiment, without the fifth one
ESTIMATORS = ["ips", "snips", "dr"]


def hillstrom(setting: Setting) -> dict[str, Any]:
    """E-mails to customers. Three rewards are evaluated in one pass, and the first one also by segment."""
    table = pq.read_table(data.path(setting.data, "hillstrom.parquet"))
    table = _with_propensities(table, np.full(len(table), 1 / 3))
    policies = _policies(table)
    context = ["recency", "history", "mens", "womens", "newbie", "zip_code", "channel"]
    log = drs.Log(table, context=context, reward=list(REWARDS))
    result = _evaluate(log, policies, by=SEGMENTS)
    halves = Halves()
    for first, second in _halves(log, setting):
        _compare(_evaluate(first, policies), _measured(second, policies), halves)
    return {
        "events": result.n,
        "estimates": [row for reward in REWARDS for row in _estimates(result.rewards[reward], table)],
        "findings": [{"reward": r, **each} for r in REWARDS for each in findings(result.rewards[r])],
        "segments": _segments(result, table),
        "halves": list(halves.rows.values()),
        "r2": {reward: result.rewards[reward].r2 for reward in REWARDS},
    }


def gotv(setting: Setting) -> dict[str, Any]:
    """Letters to voters. Whole households got the same letter, so rows depend on each other."""
    table = pq.read_table(data.path(setting.data, "gotv_social.parquet"))
    table = _with_propensities(table, np.array(DESIGN)[table["action"].to_numpy()])
    home = households(table["hhsize"].to_numpy(), table["action"].to_numpy())
    table = table.append_column("household", pa.array(home))
    policies = _policies(table)
    log = drs.Log(table, context=["sex_female", "yearofbirth", "primary2004", "hhsize"], reward="primary2006")
    clusters = {"rows": None, "households": "household"}
    results = {name: _evaluate(log, policies, cluster=column) for name, column in clusters.items()}
    halves = Halves()
    for first, second in _halves(log, setting, cluster="household"):
        for name, column in clusters.items():
            found = _evaluate(first, policies, cluster=column)
            measured = _evaluate(second, policies, cluster=column)
            _compare(found, measured, halves, unit=name)
    return {
        "events": len(table),
        "households": int(home[-1]) + 1,
        "alike": _alike(home, table["yearofbirth"].to_numpy().astype(float)),
        "estimates": [{"unit": n, **row} for n, result in results.items() for row in _estimates(result, table)],
        "findings": [{"unit": name, **each} for name, result in results.items() for each in findings(result)],
        "halves": list(halves.rows.values()),
        "r2": results["rows"].r2,
    }


def households(size: NDArray[Any], action: NDArray[Any]) -> NDArray[np.int64]:
    """Numbers the households. The file has no number of them, but their members stand in neighbouring rows.

    A run of rows of the same household size and action is cut into households of that size.

    >>> households(np.array([2, 2, 2, 2, 1, 1]), np.array([0, 0, 0, 0, 0, 1])).tolist()
    [0, 0, 1, 1, 2, 3]
    """
    change = np.r_[True, (np.diff(size) != 0) | (np.diff(action) != 0)]
    start = np.flatnonzero(change)
    within = np.arange(len(size)) - np.repeat(start, np.diff(np.r_[start, len(size)]))
    return np.cumsum(within % size == 0) - 1


def _alike(home: NDArray[np.int64], born: NDArray[np.float64]) -> dict[str, float]:
    """Correlation of years of birth of rows that follow each other, in one household and across two."""
    same = np.diff(home) == 0
    return {
        name: float(np.corrcoef(born[:-1][where], born[1:][where])[0, 1])
        for name, where in (("same", same), ("next", ~same))
    }


def _with_propensities(table: pa.Table, p: NDArray[np.float64]) -> pa.Table:
    """The table with the propensities of the design, in place of any that it has."""
    kept = table.drop_columns(["propensity"]) if "propensity" in table.column_names else table
    return kept.append_column("propensity", pa.array(p))


def _policies(table: pa.Table) -> dict[str, drs.policies.Constant]:
    names = json.loads(table.schema.metadata[b"actions"])
    return {f"always {name}": drs.policies.Constant(action) for action, name in enumerate(names)}


def _evaluate(log: drs.Log, policies: dict[str, Any], **options: Any) -> drs.Evaluation:
    return drs.evaluate(log, policies, drs.models.Ridge(), ESTIMATORS, crossfit=FOLDS, **options)


def _measured(log: drs.Log, policies: dict[str, Any]) -> drs.Evaluation:
    """SNIPS of a policy that always takes one action is the mean reward of that arm."""
    return drs.evaluate(log, policies, estimators="snips")


def _halves(log: drs.Log, setting: Setting, **options: Any) -> list[tuple[drs.Log, drs.Log]]:
    return [log.split(0.5, seed=seed, **options) for seed in range(setting.repetitions(SPLITS, FEW_SPLITS))]


def _compare(result: drs.Evaluation, measured: drs.Evaluation, halves: Halves, **key: str) -> None:
    for reward, found in result.rewards.items():
        for policy in found.policies:
            truth = measured.rewards[reward][policy, "snips"]
            for estimator in ESTIMATORS:
                halves.add(beside(found[policy, estimator], truth), **key, reward=reward, estimator=estimator)


def _estimates(result: drs.Evaluation, table: pa.Table) -> list[Row]:
    rows = []
    for action, policy in enumerate(result.policies):
        arm = table.filter(pc.field("action") == action)[result.reward].to_numpy()
        truth = float(arm.mean())
        for estimator in ESTIMATORS:
            found = result[policy, estimator]
            row = {"reward": result.reward, "policy": policy, "estimator": estimator, "arm": len(arm), **bounds(found)}
            rows.append({**row, "truth": truth, "inside": found.low <= truth <= found.high})
    return rows


def _segments(result: drs.Evaluation, table: pa.Table) -> list[Row]:
    rows = result.segments.filter(pc.field("estimator") == "dr").to_pylist()
    for row in rows:
        where = pc.field("action") == result.policies.index(row["policy"])
        for name in SEGMENTS:
            where &= pc.field(name) == row[name]
        row["truth"] = float(table.filter(where)[result.reward].to_numpy().mean())
        row["inside"] = row["low"] <= row["truth"] <= row["high"]
    return rows
