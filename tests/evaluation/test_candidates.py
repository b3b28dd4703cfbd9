"""Evaluation on candidates: every estimator, policy and model against plain Python, and against logs without them."""

from __future__ import annotations

import math
import pickle
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

import drstream as drs
from drstream.evaluation.estimators import ALL
from drstream.evaluation.plan import CANDIDATES, make_plan
from drstream.evaluation.request import Request
from drstream.models.binding import ModelInputs
from drstream.running.execution import Workers
from tests.helpers import naive_candidates as naive
from tests.helpers import reference
from tests.helpers.candidate_logs import DZ, FORMS, D, events, log_of, table_of
from tests.helpers.cut import cut_log
from tests.helpers.evaluations import BALANCED, BY_TIME, MARGINAL, limits
from tests.helpers.passes import PLAIN, not_plain

P, M = drs.policies, drs.models
ONE_PASS = [name for name in ALL if name not in BY_TIME + BALANCED + MARGINAL]  # test_marginal_candidates.py
FOUR = ["dm", "ips", "snips", "dr"]
RNG = np.random.default_rng(7)
WEIGHTS, PRODUCTS = RNG.normal(size=D + DZ), RNG.normal(size=(D, DZ))
FOUND = events(rows=300, seed=1)


def naive_values(found, pi, rhat, names=tuple(FOUR)):
    args = found["reward"], found["propensity"], found["position"], pi, rhat
    return {name: reference.estimate(name, *args) for name in names}


def bits(result):
    """Every number of a result, exactly."""
    return [{key: v.hex() if isinstance(v, float) else v for key, v in row.items()} for row in result.rows()]


def agree(result, wanted, policy="policy", rel=1e-9):
    for name, (value, stderr, _) in wanted.items():
        got = result[policy, name]
        assert got.value == pytest.approx(value, rel=rel, abs=1e-12), name
        assert got.stderr == pytest.approx(stderr, rel=1e-8, abs=1e-12), name


# Estimators


@st.composite
def ragged(draw):
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=30))
    number = st.floats(-1e3, 1e3).map(lambda x: round(x, 3))
    pi, rhat, action, reward, propensity = [], [], [], [], []
    for size in sizes:
        raw = draw(st.lists(st.integers(0, 9), min_size=size, max_size=size))
        raw = raw if sum(raw) else [1, *raw[1:]]
        pi.append([v / sum(raw) for v in raw])
        rhat.append(draw(st.lists(number, min_size=size, max_size=size)))
        action.append(draw(st.integers(0, size - 1)))
        reward.append(draw(st.one_of(st.sampled_from([0.0, 1.0]), number)))
        propensity.append(draw(st.sampled_from([1.0, 0.5, 1e-3])))
    return {"pi": pi, "rhat": rhat, "action": action, "reward": reward, "propensity": propensity}


@pytest.mark.parametrize("estimator", ONE_PASS)
@given(log=ragged(), limit=st.sampled_from([0.5, 3.0, 1e6]))
def test_estimators_equal_the_reference(estimator, log, limit):
    table = pa.table({**log, "ids": [list(range(len(p))) for p in log["pi"]]})
    given_limits = limits(estimator, cap=limit, floor=0.25, lambda_=limit)
    result = drs.evaluate(
        drs.Log(table, context=[], candidates=drs.Candidates("ids")),
        P.Column("pi"),
        M.Column("rhat"),
        [estimator],
        **given_limits,
    )
    args = log["reward"], log["propensity"], log["action"], log["pi"], log["rhat"]
    value, stderr, psi = reference.estimate(estimator, *args, **given_limits)
    scale = max([1.0, *(abs(v) for v in psi if not math.isnan(v))])
    got = result[estimator]
    assert got.value == pytest.approx(value, rel=1e-9, abs=1e-9 * scale, nan_ok=True)
    if estimator != "ips-cv":  # its standard error is a difference of large numbers; test_estimators.py allows for it
        assert got.stderr**2 == pytest.approx(stderr**2, rel=1e-8, abs=1e-10 * scale**2, nan_ok=True)
    assert result.baseline.value == pytest.approx(reference.mean(log["reward"]), rel=1e-9, abs=1e-9)


# Policies

