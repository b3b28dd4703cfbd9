"""Candidates with sparse features: the same numbers as with dense ones, whatever form they are stored in."""

import pickle
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import drstream as drs
from tests.helpers import naive_candidates as naive
from tests.helpers.candidate_logs import DZ, D, events, log_of, table_of
from tests.helpers.cut import cut_log
from tests.helpers.passes import not_plain

pytestmark = pytest.mark.covers

P, M = drs.policies, drs.models
ENTRY = pa.struct([("index", pa.int32()), ("value", pa.float64())])
RNG = np.random.default_rng(3)
WEIGHTS, PRODUCTS = RNG.normal(size=D + DZ), RNG.normal(size=(D, DZ))
FOUND = events(rows=200, seed=2)
NAMES = ["dm", "ips", "snips", "dr"]


def sparse_columns(found, form="structs", kind=None):
    """Columns of candidates whose zeros, if any, are left out, and what to open them with."""
    kind = pa.from_numpy_dtype(found["features"].dtype) if kind is None else kind
    rows = [[[(j, float(v)) for j, v in enumerate(found["features"][i]) if v] for i in s] for s in found["sets"]]
    if form == "two columns":
        at = [[[j for j, _ in row] for row in one] for one in rows]
        values = [[[v for _, v in row] for row in one] for one in rows]
        columns = {
            "at": pa.array(at, pa.list_(pa.list_(pa.int64()))),
            "v": pa.array(values, pa.list_(pa.large_list(kind))),
        }
        return columns, drs.Sparse("at", "v", dim=DZ)
    if form == "maps":
        return {"at": pa.array(rows, pa.list_(pa.map_(pa.int32(), kind)))}, drs.Sparse("at", dim=DZ)
    entries = [[[{"index": j, "value": v} for j, v in row] for row in one] for one in rows]
    return {"at": pa.array(entries, pa.large_list(pa.list_(ENTRY)))}, drs.Sparse("at", dim=DZ)


def sparse_table(found, form="structs"):
    table, candidates = table_of(found)
    columns, features = sparse_columns(found, form)
    return pa.table({**{name: table[name] for name in table.column_names if name != "z"}, **columns}), (
        drs.Candidates(candidates.ids, features)
    )


def sparse_log(found, form="structs", **options):
    table, candidates = sparse_table(found, form)
    return drs.Log(table, candidates=candidates, **options)


def sparse_context(found):
    """Contexts of the same numbers, as sparse columns."""
    lists = [[{"index": j, "value": float(v)} for j, v in enumerate(x)] for x in found["x"]]
    return pa.array(lists, pa.list_(ENTRY)), drs.Sparse("user", dim=D)


def values(result):
    return [result["policy", name].value for name in result.estimators]


@pytest.mark.parametrize("form", ["structs", "two columns", "maps"])
@pytest.mark.parametrize(
    "policy",
    [P.Softmax(WEIGHTS), P.Linear(WEIGHTS, interactions=PRODUCTS), P.Epsilon(P.Softmax(WEIGHTS), 0.2), P.Uniform()],
    ids=["softmax", "linear", "epsilon", "uniform"],
)
def test_policies_and_ridge_are_those_of_dense_features(form, policy):
    log = sparse_log(FOUND, form)
    assert "3 sparse features each: at" in repr(log)
    found = drs.evaluate(log, policy, M.Ridge(), NAMES, crossfit=2)
    wanted = drs.evaluate(log_of(FOUND), policy, M.Ridge(), NAMES, crossfit=2)
    assert values(found) == pytest.approx(values(wanted), rel=1e-8)
    for name in NAMES:
        assert found[name].stderr == pytest.approx(wanted[name].stderr, rel=1e-7)


