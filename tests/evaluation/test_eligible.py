"""Policies, models and estimators on eligible sets: against naive references, and against the same log without sets."""

import pickle

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

import drstream as drs
from drstream.evaluation import plan
from drstream.evaluation.estimators import ALL
from tests.helpers import eligible as naive
from tests.helpers import reference
from tests.helpers.cut import cut_log
from tests.helpers.evaluations import BALANCED, BY_TIME, MARGINAL, limits
from tests.helpers.logs import MODEL_COLUMN, POLICY_COLUMN, arrays, as_table, events, world
from tests.helpers.passes import PLAIN

P, M = drs.policies, drs.models
OURS = [name for name in ALL if name not in MARGINAL]  # of categories: test_marginal.py
ONE_PASS = [name for name in OURS if name not in BY_TIME + BALANCED]
NAMES = ["dm", "ips", "snips", "dr"]
ROWS, D = (200 if PLAIN else 2_000), 3
SIZES = [4, 40, 70]  # actions: in one word of 32 bits, in two, and in more than 64 bits


@st.composite
def with_sets(draw):
    """Events whose policy keeps to its set. What the model says about other actions is NaN."""
    log = draw(events())
    rows, actions = log["pi"].shape
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    log["mask"] = naive.random_mask(rng, rows, actions, draw(st.sampled_from([0.0, 0.5, 1.0])))
    log["mask"][np.arange(rows), log["action"]] = True
    log["pi"] = np.where(log["mask"], log["pi"], 0)
    none = log["pi"].sum(axis=1) == 0
    log["pi"][none] = naive.uniform(log["mask"])[none]
    log["pi"] /= log["pi"].sum(axis=1, keepdims=True)
    log["rhat"] = np.where(log["mask"], log["rhat"], np.nan)
    return log


@given(log=with_sets())
def test_a_policy_that_keeps_to_its_sets_is_estimated_as_without_them(log):
    """All estimators, to the last bit. test_estimators.py compares those without sets with naive references."""
    table = as_table(log).append_column("items", naive.lists_of(log["mask"], kind=pa.list_(pa.int64())))
    known = as_table({**log, "rhat": np.nan_to_num(log["rhat"])})
    found = [
        drs.evaluate(
            drs.Log(source, actions=log["pi"].shape[1], eligible=sets),
            P.Column(POLICY_COLUMN),
            M.Column(MODEL_COLUMN),
            ONE_PASS,
            **limits(*ONE_PASS, cap=3.0, floor=0.25),
        )
        for source, sets in ((known, None), (table, "items"))
    ]
    assert bits(found[0]) == bits(found[1])


# Policies


def made(actions, rows=ROWS, seed=0, kind=np.float64):
    """A log of a world with eligible sets, its mask, contexts, actions, rewards and propensities."""
    w = world(n_actions=actions, n_features=D, kinds=None, eligible=0.5)
    table = w.table(rows, seed=seed)
    for j in range(D):
        place = table.schema.get_field_index(f"x{j}")
        table = table.set_column(place, f"x{j}", table[f"x{j}"].cast(pa.from_numpy_dtype(kind)))
    return w, table, naive.mask_of(table, actions), *arrays(table, D)


def opened(table, actions, **options):
    return cut_log(table, context="x?", actions=actions, **{"eligible": "items", **options})


