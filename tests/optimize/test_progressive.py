"""The progressive validation policy: against a naive one to 1e-12, its draw of snapshots, its bound, and its files.

The simulations' claims, over logs of a world whose true values are known: the theorem's bound holds in at least 1 - δ
of them, and V / C has no bias as an estimate of the policy's true value: the mean error lies within 4 standard errors
of 0, and a standard error is at most 1 % of the value.
"""

import math
import pickle
import warnings

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse

import drstream as drs
from drstream.optimize import ProgressivePolicy
from drstream.replaying import lanes
from drstream.replaying import plan as planning
from drstream.replaying.snapshots import Recorder
from tests.helpers import naive_replay
from tests.helpers.crossed import meeting
from tests.helpers.cut import cut_log
from tests.helpers.logs import world
from tests.helpers.passes import PLAIN
from tests.helpers.replays import LEARNERS, as_events, small_log
from tests.helpers.sparse import DIM, both_logs

RHAT = drs.models.Column("rhat")


def agree(pv, found):
    assert (pv.steps_, pv.events_) == (found["steps"], found["events"])
    assert pv.value == pytest.approx(found["value"], rel=1e-12)
    assert pv.weight_ == pytest.approx(found["weight"], rel=1e-12)
    assert math.fsum(pv.weights_) == pytest.approx(1, abs=1e-12)


# The mixture


@meeting(2, name=LEARNERS, horizon=[None, 20], kind=["float32", "float64"])
def test_it_equals_the_naive_mixture(monkeypatch, name, horizon, kind):
    """A compiled policy, and the same in Python with a version; more states than are taken down in one call."""
    monkeypatch.setattr(lanes, "SNAPSHOTS", 3)
    compiled, plain, parameters = LEARNERS[name]
    table = small_log(7, 250, 3, 2, kind)
    events, rhat = as_events(table, 2)
    X = np.random.default_rng(1).standard_normal((30, 2)).astype(kind)
    for model in (None, RHAT):
        predictions = None if model is None else rhat
        found = naive_replay.progressive(
            events, predictions, drs.uniforms(3, 0, 250), plain(3, 2, **parameters), horizon, 0.1, 0.8, X
        )
        log = drs.Log(table, context=["x0", "x1"], actions=3)
        for policy in (compiled, plain(3, 2, **parameters)):
            options = {"q": 0.1, "c_max": 0.8, "seed": 3}
            pv = ProgressivePolicy(policy, horizon=horizon, snapshots=1000, **options).fit(log, model)
            agree(pv, found)
            np.testing.assert_allclose(pv.probabilities(X), found["pi"], atol=1e-12)
            run = drs.replay(log, policy, pv.steps_, model, replicates=1, **options)
            assert (pv.value, pv.weight_) == (run.value, run.replicates["weight"][0].as_py())
            assert pv.least_propensity_ == min(p for *_, p in events[: pv.events_])
            assert pv.reward_range_ == (0.0, 1.0)
            assert len(pv.weights_) <= pv.steps_
            assert pv.steps_ == 20 if horizon else pv.events_ > 200


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("name", ["epsilon", "boltzmann", "square", "exp3"])
def test_sparse_contexts_equal_the_naive_mixture(name, kind):
    compiled, plain, parameters = LEARNERS[name]
    rows = 120 if PLAIN else 300
    log, dense, X, table = both_logs(3, rows, 3, kind)
    columns = (table[c].to_pylist() for c in ("action", "reward", "propensity"))
    events, rhat = list(zip(X.tolist(), *columns, strict=True)), np.array(table["rhat"].to_pylist())
    naive = plain(3, DIM, **parameters)
    found = naive_replay.progressive(events, rhat, drs.uniforms(0, 0, rows), naive, None, 0.05, 1.0, X[:40])
    pv = ProgressivePolicy(compiled, q=0.05).fit(log, RHAT)
    agree(pv, found)
    rows = scipy.sparse.csr_array(X[:40])
    twice = scipy.sparse.coo_array(
        (np.tile(rows.tocoo().data / 2, 2), np.tile(rows.tocoo().coords, 2)), shape=(40, DIM)
    )
    for given in (rows, scipy.sparse.csc_array(X[:40]), twice, X[:40], X[:40].astype(np.float32)):
        single = getattr(given, "dtype", None) == np.float32
        np.testing.assert_allclose(pv.probabilities(given), found["pi"], atol=1e-5 if single else 1e-12)
    also = ProgressivePolicy(compiled, q=0.05).fit(dense, RHAT)
    np.testing.assert_allclose(also.probabilities(rows), found["pi"], atol=1e-12)
    for other in (log, dense):
        with pytest.warns(UserWarning, match="learned from events that it is now evaluated on"):
            values = drs.evaluate(other, {"a": pv, "b": also}, estimators=["ips"])
        assert values["a", "ips"].value == pytest.approx(values["b", "ips"].value, rel=1e-9)


