"""The progressive validation policy in use: evaluated like any other, saved to files, and misused."""

import json
import math
import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse

import drstream as drs
from drstream.optimize import ProgressivePolicy
from tests.helpers import naive_replay
from tests.helpers.logs import world
from tests.helpers.replays import LEARNERS, small_log
from tests.helpers.sparse import both_logs

pytestmark = pytest.mark.covers

# A fixed policy like others


def split_log(rows=400):
    return drs.Log(world(kinds=None).table(rows, seed=2)).split(0.5)


def test_evaluate_takes_it_and_warns_on_its_own_events():
    train, test = split_log()
    pv = ProgressivePolicy(drs.policies.EpsilonGreedy(0.3), q=0.1).fit(train)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dr = drs.evaluate(test, pv, estimators=["ips"], threads=2)
        again = drs.replay(test, pv, 5, q=0.1)
    assert dr["ips"].value > 0
    assert again.complete > 1
    table = test.head(10)
    X = np.column_stack([table[f"x{j}"].to_numpy() for j in range(3)])
    assert pv.probabilities(X).sum(axis=1) == pytest.approx(np.ones(10))
    with pytest.warns(UserWarning, match="policy 'policy' was learned from events that it is now evaluated on"):
        drs.evaluate(train, pv, estimators=["ips"])


@pytest.mark.parametrize(
    "policy", [drs.policies.UCB1(), drs.policies.Exp3(), naive_replay.UCB1(4, 3), naive_replay.Exp3(4, 3)]
)
def test_a_policy_that_looks_at_no_context_and_one_in_python(policy):
    train, test = split_log()
    pv = ProgressivePolicy(policy, q=0.1).fit(train)
    once = pv.probabilities(np.zeros((1, 3)))
    np.testing.assert_allclose(pv.probabilities(np.ones((3000, 3))), np.tile(once, (3000, 1)), atol=1e-15)
    value = drs.evaluate(test, pv, estimators=["ips"])["ips"].value
    fixed = drs.evaluate(test, lambda X: np.tile(once, (X.shape[0], 1)), estimators=["ips"])["ips"].value
    assert value == pytest.approx(fixed, rel=1e-12)


def test_a_log_without_contexts_has_one_too():
    table = small_log(0, 200, 3, 0)
    pv = ProgressivePolicy(drs.policies.Exp3(), q=0.1).fit(drs.Log(table, context=[], actions=3))
    assert pv.probabilities(np.empty((2, 0))).shape == (2, 3)


def test_repr():
    train, _ = split_log()
    pv = ProgressivePolicy(drs.policies.UCB1(), q=0.1)
    assert repr(pv) == "ProgressivePolicy(policy=UCB1(scale=1.0), q=0.1)"
    says = repr(pv.fit(train))
    assert says.startswith(
        f"ProgressivePolicy of UCB1(scale=1.0): T = {pv.steps_:,} steps, N = {pv.events_:,} events, "
    )
    assert f"snapshots\n  value {pv.value:.6g} ± {pv.bound():.3g} (δ = 0.05)\n  note: M = " in says


# Files


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", list(LEARNERS))
def test_a_file_holds_all_of_it(tmp_path, name, sparse):
    if sparse and name == "linucb":
        pytest.skip("LinUCB does not take sparse contexts")
    log, dense, X, _ = both_logs(3, 300, 3)
    log = log if sparse else dense
    options = {"q": np.float64(0.1), "c_max": np.float32(0.5), "seed": np.int64(-3), "snapshots": np.int32(20)}
    pv = ProgressivePolicy(LEARNERS[name][0], horizon=np.int64(30), **options).fit(log)
    pv.save(tmp_path / "policy.npz")
    loaded = drs.optimize.load(tmp_path / "policy.npz")
    assert type(loaded) is ProgressivePolicy
    assert repr(loaded) == repr(pv)
    assert {**loaded.parameters(), "policy": 0} == {**pv.parameters(), "policy": 0}
    assert vars(loaded.policy) == vars(pv.policy)
    for given in (X[:5], scipy.sparse.csr_array(X[:5])):
        np.testing.assert_array_equal(loaded.probabilities(given), pv.probabilities(given))
    assert (loaded.low, loaded.high, loaded.skipped_) == (pv.low, pv.high, pv.skipped_)
    again = loaded.fresh().fit(log)
    np.testing.assert_array_equal(again.states_, pv.states_)
    carried = pickle.loads(pickle.dumps(pv))
    np.testing.assert_array_equal(carried.probabilities(X[:5]), pv.probabilities(X[:5]))