POLICIES = {
    "uniform": (P.Uniform(), lambda f: naive.uniform(f)),
    "softmax": (P.Softmax(WEIGHTS), lambda f: naive.softmax(naive.scores(f, WEIGHTS))),
    "cold": (
        P.Softmax(WEIGHTS, temperature=0.25, interactions=PRODUCTS),
        lambda f: naive.softmax([[4 * v for v in s] for s in naive.scores(f, WEIGHTS, PRODUCTS)]),
    ),
    "linear": (
        P.Linear(WEIGHTS, interactions=PRODUCTS),
        lambda f: naive.argmax(naive.scores(f, WEIGHTS, PRODUCTS)),
    ),
    "tie": (P.Linear(np.zeros(D + DZ)), lambda f: naive.argmax([[0.0] * len(s) for s in f["sets"]])),
    "epsilon": (P.Epsilon(P.Linear(WEIGHTS), 0.3), lambda f: naive.mixed(naive.argmax(naive.scores(f, WEIGHTS)), 0.3)),
    "epsilon of uniform": (P.Epsilon(P.Uniform(), 0.3), lambda f: naive.uniform(f)),
    "function": (
        P.from_function(lambda X, Z, starts: np.repeat(1 / np.diff(starts), np.diff(starts))),
        lambda f: naive.uniform(f),
    ),
}


@pytest.mark.parametrize("otherwise", ["uniform", "cold"])
@pytest.mark.parametrize("text", [True, False])
def test_one_candidate_and_otherwise_another_policy(otherwise, text):
    found = events(rows=200, seed=1, text=text)
    policy, pi = POLICIES[otherwise]
    wanted = pi(found)
    for k, s in enumerate(found["sets"]):
        if 4 in s:
            wanted[k] = [float(i == 4) for i in s]
    assert {4 in s for s in found["sets"]} == {True, False}
    result = drs.evaluate(log_of(found), P.Constant(found["ids"][4], policy), M.Constant(0.5), FOUR)
    agree(result, naive_values(found, wanted, [[0.5] * len(s) for s in found["sets"]]))
    first = drs.evaluate(log_of(found, position=True, features_only=True), P.Constant(0), estimators=["ips"])
    best = [[float(j == 0) for j in range(len(s))] for s in found["sets"]]
    agree(first, naive_values(found, best, best, ("ips",)))
    third = P.Constant(2, P.Epsilon(P.Constant(0), 0.1))
    got = drs.evaluate(log_of(found, position=True, features_only=True), third, estimators=["ips"])
    mixed = naive.mixed(best, 0.1)
    wanted = [[0.0, 0, 1, 0, 0][: len(s)] if len(s) > 2 else m for s, m in zip(found["sets"], mixed, strict=True)]
    agree(got, naive_values(found, wanted, wanted, ("ips",)))


@pytest.mark.parametrize("name", POLICIES)
def test_policies_equal_plain_python(name):
    policy, pi = POLICIES[name]
    log = log_of(FOUND)
    rows = naive.pairs(FOUND)
    w = np.append(RNG.normal(size=D + DZ), 0.3)
    model = M.from_function(
        lambda X, Z, starts: np.column_stack([np.repeat(X, np.diff(starts), axis=0), Z]) @ w[:-1] + w[-1]
    )
    result = drs.evaluate(log, policy, model, FOUR)
    agree(result, naive_values(FOUND, pi(FOUND), naive.predictions(rows, w)))
    alone = drs.evaluate(log, policy, estimators=["ips", "snips"])
    for estimator in ("ips", "snips"):
        assert alone[estimator].value == pytest.approx(result[estimator].value, rel=1e-12)