def test_a_python_policy_is_copied_when_its_version_moves():
    copies = []

    class Slow(naive_replay.EpsilonGreedy):
        """Learns every third event only."""

        def reset(self):
            super().reset()
            self.heard = []

        def update(self, x, action, reward):
            self.heard.append((x, action, reward))
            if len(self.heard) == 3:
                for event in self.heard:
                    self.learn(*event)
                self.heard, self.version = [], self.version + 1

        def __deepcopy__(self, memo):
            copies.append(self.version)
            made = object.__new__(Slow)
            made.__dict__.update({**self.__dict__, "W": [list(w) for w in self.W], "heard": []})
            return made

    class Every(Slow):
        version = None

        def __setattr__(self, name, value):
            if name != "version":
                super().__setattr__(name, value)

        def update(self, x, action, reward):
            self.learn(x, action, reward)

    table = small_log(2, 200, 3, 2)
    events, _ = as_events(table, 2)
    log = drs.Log(table, context=["x0", "x1"], actions=3)
    X = np.random.default_rng(1).standard_normal((10, 2))
    for kind in (Slow, Every):
        found = naive_replay.progressive(events, None, drs.uniforms(0, 0, 200), kind(3, 2), None, 0.1, 1.0, X)
        copies.clear()
        pv = ProgressivePolicy(kind(3, 2), q=0.1).fit(log)
        agree(pv, found)
        np.testing.assert_allclose(pv.probabilities(X), found["pi"], atol=1e-12)
        if kind is Slow:
            assert len(copies) - 1 == pv.steps_ // 3
            assert len(pv.weights_) == -(-pv.steps_ // 3)


class Lazy(drs.policies.Compiled):
    """A compiled policy that learns from rewards of 1 only."""

    def initial_state(self, n_actions, n_features):
        return np.zeros(n_actions)

    @staticmethod
    def probabilities(state, x, out):
        total = 0.0
        for k in range(out.shape[0]):
            total += 1.0 + state[k]
        for k in range(out.shape[0]):
            out[k] = (1.0 + state[k]) / total

    @staticmethod
    def update(state, x, action, reward):
        if reward == 1.0:
            state[action] += 1.0


class Deaf(Lazy):
    """It does not listen to rewards."""

    @staticmethod
    def update(state, x, action, reward):
        state[action] += 1.0


def test_blocks_that_found_the_same_state_share_a_snapshot():
    table = small_log(2, 300, 3, 1)
    log = drs.Log(table, context=["x0"], actions=3)
    pv = ProgressivePolicy(Lazy(), q=0.1).fit(log)
    assert len(pv.weights_) < 0.6 * pv.steps_
    assert len(np.unique(pv.states_, axis=0)) == len(pv.states_)
    with pytest.raises(drs.PolicyError, match="Lazy cannot be saved: a file holds arrays and no code"):
        pv.save("nowhere.npz")


def test_a_model_that_is_not_fitted_is_fitted_by_fold(tmp_path):
    log = drs.Log(world(kinds=None).table(600 if PLAIN else 3000, seed=1))
    policy, options = drs.policies.EpsilonGreedy(), {"q": 0.05, "seed": 1}
    pv = ProgressivePolicy(policy, **options).fit(log, drs.models.Ridge())
    run = drs.replay(log, policy, pv.steps_, drs.models.Ridge(), replicates=1, crossfit=5, **options)
    assert pv.value == run.value
    train, test = log.split(0.5)
    with pytest.warns(UserWarning, match="the reward model was fitted on events") as found:
        ProgressivePolicy(policy).fit(train, drs.models.Ridge().fit(train))
    assert found[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ProgressivePolicy(policy).fit(test, drs.models.Ridge().fit(train))


# Snapshots


def few(log, snapshots=10, **options):
    return ProgressivePolicy(drs.policies.EpsilonGreedy(0.2), q=0.1, snapshots=snapshots, **options)


@pytest.mark.parametrize("snapshots", [1, 2, 3, 10, 64])
def test_at_most_so_many_snapshots_are_kept(snapshots):
    log = drs.Log(small_log(2, 500, 3, 2), context=["x0", "x1"], actions=3)
    pv = few(log, snapshots).fit(log)
    whole = few(log, 10**6).fit(log)
    assert pv.steps_ == whole.steps_ == len(whole.weights_) > 100
    assert snapshots / 2 <= len(pv.weights_) <= snapshots
    assert math.fsum(pv.weights_) == pytest.approx(1, abs=1e-12)
    assert {tuple(s) for s in pv.states_} <= {tuple(s) for s in whole.states_}
    assert (pv.value, pv.weight_, pv.bound()) == (whole.value, whole.weight_, whole.bound())
    again = few(log, snapshots).fit(log)
    np.testing.assert_array_equal(pv.states_, again.states_)
    other = few(log, snapshots, seed=-5).fit(log)
    assert other.states_.tobytes() != pv.states_.tobytes()


def test_threads_and_batches_do_not_change_a_bit(monkeypatch):
    table = world(kinds=None).table(800 if PLAIN else 20_000, seed=3)
    wanted = few(table).fit(drs.Log(table), threads=1)
    for log, threads in ((cut_log(table), 3), (cut_log(table, batch_size=77), 2)):
        pv = few(log).fit(log, threads=threads)
        assert pv.states_.tobytes() == wanted.states_.tobytes()
        assert pv.weights_.tobytes() == wanted.weights_.tobytes()
        assert (pv.value, pv.events_, pv.bound()) == (wanted.value, wanted.events_, wanted.bound())
    monkeypatch.setattr(planning.Plan, "chunk_rows", 7)
    monkeypatch.setattr(lanes, "SNAPSHOT_BYTES", 1)
    pv = few(table).fit(drs.Log(table))
    assert pv.states_.tobytes() == wanted.states_.tobytes()
    assert (pv.value, pv.events_, pv.bound()) == (wanted.value, wanted.events_, wanted.bound())


@pytest.mark.parametrize("most", [1, 3, 4])
def test_over_the_draw_of_snapshots_the_mixture_is_unbiased(most):
    """The mean share of each of 11 states, over 4000 draws, within 4 standard errors of its weight; groups as wide as
    their number asks for, and states one after the other within them."""
    weights = np.random.default_rng(0).uniform(0.1, 3, 11)
    draws = 4000
    shares = np.zeros((draws, 11))
    for seed in range(draws):
        recorder = Recorder(most, seed)
        states = list(range(11))
        for state, weight in zip(states, weights, strict=True):
            recorder.add(state, weight / 2)
            recorder.add(state, weight / 2)
        found = recorder.recorded(0.0, 0.0, 0)
        assert found.snapshots == sorted(found.snapshots)
        assert math.fsum(found.weights) == pytest.approx(weights.sum())
        assert most / 2 <= len(found.snapshots) <= most
        shares[seed, found.snapshots] = found.weights
    error = shares.std(axis=0, ddof=1) / math.sqrt(draws)
    assert (np.abs(shares.mean(axis=0) - weights) < 4 * error).all()


# The bound


@pytest.mark.parametrize("horizon", [None, 10])
def test_the_bound_is_the_theorems(horizon):
    table = small_log(6, 300, 3, 1)
    events, _ = as_events(table, 1)
    log = drs.Log(table, context=["x0"], actions=3)
    for c_max in (1.0, 0.06):
        naive, X = naive_replay.Exp3(3, 1, gamma=0.3), np.zeros((1, 1))
        found = naive_replay.progressive(events, None, drs.uniforms(0, 0, 300), naive, horizon, 0.1, c_max, X)
        pv = ProgressivePolicy(drs.policies.Exp3(0.3), horizon=horizon, q=0.1, c_max=c_max).fit(log)
        assert (pv.events_, pv.length_) == (found["events"], 300)
        assert pv.events_ < 300
        M = 1 / pv.least_propensity_
        assert pv.bound() == pytest.approx(naive_replay.progressive_bound(found, 300, 0.05, M, 1.0, 0.25), rel=1e-12)
        for delta, M, error, variance in ((0.01, 3.0, 0.2, 0.1), (0.5, 4.0, 0.0, 0.0)):
            wanted = naive_replay.progressive_bound(found, 300, delta, M, error, variance)
            assert pv.bound(delta, M, error, variance) == pytest.approx(wanted, rel=1e-12)
            wanted = naive_replay.progressive_bound(found, 5000, delta, M, error, variance)
            assert pv.bound(delta, M, error, variance, length=5000) == pytest.approx(wanted, rel=1e-12)
        assert (pv.low, pv.high) == (pv.value - pv.bound(), pv.value + pv.bound())


def test_the_bound_says_which_constants_were_only_observed():
    table = small_log(5, 300, 3, 1)
    pv = ProgressivePolicy(Deaf(), q=0.1).fit(drs.Log(table, context=["x0"], actions=3))
    assert not pv.bound().guaranteed
    assert len(pv.bound().notes) == 1
    assert "M = 16.6667 is 1 / the smallest propensity of the events, which is only observed" in pv.bound().notes[0]
    assert pv.bound().notes[0] in repr(pv)
    assert pv.bound(weight=1 / 0.06).guaranteed
    assert pv.bound(weight=1 / 0.06) == pytest.approx(pv.bound(), rel=1e-12)
    tripled = table.set_column(2, "reward", pa.array(table["reward"].to_numpy() * 3))
    wide = ProgressivePolicy(Deaf(), q=0.1).fit(drs.Log(tripled, context=["x0"], actions=3))
    assert any("[0, 3], is only observed: for a guarantee, give reward_range" in note for note in wide.bound().notes)
    given = wide.bound(weight=20.0, reward_range=(0, 4))
    assert given.guaranteed
    assert given == pytest.approx(4 / 3 * wide.bound(weight=20.0), rel=1e-12)
    assert pv.bound(weight=20.0, reward_range=(-1, 1)) == pytest.approx(2 * pv.bound(weight=20.0), rel=1e-12)
    again = pickle.loads(pickle.dumps(pv.bound()))
    assert (again, again.notes) == (pv.bound(), pv.bound().notes)


@pytest.mark.parametrize("compiled", [True, False])
def test_without_predictions_in_the_range_of_rewards_there_is_no_bound(compiled):
    """One action of one event is enough; an event after the last acceptance does not count."""
    table = small_log(6, 300, 3, 1)
    policy = drs.policies.Exp3(0.3) if compiled else naive_replay.Exp3(3, 1, gamma=0.3)
    rhat = np.full((300, 3), 0.5)

    def bound(row, value, **options):
        changed = rhat.copy()
        changed[row, 2] = value
        log = drs.Log(table.append_column("r", pa.array(list(changed))), context=["x0"], actions=3)
        pv = ProgressivePolicy(policy, q=0.1).fit(log, drs.models.Column("r"), **options)
        assert pv.bound(weight=20.0).guaranteed == (not math.isnan(pv.low))
        return pv, pv.bound(weight=20.0)

    pv, usual = bound(0, 0.5)
    assert usual > 0
    assert pv.prediction_range_ == (0.5, 0.5)
    for value in (1.0, 0.0):
        assert bound(7, value)[1] == pytest.approx(usual, rel=0.2)
    for value in (1.25, -0.001):
        pv, found = bound(7, value)
        assert math.isnan(found)
        assert math.isnan(pv.high)
        assert f"r̂ lies in [{min(value, 0.5):g}, {max(value, 0.5):g}], outside of [0, 1]" in found.notes[0]
        assert "clamp=(0, 1) of fit" in found.notes[0]
        assert f"value {pv.value:.6g}, without a bound" in repr(pv)
        assert bound(7, value, clamp=(0, 1))[1] > 0
        assert pv.bound(weight=20.0, reward_range=(-1, 2)).guaranteed
    assert pv.events_ < 299
    assert bound(299, 9.0)[1] > 0


@pytest.mark.parametrize("horizon", [None, 10])
def test_a_log_whose_length_nobody_knows(horizon):
    """A stream is read to its end without a horizon; with one, the user must know how long it is."""
    table = small_log(5, 300, 3, 1)
    log = drs.Log(table.to_reader(max_chunksize=50), context=["x0"], actions=3)
    pv = ProgressivePolicy(drs.policies.Exp3(0.3), horizon=horizon, q=0.1).fit(log)
    if horizon is None:
        assert pv.length_ == 300
    else:
        assert math.isnan(pv.bound())
        assert "the length of the log is not known: give length" in pv.bound().notes[0]
    assert pv.bound(weight=20.0, length=300) > 0
    with pytest.raises(drs.PolicyError, match=f"length=3: the replay used {pv.events_} events, so the log has more"):
        pv.bound(length=3)


@pytest.mark.parametrize(("scale", "shift", "width"), [(1, 0, 1), (0.1, 0, 1), (4, 0, 4), (1, -1, 1), (2, 3, 5)])
def test_the_bound_goes_with_the_range_of_rewards_and_0(scale, shift, width):
    table = small_log(5, 300, 3, 1)
    rewards = pa.array(table["reward"].to_numpy() * scale + shift)
    plain, other = (
        ProgressivePolicy(Deaf(), q=0.1).fit(drs.Log(t, context=["x0"], actions=3))
        for t in (table, table.set_column(2, "reward", rewards))
    )
    assert other.weight_ == plain.weight_
    assert other.bound() == pytest.approx(width * plain.bound())


def errors_and_bounds(place, logs, rows, policy, model=None, **options):
    found = []
    for i in range(logs):
        log = drs.Log(place.table(rows, seed=1000 + i))
        pv = ProgressivePolicy(policy, seed=i, **options).fit(log, model, threads=1)
        found.append((pv.value - place.value(pv), pv.bound(), pv.weight_, pv.value))
    return np.array(found).T


@pytest.mark.slow
@pytest.mark.parametrize("with_model", [False, True])
@pytest.mark.parametrize("options", [{"q": 0.0, "c_max": 0.15}, {"q": 0.05}, {"q": 0.0, "c_max": 0.15, "horizon": 250}])
def test_the_bound_holds_and_the_value_has_no_bias(options, with_model):
    place = world(seed=5, n_actions=3, n_features=2, kinds=16, floor=0.15)
    policy = drs.policies.EpsilonGreedy(0.2, learning_rate=0.3)
    model = drs.models.from_function(lambda X: 0.5 * place.reward(X) + 0.2) if with_model else None
    error, bound, weight, value = errors_and_bounds(place, 200, 3000, policy, model, snapshots=2000, **options)
    assert np.mean(np.abs(error) <= bound) >= 0.95  # in fact all of them: at most a quarter of it
    for errors, size in ((error, 1.0), (weight * error, weight.mean())):  # Σ c (V_k - E V_k) is a martingale
        deviation = errors.std(ddof=1) / math.sqrt(len(errors))
        assert abs(errors.mean()) < 4 * deviation
        assert deviation < 0.01 * size * value.mean()


def test_the_bound_says_something_about_100_000_events():
    """With a c_max that is safe, or one near to what q finds; the bound goes with c_max / c."""
    place = world(seed=5, n_actions=3, n_features=2, kinds=16, floor=0.3)
    log = drs.Log(place.table(100_000, seed=9))
    for options, most in (({"q": 0.0, "c_max": 0.3}, 0.025), ({"q": 0.01, "c_max": 0.4}, 0.03), ({}, 0.07)):
        pv = ProgressivePolicy(drs.policies.EpsilonGreedy(0.2, learning_rate=0.3), **options).fit(log)
        assert abs(place.value(pv) - pv.value) < 0.005
        assert abs(place.value(pv) - pv.value) < pv.bound() < most
        assert pv.value - 0.05 > place.value(drs.policies.Uniform())