def policies_of(w, actions):
    """Policies, and their probabilities, naively, given contexts and mask."""
    rng = np.random.default_rng(actions)
    weights, bias = rng.standard_normal((actions, D)), rng.standard_normal(actions)
    best = M.Constant(rng.random(actions))

    def scores(X):
        return X @ weights.T + bias

    def of_function(X, eligible):
        assert eligible.dtype == bool
        return naive.softmax(X @ w.taste.T, eligible)

    class Own:
        def probabilities(self, X, *, eligible=None):
            return naive.softmax(X @ w.habit.T, eligible)

    def constant(X, mask, otherwise):
        return np.where(mask[:, :1], np.eye(actions)[[0]], np.where(mask[:, 1:2], np.eye(actions)[[1]], otherwise))

    return {
        "uniform": (P.Uniform(), lambda X, m: naive.uniform(m)),
        "softmax": (P.Softmax(weights, bias, 0.7), lambda X, m: naive.softmax(scores(X) / 0.7, m)),
        "linear": (P.Linear(weights, bias), lambda X, m: naive.argmax(scores(X), m)),
        "epsilon": (
            P.Epsilon(P.Softmax(weights), 0.3),
            lambda X, m: 0.7 * naive.softmax(X @ weights.T, m) + 0.3 * naive.uniform(m),
        ),
        "epsilon of uniform": (P.Epsilon(P.Uniform(), 0.4), lambda X, m: naive.uniform(m)),
        "greedy": (
            P.Greedy(best, 0.2),
            lambda X, m: 0.8 * naive.argmax(np.tile(best.value, (len(X), 1)), m) + 0.2 * naive.uniform(m),
        ),
        "constant": (
            P.Constant(0, otherwise=P.Constant(1, otherwise=P.Uniform())),
            lambda X, m: constant(X, m, naive.uniform(m)),
        ),
        "constant or softmax": (
            P.Constant(0, otherwise=P.Constant(1, otherwise=P.Softmax(weights))),
            lambda X, m: constant(X, m, naive.softmax(X @ weights.T, m)),
        ),
        "epsilon of constant": (
            P.Epsilon(P.Constant(0, otherwise=P.Constant(1, otherwise=P.Uniform())), 0.5),
            lambda X, m: 0.5 * constant(X, m, naive.uniform(m)) + 0.5 * naive.uniform(m),
        ),
        "function": (of_function, lambda X, m: naive.softmax(X @ w.taste.T, m)),
        "object": (Own(), lambda X, m: naive.softmax(X @ w.habit.T, m)),
        "columns": (
            P.from_arrow(lambda batch, eligible: naive.uniform(eligible), ["x0"]),
            lambda X, m: naive.uniform(m),
        ),
    }


NAMED = list(policies_of(world(), 4))


