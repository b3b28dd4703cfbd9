"""Logarithmic smoothing and implicit exploration: against single events, their guarantee, and what they need."""

import math

import numpy as np
import pyarrow as pa
import pytest

import drstream as drs
from drstream import DrstreamError

METHODS = ["ls", "ix"]
N = 900  # so λ = 1 / 30


def draw(rng, n=N, low=0.0, high=1.0):
    """A log of three actions, one of them rare, and ν of the logged action; the value is (low + high (4 - 1)) / 4."""
    p, nu = np.array([0.6, 0.38, 0.02]), np.array([0.2, 0.3, 0.5])
    action = rng.choice(3, n, p=p)
    clicks = np.array([0.1, 0.2, 0.34])
    reward = np.where(rng.random(n) < clicks[action], high, low)
    table = {"action": action, "reward": reward, "propensity": p[action], "nu": nu[action], "part": np.arange(n) % 3}
    return pa.table(table), low + (high - low) * float(nu @ clicks)


def evaluate(table, **options):
    options = {"estimators": ["ips", "snips"], "interval": METHODS, "reward_range": (0, 1), **options}
    return drs.evaluate(drs.Log(table, actions=3), {"new": drs.policies.Column("nu")}, **options)


def by_hand(table, low=0.0, high=1.0, rows=N, confidence=0.95):
    """Bounds from single events. λ = 1 / √rows."""
    w, p = table["nu"].to_numpy() / table["propensity"].to_numpy(), table["propensity"].to_numpy()
    r = (table["reward"].to_numpy() - low) / (high - low)
    lam, penalty = 1 / math.sqrt(rows), math.log(2 / (1 - confidence)) / len(r)
    found = {}
    for method in METHODS:
        ends = []
        for y in (r, 1 - r):
            if method == "ls":
                ends.append((math.exp(np.log(1 + lam * w * y).mean() - penalty) - 1) / lam)
            else:
                ends.append((w * p / (p + lam / 2) * y).mean() - penalty / lam)
        found[method] = low + (high - low) * max(ends[0], 0), high - (high - low) * max(ends[1], 0)
    return found


@pytest.mark.parametrize("ends", [(0.0, 1.0), (-3.0, 5.0)])
def test_single_events(ends):
    table, _ = draw(np.random.default_rng(1), low=ends[0], high=ends[1])
    result = evaluate(table, reward_range=ends)
    wanted = by_hand(table, *ends)
    for method in METHODS:
        assert result["new", "ips"].intervals[method] == pytest.approx(wanted[method])
        low, high = result["new", "snips"].intervals[method]  # about the same value
        assert (low, high) == pytest.approx(wanted[method])


def test_parts_of_a_log_and_batches_make_no_difference():
    table, _ = draw(np.random.default_rng(2))
    whole, parts = evaluate(table), evaluate(pa.concat_tables([table.slice(0, 500), table.slice(500)]))
    assert whole["new", "ips"].intervals == parts["new", "ips"].intervals


def test_segments_have_the_smoothing_of_the_log():
    table, _ = draw(np.random.default_rng(3))
    found = evaluate(table, by="part").segment(part=1)["new", "ips"].intervals
    wanted = by_hand(table.filter(pa.array(np.arange(N) % 3 == 1)))
    for method in METHODS:
        assert found[method] == pytest.approx(wanted[method])


@pytest.mark.parametrize("method", METHODS)
def test_they_hold_the_value_without_a_bound_of_the_weights(method):
    """400 logs at 80 %: the guarantee of each end is 90 %, and 3 standard errors are 4.5 points. Normal ones fail."""
    held, normal = [0, 0], 0
    for seed in range(400):
        table, truth = draw(np.random.default_rng([seed, 9]), n=150)
        found = evaluate(table, interval=[method, "normal"], confidence=0.8)["new", "ips"].intervals
        held[0] += found[method][0] <= truth
        held[1] += truth <= found[method][1]
        normal += found["normal"][0] <= truth <= found["normal"][1]
    assert min(held) >= 0.9 * 400 - 18
    assert normal < 0.8 * 400 - 24


def test_ix_is_wider_than_ls_by_what_its_proof_gives_away():
    table, truth = draw(np.random.default_rng(4))
    ls, ix = (evaluate(table)["new", "ips"].intervals[method] for method in METHODS)
    assert ix[0] < ls[0] < truth < ls[1] < ix[1]


def test_differences_are_sums_of_bounds_and_have_the_sign_of_their_order():
    table, _ = draw(np.random.default_rng(5), n=40_000)
    result = drs.evaluate(
        drs.Log(table.append_column("other", table["propensity"]), actions=3),
        {"new": drs.policies.Column("nu"), "old": drs.policies.Column("other")},
        estimators=["ips"],
        interval=METHODS,
        reward_range=(0, 1),
    )
    for other in ("old", None):
        gain = result.difference("new", other)
        for low, high in gain.intervals.values():
            assert 0 < low < gain.value < high < 0.3
    turned = result.difference("old", "new")
    assert (turned.low, turned.high) == pytest.approx((-result.difference("new", "old").high, -gain_low(result)))


def gain_low(result):
    return result.difference("new", "old").low


def test_dr_has_the_bounds_of_its_value():
    table, _ = draw(np.random.default_rng(6))
    log = drs.Log(table.append_column("q", pa.array([[0.1, 0.2, 0.3]] * N)), actions=3)
    result = drs.evaluate(
        log, {"new": drs.policies.Uniform()}, drs.models.Column("q"), ["dr", "ips"], interval="ls", reward_range=(0, 1)
    )
    dr, ips = result["new", "dr"], result["new", "ips"]
    assert dr.low <= ips.low
    assert dr.high >= ips.high
    assert dr.low <= dr.value <= dr.high


def test_messages():
    table, _ = draw(np.random.default_rng(7))
    with pytest.raises(DrstreamError, match="interval='ix' needs the range of the rewards: pass reward_range="):
        evaluate(table, interval="ix", reward_range=None)
    stream = pa.RecordBatchReader.from_batches(table.schema, table.to_batches())
    with pytest.raises(
        DrstreamError, match=r"interval='ls' needs to know the number of rows .* write the log to a Parq"
    ):
        evaluate(stream, interval="ls")


def test_states_of_logs_of_other_sizes_are_not_merged(tmp_path):
    """Sums with two λ make no interval."""
    for name, rows in (("a", 900), ("b", 600), ("c", 900)):
        table, _ = draw(np.random.default_rng(ord(name)), n=rows)
        evaluate(table, interval="ls", state=tmp_path / f"{name}.state")
    merged = drs.merge([tmp_path / "a.state", tmp_path / "c.state"])
    assert merged["new", "ips"].low < merged["new", "ips"].value
    with pytest.raises(DrstreamError, match="smoothing"):
        drs.merge([tmp_path / "a.state", tmp_path / "b.state"])