def test_columns_of_probabilities_targets_and_logged_probabilities():
    found = FOUND
    pi = naive.softmax(naive.scores(found, WEIGHTS))
    target = [int(np.argmax(p)) for p in pi]
    table, candidates = table_of(found)
    columns = {
        "pi": pi,
        "of_logged": [p[a] for p, a in zip(pi, found["position"], strict=True)],
        "position": target,
        "id": [found["ids"][s[t]] for s, t in zip(found["sets"], target, strict=True)],
    }
    for name, values in columns.items():
        table = table.append_column(name, pa.array(values))
    log = drs.Log(table, context="x?", candidates=candidates)
    best = [[float(j == t) for j in range(len(p))] for p, t in zip(pi, target, strict=True)]
    for name, wanted in (("pi", pi), ("of_logged", pi), ("position", best), ("id", best)):
        result = drs.evaluate(log, P.Column(name), estimators=["ips", "snips"])
        agree(result, naive_values(found, wanted, wanted, ("ips", "snips")))
    mixed = drs.evaluate(log, P.Epsilon(P.Column("of_logged"), 0.2), estimators=["ips"])
    agree(mixed, naive_values(found, naive.mixed(pi, 0.2), pi, ("ips",)))
    by_position, candidates = table_of(found, position=True)
    numbers = drs.Log(
        by_position.append_column("t", pa.array(target)),
        context="x?",
        candidates=drs.Candidates(candidates.ids, candidates.features, "position"),
    )
    agree(drs.evaluate(numbers, P.Column("t"), estimators=["ips"]), naive_values(found, best, best, ("ips",)))
    whole = events(rows=60, text=False)
    best = naive.argmax(naive.scores(whole, WEIGHTS))
    table, candidates = table_of(whole, position=True)
    log = drs.Log(
        table.append_column("t", pa.array([p.index(1.0) for p in best])),
        context="x?",
        candidates=drs.Candidates(candidates.ids, candidates.features, "position"),
    )
    agree(drs.evaluate(log, P.Column("t"), estimators=["ips"]), naive_values(whole, best, best, ("ips",)))


def test_integer_targets_are_what_the_action_is():
    found = events(rows=50, text=False)
    pi = naive.argmax(naive.scores(found, WEIGHTS))
    target = [found["ids"][s[p.index(1.0)]] for s, p in zip(found["sets"], pi, strict=True)]
    table, candidates = table_of(found)
    log = drs.Log(table.append_column("t", pa.array(target)), context="x?", candidates=candidates)
    agree(drs.evaluate(log, P.Column("t"), estimators=["ips"]), naive_values(found, pi, pi, ("ips",)))


def test_a_function_sees_contexts_features_and_starts():
    seen = []

    def look(X, Z, starts):
        seen.append((X, Z, starts))
        return np.repeat(1 / np.diff(starts), np.diff(starts))

    drs.evaluate(log_of(FOUND), look, estimators=["ips"], threads=1)
    X, Z, starts = seen[0]
    assert (FOUND["x"] == X).all()
    assert (FOUND["features"][np.concatenate(FOUND["sets"])] == Z).all()
    assert starts.tolist() == np.cumsum([0, *map(len, FOUND["sets"])]).tolist()
    assert not X.flags.writeable
    assert not Z.flags.writeable


# Models


@pytest.mark.parametrize("interactions", [False, True])
def test_ridge_is_one_regression_on_logged_pairs(interactions):
    log, rows = log_of(FOUND), naive.pairs(FOUND, interactions)
    chosen = naive.logged(rows, FOUND["position"])
    w = naive.ridge(chosen, FOUND["reward"])
    model = M.Ridge(interactions=interactions).fit(log)
    assert model.coef_[0] == pytest.approx(w[:-1], rel=1e-6, abs=1e-9)
    assert model.intercept_[0] == pytest.approx(w[-1], rel=1e-6)
    assert model.predict(chosen)[:, 0] == pytest.approx(chosen @ w[:-1] + w[-1], rel=1e-6)
    assert model.feature_names_[: D + DZ] == ["x0", "x1", "z[0]", "z[1]", "z[2]"]
    assert len(model.feature_names_) == D + DZ + interactions * D * DZ
    policy = P.Softmax(WEIGHTS)
    with pytest.warns(drs.DrstreamWarning, match="fitted on events that it is now evaluated on"):
        result = drs.evaluate(log, policy, model, FOUR)
    w = np.append(model.coef_[0], model.intercept_)
    pi = naive.softmax(naive.scores(FOUND, WEIGHTS))
    agree(result, naive_values(FOUND, pi, naive.predictions(rows, w)))


def test_logistic_is_one_regression_on_logged_pairs():
    linear_model = pytest.importorskip("sklearn.linear_model")
    rows = naive.pairs(FOUND, interactions=True)
    chosen = naive.logged(rows, FOUND["position"])
    theirs = linear_model.LogisticRegression(tol=1e-10, max_iter=10_000).fit(chosen, FOUND["reward"])
    model = M.Logistic(interactions=True).fit(log_of(FOUND))
    assert model.coef_[0] == pytest.approx(theirs.coef_[0], abs=1e-3)
    other = events(rows=200, seed=2)
    pi, rows = naive.uniform(other), naive.pairs(other, interactions=True)
    rhat = [(1 / (1 + np.exp(-(one @ model.coef_[0] + model.intercept_[0])))).tolist() for one in rows]
    agree(drs.evaluate(log_of(other), P.Uniform(), model, FOUR), naive_values(other, pi, rhat))


