"""Open Bandit: the log of each of two logging policies evaluates the other, whose own log has the truth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import drstream as drs
from scripts.studies import data
from scripts.studies.real_logs.rows import beside, bounds, findings, known
from scripts.studies.trials import Row, Setting

CAMPAIGNS = ("all", "men")
POSITIONS = 3
RANDOM, THOMPSON, MISTAKEN = "uniform random", "Thompson sampling", "Thompson sampling, mean propensities"
AS_LOGGED, OF_SHARES = "as logged, shares elsewhere", "shares"  # of the Thompson sampler
SHARES, MEANS = "shares", "mean_propensities"  # columns


BOTH = {RANDOM: drs.policies.Uniform(), THOMPSON: drs.policies.Column(SHARES)}


def run(setting: Setting) -> dict[str, Any]:
    found: dict[str, list[Row]] = {"logs": [], "estimates": [], "intervals": [], "findings": []}
    found |= {"loggers": [], "balanced": []}
    for campaign in CAMPAIGNS:
        table = data.open_bandit(campaign, setting.data)
        K = int(table.schema.metadata[b"n_items"])
        table = _with_policies(table, K)
        parts = {
            name: table.filter(pa.array(table["policy"].to_numpy() == number))
            for number, name in enumerate((RANDOM, THOMPSON))
        }
        logs = {
            name: drs.Log(
                part,
                context="place",
                action="item_id",
                reward="click",
                propensity="propensity",
                actions=K,
            )
            for name, part in parts.items()
        }
        targets = {RANDOM: drs.policies.Column(SHARES), THOMPSON: drs.policies.Uniform()}
        results = {}
        for name, log in logs.items():
            other = next(each for each in logs if each != name)
            results[name] = drs.evaluate(log, {other: targets[name]}, drs.models.Ridge(), crossfit=5)
        for name, result in results.items():
            about = {"campaign": campaign, "log": name}
            (other,) = result.policies
            truth = results[other].baseline
            clicks = round(result.baseline.value * result.n)
            smallest = float(parts[name]["propensity"].to_numpy().min())
            found["logs"].append(
                {**about, "actions": K, "events": result.n, "clicks": clicks, "r2": result.r2, "smallest": smallest}
                | {f"baseline_{key}": value for key, value in bounds(result.baseline).items()}
            )
            found["estimates"] += _estimates(result, truth, about)
            found["findings"] += [{**about, **each} for each in findings(result)]
            found["intervals"] += _intervals(logs[name], other, targets[name], truth, K, about)
        about = {"campaign": campaign, "log": RANDOM}
        mistaken = drs.evaluate(logs[RANDOM], {MISTAKEN: drs.policies.Column(MEANS)}, estimators=["ips", "snips"])
        found["estimates"] += _estimates(mistaken, results[THOMPSON].baseline, about)
        found["findings"] += [{**about, **each} for each in findings(mistaken)]
        for propensities in (AS_LOGGED, OF_SHARES):
            result = drs.evaluate(_both(table, K, propensities), BOTH, estimators=["ips", "balanced-ips"])
            found["balanced"] += _balanced(result, {"campaign": campaign, "propensities": propensities})
            if propensities == AS_LOGGED:
                assert result.loggers is not None
                names = {0: RANDOM, 1: THOMPSON}
                rows = [{**row, "logger": names[row["logger"]]} for row in result.loggers.to_pylist()]
                found["loggers"] += [{"campaign": campaign, **row} for row in rows]
    return found


def _both(table: pa.Table, K: int, propensities: str) -> drs.Log:
    """Both logs as one. The Thompson sampler's propensities of the other's items are its shares, for want of better."""
    thompson, item = table["policy"].to_numpy() == 1, table["item_id"].to_numpy().astype(int)
    lists = table[SHARES].combine_chunks()
    shares = lists.flatten().to_numpy().reshape(len(table), K)[np.arange(len(table)), item]
    logged = shares if propensities == OF_SHARES else table["propensity"].to_numpy()
    of_thompson = np.where(thompson, logged, shares)
    columns = {"p_uniform": np.full(len(table), 1 / K), "p_thompson": of_thompson}
    columns["p"] = np.where(thompson, of_thompson, 1 / K)
    for name, values in columns.items():
        table = table.append_column(name, pa.array(values))
    roles = {"action": "item_id", "reward": "click", "propensity": "p", "actions": K, "context": "place"}
    return drs.Log(table, logger="policy", logger_propensities={0: "p_uniform", 1: "p_thompson"}, **roles)


def _balanced(result: drs.Evaluation, about: Row) -> list[Row]:
    """IPS and balanced IPS, with the mean weight of each, which should be 1."""
    rows = []
    for policy in result.policies:
        known = {f.check: f for f in result.findings if f.policy == policy}
        for estimator in result.estimators:
            estimate = result[policy, estimator]
            weight = known["mean balanced weight" if estimator.startswith("balanced") else "mean weight"]
            row = {**about, "policy": policy, "estimator": estimator, "value": estimate.value}
            rows.append({**row, "stderr": estimate.stderr, "mean_weight": weight.value, "level": weight.level})
    return rows


def _estimates(result: drs.Evaluation, truth: drs.Estimate, about: Row) -> list[Row]:
    (policy,) = result.policies
    rows = []
    for estimator in result.estimators:
        estimate = result[policy, estimator]
        row = {**about, "policy": policy, "estimator": estimator, "ess": known(estimate.ess)}
        rows.append({**row, **beside(estimate, truth)})
    return rows


def _intervals(log: drs.Log, name: str, policy: Any, truth: drs.Estimate, K: int, about: Row) -> list[Row]:
    """Intervals of SNIPS by other methods. On the uniform log, p is 1/K, so no weight can be larger than K."""
    known: dict[str, Any] = {"reward_range": (0, 1)}
    methods: dict[str, Any] = {
        "normal": {"interval": "normal"},
        "bootstrap": {"interval": "bootstrap"},
        "gamma": {"interval": "gamma", **known},
        "likelihood": {"interval": "likelihood", **known},
    }
    if about["log"] == RANDOM:
        methods["likelihood, weights at most K"] = {"interval": "likelihood", "max_weight_bound": K, **known}
    rows = []
    for method, options in methods.items():
        result = drs.evaluate(log, {name: policy}, estimators="snips", **options)
        rows.append({**about, "policy": name, **beside(result["snips"], truth), "method": method})
    return rows


def _with_policies(table: pa.Table, K: int) -> pa.Table:
    """Adds the position, one-hot, and what is known about the Thompson sampler, which does not look at the user.

    Its probabilities changed with each batch of clicks. The share of each item among its events of a position estimates
    the mean of these. The mean of the logged propensities of an item does not: an item was logged most when its
    propensity was large, so this mean is too large, and the means of all items do not sum to 1.
    """
    thompson = table["policy"].to_numpy() == 1
    place, item = table["position"].to_numpy().astype(int) - 1, table["item_id"].to_numpy().astype(int)
    cell = place * K + item
    count = np.bincount(cell[thompson], minlength=POSITIONS * K).reshape(POSITIONS, K)
    total = np.bincount(cell[thompson], table["propensity"].to_numpy()[thompson], POSITIONS * K)
    means = np.divide(total, count.reshape(-1), where=count.reshape(-1) > 0, out=np.zeros(POSITIONS * K))
    columns = {
        SHARES: _lists((count / count.sum(axis=1, keepdims=True))[place]),
        MEANS: pa.array(means[cell]),
        "place": _lists(np.eye(POSITIONS)[place]),
    }
    for name, column in columns.items():
        table = table.append_column(name, column)
    return table


def _lists(values: NDArray[np.float64]) -> pa.FixedSizeListArray:
    return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])