def test_from_a_file_it_still_knows_its_events(tmp_path):
    world(kinds=None).write(tmp_path / "log.parquet", 400)
    train, test = drs.Log(tmp_path / "log.parquet").split(0.5)
    ProgressivePolicy(drs.policies.UCB1(), q=0.1).fit(train).save(tmp_path / "policy.npz")
    loaded = drs.optimize.load(tmp_path / "policy.npz")
    with pytest.warns(UserWarning, match="learned from events that it is now evaluated on"):
        drs.evaluate(train, loaded, estimators=["ips"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drs.evaluate(test, loaded, estimators=["ips"])


def test_a_file_from_before_the_length_of_the_log_was_kept(tmp_path):
    train, _ = split_log()
    path = tmp_path / "policy.npz"
    ProgressivePolicy(drs.policies.EpsilonGreedy(), q=0.1).fit(train).save(path)
    with np.load(path) as file:
        kept = dict(file)
    about = json.loads(kept["about"].tobytes())
    for name in ("length_", "prediction_range_"):
        del about["parameters"][name]
    np.savez(path, **{**kept, "about": np.array(json.dumps(about))})
    loaded = drs.optimize.load(path)
    assert math.isnan(loaded.bound())
    assert "there is no bound, because the length of the log is not known" in loaded.bound().notes[0]
    assert "the range of r̂ is not known, or learn the policy again" in loaded.bound(length=400).notes[0]
    assert loaded.probabilities(np.zeros((1, 3))).shape == (1, 4)


def test_a_python_policy_cannot_be_saved(tmp_path):
    train, _ = split_log()
    pv = ProgressivePolicy(naive_replay.UCB1(4, 3), q=0.1).fit(train)
    with pytest.raises(
        drs.PolicyError, match=r"of UCB1 cannot be saved: .*Use one of these, or keep the policy itself"
    ):
        pv.save(tmp_path / "policy.npz")
    assert not list(tmp_path.iterdir())


def test_files_that_hold_something_else(tmp_path):
    train, _ = split_log()
    path = tmp_path / "policy.npz"
    ProgressivePolicy(drs.policies.EpsilonGreedy(), q=0.1).fit(train).save(path)
    with np.load(path) as file:
        kept = dict(file)
    about = json.loads(kept["about"].tobytes())

    def load(parameters, **arrays):
        changed = {**about, "parameters": {**about["parameters"], **parameters}}
        np.savez(path, **{**kept, "about": np.array(json.dumps(changed)), **arrays})
        return drs.optimize.load(path)

    for kind in ("Compiled", "Fixed", "Uniform", "Retrained", "from_sklearn", "os.system", 7):
        with pytest.raises(drs.PolicyError, match="which is not a policy that could be saved"):
            load({"policy": {"kind": kind, "parameters": {}}})
    with pytest.raises(drs.PolicyError, match="did you mean 'EpsilonGreedy'"):
        load({"policy": {"kind": "EpsilonGredy", "parameters": {}}})
    with pytest.raises(drs.PolicyError, match="it is damaged"):
        load({"policy": {"kind": "UCB1", "parameters": {"epsilon": 0.1}}})
    with pytest.raises(drs.PolicyError, match="it is damaged"):
        load({"policy": None})
    with pytest.raises(drs.PolicyError, match="epsilon=3 must be a number"):
        load({"policy": {"kind": "EpsilonGreedy", "parameters": {"epsilon": 3}}})
    short = {"states_": kept["states_"][:, :-1].copy()}
    for parameters, arrays in (({}, short), ({"policy": {"kind": "LinUCB", "parameters": {}}}, {})):
        with pytest.raises(drs.PolicyError, match=r"states of shape .* it is damaged. Learn the policy again"):
            load(parameters, **arrays)
    with pytest.raises(drs.PolicyError, match=r"states_ has shape .* it is damaged"):
        load({}, weights_=np.ones(3))
    np.savez(path, **{k: v for k, v in kept.items() if k != "weights_"})
    with pytest.raises(drs.PolicyError, match="lacks 'weights_'"):
        drs.optimize.load(path)


# Errors


def test_what_is_not_a_learner_is_refused():
    for policy in (drs.policies.Uniform(), drs.policies.Fixed(drs.policies.Uniform()), lambda X: X):
        with pytest.raises(drs.PolicyError, match="does not learn, so a replay of it has nothing to mix: evaluate it"):
            ProgressivePolicy(policy)
    with pytest.raises(drs.PolicyError, match=r"is a class: pass an instance, EpsilonGreedy\(...\)"):
        ProgressivePolicy(drs.policies.EpsilonGreedy)
    with pytest.raises(drs.PolicyError, match="a policy is an object with probabilities"):
        ProgressivePolicy(3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"snapshots": 0}, "snapshots=0 must be a whole number of at least 1"),
        ({"snapshots": None}, "snapshots=None must be a whole number of at least 1"),
        ({"snapshots": 2.5}, "snapshots=2.5 must be a whole number of at least 1"),
        ({"horizon": 0}, "horizon=0 must be a whole number of at least 1"),
        ({"q": 2}, r"q=2: the quantile level must be in \[0, 1\]"),
        ({"c_max": 0}, r"c_max=0: the largest multiplier must be in \(0, 1\]"),
        ({"seed": 0.5}, "seed=0.5 must be a whole number"),
    ],
)
def test_parameters_are_checked(options, message):
    with pytest.raises(drs.DrstreamError, match=message):
        ProgressivePolicy(drs.policies.UCB1(), **options)