@pytest.mark.parametrize("form", ["lists", "items"])
def test_cross_fitting_equals_a_fit_by_hand(form):
    log, rows = log_of(FOUND, form), naive.pairs(FOUND)
    chosen, pi = naive.logged(rows, FOUND["position"]), naive.softmax(naive.scores(FOUND, WEIGHTS))
    fold = log.folds(3).of(np.arange(300).view(np.uint64))
    weights = [naive.ridge(chosen[fold != f], FOUND["reward"][fold != f]) for f in range(3)]
    rhat = [naive.predictions([one], weights[f])[0] for one, f in zip(rows, fold, strict=True)]
    result = drs.evaluate(log, P.Softmax(WEIGHTS), M.Ridge(), FOUR, crossfit=3)
    agree(result, naive_values(FOUND, pi, rhat), rel=1e-7)


def test_estimators_of_scikit_learn_see_pairs():
    linear_model = pytest.importorskip("sklearn.linear_model")
    log, rows = log_of(FOUND), naive.pairs(FOUND)
    chosen, pi = naive.logged(rows, FOUND["position"]), naive.softmax(naive.scores(FOUND, WEIGHTS))
    fold = log.folds(3).of(np.arange(300).view(np.uint64))
    by_fold = [linear_model.Lasso(0.01).fit(chosen[fold != f], FOUND["reward"][fold != f]) for f in range(3)]
    rhat = [by_fold[f].predict(one).tolist() for one, f in zip(rows, fold, strict=True)]
    for action in ("separate", "feature"):
        model = M.from_sklearn(linear_model.Lasso(0.01), action=action)
        result = drs.evaluate(log, P.Softmax(WEIGHTS), model, FOUR, crossfit=3)
        agree_values(result, naive_values(FOUND, pi, rhat), 1e-4)
    prefit = M.from_sklearn(by_fold[0], prefit=True)
    result = drs.evaluate(log, P.Softmax(WEIGHTS), prefit, ["dm"])
    agree(result, naive_values(FOUND, pi, [by_fold[0].predict(one).tolist() for one in rows], ("dm",)), rel=1e-4)


def test_greedy_takes_the_best_candidate_of_a_model():
    train, test = events(rows=300, seed=5), FOUND
    model = M.Ridge(interactions=True).fit(log_of(train))
    rows = naive.pairs(test, interactions=True)
    rhat = naive.predictions(rows, np.append(model.coef_[0], model.intercept_))
    best = naive.argmax(rhat)
    for epsilon in (0.0, 0.2):
        result = drs.evaluate(log_of(test), P.Greedy(model, epsilon), M.Constant(0.25), FOUR)
        wanted = naive_values(test, naive.mixed(best, epsilon), [[0.25] * len(s) for s in test["sets"]])
        agree(result, wanted)


def test_models_of_files_are_the_same(tmp_path):
    train = log_of(events(rows=300, seed=5))
    for model in (M.Ridge(interactions=True), M.Logistic()):
        model.fit(train).save(tmp_path / "model")
        again = M.load(tmp_path / "model")
        assert again.pairs_ == model.pairs_
        results = [bits(drs.evaluate(log_of(FOUND), P.Uniform(), m, FOUR)) for m in (model, again)]
        assert results[0] == results[1]
    policy = P.Greedy(model, 0.1)
    policy.save(tmp_path / "policy")
    results = [drs.evaluate(log_of(FOUND), p)["ips"].value for p in (policy, drs.optimize.load(tmp_path / "policy"))]
    assert results[0] == results[1]


