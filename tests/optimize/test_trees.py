"""Filter Tree and Offset Tree: against the definition, one event and one node at a time."""

import math
import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import drstream as drs
from drstream.optimize.losses import Losses, impute
from drstream.optimize.trees import FilterTree, OffsetTree
from tests.helpers import reference
from tests.helpers.cut import cut_log
from tests.helpers.logs import arrays, log_of, world
from tests.helpers.trees import LEARNERS, ROWS, STUMP, D, K, Recorder, check_nodes, same


@pytest.fixture(scope="module")
def table():
    return world(kinds=None).table(ROWS, seed=1)


@pytest.fixture(scope="module", name="X")
def contexts(table):
    return arrays(table, D)[0]


@pytest.fixture
def calls(monkeypatch):
    monkeypatch.setattr(Recorder, "calls", [])
    return Recorder.calls


def by_costs(costs):
    return lambda k, node, goes_right: reference.filter_tree_example(node, costs[k], goes_right)


def draws(n_actions, n=80, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, D))
    return X, rng.integers(n_actions, size=n), rng.integers(0, 4, size=n) / 2, rng.uniform(0.1, 1, n), rng


@pytest.mark.parametrize("n_actions", [1, 2, 3, 4, 5, 8, 11])
def test_filter_tree_nodes_are_fitted_on_which_winner_costs_less(calls, n_actions):
    X, *_, rng = draws(n_actions)
    costs = rng.integers(0, 4, size=(len(X), n_actions)) / 2  # ties are frequent
    costs[:, -1] = 9
    got = FilterTree(Recorder()).fit(Losses.known(X, costs))
    constant = check_nodes(
        got, calls, X, n_actions, lambda k, *at: reference.filter_tree_example(at[0], costs[k], at[1])
    )
    assert constant == (n_actions > 1)  # the last action's first opponent always wins
    assert not (got.choose(X) == n_actions - 1).any() or n_actions == 1


@pytest.mark.parametrize("model", [False, True])
def test_filter_tree_learns_from_completed_costs(calls, model):
    X, a, r, p, rng = draws(5)
    W = rng.normal(size=(D, 5))
    costs = -(X @ W) if model else np.zeros((len(X), 5))
    for k in range(len(X)):
        costs[k, a[k]] += -(r[k] + costs[k, a[k]]) / p[k]
    log = log_of(X, a, r, p, actions=5)
    predictions = drs.models.from_function(lambda x: x @ W) if model else None
    got = FilterTree(Recorder()).fit(log, predictions)
    again = list(calls)
    constant = check_nodes(got, calls, X, 5, by_costs(costs))
    assert constant == 0
    calls.clear()
    given = FilterTree(Recorder()).fit(impute(log, predictions, losses="rewards"))  # they are turned into costs
    assert given.choose(X).tolist() == got.choose(X).tolist()
    for one, other in zip(again, calls, strict=True):
        np.testing.assert_array_equal(one[1], other[1])


@pytest.mark.parametrize("offset", [None, 0.5, -1.0])
@pytest.mark.parametrize("n_actions", [1, 2, 3, 5, 8])
def test_offset_tree_nodes_are_fitted_on_the_logged_actions_that_won(calls, n_actions, offset):
    X, a, r, p, _ = draws(n_actions)
    got = OffsetTree(Recorder(), offset=offset).fit(log_of(X, a, r, p, actions=n_actions))
    assert (r.min(), r.max()) == (0, 1.5)
    assert got.offset_ == (0.75 if offset is None else offset)

    def example(k, node, goes_right):
        return reference.offset_tree_example(node, a[k], r[k], p[k], got.offset_, goes_right)

    check_nodes(got, calls, X, n_actions, example)
    assert len(calls) >= (n_actions - 1) // 2


def test_offset_tree_by_hand(calls):
    """Three actions, of which 0 and 1 meet first; the winner there is 1 where x > 0."""
    x = np.array([[-2.0], [-1.0], [1.0], [2.0], [3.0], [4.0]])
    action, reward = [0, 1, 1, 0, 2, 1], [1.0, 0.0, 1.0, 0.0, 1.0, 0.5]
    got = OffsetTree(Recorder()).fit(log_of(x, action, reward, [0.5, 0.25, 0.5, 0.25, 0.25, 0.1], actions=3))
    assert got.offset_ == 0.5
    (_, first, weights), (seen, second, others) = calls
    assert first.tolist() == [0, 0, 1, 1]  # events 0 to 3; event 5 is in the middle
    np.testing.assert_allclose(weights, np.array([1, 2, 1, 2]) / 1.5)
    assert seen.ravel().tolist() == [-2, 1, 3]  # at the others, the logged action lost before, or says nothing
    assert second.tolist() == [0, 0, 1]
    np.testing.assert_allclose(others, np.array([1, 1, 2]) / (4 / 3))