def test_before_the_fit_nothing_is_known():
    pv = ProgressivePolicy(drs.policies.UCB1())
    for ask in (lambda: pv.value, lambda: pv.low, pv.bound, lambda: pv.probabilities(np.zeros((1, 2)))):
        with pytest.raises(drs.PolicyError, match=r"is not fitted: call .fit\(log\)"):
            ask()
    with pytest.raises(drs.PolicyError, match="is not fitted"):
        pv.save("nowhere.npz")
    with pytest.raises(drs.PolicyError, match="is not fitted"):
        drs.evaluate(split_log()[0], pv)


def test_wrong_uses_of_a_fitted_one():
    train, _ = split_log()
    pv = ProgressivePolicy(drs.policies.EpsilonGreedy(), q=0.1).fit(train)
    for delta in (0, 1, -0.1, "0.05", math.nan):
        with pytest.raises(drs.PolicyError, match="the probability that the bound fails must be in"):
            pv.bound(delta)
    for name in ("weight", "error", "variance"):
        with pytest.raises(drs.PolicyError, match=f"{name}=-1.* must be a number (of )?at least 0"):
            pv.bound(**{name: -1})
    for length in (0, 2.5, "all"):
        with pytest.raises(drs.PolicyError, match=r"length=.* must be a whole number"):
            pv.bound(length=length)
    for wrong in (3, (0,), (1, 0), (0, math.inf), ("a", "b")):
        with pytest.raises(drs.PolicyError, match=r"reward_range=.*: it must be the range of possible rewards"):
            pv.bound(reward_range=wrong)
    with pytest.raises(drs.PolicyError, match=r"reward_range=\(0, 0.5\): the log has rewards from 0 to 1"):
        pv.bound(reward_range=(0, 0.5))
    for X in (np.zeros((4, 2)), np.zeros(3), [[1, 2]], scipy.sparse.csr_array((2, 9))):
        with pytest.raises(drs.PolicyError, match=r"was fitted on 3 features: pass \(n, 3\)"):
            pv.probabilities(X)
    assert pv.probabilities([[1, 2, 3]]).shape == (1, 4)
    with pytest.raises(drs.PolicyError, match="replays the events of a log, not completed losses"):
        pv.fresh().fit(drs.optimize.impute(train))


def test_logs_that_are_too_short():
    table = small_log(0, 60, 3, 1)
    log = drs.Log(table, context=["x0"], actions=3)
    with pytest.raises(drs.NotEnoughEventsError, match="no replicate of 1,000 steps is complete") as found:
        ProgressivePolicy(drs.policies.Exp3(), horizon=1000).fit(log)
    assert found.value.steps > 0
    with pytest.raises(drs.NotEnoughEventsError, match="the log is empty"):
        ProgressivePolicy(drs.policies.Exp3()).fit(drs.Log(table.slice(0, 0), context=["x0"], actions=3))

    class Never(naive_replay.Exp3):
        def choose(self, x):
            return [0.0, 0.0, 0.0, 1.0]

    log = drs.Log(table, context=["x0"], actions=4)
    with pytest.raises(drs.NotEnoughEventsError, match=r"60 events simulated 0 steps.*Give more events"):
        ProgressivePolicy(Never(4, 1)).fit(log)


def test_python_policies_that_misbehave():
    class Unique(naive_replay.Exp3):
        def __deepcopy__(self, memo):
            raise TypeError("there is one of me")

    class Changing(naive_replay.Exp3):
        n_actions = 4

        def probabilities(self, X):
            return super().probabilities(X)[:, : 9 - len(X)]

    train, _ = split_log()
    with pytest.raises(drs.PolicyError, match=r"cannot be copied: there is one of me.* Give it a __deepcopy__"):
        ProgressivePolicy(Unique(4, 3)).fit(train)
    pv = ProgressivePolicy(naive_replay.Exp3(4, 3), q=0.1).fit(train)
    pv.states_ = [Changing(4, 3)] * len(pv.states_)
    with pytest.raises(
        drs.PolicyError, match=r"Changing returned an array of shape \(7, 2\) for 7 events and 4 actions"
    ):
        pv.probabilities(np.zeros((7, 3)))


def test_a_fit_that_is_interrupted_says_how_far_it_came():
    class Stops(naive_replay.Exp3):
        def update(self, x, action, reward):
            super().update(x, action, reward)
            if self.n == 5:
                raise KeyboardInterrupt

    train, _ = split_log()
    with pytest.raises(KeyboardInterrupt) as found:
        ProgressivePolicy(Stops(4, 3)).fit(train)
    assert "before the replay had ended" in found.value.__notes__[0]
