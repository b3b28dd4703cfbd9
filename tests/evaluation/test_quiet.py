"""Healthy logs stay quiet, or nobody reads what a finding says: ten kinds of logs, policies and estimators."""

import warnings
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

import drstream as drs

LOGS = 20  # of each kind
ROWS = 2_500
M, P = drs.models, drs.policies


def table(seed, *, actions=4, sharp=0.5, least=0.2, rate=0.3, rewards="clicks", users=None, features=3):
    """Actions by a softmax of the contexts, mixed with uniform ones, and rewards that depend on both."""
    rng = np.random.default_rng(seed)
    user = np.arange(ROWS) if users is None else rng.integers(0, users, ROWS)
    X = rng.normal(size=(ROWS, features))
    scores = sharp * X @ rng.normal(size=(features, actions))
    p = np.exp(scores - scores.max(1, keepdims=True))
    p = (1 - least) * p / p.sum(1, keepdims=True) + least / actions
    action = (p.cumsum(1) > rng.random((ROWS, 1))).argmax(1)
    rows = np.arange(ROWS)
    signal = (X @ rng.normal(size=(features, actions)) / np.sqrt(features))[rows, action]
    mean = rate * (1 + 0.5 * np.tanh(signal))
    if users is not None:
        mean *= np.random.default_rng(seed + 1).uniform(0.5, 1.5, users)[user]
    reward = (rng.random(ROWS) < mean) * 1.0
    if rewards == "numbers":
        reward = 10 + signal + rng.normal(size=ROWS)
    if rewards == "amounts":
        reward *= rng.gamma(4.0, 5.0, ROWS)
    found = {f"x{j}": X[:, j] for j in range(features)} | {"action": action, "reward": reward}
    found["propensity"] = p[rows, action]
    if users is not None:
        found["user_id"] = user
    return found


def soft(seed, actions=4, features=3, scale=0.5):
    return P.Softmax(scale * np.random.default_rng(seed + 7).normal(size=(actions, features)))


def log_of(found, **options):
    return drs.Log(pa.table(found), context="x*", **options)


KINDS = {
    "clicks": lambda s: drs.evaluate(log_of(table(s)), soft(s)),
    "two arms": lambda s: drs.evaluate(log_of(table(s, actions=2, sharp=0.0)), P.Constant(1), estimators=["snips"]),
    "model by fold": lambda s: drs.evaluate(log_of(table(s)), {"a": soft(s), "b": soft(s + 1)}, M.Ridge(), crossfit=3),
    "logistic": lambda s: drs.evaluate(log_of(table(s)), soft(s), M.Logistic(), ["ips", "dr"], crossfit=2),
    "numbers": lambda s: drs.evaluate(log_of(table(s, rewards="numbers")), soft(s), M.Ridge(), crossfit=3),
    "amounts": lambda s: drs.evaluate(log_of(table(s, rewards="amounts")), soft(s)),
    "ten actions": lambda s: drs.evaluate(log_of(table(s, actions=10)), soft(s, 10)),
    "users": lambda s: drs.evaluate(log_of(table(s, users=400)), soft(s), cluster="user_id"),
    "learned": lambda s: learned(*log_of(table(s)).split(0.2)),
    "categories": lambda s: drs.evaluate(with_land(s), P.Epsilon(P.Constant(1), 0.5), M.Ridge(), crossfit=2),
}


def learned(train, test):
    return drs.evaluate(test, P.Greedy(M.Ridge(10.0).fit(train), 0.3))


def with_land(seed):
    found = table(seed, sharp=0.0)
    found["x_land"] = np.array(["AT", "DE", "FR"])[np.random.default_rng(seed).integers(0, 3, ROWS)]
    return log_of(found)


def test_healthy_logs_stay_quiet():
    """At most 1 % get a stop, and 5 % a look. Of 200 logs, that is 6 and 19 or fewer with probability 99.5 %."""
    levels, said = Counter(), Counter()
    for name, evaluate in KINDS.items():
        for seed in range(LOGS):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                result = evaluate(1_000 * seed)
            bad = [one for one in result.findings if one.level != "ok"]
            levels["stop" if any(one.level == "stop" for one in bad) else "look" if bad else "ok"] += 1
            said.update((name, one.check, one.level) for one in bad)
    assert levels["stop"] <= 6, said
    assert levels["look"] + levels["stop"] <= 19, said


NOTHING = "No check has anything to say against this result"


def test_a_report_says_so_only_if_it_is_so(tmp_path):
    quiet = KINDS["clicks"](0)
    assert all(one.level == "ok" for one in quiet.findings)
    quiet.report(tmp_path / "quiet.html")
    assert NOTHING in (tmp_path / "quiet.html").read_text()
    log = log_of(table(0))
    with pytest.warns(drs.DrstreamWarning):
        doubtful = drs.evaluate(log, P.Greedy(M.Ridge().fit(log)))
    doubtful.report(tmp_path / "doubtful.html")
    assert NOTHING not in (tmp_path / "doubtful.html").read_text()