def test_costs_are_minus_rewards_to_an_offset():
    table = pa.table({"action": [0, 1], "cost": [0.0, 3.0], "propensity": [0.5] * 2, "x0": [0.0, 1.0]})
    assert OffsetTree().fit(table).offset_ == -1.5
    assert OffsetTree(offset=-1).fit(table).offset_ == -1


# What is chosen


class Counting(ClassifierMixin, BaseEstimator):
    """Sides by a hash of the event, whose number is its context, and of the node; counts who asks."""

    asked = np.zeros(200, int)  # of all clones, by event

    def fit(self, X, y, sample_weight=None):
        self.classes_ = np.unique(y)
        self.mark_ = 1 + int(1e6 * sample_weight[0]) % 1_000
        return self

    def predict(self, X):
        number = X[:, 0].astype(int)
        np.add.at(self.asked, number, 1)
        return (1_000 * np.sin(12.9898 * number + self.mark_)).astype(int) % 2


@pytest.mark.parametrize("n_actions", [1, 2, 3, 5, 8, 26, 100])
def test_an_event_meets_no_more_classifiers_than_the_logarithm_of_actions(monkeypatch, n_actions):
    X = np.arange(200.0)[:, None]
    costs = np.random.default_rng(0).uniform(size=(200, n_actions))
    got = FilterTree(Counting()).fit(Losses.known(X, costs))
    assert not any(isinstance(node, int) for node in got.classifiers_)
    monkeypatch.setattr(Counting, "asked", np.zeros(200, int))
    chosen, asked = got.choose(X), Counting.asked.copy()
    deepest = math.ceil(math.log2(n_actions))
    assert got.depth_ == asked.max() == deepest
    assert asked.min() >= math.floor(math.log2(n_actions))
    assert got.children_.shape == (n_actions - 1, 2)
    tree = reference.balanced_tree(list(range(n_actions)))
    at = {node: got.classifiers_[j].predict(X) for j, node in enumerate(reference.tree_nodes(tree))}
    walks = [reference.tree_winner(tree, lambda node, k=k: at[node][k]) for k in range(200)]
    assert chosen.tolist() == [action for action, _ in walks]
    assert asked.tolist() == [met for _, met in walks]
    assert len(set(chosen)) >= min(n_actions, 10)


def test_known_losses_are_learned_perfectly():
    rng = np.random.default_rng(0)
    cell = rng.integers(3, size=(500, 2))
    best = rng.permutation(9).reshape(3, 3)[cell[:, 0], cell[:, 1]]
    costs = rng.uniform(1, 2, size=(500, 9))
    costs[np.arange(500), best] = 0
    got = FilterTree().fit(Losses.known(cell.astype(float), costs))
    assert got.choose(cell.astype(float)).tolist() == best.tolist()
    pi = got.probabilities(cell.astype(float))
    assert pi.dtype == np.float64
    np.testing.assert_array_equal(pi, np.eye(9)[best])
    assert (got.n_actions, got.n_events_, got.n_features_, got.depth_) == (9, 500, 2, 4)


def test_logged_events_lead_to_a_good_policy(table, X):
    """Better than to log, and better than any one action."""
    test = world(kinds=None).table(ROWS, seed=2)
    log = drs.Log(test)
    others = {a: drs.policies.Constant(a) for a in range(K)}
    for got in (FilterTree().fit(table), FilterTree().fit(table, drs.models.Ridge()), OffsetTree().fit(table)):
        values = drs.evaluate(log, {"tree": got, "uniform": drs.policies.Uniform(), **others}, estimators="snips")
        assert len(set(got.choose(X))) > 1
        assert values["tree", "snips"].value > max(values[name, "snips"].value for name in ("uniform", "0", "1"))


def test_one_action_and_no_event(table, X):
    one = drs.Log(table.set_column(0, "action", pa.array(np.zeros(ROWS, int))))
    for learner in LEARNERS:
        got = learner().fit(one)
        assert (got.depth_, got.classifiers_, got.children_.shape) == (0, [], (0, 2))
        assert got.probabilities(X[:3]).tolist() == [[1]] * 3
        got = learner().fit(table)
        assert got.choose(X[:0]).shape == (0,)
        assert got.probabilities(X[:0]).shape == (0, K)


@pytest.mark.parametrize("learner", LEARNERS)
def test_without_anything_to_tell_apart_the_first_action_is_chosen(table, X, learner):
    got = learner().fit(table.set_column(1, "reward", pa.array(np.zeros(ROWS))))
    assert got.classifiers_ == [0, 0, 0]
    assert not got.choose(X).any()


# Importance


