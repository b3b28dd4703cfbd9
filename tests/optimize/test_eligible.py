"""Policies learned from logs with eligible sets: each learner against its definition, and against the truth."""

import importlib.util
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

import drstream as drs
from drstream.kernels import dlm
from drstream.log.kinds.eligible.reading import bits_of
from drstream.optimize import DirectLossMinimizer, FilterTree, OffsetTree, ProgressivePolicy, impute
from tests.helpers import naive_replay, reference
from tests.helpers.eligible import lists_of, random_mask
from tests.helpers.passes import PLAIN
from tests.helpers.replays import LEARNERS, as_events, small_log_with_sets
from tests.helpers.shop import Shop
from tests.helpers.sparse import DIM, both_logs
from tests.helpers.trees import Recorder, check_nodes

pytestmark = pytest.mark.covers

ROWS = 150 if PLAIN else 400
HAS_SKOPS = importlib.util.find_spec("skops") is not None


def log_of(table, features, actions, **options):
    return drs.Log(table, context=[f"x{j}" for j in range(features)], actions=actions, eligible="items", **options)


def small(seed=0, rows=ROWS, actions=4, share=0.5, sparse=False):
    """A log with sets, its contexts, its other columns and the sets."""
    *_, X, table = both_logs(seed, rows, actions, dim=6, most=6)
    rng = np.random.default_rng(seed)
    mask = random_mask(rng, rows, actions, share)
    mask[np.arange(rows), table["action"].to_numpy()] = True
    table = table.append_column("items", lists_of(mask, rng=rng, kind=pa.list_(pa.int64())))
    context = drs.Sparse("at", "value", dim=6) if sparse else [f"x{j}" for j in range(6)]
    for j in range(6):
        table = table.append_column(f"x{j}", pa.array(X[:, j]))
    log = drs.Log(table, context=context, actions=actions, eligible="items")
    return log, X, [table[name].to_numpy() for name in ("action", "reward", "propensity")], mask, table


def other_model(actions=4):
    return drs.models.Ridge().fit(small(100, 120, actions)[0])


def completed(events, rhat, mask):
    return np.where(mask, reference.completed_costs(*events, rhat), np.inf)


# Losses


@pytest.mark.parametrize("estimator", ["ips", "dm", "dr"])
def test_losses_of_other_actions_are_infinite(estimator, tmp_path):
    log, X, events, mask, _ = small()
    model = other_model()
    rhat = model.predict(X) if estimator != "ips" else np.zeros(mask.shape)
    wanted = completed(events, rhat, mask) if estimator != "dm" else np.where(mask, -rhat, np.inf)
    found = impute(log, model, estimator=estimator)
    np.testing.assert_allclose(found.collect().losses, wanted, rtol=1e-9, atol=1e-12)
    rewards = impute(log, model, estimator=estimator, losses="rewards").collect().losses
    assert (rewards == -found.collect().losses).all()
    found.write(tmp_path / "losses.parquet")
    assert pq.read_table(tmp_path / "losses.parquet")["losses"].to_pylist() == found.to_arrow()["losses"].to_pylist()
    assert ((np.array(found.to_arrow()["losses"].to_pylist()) == np.inf) == ~mask).all()


def test_predictions_for_other_actions_may_be_anything():
    log, *_, mask, table = small()
    wild = table.set_column(table.column_names.index("rhat"), "rhat", pa.array(list(np.where(mask, 0.5, np.nan))))
    wild = drs.Log(wild, context=[f"x{j}" for j in range(6)], actions=4, eligible="items")
    model = drs.models.from_arrow(column, columns=["rhat"])
    constant = impute(log, drs.models.Constant(0.5)).collect().losses
    assert (impute(wild, model).collect().losses == constant).all()
    options = {"restarts": 2, "epochs": 20}
    one, two = (
        DirectLossMinimizer(**options).fit(impute(*given)) for given in ((wild, model), (log, drs.models.Constant(0.5)))
    )
    assert (one.coef_ == two.coef_).all()


def column(batch):
    return batch.column("rhat")


# Direct loss minimisation