def test_categories_meet_by_name():
    found = events(rows=300, seed=5)
    table, candidates = table_of(found)
    lands = np.array(["DE", "FR", "IT"])[np.random.default_rng(0).integers(0, 3, 300)]
    table = table.append_column("land", pa.array(lands))
    options = {"context": ["land", "x0"], "candidates": candidates}
    model = M.Ridge().fit(drs.Log(table, **options))
    assert model.feature_names_ == ["land=DE", "land=FR", "land=IT", "x0", "z[0]", "z[1]", "z[2]"]
    few = drs.Log(table, filter="land != 'DE'", **{**options, "context": ["x0", "land"]})
    with pytest.warns(drs.DrstreamWarning, match="now evaluated on"):
        got = drs.evaluate(few, P.Uniform(), model, ["dm"])["dm"].value
    keep = lands != "DE"
    X = np.column_stack([*(lands == land for land in ("DE", "FR", "IT")), found["x"][:, 0]]).astype(float)
    w = np.append(model.coef_[0], model.intercept_)
    pairs = naive.pairs({**found, "x": X})
    means = [np.mean(one) for one in naive.predictions(pairs, w)]
    assert got == pytest.approx(np.mean(np.array(means)[keep]), rel=1e-9)


# Other logs that hold the same


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_bits(form):
    policies = {"soft": P.Softmax(WEIGHTS, interactions=PRODUCTS), "uniform": P.Uniform()}
    results = [
        bits(drs.evaluate(log_of(FOUND, one), policies, M.Ridge(interactions=True), crossfit=2))
        for one in ("lists", form)
    ]
    assert results[0] == results[1]


def dense_world(rows, actions=4, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, d))
    action = rng.integers(0, actions, rows)
    return X, action, rng.integers(0, 2, rows).astype(float), rng.uniform(0.2, 1, rows)


@pytest.mark.parametrize("features", ["one-hot", "of items"])
def test_a_log_of_candidates_that_are_the_same_for_all_equals_one_of_actions(features):
    rows, actions, d = 500, 4, 3
    X, action, reward, p = dense_world(rows, actions, d)
    rng = np.random.default_rng(1)
    W, b, R = rng.normal(size=(actions, d)), rng.normal(size=actions), rng.normal(size=(actions, d))
    roles = {"action": action, "reward": reward, "propensity": p, **{f"x{j}": X[:, j] for j in range(d)}}
    dense = drs.Log(pa.table(roles), actions=actions)
    if features == "one-hot":
        Z, own, products = np.eye(actions), b, W.T
    else:  # five features, of which the weights of all items are linear functions
        Z = rng.normal(size=(actions, 5))
        solve = np.linalg.pinv(Z)
        own, products = solve @ b, (solve @ W).T
    items = drs.Items(pa.table({"item": range(actions), "v": Z.tolist()}), features="v")
    sets = pa.table({**roles, "items": [list(range(actions))] * rows})
    ragged = drs.Log(sets, candidates=drs.Candidates("items", items))
    weights = np.concatenate([np.zeros(d), own])
    both = [
        (dense, P.Softmax(W, b), P.Linear(W, b), M.from_function(lambda X: X @ R.T)),
        (
            ragged,
            P.Softmax(weights, interactions=products),
            P.Linear(weights, interactions=products),
            M.from_function(lambda X, Z, starts: (X @ R.T).reshape(-1)),
        ),
    ]
    results = []
    for log, soft, linear, model in both:
        policies = {"soft": soft, "epsilon": P.Epsilon(linear, 0.2), "uniform": P.Uniform(), "greedy": P.Greedy(model)}
        results.append(drs.evaluate(log, policies, model, ONE_PASS, cap=3, floor=0.1, lambda_=5, inflation=1.1))
    for one, other in zip(*(result.rows() for result in results), strict=True):
        assert one["policy"] == other["policy"]
        for key in ("value", "stderr", "low", "high", "ess"):
            assert one[key] == pytest.approx(other[key], rel=1e-12, abs=1e-12, nan_ok=True)


# The same bits

