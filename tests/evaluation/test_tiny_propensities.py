"""One propensity of 1e-155 or less: its policy has no interval, and other policies do not suffer from it."""

import numpy as np
import pyarrow as pa
import pytest

import drstream as drs

EVENTS = 600
POLICIES = {
    "hit": drs.policies.Constant(0),
    "other": drs.policies.Constant(1),
    "linear": drs.policies.Linear(np.array([[-1.0], [1.0]]), intercept=np.array([-90.0, 90.0])),
}
OPTIONS = {
    "events": ({}, {"interval": ["normal", "tails", "likelihood", "gamma", "bootstrap"]}),
    "clusters": ({}, {"interval": ["cluster", "likelihood", "gamma", "bootstrap"], "cluster": "user", "by": "user"}),
    "sampled": ({"sample_rate": "rate"}, {"interval": ["normal", "bootstrap"]}),
}


def log(tiny, **options):
    rng = np.random.default_rng(0)
    propensity, action = np.full(EVENTS, 0.5), rng.integers(0, 2, EVENTS)
    propensity[17], action[17] = tiny, 0
    columns = {
        "x0": rng.normal(size=EVENTS),
        "action": action,
        "reward": (rng.random(EVENTS) < 0.3).astype(float),
        "propensity": propensity,
        "rate": np.full(EVENTS, 0.5),
        "user": rng.integers(0, 40, EVENTS),
    }
    return drs.Log(pa.table(columns), context="x0", **options)


def evaluate(tiny, options):
    of_log, of_run = options
    model = drs.models.Constant(0.3)
    return drs.evaluate(log(tiny, **of_log), POLICIES, model, reward_range=(0, 1), threads=1, **of_run)


def numbers(result):
    found = [result[policy, e] for policy in ("other", "linear") for e in ("ips", "snips", "dr")]
    differences = [result.difference("other", "linear", e) for e in ("ips", "dr")]
    return [(e.value, e.stderr, e.ess, *e.intervals.items()) for e in found], [(d.low, d.high) for d in differences]


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_other_policies_keep_their_bits(options):
    wanted = numbers(evaluate(0.5, options))
    assert not any(np.isnan(bounds).any() for row in wanted[0] for _, bounds in row[3:])
    for tiny in (1e-155, 1e-200, 1e-320):  # 1 / 1e-320 is infinite
        result = evaluate(tiny, options)
        assert numbers(result) == wanted
        told = {finding.check for finding in result.findings if finding.level == "stop" and finding.policy == "hit"}
        assert told & {"ess", "largest weight", "clusters"}
        assert not {finding for finding in result.findings if finding.level == "stop" and finding.policy == "other"}
