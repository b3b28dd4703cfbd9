"""What lanes of a grid have in common: the sums against NumPy, what comes of them against plain loops."""

import copy
import pickle

import numpy as np
import pytest

import drstream as drs
from drstream.kernels import crossing as kernels
from drstream.replaying import plan as planning
from drstream.replaying import replay as replaying
from drstream.replaying.crossing import Crossing
from tests.helpers import naive_grid, naive_replay
from tests.helpers.replays import small_log


def traces(seed=0, lanes=3, events=40):
    """c, c V and acceptances. The first events are the pilots of some lanes."""
    rng = np.random.default_rng(seed)
    c, value = rng.uniform(0.01, 1, (lanes, events)), rng.normal(0.4, 1, (lanes, events))
    found = np.stack([c, c * value, (rng.random((lanes, events)) < c).astype(float)], axis=2)
    for i in range(lanes):
        found[i, : 2 * i] = 0.0
    return found


def crossing(*parts):
    found = Crossing(len(parts[0]))
    for part in parts:
        found.add(np.ascontiguousarray(part))
    return found


@pytest.mark.parametrize("lanes", [1, 2, 4])
def test_sums_equal_numpy(lanes):
    given = traces(1, lanes)
    totals, products = np.zeros((lanes, 3)), np.zeros((lanes, lanes, 4))
    kernels.add(given, totals, products)
    np.testing.assert_allclose(totals, given.sum(axis=1), rtol=1e-12)
    for i in range(lanes):
        for j in range(lanes):
            wanted = [*(given[i] * given[j]).sum(axis=0), given[i, :, 1] @ given[j, :, 0]]
            for m in range(4):
                if m == 3 or j <= i:
                    assert products[i, j, m] == pytest.approx(wanted[m], rel=1e-12)
                else:
                    assert products[i, j, m] == 0
    kernels.add(given, totals, products)
    np.testing.assert_allclose(totals, 2 * given.sum(axis=1), rtol=1e-12)


@pytest.mark.parametrize("lanes", [1, 2, 4])
@pytest.mark.parametrize("incomplete", [0.0, 0.25])
def test_shared_equals_plain_loops(lanes, incomplete):
    given = traces(2, lanes)
    values, weights = np.linspace(0.2, 0.6, lanes), given[:, :, 0].sum(axis=1) * (1 - incomplete)
    got = crossing(given).shared(values, weights)
    noise, history = naive_grid.shared(*np.moveaxis(given, 2, 0), values, weights)
    np.testing.assert_allclose(got.noise, noise, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(got.history, history, rtol=1e-12)
    np.testing.assert_allclose(np.diag(got.history), 1.0)
    np.testing.assert_allclose(got.noise, got.noise.T, rtol=1e-9)


def test_lanes_without_a_complete_replicate_share_nothing():
    given = traces(3)
    got = crossing(given).shared(np.array([0.4, np.nan, 0.5]), np.array([9.0, 0.0, 8.0]))
    assert np.isfinite(got.noise).all()
    assert not got.noise[1].any()
    assert not got.history[:, 1].any()
    assert got.history[0, 2] > 0


def test_lanes_that_accepted_nothing_share_nothing():
    got = Crossing(2).shared(np.array([np.nan, np.nan]), np.zeros(2))
    assert not got.noise.any()
    assert not got.history.any()


def test_copies_share_everything():
    one = traces(4, 1)
    given = np.concatenate([one, one])
    weight = one[0, :, 0].sum()
    got = crossing(given).shared(np.full(2, 0.3), np.full(2, weight))
    assert got.history == pytest.approx(np.ones((2, 2)))
    assert got.noise == pytest.approx(np.full((2, 2), got.noise[0, 0]))


def test_parts_merge_to_the_whole_and_can_be_pickled():
    given = traces(5)
    whole, first, second = crossing(given), crossing(given[:, :13]), crossing(given[:, 13:20], given[:, 20:])
    for copied in (pickle.loads(pickle.dumps(first)), copy.deepcopy(first)):
        copied.merge(second)
        np.testing.assert_allclose(copied.totals, whole.totals, rtol=1e-12)
        np.testing.assert_allclose(copied.products, whole.products, rtol=1e-12)
    first.merge(Crossing(3))
    assert (first.totals == crossing(given[:, :13]).totals).all()
    assert first.products[0, 0, 0] == crossing(given[:, :13]).products[0, 0, 0]


@pytest.fixture
def found(monkeypatch):
    """What the grids of the replays of a test had in common."""
    seen = []
    plain = replaying._of_grid

    def of_grid(tried, crossing):
        seen.append((tried, crossing))
        return plain(tried, crossing)

    monkeypatch.setattr(replaying, "_of_grid", of_grid)
    return seen


@pytest.mark.parametrize("policy", [drs.policies.UCB1(), naive_replay.UCB1(3, 1), drs.policies.Uniform()])
def test_the_events_of_a_replay_without_its_pilot_are_added(found, monkeypatch, policy):
    """Sums of c, c V and acceptances are those of the lanes' replicates and of what is left over."""
    log = drs.Log(small_log(0, 1500, 3, 1), actions=3, context=["x0"])
    for rows in (10**6, 7):
        monkeypatch.setattr(planning.Plan, "chunk_rows", rows)
        drs.replay(log, policy, 25, drs.models.Column("rhat"))
    (tried, whole), (_, pieces) = found
    for lane, run in enumerate(tried):
        state = run._outcome
        assert whole.totals[lane, 2] == state.accepted
        weight, value = (float(state.replicates[name].sum()) for name in ("weight", "cumulative"))
        assert whole.totals[lane, 0] >= weight * (1 - 1e-12)
        if not state.left_over:
            assert whole.totals[lane, 1] == pytest.approx(value)
    np.testing.assert_allclose(pieces.totals, whole.totals, rtol=1e-12)
    np.testing.assert_allclose(pieces.products, whole.products, rtol=1e-12)


def test_a_lane_that_is_done_adds_nothing_more(found):
    log = drs.Log(small_log(0, 3000, 3, 1), actions=3, context=["x0"])
    drs.replay(log, drs.policies.UCB1(), 10, replicates=2)
    ((tried, sums),) = found
    for lane, run in enumerate(tried):
        assert run.complete == 2
        assert sums.totals[lane, 2] == 20
        assert sums.totals[lane, 0] == pytest.approx(float(run._outcome.replicates["weight"].sum()))
        assert sums.totals[lane, 1] == pytest.approx(float(run._outcome.replicates["cumulative"].sum()))