@pytest.mark.parametrize("context", ["dense", "sparse", "none"])
@pytest.mark.parametrize("features", ["dense", "sparse"])
def test_contexts_and_features_may_each_be_sparse(context, features):
    table, candidates = sparse_table(FOUND) if features == "sparse" else table_of(FOUND)
    column, sparse = sparse_context(FOUND)
    options = {"context": sparse} if context == "sparse" else {"context": []} if context == "none" else {}
    log = drs.Log(table.append_column("user", column), candidates=candidates, **options)
    weights = WEIGHTS if context != "none" else WEIGHTS[D:]
    products = PRODUCTS if context != "none" else None
    wanted_log = log_of(FOUND) if context != "none" else log_of(FOUND, context=[])
    for policy in (P.Softmax(weights), P.Softmax(weights, interactions=products)):
        for model in (M.Ridge(0.5), M.Logistic()):
            found = drs.evaluate(log, policy, model, ["dm", "dr"], crossfit=2)
            wanted = drs.evaluate(wanted_log, policy, model, ["dm", "dr"], crossfit=2)
            assert values(found) == pytest.approx(values(wanted), rel=1e-5 if isinstance(model, M.Logistic) else 1e-8)


def test_ridge_is_one_regression_on_logged_pairs():
    log = sparse_log(FOUND)
    model = M.Ridge(2.0).fit(log)
    rows = naive.pairs(FOUND)
    wanted = naive.ridge(naive.logged(rows, FOUND["position"]), FOUND["reward"], 2.0)
    np.testing.assert_allclose([*model.coef_[0], model.intercept_[0]], wanted, rtol=1e-5, atol=1e-7)
    assert model.feature_names_ == ["x0", "x1", "at[0]", "at[1]", "at[2]"]
    other = M.Ridge(2.0).fit(sparse_log(events(rows=50, seed=9)))
    greedy = drs.evaluate(log, P.Greedy(other), estimators="ips")["ips"].value
    weights = drs.evaluate(log, P.Linear(other.coef_[0]), estimators="ips")["ips"].value
    assert greedy == weights


def test_estimators_of_scikit_learn_and_functions_see_sparse_rows():
    from scipy import sparse
    from sklearn.linear_model import Ridge

    seen = []

    def even(X, Z, starts):
        seen.append((X.shape, Z.shape, sparse.issparse(Z), len(starts)))
        return np.repeat(1 / np.diff(starts), np.diff(starts))

    log = sparse_log(FOUND)
    model = M.from_sklearn(Ridge(1.0))
    found = drs.evaluate(log, P.from_function(even), model, ["dm", "dr"], crossfit=2)
    wanted = drs.evaluate(log_of(FOUND), P.Uniform(), M.Ridge(1.0), ["dm", "dr"], crossfit=2)
    assert values(found) == pytest.approx(values(wanted), rel=1e-4)
    assert all(shape[1] == D and z[1] == DZ and is_sparse for shape, z, is_sparse, _ in seen)
    called = M.from_function(lambda X, Z, starts: np.asarray(Z.sum(axis=1)).reshape(-1))
    found = drs.evaluate(log, P.Uniform(), called, ["dm"])
    sums = [np.mean([FOUND["features"][i].astype(float).sum() for i in s]) for s in FOUND["sets"]]
    assert found["dm"].value == pytest.approx(np.mean(sums), rel=1e-6)


def test_models_of_files_know_that_features_are_sparse(tmp_path):
    log = sparse_log(FOUND)
    model = M.Logistic().fit(log.split(0.5)[0])
    model.save(tmp_path / "model.npz")
    again = M.load(tmp_path / "model.npz")
    test = log.split(0.5)[1]
    one, other = (drs.evaluate(test, P.Uniform(), m, ["dr"])["dr"].value for m in (model, again))
    assert one == other
    with pytest.raises(drs.ModelError, match="fitted on candidates with 3 sparse features each: at; those of the log"):
        drs.evaluate(log_of(FOUND), P.Uniform(), again, ["dr"])
    with pytest.raises(drs.ModelError, match="fitted on candidates with 3 features each"):
        drs.evaluate(log, P.Uniform(), M.Ridge().fit(log_of(FOUND)), ["dr"])