SIZE = 500 if PLAIN else 40_000


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    found = events(rows=SIZE, seed=2, most=7)
    table, candidates = table_of(found)
    path = tmp_path_factory.mktemp("candidates")
    for size in (SIZE // 2, SIZE // 5):
        pq.write_table(table, path / f"{size}.parquet", row_group_size=size)
    return table, candidates, path


RUN = {"soft": P.Softmax(WEIGHTS, interactions=PRODUCTS), "epsilon": P.Epsilon(P.Linear(WEIGHTS), 0.1)}


def run(source, candidates, batch_size=None, **options):
    log = cut_log(source, candidates=candidates, batch_size=batch_size)
    return bits(drs.evaluate(log, RUN, M.Ridge(interactions=True), FOUR, crossfit=3, **options))


def test_threads_batch_sizes_and_executors_give_the_same_bits(large):
    table, candidates, path = large
    file = path / f"{SIZE // 2}.parquet"
    wanted = run(file, candidates, threads=1)
    for size in (100, SIZE) if PLAIN else (999, 8192, SIZE):
        assert run(file, candidates, size, threads=2) == wanted
    stream = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=SIZE // 3))
    log = drs.Log(stream, candidates=candidates)
    got = bits(drs.evaluate(log, RUN, estimators=["ips"]))
    assert got == bits(drs.evaluate(drs.Log(table, candidates=candidates), RUN, estimators=["ips"]))


def test_row_groups_only_change_the_rounding(large):
    _, candidates, path = large
    one, other = (run(path / f"{size}.parquet", candidates) for size in (SIZE // 2, SIZE // 5))
    for a, b in zip(one, other, strict=True):
        assert float.fromhex(a["value"]) == pytest.approx(float.fromhex(b["value"]), rel=1e-12)
        assert float.fromhex(a["stderr"]) == pytest.approx(float.fromhex(b["stderr"]), rel=1e-11)


@not_plain
def test_other_processes_give_the_same_bits(large):
    _, candidates, path = large
    file = path / f"{SIZE // 2}.parquet"
    with ProcessPoolExecutor(1) as executor:
        assert run(file, candidates, executor=executor) == run(file, candidates)


def test_blocks_are_cut_by_their_candidates():
    rng = np.random.default_rng(0)
    sizes = [3, CANDIDATES - 3, 1, CANDIDATES + 5, 2, *[CANDIDATES // 3] * 4]
    sets = [list(range(n)) for n in sizes]
    position = [int(rng.integers(n)) for n in sizes]
    roles = {"action": position, "reward": rng.uniform(size=len(sizes)), "propensity": [1 / n for n in sizes]}
    log = drs.Log(pa.table({**roles, "items": sets}), context=[], candidates=drs.Candidates("items"))
    assert drs.evaluate(log, P.Uniform(), M.Constant(1), ["dr"])["dr"].value == pytest.approx(np.mean(roles["reward"]))
    reader = log.reader(action=True)
    (batch,) = [b for part in log.parts(reader.columns) for b in reader.batches(part, Counter())]
    cut = [(block.start, block.stop) for block in batch.blocks(10, CANDIDATES)]
    assert cut == [(0, 2), (2, 3), (3, 4), (4, 7), (7, 9)]
    assert [b.stop for b in batch.blocks(2, CANDIDATES)] == [2, 3, 4, 6, 8, 9]


# What else a pass can do


def test_segments_clusters_intervals_explanations_and_rewards():
    found = events(rows=400, seed=4)
    table, candidates = table_of(found)
    more = {
        "user": np.arange(400) // 4,
        "land": np.array(["DE", "FR"])[np.arange(400) % 2],
        "spend": found["reward"] * 3,
        "rate": np.full(400, 0.5),
        "who": np.arange(400) % 2,
    }
    for name, values in more.items():
        table = table.append_column(name, pa.array(values))
    options = {"context": "x?", "candidates": candidates}
    policy, pi = P.Softmax(WEIGHTS), naive.softmax(naive.scores(found, WEIGHTS))
    rhat = [[0.5] * len(s) for s in found["sets"]]
    log = drs.Log(table, **options, reward=["reward", "spend"], logger="who")
    result = drs.evaluate(log, policy, M.Constant(0.5), FOUR, by="land", cluster="user", explain=True)
    agree_values(result, naive_values(found, pi, rhat))
    assert result.rewards["spend"]["ips"].value == pytest.approx(3 * result["ips"].value)
    half = {name: found[name][::2] for name in ("reward", "propensity", "position")}
    agree_values(result.segment(land="DE"), naive_values(half, pi[::2], rhat[::2]))
    assert result.explain("policy", "dr") is not None
    kept = drs.evaluate(drs.Log(table, **options, sample_rate="rate"), policy, M.Constant(0.5), FOUR)
    agree_values(kept, naive_values(found, pi, rhat))
    wide = drs.evaluate(
        drs.Log(table, **options), policy, M.Constant(0.5), ["dr"], interval="likelihood", reward_range=(0, 1)
    )
    assert wide["dr"].low < wide["dr"].value < wide["dr"].high


def test_a_second_model_tells_the_error_of_the_first():
    rhat, other = [[0.5] * len(s) for s in FOUND["sets"]], M.from_function(lambda X, Z, starts: np.full(len(Z), 0.7))
    explain = drs.Explain(second_model=other)
    result = drs.evaluate(log_of(FOUND), P.Softmax(WEIGHTS), M.Constant(0.5), ["dr"], explain=explain)
    pi = naive.softmax(naive.scores(FOUND, WEIGHTS))
    agree_values(result, naive_values(FOUND, pi, rhat, ("dr",)))
    dense = drs.Explain(second_model=M.Constant(0.7))
    same = drs.evaluate(log_of(FOUND), P.Softmax(WEIGHTS), M.Constant(0.5), ["dr"], explain=dense)
    assert str(result.explain("policy", "dr")) == str(same.explain("policy", "dr"))


def agree_values(result, wanted, rel=1e-9):
    for name, (value, _, _) in wanted.items():
        assert result["policy", name].value == pytest.approx(value, rel=rel)


def test_a_policy_can_be_the_logging_policy():
    found = FOUND
    pi = naive.softmax(naive.scores(found, WEIGHTS))
    p = np.array([one[a] for one, a in zip(pi, found["position"], strict=True)])
    table, candidates = table_of(found)
    log = drs.Log(table, context="x?", candidates=candidates, propensity=None)
    result = drs.evaluate(log, P.Uniform(), propensity=P.Softmax(WEIGHTS), estimators=["ips"])
    wanted = reference.estimate("ips", found["reward"], p, found["position"], naive.uniform(found))
    assert result["ips"].value == pytest.approx(wanted[0])
    uniform = drs.evaluate(log, P.Uniform(), propensity=P.Uniform(), estimators=["ips"])
    assert uniform["ips"].value == pytest.approx(np.mean(found["reward"]))


def test_clamp_and_ranges_of_predictions():
    log = log_of(FOUND)
    far = M.from_function(lambda X, Z, starts: np.arange(len(Z)) - 5.0)
    result = drs.evaluate(log, P.Uniform(), far, ["dm"], clamp=(0, 1))
    assert 0 < result["dm"].value < 1
    flat = np.clip(np.arange(sum(map(len, FOUND["sets"]))) - 5.0, 0, 1)
    sizes = np.array(list(map(len, FOUND["sets"])))
    means = np.add.reduceat(flat, np.cumsum([0, *sizes[:-1]])) / sizes
    assert result["dm"].value == pytest.approx(means.mean())
    with pytest.raises(
        drs.DrstreamError, match=r"a prediction is -\d at row \d+, outside of reward_range=\(0.0, 1.0\)"
    ):
        drs.evaluate(log, P.Uniform(), far, ["dr"], interval="likelihood", reward_range=(0, 1))


def test_models_of_earlier_rows():
    found = events(rows=300, seed=6)
    rows = naive.pairs(found)
    chosen = naive.logged(rows, found["position"])
    block = np.array(reference.blocks(300, 100))
    rhat = []
    for k, one in enumerate(rows):
        earlier = block < block[k]
        w = naive.ridge(chosen[earlier], found["reward"][earlier]) if earlier.any() else np.zeros(D + DZ + 1)
        rhat.append(naive.predictions([one], w)[0])
    result = drs.evaluate(log_of(found), P.Softmax(WEIGHTS), M.Ridge(), ["ips", "dr"], crossfit="forward:100")
    pi = naive.softmax(naive.scores(found, WEIGHTS))
    agree(result, naive_values(found, pi, rhat, ("ips", "dr")), rel=1e-7)


def test_bad_rows_are_skipped_by_all_fits_and_passes():
    found = events(rows=120, seed=3)
    table, candidates = table_of(found)
    z = table["z"].to_pylist()
    z[17][0][1] = math.nan
    broken = table.set_column(table.schema.get_field_index("z"), "z", pa.array(z, table["z"].type))
    log = drs.Log(broken, candidates=candidates, on_bad_row="skip")
    keep = [i for i in range(120) if i != 17]
    clean = drs.Log(table.take(keep), candidates=candidates)
    for model in (M.Ridge(), M.Logistic()):
        one, other = model.fit(log), type(model)().fit(clean)
        assert one.coef_ == pytest.approx(other.coef_, rel=1e-9)
        assert one.skipped_ == {"a candidate's features are not finite": 1}
    result = drs.evaluate(log, P.Softmax(WEIGHTS), estimators=["ips"])
    assert result.skipped == {"a candidate's features are not finite": 1}
    assert result["ips"].value == pytest.approx(
        drs.evaluate(clean, P.Softmax(WEIGHTS), estimators=["ips"])["ips"].value
    )


def test_what_is_not_looked_at_is_not_read():
    log = log_of(FOUND)

    def columns(policy, model=None):
        chosen = [ALL["dr" if model else "ips"]]
        request = Request({"new": policy}, {log.roles.reward: ModelInputs(model)}, chosen)
        return make_plan(request, log, Workers.of()).reader.columns

    assert columns(P.Uniform()) == ("reward", "propensity", "action", "items")
    assert columns(P.Softmax(WEIGHTS)) == ("reward", "propensity", "action", "items", "z")
    assert columns(P.Softmax(WEIGHTS, interactions=PRODUCTS))[-2:] == ("x0", "x1")
    assert columns(P.Uniform(), M.Constant(1)) == ("reward", "propensity", "action", "items")


# Truth


@not_plain
def test_estimates_are_unbiased_in_a_simulated_world():
    rng = np.random.default_rng(11)
    rows, items = 60_000, 200
    x, Z = rng.normal(size=(rows, D)), rng.normal(size=(items, DZ))
    taste, habit = rng.normal(size=(D, DZ)), rng.normal(size=DZ)
    sizes = rng.integers(2, 9, rows)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    flat = np.concatenate([rng.choice(items, n, replace=False) for n in sizes])
    event = np.repeat(np.arange(rows), sizes)
    chance = 1 / (1 + np.exp(-np.einsum("md,de,me->m", x[event], taste, Z[flat])))

    def by_softmax(scores):
        exps = np.exp(scores)
        return exps / np.add.reduceat(exps, starts[:-1])[event]

    mu = by_softmax(0.7 * Z[flat] @ habit)
    above = np.add.reduceat(
        (np.cumsum(mu) - np.concatenate([[0], np.cumsum(mu)])[starts[:-1]][event]) < rng.uniform(size=rows)[event],
        starts[:-1],
    )
    position = np.minimum(above, sizes - 1)
    logged = starts[:-1] + position
    reward = (rng.uniform(size=rows) < chance[logged]).astype(float)
    lists = pa.ListArray.from_arrays(pa.array(starts, pa.int32()), pa.array(flat))
    table = pa.table(
        {
            "items": lists,
            "action": flat[logged],
            "reward": reward,
            "propensity": mu[logged],
            **{f"x{j}": x[:, j] for j in range(D)},
        }
    )
    catalogue = pa.table({"item": range(items), **{f"z{j}": Z[:, j] for j in range(DZ)}})
    log = drs.Log(table, candidates=drs.Candidates("items", drs.Items(catalogue)))
    policy = P.Softmax(np.zeros(D + DZ), interactions=0.5 * taste)
    pi = by_softmax(0.5 * np.einsum("md,de,me->m", x[event], taste, Z[flat]))
    truth = float(np.add.reduceat(pi * chance, starts[:-1]).mean())
    result = drs.evaluate(log, policy, M.Logistic(interactions=True), ["ips", "snips", "dr", "sndr", "dm"], crossfit=3)
    for name in ("ips", "snips", "dr", "sndr"):
        assert abs(result[name].value - truth) < 4 * result[name].stderr, name
    assert abs(result["dm"].value - truth) < 0.01
    assert result["dr"].stderr < 0.9 * result["ips"].stderr
    assert abs(truth - result.baseline.value) > 10 * result["dr"].stderr  # else nothing would be shown
    wrong = drs.evaluate(log, policy, M.Constant(0.9), ["dr", "dm"])
    assert abs(wrong["dr"].value - truth) < 4 * wrong["dr"].stderr
    assert abs(wrong["dm"].value - truth) > 0.1


def test_plans_can_be_pickled():
    policy = P.Epsilon(P.Softmax(WEIGHTS, interactions=PRODUCTS), 0.1).bind_to(log_of(FOUND), "new")
    again = pickle.loads(pickle.dumps(policy))
    assert again.name == "new"
