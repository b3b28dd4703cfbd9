"""Section 4.3: which result comes first. Table 2 evaluates the exploration policy itself, and an argmax policy.

r̂ and the argmax policy's r' are linear models, fitted on the same training data, r' with importance weights 1/p. The
evaluation data is split into ten subsets. Results are divided by the mean reward (self-evaluation) or by the mean of
IPS (argmax).

The paper's log is not public. We use two others. The samples of the Open Bandit Dataset are real but small: a log has
10,000 rows, and about 0.5 % of them have a click. The other log, of clicks and skips, is drawn here, so its true values
are known.

Least squares with an intercept predicts, for each action, the mean reward of the training events. DM is then right in
self-evaluation, however wrong r̂ is elsewhere. So on the drawn log r̂ is w_a·x, as in the paper, and a second r̂ has an
intercept.
"""

from __future__ import annotations

import json
import time
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import scipy.sparse
from numpy.typing import NDArray

import drstream as drs
from scripts.studies import data, trials
from scripts.studies.trials import Row, Setting

Floats = NDArray[np.float64]

KEY, SKIPS, BANDIT = 12, 0, 1  # keys of random numbers: of Table 2, and of its data sets
SUBSETS = 10
ESTIMATORS = ("ips", "dm", "dr")
CAMPAIGNS = ("all", "men")
LOGS = ("uniform", "thompson", "uniform, by category")

RESULTS = ("web-link", "news", "movie")
TERMS, TERMS_A_QUERY = 1_000, 6  # number of features; mean number in a query
TRAIN_ROWS, TEST_ROWS = 1_000_000, 200_000  # the paper's
FLOOR = 0.05  # minimum probability of the exploration policy
ALPHA = 100.0  # for the Open Bandit logs, where most items have 60 or 150 events and no click
FUZZ = 0.3  # standard deviation of the error in recorded scores, where logging is off


def table2(setting: Setting) -> Path:
    started = time.perf_counter()
    sizes = (50_000, 20_000) if setting.quick else (TRAIN_ROWS, TEST_ROWS)
    kinds = [(exact, intercept) for exact in (True, False) for intercept in (False, True)]
    cases = [(setting.seed, *kind, *sizes) for kind in (kinds[:2] if setting.quick else kinds)]
    rows = trials.run(click_skip, cases, setting, "Table 2, clicks and skips")
    cases = [(name, kind, setting.data, setting.seed) for name in CAMPAIGNS for kind in LOGS]
    rows += trials.run(open_bandit, cases, setting, "Table 2, Open Bandit")
    return trials.write("table2", rows, setting, started)


def evaluate(subsets: list[drs.Log], policies: dict[str, Any], model: Any, estimators: Any = ESTIMATORS) -> list[Row]:
    """The estimates on each subset."""
    rows = []
    for subset, log in enumerate(subsets):
        result = drs.evaluate(log, policies, model, estimators=list(estimators), threads=1)
        for policy in policies:
            for estimator in estimators:
                found = result[policy, estimator]
                about = {"policy": policy, "estimator": estimator, "subset": subset, "n": found.n}
                rows.append({**about, "value": found.value, "stderr": found.stderr})
    return rows


def normalised(rows: list[Row], reward: float, truths: dict[str, float | None]) -> list[Row]:
    """Divides as the paper does: self-evaluation by the mean reward, argmax by the mean of IPS. Adds known truths."""
    ips = np.mean([row["value"] for row in rows if row["policy"] == "argmax" and row["estimator"] == "ips"])
    for row in rows:
        scale = float(ips if row["policy"] == "argmax" else reward)
        truth = truths.get(row["policy"])
        row |= {"scale": scale, "normalised": row["value"] / scale if scale else np.nan, "truth": truth}
    return rows


def argmax(train: drs.Log, **options: Any) -> drs.policies.Linear:
    """The policy that takes the action with the largest r'(x, a)."""
    model = drs.models.Ridge(weights="1/p", **options).fit(train, threads=1)
    return drs.policies.Linear(model.coef_, model.intercept_)


# Clicks and skips


class Queries(NamedTuple):
    X: scipy.sparse.csr_array  # (n, TERMS), of ones
    logging: Floats  # μ(a|x), (n, 3)
    recorded: Floats  # the recorded μ, where logging is off
    first: Floats  # probability of a click on the first result, if it has type a
    below: Floats  # probability of a click below it
    action: NDArray[np.int64]
    reward: Floats


@cache
def queries(rows: int, seed: int) -> Queries:
    """A click on the first result is logistic in terms and pairs of terms. Other users may click below it."""
    rng = trials.generator(seed, KEY, SKIPS)
    K = len(RESULTS)
    taste, either, other = rng.normal(0, 0.4, (3, TERMS, K))
    wont = 0.5 * taste + rng.normal(0, 0.2, (TERMS, K))
    frequency = 1 / (np.arange(TERMS) + 10)
    count = rng.geometric(1 / TERMS_A_QUERY, rows)
    chosen = rng.choice(TERMS, count.sum(), p=frequency / frequency.sum())
    X = scipy.sparse.csr_array((np.ones(len(chosen)), (np.repeat(np.arange(rows), count), chosen)), (rows, TERMS))
    X.data[:] = 1  # a term that was drawn twice counts once
    scores = X @ taste + 0.6 * (X @ either) * (X @ other)
    first = 1 / (1 + np.exp(0.8 - scores))
    below = (1 - first) * 0.4
    habit = X @ wont
    logging = _softmax(habit)
    recorded = _softmax(habit + FUZZ * rng.standard_normal((rows, K)))
    action = (logging.cumsum(axis=1) < rng.random((rows, 1))).sum(axis=1).clip(max=K - 1)
    u, taken = rng.random(rows), (np.arange(rows), action)
    reward = (u < first[taken]).astype(float) - (u > 1 - below[taken])
    return Queries(X, logging, recorded, first, below, action, reward)