def conflict(more_often):
    """At each of two contexts the sides contradict each other; the rarer side has nine times the importance."""
    X, costs = [], []
    for x, heavy in ((0.0, 0), (1.0, 1)):
        X += [[x]] * (4 * more_often)
        costs += [np.eye(2)[1 - heavy] * 9] * more_often + [np.eye(2)[heavy]] * (3 * more_often)
    return Losses.known(np.array(X), np.array(costs))


WEIGHED = [
    DecisionTreeClassifier(random_state=0),
    LogisticRegression(),
    make_pipeline(StandardScaler(), LogisticRegression()),
    make_pipeline(StandardScaler(), make_pipeline(StandardScaler(), DecisionTreeClassifier(random_state=0))),
    KNeighborsClassifier(101),
    make_pipeline(StandardScaler(), KNeighborsClassifier(101)),
]


@pytest.mark.parametrize("base", WEIGHED, ids=lambda e: " ".join(repr(e).split()))
def test_importance_counts_for_any_classifier(base):
    before = repr(base.get_params())
    got = FilterTree(base).fit(conflict(100))
    assert got.choose(np.array([[0.0], [1.0]])).tolist() == [0, 1]
    assert repr(base.get_params()) == before
    assert type(got.classifiers_[0]) is type(base)
    assert got.classifiers_[0] is not base


def test_weights_reach_the_last_step_of_a_pipeline(calls):
    FilterTree(make_pipeline(StandardScaler(), Recorder())).fit(conflict(5))
    FilterTree(Recorder()).fit(conflict(5))
    (_, labels, weights), (_, *others) = calls
    np.testing.assert_array_equal((labels, weights), others)
    assert set(weights) == {9 / 3, 1 / 3}


class Plain(ClassifierMixin, BaseEstimator):
    """Takes no weights; its labels are written down."""

    labels: list = []  # noqa: RUF012

    def fit(self, X, y):
        self.labels.append(y.tolist())
        self.classes_ = np.unique(y)
        return self

    def predict(self, X):
        return np.zeros(len(X), int)


def test_examples_are_drawn_by_importance_and_seed(monkeypatch):
    monkeypatch.setattr(Plain, "labels", [])
    for seed in (0, 0, 1, -1):
        FilterTree(Plain(), seed=seed).fit(conflict(500))
    first, again, *others = Plain.labels
    assert first == again
    assert first != others[0] != others[1]
    for labels in Plain.labels:
        assert len(labels) == 4_000
        assert abs(np.mean(labels) - 0.5) < 0.04  # 5 standard errors
    side = FilterTree(Plain()).fit(Losses.known(np.zeros((2_000, 1)), [[0.0, 3.0], [1.0, 0.0]] * 1_000))
    assert isinstance(side.classifiers_[0], Plain)
    assert abs(np.mean(Plain.labels[-1]) - 1 / 4) < 0.05


def test_a_draw_of_one_side_alone_is_constant():
    got = FilterTree(LogisticRegression()).fit(Losses.known(np.zeros((2, 1)), [[0.0, 1e-12], [1.0, 0.0]]))
    assert isinstance(got.classifiers_[0], LogisticRegression)
    got = FilterTree(KNeighborsClassifier(1)).fit(Losses.known(np.zeros((2, 1)), [[0.0, 1e-12], [1.0, 0.0]]))
    assert got.classifiers_ == [1]


# Samples, sparse contexts


class Pickling(ThreadPoolExecutor):
    """As if in another process."""

    def submit(self, task, *args):
        return super().submit(pickle.loads(pickle.dumps(task)), *args)