def test_the_kernels_leave_out_what_is_not_eligible():
    """Also where there are more actions than bits in a word, and for several runs."""
    rng = np.random.default_rng(0)
    for actions, runs in ((3, 2), (40, 1)):
        mask = random_mask(rng, 20, actions, 0.1)
        values = rng.standard_normal((runs * actions, 20))
        wanted = np.where(np.tile(mask.T, (runs, 1)), values, -7.0)
        dlm.exclude(values, actions, bits_of(mask), -7.0)
        assert (values == wanted).all()
    scores = np.array([[1.0, 5.0, 2.0], [4.0, -np.inf, -1e100], [-np.inf, 3.0, -np.inf]])
    total = np.zeros(1)
    dlm.add_margins(scores, np.zeros(3), total)
    assert total[0] == 3.0 + 2.0  # the last event has one action to choose from


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("seed", [1, 4])
def test_backtracking_is_that_of_the_definition(sparse, seed):
    log, X, events, mask, _ = small(seed, 120, sparse=sparse)
    model = other_model()
    costs = completed(events, model.predict(X), mask)
    policy = DirectLossMinimizer(restarts=1, standardize=False).fit(log, model)
    theta = np.column_stack([model.coef_, model.intercept_])
    found = reference.backtracking(np.column_stack([X, np.ones(len(X))]), costs, theta, 200, 1e-4)
    assert policy.start_loss_ == pytest.approx(found["losses"][0], rel=1e-12)
    assert policy.loss_ == pytest.approx(found["losses"][-1], rel=1e-12)
    np.testing.assert_allclose(policy.coef_, found["theta"][:, :-1], rtol=1e-8, atol=1e-10)
    assert len(found["losses"]) >= 3
    chosen = policy.probabilities(X, mask).argmax(axis=1)
    assert mask[np.arange(len(X)), chosen].all()
    assert policy.loss_ == pytest.approx(costs[np.arange(len(X)), chosen].mean(), rel=1e-9)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("with_model", [False, True])