def _softmax(scores: Floats) -> Floats:
    likely = np.exp(scores - scores.max(axis=1, keepdims=True))
    return FLOOR + (1 - FLOOR * scores.shape[1]) * likely / likely.sum(axis=1, keepdims=True)


def click_skip(seed: int, exact: bool, intercept: bool, train_rows: int, test_rows: int) -> list[Row]:
    """Evaluates the true policy. Recorded propensities are exact, or off."""
    found = queries(train_rows + test_rows, seed)
    logging = found.logging if exact else found.recorded
    columns = {
        "indices": pa.ListArray.from_arrays(pa.array(found.X.indptr), pa.array(found.X.indices)),
        "action": found.action,
        "reward": found.reward,
        "propensity": logging[np.arange(len(logging)), found.action],
        "mu": data.rows(found.logging),
    }
    table = pa.table(columns)
    options = {"context": drs.Sparse("indices", dim=TERMS), "actions": len(RESULTS)}
    train = drs.Log(table.slice(0, train_rows), **options)
    size = test_rows // SUBSETS
    subsets = [drs.Log(table.slice(train_rows + i * size, size), **options) for i in range(SUBSETS)]
    model = drs.models.Ridge(fit_intercept=intercept).fit(train, threads=1)
    best = argmax(train, fit_intercept=intercept)
    rows = evaluate(subsets, {"self": drs.policies.Column("mu"), "argmax": best}, model)
    expected = (found.first - found.below)[train_rows:]
    truths = {
        "self": float((found.logging[train_rows:] * expected).sum(axis=1).mean()),
        "argmax": float((best.probabilities(found.X[train_rows:]) * expected).sum(axis=1).mean()),
    }
    about = {"data": "click-skip", "logging": "exact" if exact else "off", "intercept": intercept}
    return [{**about, **row} for row in normalised(rows, float(found.reward[train_rows:].mean()), truths)]


# Open Bandit


def open_bandit(campaign: str, kind: str, folder: Path, seed: int) -> list[Row]:
    """Fits models on a random half of a log, and evaluates on the other half in ten subsets.

    The policy of the uniform log is known. Thompson sampling changed with each batch of clicks, so only the propensity
    of the logged action is known. IPS then has weights of 1 and is the mean reward. DM uses the logged action, which is
    a draw from the policy. DR needs the probabilities of all actions. They come from a model of the logging policy,
    fitted on the training half, so its value differs a little from the log's mean reward.
    """
    table = data.open_bandit(campaign, folder)
    about = json.loads(table.schema.metadata[b"item_context"])
    table = table.filter(pa.array(table["policy"].to_numpy() == (kind == "thompson")))
    K = len(about["item_feature_0"])
    columns: dict[str, Any] = {"reward": table["click"].to_numpy().astype(float), "x": data.rows(_contexts(table))}
    if kind == "uniform, by category":
        category = np.unique(about["item_feature_3"], return_inverse=True)[1]
        share = np.bincount(category) / K  # of the items in each category
        action = category[table["item_id"].to_numpy()]
        columns |= {"action": action, "propensity": share[action]}
        K, own = len(share), drs.policies.Softmax(np.zeros((len(share), columns["x"].type.list_size)), np.log(share))
    else:
        columns |= {"action": table["item_id"].to_numpy(), "propensity": table["propensity"].to_numpy()}
        own = drs.policies.Uniform()
    events = pa.table(columns)
    order = trials.generator(seed, KEY, BANDIT, CAMPAIGNS.index(campaign), LOGS.index(kind)).permutation(len(events))
    half = len(order) // 2
    train, *subsets = (
        drs.Log(events.take(np.sort(part)), context="x", actions=K)
        for part in (order[:half], *np.array_split(order[half:], SUBSETS))
    )
    model = drs.models.Ridge(alpha=ALPHA).fit(train, threads=1)
    policies: dict[str, Any] = {"argmax": argmax(train, alpha=ALPHA * K)}  # 1/p is K on average
    if kind == "thompson":
        rows = evaluate(subsets, {"self": drs.policies.Column("propensity")}, None, ["ips"])
        rows += evaluate(subsets, {"self": drs.policies.Column("action")}, model, ["dm"])
        policies["self, by a model"] = drs.models.Propensity().fit(train, threads=1)
    else:
        rows = []
        policies["self"] = own
    rows += evaluate(subsets, policies, model)
    described = {"data": f"open bandit, {campaign}", "logging": kind, "intercept": True}
    return [{**described, **row} for row in normalised(rows, float(columns["reward"][order[half:]].mean()), {})]


def _contexts(table: pa.Table) -> NDArray[np.float32]:
    """The position and the user's four features, one-hot."""
    parts = []
    for name in ("position", *(f"user_feature_{i}" for i in range(4))):
        codes = table[name].to_numpy()
        parts.append(codes[:, None] == np.arange(codes.min(), codes.max() + 1))
    return np.hstack(parts).astype(np.float32)