@pytest.mark.parametrize("learner", LEARNERS)
def test_the_sample_does_not_depend_on_batches_threads_or_executor(table, X, tmp_path, learner):
    from drstream.models.sample import SAMPLE_SEED

    path = tmp_path / "log.parquet"
    pq.write_table(table, path, row_group_size=ROWS // 5)
    wanted = learner(sample=150, seed=5).fit(drs.Log(path), threads=1)
    assert wanted.n_events_ == 150
    for threads, size in ((1, 7), (2, 100), (4, ROWS)):
        same(learner(sample=150, seed=5).fit(cut_log(path, batch_size=size), threads=threads), wanted, X)
    with Pickling(2) as executor:
        same(learner(sample=150, seed=5).fit(drs.Log(path), executor=executor), wanted, X)
    lots = drs.sampling.at_rows(5 + SAMPLE_SEED, np.arange(ROWS, dtype=np.uint64))
    same(learner().fit(table.take(np.sort(np.argsort(lots)[:150]))), wanted, X)
    other = learner(sample=150, seed=6).fit(drs.Log(path))
    assert (other.choose(X) != wanted.choose(X)).any()


def test_progress(table):
    for learner in LEARNERS:
        calls = []
        learner().fit(table, progress=lambda done, total, calls=calls: calls.append((done, total)))
        assert calls[-1] == (ROWS, ROWS)


@pytest.mark.parametrize("learner", LEARNERS)
def test_sparse_contexts(table, X, learner):
    _, a, r, p = arrays(table, D)
    X = np.where(X > 0, X, 0)
    dense = learner(STUMP).fit(log_of(X, a, r, p))
    log = log_of(X, a, r, p, sparse=True)
    got = learner(STUMP).fit(log)
    same(got, dense, X)
    for rows in (scipy.sparse.csr_array(X), scipy.sparse.csc_matrix(X)):
        assert got.choose(rows).tolist() == dense.choose(X).tolist()
    assert len(set(dense.choose(X))) > 1
    with pytest.warns(UserWarning, match="learned from events that it is now evaluated on"):
        found = drs.evaluate(log, got)
    assert found["ips"].value == drs.evaluate(log_of(X, a, r, p), dense)["ips"].value
    rows = scipy.sparse.csr_array(X)
    bounds, places, halves = np.int64(2) * rows.indptr, np.repeat(rows.indices, 2), np.repeat(rows.data, 2) / 2
    twice = scipy.sparse.csr_array((halves, places.astype(np.int64), bounds), shape=X.shape)
    assert twice.indices.dtype == np.int64  # which a decision tree would refuse
    assert got.choose(twice).tolist() == dense.choose(X).tolist()
    assert (twice.nnz, twice.indices.dtype) == (2 * rows.nnz, np.int64)  # the caller's stays as it is


# In use


@pytest.mark.parametrize("learner", LEARNERS)
def test_evaluated_on_its_own_events_it_warns(table, learner):
    train, test = drs.Log(table).split(0.5)
    got = learner().fit(train)
    for log in (train, drs.Log(table)):
        with pytest.warns(UserWarning, match="learned from events that it is now evaluated on"):
            drs.evaluate(log, got)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = drs.evaluate(
            test, {"tree": got, "soft": drs.policies.Epsilon(got, 0.1), "any": drs.policies.Uniform()}
        )
    tree, soft, uniform = (result[name, "ips"].value for name in ("tree", "soft", "any"))
    assert soft == pytest.approx(0.9 * tree + 0.1 * uniform)
    assert tree != uniform
    with pytest.warns(UserWarning, match="learned from events"):
        drs.evaluate(train, drs.policies.Epsilon(got, 0.1))


@pytest.mark.parametrize("learner", LEARNERS)
def test_it_is_the_policy_of_its_choices(table, X, learner):
    train, test = drs.Log(table).split(0.5)
    got = learner().fit(train)
    column = table.append_column("chosen", pa.array(got.choose(X)))
    wanted = drs.evaluate(drs.Log(column).split(0.5)[1], drs.policies.Column("chosen"))["ips"].value
    for threads in (1, 2):
        assert drs.evaluate(test, got, threads=threads)["ips"].value == wanted


def test_other_labels_and_features_are_refused(table):
    got = FilterTree().fit(drs.Log(table, context=["x2", "x1", "x0"]).split(0.5)[0])
    same = [drs.evaluate(drs.Log(table, context=names).split(0.5)[1], got) for names in (["x2", "x1", "x0"], "x*")]
    assert repr(same[0].rows()) == repr(same[1].rows())  # features meet by name
    with pytest.raises(drs.PolicyError, match="fitted on 3 features; the log has 2"):
        drs.evaluate(drs.Log(table, context=["x0", "x1"]).split(0.5)[1], got)
    with pytest.raises(drs.PolicyError, match="has 4 actions, the log has 6"):
        got.bind(drs.Log(table, context=["x2", "x1", "x0"], actions=6), "tree")
    for wrong in (np.zeros((2, 5)), np.zeros(3), scipy.sparse.csr_array((2, 5))):
        with pytest.raises(drs.PolicyError, match=r"contexts of shape \(.*\): the policy was fitted on 3 features"):
            got.choose(wrong)


def test_bad_rows_are_skipped_and_counted(table):
    r = table["reward"].to_numpy().copy()
    r[0] = np.nan
    for learner in LEARNERS:
        got = learner().fit(drs.Log(table.set_column(1, "reward", pa.array(r)), on_bad_row="skip"))
        assert got.skipped_ == {"reward is not finite": 1}
        assert got.n_events_ == ROWS - 1
        assert got.reward_range_ == (0, 1)


def test_repr(table):
    assert repr(FilterTree()) == "FilterTree()"
    assert repr(OffsetTree(LogisticRegression(), offset=0.5)) == "OffsetTree(base=LogisticRegression(), offset=0.5)"
    assert repr(FilterTree(sample=9).fit(table)) == "FilterTree(sample=9), fitted on 9 events of table"
    assert "\n" not in repr(FilterTree(make_pipeline(StandardScaler(), LogisticRegression())))