def test_the_start_is_a_regression_on_the_events_that_could_choose_an_action(with_model, sparse):
    log, X, events, mask, _ = small(sparse=sparse)
    model = other_model()
    rhat = model.predict(X) if with_model else np.zeros(mask.shape)
    given = drs.models.from_function(model.predict) if with_model else None
    Z = np.column_stack([X, np.ones(len(X))])
    wanted = reference.completed_ridge(Z, completed(events, rhat, mask))
    wanted -= wanted.mean(axis=0)
    policy = DirectLossMinimizer(restarts=1, epochs=1, standardize=False).fit(log, given)
    np.testing.assert_allclose(policy.coef_, wanted[:, :-1], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(policy.intercept_, wanted[:, -1], rtol=1e-4, atol=1e-5)


def test_an_action_that_is_eligible_but_was_never_logged_is_not_taken():
    *_, X, table = both_logs(0, ROWS, 3, dim=6, most=6)
    for j in range(6):
        table = table.append_column(f"x{j}", pa.array(X[:, j]))
    mask = random_mask(np.random.default_rng(0), ROWS, 4)
    mask[np.arange(ROWS), table["action"].to_numpy()] = True
    log = drs.Log(
        table.append_column("items", lists_of(mask)), context=[f"x{j}" for j in range(6)], actions=4, eligible="items"
    )
    alone = np.zeros((1, 4), bool)
    alone[0, 3] = True
    for policy in (DirectLossMinimizer(restarts=2), FilterTree(), OffsetTree()):
        policy.fit(log)
        assert (policy.probabilities(X, mask)[:, 3] == 0).all()
        assert policy.probabilities(X[:1], alone).tolist() == [[0, 0, 0, 1]]  # where there is nothing else


# Trees


@pytest.mark.parametrize("actions", [1, 2, 3, 5, 8])
def test_filter_tree_nodes_are_contests_of_eligible_winners(actions, monkeypatch):
    monkeypatch.setattr(Recorder, "calls", [])
    log, X, events, mask, _ = small(actions, 400, actions)
    costs = completed(events, np.zeros(mask.shape), mask)

    def example(k, node, goes_right):
        return reference.filter_tree_example(node, costs[k], goes_right, np.flatnonzero(mask[k]))

    got = FilterTree(Recorder()).fit(log)
    check_nodes(got, Recorder.calls, X, actions, example, mask)
    assert got.sets_


@pytest.mark.parametrize("actions", [1, 2, 3, 5, 33])
def test_offset_tree_nodes_are_contests_of_eligible_winners(actions, monkeypatch):
    monkeypatch.setattr(Recorder, "calls", [])
    log, X, (a, r, p), mask, _ = small(actions, 400, actions)
    got = OffsetTree(Recorder()).fit(log)

    def example(k, node, goes_right):
        return reference.offset_tree_example(node, a[k], r[k], p[k], got.offset_, goes_right, np.flatnonzero(mask[k]))

    check_nodes(got, Recorder.calls, X, actions, example, mask)


@pytest.mark.parametrize("kind", [FilterTree, OffsetTree])
def test_trees_of_sparse_contexts_and_of_full_sets(kind):
    """Sparse contexts give the same choices. A tree that was learned with sets meets contexts without, and back."""
    dense, X, _, mask, table = small()
    sparse = small(sparse=True)[0]
    got, other = (kind(LogisticRegression(C=0.1)).fit(log) for log in (dense, sparse))  # trees break ties otherwise
    assert got.choose(X, mask).tolist() == other.choose(X, mask).tolist()
    assert got.choose(X).tolist() == got.choose(X, np.ones_like(mask)).tolist()
    without = kind().fit(drs.Log(table.drop_columns("items"), context=[f"x{j}" for j in range(6)], actions=4))
    assert not without.sets_
    assert without.choose(X).tolist() == without.choose(X, np.ones_like(mask)).tolist()
    assert mask[np.arange(len(X)), without.choose(X, mask)].all()
    with pytest.raises(drs.PolicyError, match=r"eligible is bool of shape \(3, 4\)"):
        got.choose(X, mask[:3])


@pytest.mark.parametrize("kind", [FilterTree, OffsetTree])
def test_files_of_trees(kind, tmp_path):
    log, X, _, mask, _ = small()
    got = kind().fit(log)
    again = pickle.loads(pickle.dumps(got))
    assert again.choose(X, mask).tolist() == got.choose(X, mask).tolist()
    if HAS_SKOPS:
        got.save(tmp_path / "tree.skops")
        again = drs.optimize.load(tmp_path / "tree.skops")
        assert again.sets_
        assert again.choose(X, mask).tolist() == got.choose(X, mask).tolist()
        again.sets_ = False
        again.save(tmp_path / "wrong.skops")
        with pytest.raises(drs.PolicyError, match="nodes lead nowhere"):
            drs.optimize.load(tmp_path / "wrong.skops")


# Progressive validation


@pytest.mark.parametrize("name", list(LEARNERS))
def test_the_mixture_is_that_of_the_definition(name):
    compiled, plain, parameters = LEARNERS[name]
    table, mask = small_log_with_sets(3, ROWS, 4, 2)
    events, rhat = as_events(table, 2)
    rng = np.random.default_rng(1)
    X, within = rng.standard_normal((40, 2)), random_mask(rng, 40, 4)
    u, naive = drs.uniforms(0, 0, ROWS), plain(4, 2, **parameters)
    ref = naive_replay.progressive(events, rhat, u, naive, 12, 0.1, 1.0, X, mask, within)
    for policy in (compiled, plain(4, 2, **parameters)):
        pv = ProgressivePolicy(policy, horizon=12, q=0.1).fit(log_of(table, 2, 4), drs.models.Column("rhat"))
        np.testing.assert_allclose(pv.probabilities(X, within), ref["pi"], rtol=1e-9, atol=1e-12)
        assert pv.value == pytest.approx(ref["value"], rel=1e-12)
        seen = rhat[: pv.events_][mask[: pv.events_]]
        assert pv.prediction_range_ == (seen.min(), seen.max())


def test_the_mixture_of_sparse_contexts_and_in_evaluate():
    *_, X, table = both_logs(5, 300, 4)
    rng = np.random.default_rng(5)
    mask = random_mask(rng, 300, 4)
    mask[np.arange(300), table["action"].to_numpy()] = True
    table = table.append_column("items", lists_of(mask))
    train, test = drs.Log(table, context=drs.Sparse("at", "value", dim=DIM), actions=4, eligible="items").split(0.5)
    for policy in (drs.policies.SquareCB(5.0), drs.policies.Exp3(0.3)):
        pv = ProgressivePolicy(policy, q=0.1, snapshots=8).fit(train)
        pi = pv.probabilities(X, mask)
        assert (pi[~mask] == 0).all()
        np.testing.assert_allclose(pi.sum(axis=1), 1.0, rtol=1e-12)
        assert 0 < drs.evaluate(test, pv, estimators=["ips"])["ips"].value < 3
        assert drs.replay(test, pv, 3, q=0.1).complete


def test_full_sets_are_no_sets():
    """Bit for bit, for every learner."""
    log, X, _, mask, table = small(share=1.0)
    assert mask.all()
    plain = drs.Log(table.drop_columns("items"), context=[f"x{j}" for j in range(6)], actions=4)
    model = other_model()
    one, two = (DirectLossMinimizer(restarts=3, epochs=30).fit(x, model) for x in (log, plain))
    assert (one.coef_ == two.coef_).all()
    assert one.loss_ == two.loss_
    one, two = (ProgressivePolicy(drs.policies.EpsilonGreedy(), q=0.1).fit(x, model) for x in (log, plain))
    assert (one.states_ == two.states_).all()
    assert (one.probabilities(X, mask) == two.probabilities(X)).all()


def test_a_learner_that_knows_no_sets_is_refused_before_the_pass():
    class Blind(drs.policies.Compiled):
        def initial_state(self, n_actions, n_features):
            return np.ones(1)

        @staticmethod
        def probabilities(state, x, out):
            out[:] = 1.0 / len(out)

        @staticmethod
        def update(state, x, action, reward):
            state[0] += reward

    log, _, _, _, table = small()
    words = "Blind has no static function eligible_probabilities, and the log has eligible sets"
    with pytest.raises(drs.PolicyError, match=words):
        ProgressivePolicy(Blind(), q=0.1).fit(log)
    plain = drs.Log(table.drop_columns("items"), context=[f"x{j}" for j in range(6)], actions=4)
    pv = ProgressivePolicy(Blind(), q=0.1).fit(plain)
    for run in (lambda: drs.evaluate(small(1)[0], pv), lambda: drs.replay(small(1)[0], pv, 3)):
        with pytest.raises(drs.PolicyError, match=words):
            run()


# The truth


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dlm", "filter", "offset", "progressive"])
def test_learned_policies_are_about_as_good_as_the_best_within_the_sets(name):
    """In a world of random sets; and evaluate on other events is within 4 standard errors of the true value."""
    shop = Shop()
    log = drs.Log(shop.table(40_000, seed=3), eligible="items")
    base = DecisionTreeClassifier(min_samples_leaf=200, random_state=0)
    learner = {
        "dlm": DirectLossMinimizer(restarts=2, epochs=20),
        "filter": FilterTree(base),
        "offset": OffsetTree(base),
        "progressive": ProgressivePolicy(drs.policies.EpsilonGreedy(0.0, learning_rate=0.1), q=0.05, horizon=3000),
    }[name]
    policy = learner.fit(log) if name == "offset" else learner.fit(log, drs.models.Ridge())
    value = shop.value(policy.probabilities)
    lost = (shop.best - value) / (shop.best - shop.value(lambda X, mask: mask / mask.sum(axis=1, keepdims=True)))
    assert (
        0 <= lost < {"dlm": 0.03, "filter": 0.1, "offset": 0.15, "progressive": 0.3}[name]
    )  # the mixture has early states, too
    fresh = drs.Log(shop.table(40_000, seed=4), eligible="items")
    found = drs.evaluate(fresh, policy, drs.models.Ridge(), ["dr"], crossfit=2)["dr"]
    assert abs(found.value - value) < 4 * found.stderr