@pytest.mark.parametrize("actions", SIZES)
@pytest.mark.parametrize("way", ["fast", "blocks", "no model"])
def test_policies_act_on_the_eligible_actions(actions, way, monkeypatch):
    w, table, mask, X, a, r, p = made(actions)
    model = M.Ridge().fit(opened(table.slice(0, ROWS // 2), actions))
    log = opened(table.slice(ROWS // 2), actions)
    mask, X, a, r, p = mask[ROWS // 2 :], X[ROWS // 2 :], a[ROWS // 2 :], r[ROWS // 2 :], p[ROWS // 2 :]
    if way == "blocks":
        monkeypatch.setattr(plan, "_stack", lambda *args: None)
    policies = policies_of(w, actions)
    given, names = (None, ["ips", "snips"]) if way == "no model" else (model, NAMES)
    chosen = policies if way == "no model" else {n: policies[n] for n in policies if n not in ("function", "object")}
    for name, (policy, pi_of) in chosen.items():
        result = drs.evaluate(log, policy, given, names)
        pi = pi_of(X, mask)
        assert (pi[~mask] == 0).all()
        for estimator in names:
            value, stderr, _ = reference.estimate(estimator, r, p, a, pi, model.predict(X))
            assert result[estimator].value == pytest.approx(value, rel=1e-9, nan_ok=True), (name, estimator)
            assert result[estimator].stderr == pytest.approx(stderr, rel=1e-9, nan_ok=True), (name, estimator)
        overlap = result.statistics.overlap
        np.testing.assert_allclose(overlap.mass[0], pi.sum(axis=0), rtol=1e-9, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("name", [name for name in NAMED if name not in ("function", "object", "columns")])
def test_probabilities_of_given_sets(name):
    w, table, mask, X, *_ = made(4, rows=50)
    policy, pi_of = policies_of(w, 4)[name]
    bound = policy.bind(opened(table, 4), name)
    np.testing.assert_allclose(bound.probabilities(X, mask), pi_of(X, mask), rtol=1e-12, atol=1e-15)
    for bad, message in ((mask[:-1], "booleans of shape"), (mask * 1, "eligible is int64"), (mask & False, "event 0")):
        with pytest.raises(drs.PolicyError, match=message):
            bound.probabilities(X, bad)


@pytest.mark.covers
def test_float32_contexts_keep_to_their_sets():
    w, table, mask, X, a, r, p = made(40, kind=np.float32)
    model = M.Ridge().fit(opened(made(40, seed=1)[1], 40))
    for name, (policy, pi_of) in policies_of(w, 40).items():
        if name in ("softmax", "linear", "epsilon"):
            result = drs.evaluate(opened(table, 40), policy, model, NAMES)
            pi = pi_of(X, mask)
            for estimator in NAMES:
                value, _, _ = reference.estimate(estimator, r, p, a, pi, model.predict(X))
                assert result[estimator].value == pytest.approx(value, rel=1e-5), (name, estimator)


# Full sets, threads, batches


def bits(result):
    rows = [{k: v for k, v in row.items() if not isinstance(v, str)} for row in result.rows()]
    return [[float(v).hex() for v in row.values()] for row in rows], result.findings


def with_more(table, actions, rng):
    """The table with what all estimators need: propensities of all actions, of two loggers, and a group."""
    w = world(n_actions=actions, n_features=D, kinds=None, eligible=0.5)
    X, p = arrays(table, D)[0], table["propensity"].to_numpy()
    mu = w.logging(X, naive.mask_of(table, actions))
    who = np.arange(len(p)) % 3 // 2
    return (
        table.append_column("mu", pa.array(list(mu)))
        .append_column("who", pa.array(who))
        .append_column("p_0", pa.array(p))
        .append_column("p_1", pa.array(np.where(who == 1, p, 0.25)))
        .append_column("user", pa.array(rng.integers(0, 40, len(p))))
    )


LOGGERS = {"logger": "who", "logger_propensities": ["p_0", "p_1"]}


@pytest.mark.parametrize("way", ["fast", "all", "crossfit", "forward", "propensity", "segments", "explain"])
def test_full_sets_are_no_sets_to_the_last_bit(way):
    actions = 6
    w = world(n_actions=actions, n_features=D, kinds=None)
    table = w.table(ROWS, seed=5)
    full = pa.array([list(range(actions))] * ROWS)
    table = table.append_column("items", full)
    table = with_more(table, actions, np.random.default_rng(0))
    policies = {
        "soft": P.Softmax(w.taste),
        "random": P.Epsilon(P.Linear(w.taste), 0.2),
        "uniform": P.Uniform(),
        "same": P.Constant(2),
        "own": lambda X: naive.softmax(X @ w.habit.T, np.ones((len(X), actions), bool)),
    }
    if way == "fast":
        policies = {name: policies[name] for name in ("soft", "random", "uniform")}
    if way in ("crossfit", "forward", "explain"):  # a constant looks at sets by itself, and asks the model in float64
        del policies["same"]
    options = {
        "fast": {"model": M.Ridge().fit(opened(w.table(300, seed=9), actions, eligible=None)), "estimators": NAMES},
        "all": {"model": M.Constant(0.3), "estimators": OURS, **limits(*OURS)},
        "crossfit": {"model": M.Logistic(), "propensity": M.Propensity(), "crossfit": 3, "clamp": (0.1, 0.3)},
        "forward": {"model": M.Ridge(), "crossfit": "forward:100"},
        "propensity": {"model": M.Constant(0.1), "propensity": P.Uniform()},
        "segments": {"by": "user", "estimators": ["ips"]},
        "explain": {
            "model": M.Ridge(),
            "crossfit": 2,
            "explain": True,
            "reward_range": (-9, 9),
            "interval": "bernstein",
            "max_weight_bound": 1e4,
        },
    }[way]
    of_all = {"propensities": "mu", **LOGGERS} if way == "all" else {}
    found = [
        drs.evaluate(opened(table, actions, eligible=sets, **of_all), policies, **options) for sets in (None, "items")
    ]
    assert bits(found[0]) == bits(found[1])
    assert found[0].statistics.overlap.mass == pytest.approx(found[1].statistics.overlap.mass, rel=1e-12)


@pytest.fixture(scope="module", params=[5, 70])
def stored(request, tmp_path_factory):
    """A log in Parquet of five row groups."""
    actions = request.param
    table = with_more(made(actions, 500 if PLAIN else 20_000)[1], actions, np.random.default_rng(0))
    path = tmp_path_factory.mktemp("sets") / "log.parquet"
    pq.write_table(table, path, row_group_size=table.num_rows // 5 + 1)
    return path, table, actions


def run(source, actions, names=ONE_PASS, log_options=None, **options):
    w = world(n_actions=actions, n_features=D, kinds=None, eligible=0.5)
    policies = {"soft": P.Softmax(w.taste), "random": P.Epsilon(P.Linear(w.habit), 0.3), "even": P.Uniform()}
    log = opened(source, actions, **(log_options or {}))
    return drs.evaluate(log, policies, options.pop("model", M.Ridge()), names, **limits(*names), **options)


@pytest.mark.parametrize("way", ["crossfit", "propensity", "fitted"])
def test_batches_and_threads_do_not_matter(stored, way):
    path, table, actions = stored
    if PLAIN and way == "propensity" and actions > 5:
        pytest.skip("slow in plain Python, and the two compiled passes prove it")
    model = M.Ridge().fit(opened(made(actions, 300, seed=8)[1], actions))
    options = {
        "crossfit": {"crossfit": 2},
        "propensity": {"crossfit": 2, "propensity": M.Propensity(C=0.01, floor=0.01), "names": NAMES},
        "fitted": {"model": model},
    }[way]
    wanted = bits(run(str(path), actions, threads=1, **options))
    assert bits(run(str(path), actions, threads=3, **options)) == wanted
    assert bits(run(str(path), actions, log_options={"batch_size": 333}, **options)) == wanted
    if way == "fitted":
        whole = bits(run(table, actions, **options))  # a table is one part, so sums are added up in another order
        assert [float.fromhex(x) for row in whole[0] for x in row] == pytest.approx(
            [float.fromhex(x) for row in wanted[0] for x in row], rel=1e-6, nan_ok=True
        )
        cut = pa.concat_tables([table.slice(0, 77), table.slice(77, 100), table.slice(177)])
        assert bits(run(cut, actions, **options)) == whole


def test_processes_give_the_same_bits(stored, processes):
    path, _, actions = stored
    found = bits(run(str(path), actions, crossfit=2, executor=processes))
    assert found == bits(run(str(path), actions, crossfit=2))


@pytest.mark.parametrize("names", [BY_TIME, BALANCED], ids=["time", "loggers"])
def test_estimators_of_times_and_loggers_keep_to_the_sets(stored, names):
    """The policies are given as columns of a log without sets, too."""
    _, table, actions = stored
    mask, X = naive.mask_of(table, actions), arrays(table, D)[0]
    weights = world(n_actions=actions, n_features=D, kinds=None).taste
    table = table.append_column("nu", pa.array(list(naive.softmax(X @ weights.T, mask))))
    rhat = np.random.default_rng(1).random((table.num_rows, actions))
    table = table.append_column("rhat", pa.array(list(rhat)))
    options = {"propensities": "mu"} if names is BY_TIME else LOGGERS
    found = []
    for sets, policy in ((None, P.Column("nu")), ("items", P.Softmax(weights))):
        log = opened(table, actions, eligible=sets, **options)
        found.append(drs.evaluate(log, policy, M.Column("rhat"), names, **limits(*names)))
    for name in names:
        for what in ("value", "stderr", "ess"):
            one, two = (getattr(result[name], what) for result in found)
            assert one == pytest.approx(two, rel=1e-9), (name, what)


def test_results_and_policies_survive_pickling(stored):
    path, _, actions = stored
    result = run(str(path), actions, crossfit=2)
    assert bits(pickle.loads(pickle.dumps(result))) == bits(result)


def test_skipped_rows_are_counted(stored):
    _, table, actions = stored
    lists = table["items"].to_pylist()
    lists[7], lists[9], lists[11] = None, [], [*lists[11], lists[11][0]]
    bad = table.set_column(table.schema.get_field_index("items"), "items", pa.array(lists))
    good = table.filter(pa.array([i not in (7, 9, 11) for i in range(table.num_rows)]))
    log = opened(bad, actions, on_bad_row="skip")
    result = drs.evaluate(log, P.Uniform(), estimators=["ips", "snips"])
    assert result.skipped == {
        "eligible set is null": 1,
        "eligible set is empty": 1,
        "eligible set holds an action twice": 1,
    }
    wanted = drs.evaluate(opened(good, actions), P.Uniform(), estimators=["ips", "snips"])
    assert result["snips"].value == pytest.approx(wanted["snips"].value, rel=1e-12)