def test_very_many_features_take_no_dense_arrays():
    """2^18 features of contexts and of candidates, hashed: a matrix of a block would take 2 GB."""
    dim = 2**18
    spread = np.arange(1, D + 1) * (dim // 7), np.arange(1, DZ + 1) * (dim // 5)
    x = [[{"index": int(spread[0][j]), "value": float(v)} for j, v in enumerate(row)] for row in FOUND["x"]]
    z = [
        [[{"index": int(spread[1][j]), "value": float(v)} for j, v in enumerate(FOUND["features"][i])] for i in s]
        for s in FOUND["sets"]
    ]
    table, candidates = table_of(FOUND)
    table = table.append_column("user", pa.array(x, pa.list_(ENTRY)))
    table = table.append_column("at", pa.array(z, pa.list_(pa.list_(ENTRY))))
    log = drs.Log(
        table, context=drs.Sparse("user", dim=dim), candidates=drs.Candidates(candidates.ids, drs.Sparse("at", dim=dim))
    )
    weights = np.zeros(2 * dim)
    weights[spread[0]], weights[dim + spread[1]] = WEIGHTS[:D], WEIGHTS[D:]
    found = drs.evaluate(log, P.Softmax(weights), M.Ridge(), NAMES, crossfit=2)
    wanted = drs.evaluate(log_of(FOUND), P.Softmax(WEIGHTS), M.Ridge(), NAMES, crossfit=2)
    assert values(found) == pytest.approx(values(wanted), rel=1e-6)


@not_plain
def test_threads_batch_sizes_sources_and_processes_give_the_same_bits(tmp_path):
    found = events(rows=6000, seed=4, most=9)
    table, candidates = sparse_table(found)
    path = tmp_path / "log.parquet"
    pq.write_table(table, path, row_group_size=1500)
    policies = {"soft": P.Softmax(WEIGHTS), "hard": P.Linear(WEIGHTS, interactions=PRODUCTS)}

    def bits(**options):
        how = {name: options.pop(name) for name in ("threads", "executor") if name in options}
        log = cut_log(path, candidates=candidates, **options)
        return [
            {name: v.hex() if isinstance(v, float) else v for name, v in row.items()}
            for row in drs.evaluate(log, policies, M.Ridge(), crossfit=2, **how).rows()
        ]

    wanted = bits(threads=1)
    assert bits(threads=2) == bits(batch_size=77) == bits(batch_size=4096) == wanted
    with ProcessPoolExecutor(1) as processes:
        assert bits(executor=processes) == wanted


def test_logs_and_results_are_pickled():
    log = sparse_log(FOUND)
    reader = pickle.loads(pickle.dumps(log.reader(candidates=True)))
    assert reader.offers == log.reader(candidates=True).offers
    result = drs.evaluate(log, P.Uniform(), estimators="ips")
    assert pickle.loads(pickle.dumps(result))["ips"] == result["ips"]


class Cheapest:
    """Learns, in Python, how much the first feature is worth."""

    def reset(self):
        self.slope, self.version = 0.0, 0

    def probabilities(self, X, Z, starts):
        first = np.asarray(Z[:, [0]].todense()).reshape(-1) if hasattr(Z, "todense") else Z[:, 0].astype(float)
        weights = np.exp(self.slope * first)
        return weights / np.repeat(np.add.reduceat(weights, starts[:-1]), np.diff(starts))

    def update(self, x, z, reward):
        first = z[0, 0] if z.ndim == 2 else z[0]
        self.slope += 0.05 * float(first) * (reward - 0.5)
        self.version += 1


def test_replays_of_python_and_fixed_policies():
    """Python policies see sparse rows. Those of drstream that learn take dense features."""
    logs = sparse_log(FOUND), log_of(FOUND)
    for policy in (Cheapest(), P.Softmax(WEIGHTS)):
        runs = [drs.replay(log, policy, 10, M.Ridge(), q=0.05, crossfit=2) for log in logs]
        assert runs[0].value == pytest.approx(runs[1].value, rel=1e-7)
        assert runs[0].complete == runs[1].complete > 0
    with pytest.raises(
        drs.PolicyError, match="EpsilonGreedy takes dense features of candidates, and those of this log"
    ):
        drs.replay(logs[0], P.EpsilonGreedy(), 10)
    with pytest.raises(
        drs.ModelError, match="Propensity: on candidates, it takes dense features, and those of this log"
    ):
        M.Propensity().fit(logs[0])


# Mistakes


def one_event(entries, kind=ENTRY):
    table, _ = table_of(events(rows=4, seed=1, most=3, catalogue=3))
    lists = [[[{"index": 0, "value": 1.0}]] * len(ids) for ids in table["items"].to_pylist()]
    lists[2] = entries(len(lists[2]))
    return table.append_column("at", pa.array(lists, pa.list_(pa.list_(kind))))


BAD = {
    "a candidate's features are null": (lambda m: [None] * m, "got None in place 0"),
    "a candidate's features hold a null": (lambda m: [[{"index": None, "value": 1.0}]] * m, "'index': None"),
    "a candidate's features have an index that is not in 0..2": (
        lambda m: [[{"index": 3, "value": 1.0}]] * m,
        "'index': 3",
    ),
    "a candidate's features are not finite": (lambda m: [[{"index": 1, "value": np.inf}]] * m, "'value': inf"),
    "candidates are null": (lambda m: None, "are null at row 2"),
    "candidates have lists of different lengths": (lambda m: [[]] * (m + 1), "where 'at' holds"),
}


@pytest.mark.parametrize("reason", BAD)
def test_bad_rows_are_named_or_skipped_and_counted(reason):
    entries, shown = BAD[reason]
    table = one_event(entries)
    options = {"candidates": drs.Candidates("items", drs.Sparse("at", dim=3))}
    with pytest.raises(drs.LogError) as caught:
        drs.evaluate(drs.Log(table, **options), P.Softmax(WEIGHTS))
    assert reason in str(caught.value)
    assert "at row 2" in str(caught.value)
    assert shown in str(caught.value)
    found = drs.evaluate(drs.Log(table, on_bad_row="skip", **options), P.Softmax(WEIGHTS), estimators="ips")
    assert (found.n, found.skipped) == (3, {reason: 1})


def test_numbers_of_indices_and_values_that_differ():
    table, _ = table_of(events(rows=4, seed=1))
    sizes = [len(ids) for ids in table["items"].to_pylist()]
    table = table.append_column("at", pa.array([[[0, 1]] * m for m in sizes]))
    table = table.append_column("v", pa.array([[[0.5] if k == 3 else [0.5, 1.0]] * m for k, m in enumerate(sizes)]))
    log = drs.Log(table, candidates=drs.Candidates("items", drs.Sparse("at", "v", dim=DZ)))
    with pytest.raises(
        drs.LogError, match=r"a candidate's features have other numbers of indices and values.* at row 3"
    ):
        drs.evaluate(log, P.Softmax(WEIGHTS))


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (drs.Sparse("items", dim=3), "candidate column 'items' has type string: the indices of sparse candidates are"),
        (drs.Sparse("at", "reward", dim=3), "candidates column 'reward' has type double: it must hold a list"),
        (drs.Sparse("at", "at", dim=3), "holds indices and values: leave out values='at'"),
        (drs.Sparse("nope", dim=3), "the log has no column 'nope' for the candidates"),
    ],
)
def test_columns_that_hold_no_sparse_features(features, message):
    table, _ = sparse_table(FOUND)
    with pytest.raises(drs.LogError, match=message):
        drs.Log(table, candidates=drs.Candidates("items", features))


def test_what_needs_dense_features_is_refused():
    log = sparse_log(FOUND)
    with pytest.raises(
        drs.LogError, match=r"interactions=True multiplies .* features of candidates of this log are sparse"
    ):
        drs.evaluate(log, P.Uniform(), M.Ridge(interactions=True), crossfit=2)
    column, sparse = sparse_context(FOUND)
    table, candidates = table_of(FOUND)
    log = drs.Log(table.append_column("user", column), context=sparse, candidates=candidates)
    with pytest.raises(drs.LogError, match=r"interactions=True multiplies .* contexts of this log are sparse"):
        M.Logistic(interactions=True).fit(log)


def test_names_of_features_are_not_held_in_memory():
    names = sparse_log(FOUND).candidate_features
    assert list(names) == names[:] == ["at[0]", "at[1]", "at[2]"]
    assert names[-1] == "at[2]"
    assert len({names, sparse_log(FOUND).candidate_features}) == 1
    with pytest.raises(IndexError):
        names[3]
    assert len({drs.Candidates("items", drs.Sparse("at", dim=dim)) for dim in (3, 3, 4)}) == 2
