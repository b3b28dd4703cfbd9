"""Replays: every learner beside its naive form, small logs, and what it means that two runs agree."""

import math

import numpy as np
import pyarrow as pa
import pytest

import drstream as drs
from tests.helpers import naive_replay
from tests.helpers.eligible import lists_of, random_mask

LEARNERS = {
    "epsilon": (drs.policies.EpsilonGreedy(0.3), naive_replay.EpsilonGreedy, {"epsilon": 0.3}),
    "epsilon, decaying, logistic": (
        drs.policies.EpsilonGreedy(
            0.5, epsilon_decay=0.1, learning_rate=0.3, learning_rate_decay=0.05, loss="logistic"
        ),
        naive_replay.EpsilonGreedy,
        {"epsilon": 0.5, "decay": 0.1, "rate": 0.3, "rate_decay": 0.05, "loss": "logistic"},
    ),
    "boltzmann": (
        drs.policies.Boltzmann(0.2, cooling=0.01),
        naive_replay.Boltzmann,
        {"temperature": 0.2, "cooling": 0.01},
    ),
    "square": (drs.policies.SquareCB(5.0), naive_replay.SquareCB, {"gamma": 5.0}),
    "linucb": (drs.policies.LinUCB(0.7, ridge=2.0), naive_replay.LinUCB, {"alpha": 0.7, "ridge": 2.0}),
    "ucb1": (drs.policies.UCB1(0.5), naive_replay.UCB1, {"scale": 0.5}),
    "exp3": (drs.policies.Exp3(0.2), naive_replay.Exp3, {"gamma": 0.2}),
}


def small_log(seed, rows, actions, features, kind="float64"):
    """Random events with strong and weak propensities, and predictions that stand in a column."""
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            **{f"x{j}": rng.standard_normal(rows).astype(kind) for j in range(features)},
            "action": rng.integers(0, actions, rows),
            "reward": rng.choice([0.0, 1.0, 0.4], rows),
            "propensity": rng.choice([1.0, 0.5, 0.25, 0.06, 0.9], rows),
            "rhat": pa.array(list(rng.random((rows, actions)))),
        }
    )


def small_log_with_sets(seed, rows, actions, features, kind="float64", share=0.5):
    """The same with eligible sets, in a random order; and the sets (rows, actions)."""
    table, rng = small_log(seed, rows, actions, features, kind), np.random.default_rng(seed + 1)
    mask = random_mask(rng, rows, actions, share)
    mask[np.arange(rows), table["action"].to_numpy()] = True
    return table.append_column("items", lists_of(mask, rng=rng, kind=pa.list_(pa.int64()))), mask


def as_events(table, features):
    X = np.column_stack([*(table[f"x{j}"].to_numpy() for j in range(features)), np.zeros((table.num_rows, 0))])
    columns = (table[name].to_pylist() for name in ("action", "reward", "propensity"))
    return list(zip(X.tolist(), *columns, strict=True)), np.array(table["rhat"].to_pylist())


def agree(run, ref, counts, horizon):
    """Counts exactly, values to 1e-12."""
    assert run.events == counts["events"]
    assert run.acceptance == counts["accepted"] / counts["events"]
    assert run.violations == counts["violations"] / counts["events"]
    assert run.left_over == counts["left_over"]
    assert run.pilot_events == counts["pilot"]
    assert run.complete == len(ref)
    got = run.replicates.to_pylist()
    for a, b in zip(got, ref, strict=True):
        assert {k: a[k] for k in ("steps", "events", "first_row", "last_row")} == {
            k: b[k] for k in ("steps", "events", "first_row", "last_row")
        }
        for name in ("cumulative", "average", "weight"):
            assert a[name] == pytest.approx(b[name], rel=1e-12, abs=1e-12)
    averages = [b["average"] for b in ref]
    assert run.value == pytest.approx(np.mean(averages), rel=1e-12, abs=1e-12)
    total = np.mean([b["cumulative"] for b in ref]) if run.bias is None else horizon * np.mean(averages)
    assert run.cumulative == pytest.approx(total, rel=1e-12, abs=1e-12)
    curve = run.curve
    assert curve["t"].to_pylist() == list(range(1, horizon + 1))
    assert curve["cumulative"][-1].as_py() == pytest.approx(run.cumulative, rel=1e-9, abs=1e-9)
    check_curve(run, ref)
    assert curve["average"][-1].as_py() == pytest.approx(run.value, rel=1e-12, abs=1e-12)


def check_curve(run, ref):
    """The whole curve, its bands, the pooled value and the bias mass, from the blocks of every replicate."""
    from scipy import stats

    # (m, T) each: c V_B, c |B|, Σ (c w - 1)+, Σ c w
    y, w, mass, importance = np.moveaxis(np.array([b["blocks"] for b in ref], float), 2, 0)
    c, curve, m = np.array([b["cs"] for b in ref]), run.curve, len(ref)
    close = {"rtol": 1e-9, "atol": 1e-9}
    t = stats.t.ppf((1 + run.confidence) / 2, m - 1) / math.sqrt(m) if m > 1 else math.nan

    def spread(values):
        return np.std(values, axis=0, ddof=1) if m > 1 else np.full(len(values[0]), math.nan)

    reward = y.sum(axis=0) / w.sum(axis=0)
    half = t * spread(y - reward * w) / w.mean(axis=0)
    averages = y.cumsum(axis=1) / w.cumsum(axis=1)
    total = y.mean(axis=0).cumsum()
    if run.bias is not None:
        total = np.arange(1, y.shape[1] + 1) * averages.mean(axis=0)
    wanted = {
        "reward": reward, "low": reward - half, "high": reward + half,
        "average": averages.mean(axis=0), "average_low": averages.mean(axis=0) - t * spread(averages),
        "average_high": averages.mean(axis=0) + t * spread(averages), "cumulative": total,
        "c": c.mean(axis=0), "c_least": c.min(axis=0), "c_largest": c.max(axis=0),
    }  # fmt: skip
    assert curve.column_names == ["t", *wanted]
    for name, values in wanted.items():
        found = curve[name].to_numpy()
        if name.endswith(("low", "high")):  # by squares: a spread of 0 is rounding, and its root is far larger
            centre = wanted["average" if name.startswith("average") else "reward"]
            found, values = ((side - centre) * abs(side - centre) for side in (found, values))
        np.testing.assert_allclose(found, values, err_msg=name, **close)
    assert run.pooled.value == pytest.approx(y.sum() / w.sum(), rel=1e-9, abs=1e-12)
    if run.method != "dm":
        assert run.bias_mass == pytest.approx(mass.sum() / importance.sum(), rel=1e-9, abs=1e-12)


def run_or_none(*arguments, **options):
    try:
        return drs.replay(*arguments, **options)
    except drs.NotEnoughEventsError:
        return None


def bits(run):
    numbers = [run.replicates.to_pydict(), run.curve.to_pydict(), run.row()]
    return repr(numbers)
