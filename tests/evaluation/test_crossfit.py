"""Models that are fitted by fold: as done by hand, fold by fold."""

import contextlib
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.linear_model import Ridge as SklearnRidge
from sklearn.tree import DecisionTreeRegressor

import drstream as drs
from drstream.models.binding import ModelInputs, bind_models
from drstream.running import execution
from drstream.running.execution import Workers
from tests.helpers import naive_replay, reference
from tests.helpers.evaluations import POLICY, ROWS, WORLD, D, K, M, agree, evaluate, open_log, values
from tests.helpers.logs import arrays, world
from tests.helpers.own_models import ByHand
from tests.helpers.passes import not_plain

SEED = 3  # of the folds


@pytest.fixture(scope="module")
def table():
    return WORLD.table(ROWS, seed=1).append_column("user", pa.array(np.arange(ROWS) // 9))


def folds_of(keys, count=3, seed=SEED):
    return np.array([reference.fold(int(key), count, seed) for key in keys])


def by_fold(fit, table, fold, count=3):
    """(n, K): the predictions of fit(the table's other rows)."""
    X = arrays(table, D)[0]
    out = np.empty((table.num_rows, K))
    for f in range(count):
        others = table.filter(pa.array(fold != f))
        out[fold == f] = fit(others).predict(X[fold == f])
    return out


MODELS = {
    "ridge": (M.Ridge(2.0), 1e-10),
    "shared": (M.Ridge(shared=True), 1e-10),
    "1/p": (M.Ridge(weights="1/p"), 1e-10),
    "mrdr": (M.Ridge(weights="mrdr", policy=POLICY), 1e-10),
    "logistic": (M.Logistic(), 1e-8),
    "sklearn": (M.from_sklearn(SklearnRidge()), 1e-7),  # fitted and asked in float32, as the log has it
    "tree": (M.from_sklearn(DecisionTreeRegressor(max_depth=2, random_state=0), action="feature"), 1e-10),
}


@pytest.mark.parametrize("cluster", [None, "user"])
@pytest.mark.parametrize("name", MODELS)
def test_reward_models_by_hand(table, name, cluster):
    model, relative = MODELS[name]
    fold = folds_of(table["user"].to_numpy() if cluster else np.arange(ROWS))
    rhat = by_fold(lambda rows: model.fresh().fit(open_log(rows, actions=K)), table, fold)
    result = evaluate(open_log(table), POLICY, model, crossfit=3, fold_seed=SEED, cluster=cluster)
    agree(result, values(table, rhat), relative)
    a, r = arrays(table, D)[1:3]
    assert result.r2 == pytest.approx(reference.r_squared(rhat[np.arange(ROWS), a], r), rel=1e-6)
    assert (result.crossfit, result.estimated_propensities) == (3, False)
    assert not model.fitted


@pytest.mark.parametrize("cluster", [None, "user"])
@pytest.mark.parametrize(
    "model",
    [M.Propensity(2.0), M.Propensity(inflation=1.5, floor=0.2), M.Propensity.from_sklearn(LogisticRegression())],
    ids=["propensity", "limits", "sklearn"],
)
def test_propensities_by_hand(table, model, cluster):
    fold = folds_of(table["user"].to_numpy() if cluster else np.arange(ROWS))
    mu = by_fold(lambda rows: model.fresh().fit(open_log(rows, actions=K)), table, fold)
    a = arrays(table, D)[1]
    p = [max(model.floor, model.inflation * mu[k][a[k]]) for k in range(ROWS)]
    rhat = by_fold(lambda rows: M.Ridge().fit(open_log(rows, actions=K)), table, fold)
    doubted = table.set_column(2, "propensity", pa.array(np.full(ROWS, -7.0)))  # not looked at
    result = evaluate(
        open_log(doubted), POLICY, M.Ridge(), propensity=model, crossfit=3, fold_seed=SEED, cluster=cluster
    )
    agree(result, values(table, rhat, p), 1e-6)  # to what a fit in another order, or in float32, makes of it
    assert result.estimated_propensities
    assert result.crossfit == 3


def test_clusters_do_not_straddle_folds(table):
    """Users who are told apart by a feature each, and have one reward each: a model that saw a user knows it."""
    users = np.arange(ROWS) % 7
    reward = np.where(users < 3, 5.0, -2.0) + users
    columns = {"action": [0] * ROWS, "reward": reward, "propensity": [1.0] * ROWS, "user": [f"u{u}" for u in users]}
    one_hot = {f"x{j}": (users == j).astype(float) for j in range(7)}
    log = drs.Log(pa.table({**columns, **one_hot}), context="x?")
    known = evaluate(log, drs.policies.Uniform(), M.Ridge(1e-9), crossfit=4)
    with pytest.warns(
        UserWarning, match="2 of the folds are empty, as there are few values in column 'user' for crossfit=4"
    ):
        unknown = evaluate(log, drs.policies.Uniform(), M.Ridge(1e-9), crossfit=4, cluster="user")
    assert known.r2 > 0.999
    assert unknown.r2 < 0.5
    folds = log.folds(4, 0, "user")
    for f, model in enumerate(M.Ridge().fit_folds(log, folds, Workers(1))):
        fold = folds.of(drs.log.rows.keys_of(pa.array(columns["user"])))
        seen = {columns["user"][k] for k in range(ROWS) if fold[k] != f}
        assert seen.isdisjoint(columns["user"][k] for k in range(ROWS) if fold[k] == f)
        assert model.n_events_ == (fold != f).sum()


@pytest.mark.parametrize("cluster", [None, "user"])
@pytest.mark.parametrize("method", ["dr-ns", "dm"])
def test_replay_by_hand(table, method, cluster):
    fold = folds_of(table["user"].to_numpy() if cluster else np.arange(ROWS))
    rhat = by_fold(lambda rows: M.Ridge().fit(open_log(rows, actions=K)), table, fold)
    mu = by_fold(lambda rows: M.Propensity().fit(open_log(rows, actions=K)), table, fold)
    X, a, r, _ = arrays(table, D)
    p = mu[np.arange(ROWS), a]
    got = drs.replay(
        open_log(table), drs.policies.UCB1(0.3), 20, M.Ridge(), method=method, q=0.1, propensity=M.Propensity(),
        crossfit=3, fold_seed=SEED, cluster=cluster,
    )  # fmt: skip
    events = list(zip(X, a.tolist(), r.tolist(), p.tolist(), strict=True))
    u = drs.uniforms(0, 0, ROWS)
    done, _, counts = naive_replay.replay(events, rhat, u, naive_replay.UCB1(K, D, scale=0.3), 20, 0.1, 1.0, method)
    assert got.complete == len(done) > 0
    assert got.events == counts["events"]
    assert got.value == pytest.approx(np.mean([d["average"] for d in done]), rel=1e-6)
    assert got.r2 == pytest.approx(reference.r_squared(rhat[np.arange(ROWS), a], r), rel=1e-6)
    assert got.crossfit == 3
    assert got.estimated_propensities
    fixed = drs.replay(open_log(table), POLICY, 20, M.Ridge(), crossfit=3, fold_seed=SEED, cluster=cluster)
    columns = table.append_column("rhat", pa.array(list(rhat)))
    wanted = drs.replay(open_log(columns), POLICY, 20, M.Column("rhat"))
    assert fixed.value == pytest.approx(wanted.value, rel=1e-9)


@pytest.mark.parametrize("method", ["rs", "dr-ns-wc"])
def test_the_smallest_propensity_is_that_of_the_model(table, method):
    """And not the column's, which says 1e-9 somewhere."""
    X, a, _, p = arrays(table, D)
    doubted = table.set_column(2, "propensity", pa.array(np.where(np.arange(ROWS) == 5, 1e-9, p)))
    train, test = open_log(doubted).split(0.5)
    model = M.Propensity(floor=0.1, inflation=1.1).fit(train)
    run = drs.replay(test, drs.policies.Uniform(), 5, method=method, propensity=model)
    outside = drs.uniforms(drs.log.rows.split_seed(0, 0), 0, ROWS) >= 0.5
    mu = model.predict(X)[np.arange(ROWS), a]
    smallest = np.maximum(0.1, 1.1 * mu)[outside].min()
    assert run.c_max == pytest.approx(smallest, rel=1e-12)
    inside = drs.replay(open_log(table), drs.policies.Uniform(), 5, method=method, propensity=drs.policies.Uniform())
    assert inside.c_max == 0.25


@pytest.mark.parametrize("crossfit", [3, "forward:100"])
def test_what_goes_with_events_goes_with_them_by_fold(table, crossfit):
    """Buckets, stretches of time, segments and several rewards: as with the same predictions in columns of the log."""
    spent = pa.array(2 * table["reward"].to_numpy())
    segment = pa.array(np.array(["a", "b", "c"])[np.arange(ROWS) * 7 % 3])
    table = table.append_column("segment", segment).append_column("spent", spent)
    for d in range(D):  # in float64, as the predictions in columns are
        at = table.schema.get_field_index(f"x{d}")
        table = table.set_column(at, f"x{d}", table[f"x{d}"].cast(pa.float64()))
    names = [f"rhat{k}" for k in range(K)]
    log = open_log(table, actions=K)
    found = bind_models(log, ModelInputs(M.Ridge(), crossfit=crossfit, seed=SEED if crossfit == 3 else 0), Workers(1))
    X, fold = arrays(table, D)[0], found.folds.of(np.arange(ROWS, dtype=np.uint64))
    rhat = np.zeros((ROWS, K))
    for f, model in enumerate(found.model.models):
        rhat[fold == f] = 0 if model is None else model.predict(X[fold == f])
    for name, column in zip(names, rhat.T, strict=True):
        table = table.append_column(name, pa.array(column))
    how = {
        "estimators": ["ips", "snips", "dr"],
        "interval": ["normal", "bootstrap", "cluster", "anytime"],
        "reward_range": (0, 2),
        "max_weight_bound": 1e3,
        "clamp": (0, 2),
        "cluster": "user",
        "by": "segment",
    }
    rewards = open_log(table, actions=K, reward=["reward", "spent"])
    # folds of rows, though intervals are about clusters
    by_fold = {"crossfit": crossfit} if crossfit != 3 else {"crossfit": 3, "fold_seed": SEED}
    if crossfit == 3:
        how["cluster"], how["interval"] = None, ["normal", "bootstrap", "anytime"]
    got = drs.evaluate(rewards, POLICY, {"reward": M.Ridge(), "spent": M.Ridge()}, **how, **by_fold)
    kept = M.Column(*names)
    wanted = drs.evaluate(rewards, POLICY, {"reward": kept, "spent": M.Constant(0.0)}, **how)
    for estimator in how["estimators"]:
        mine, other = got[estimator], wanted[estimator]
        for method in how["interval"]:
            assert mine.intervals[method] == pytest.approx(other.intervals[method], rel=1e-9)
    assert got.rewards["spent"]["snips"].value == pytest.approx(2 * wanted["snips"].value, rel=1e-9)
    mine, other = got.segments.to_pylist(), wanted.segments.to_pylist()
    for row, same in zip(mine, other, strict=True):
        assert (row["segment"], row["estimator"], row["n"]) == (same["segment"], same["estimator"], same["n"])
        assert [row["value"], row["low"], row["high"]] == pytest.approx(
            [same["value"], same["low"], same["high"]], rel=1e-9
        )


def test_errors_name_the_row_of_an_event(table):
    """Blocks are in the order of folds; rows keep their numbers."""
    bad = 123

    def policy(X):
        out = np.full((len(X), K), 1 / K)
        out[np.isclose(X[:, 0], marked)] = 2.0
        return out

    marked = arrays(table, D)[0][bad, 0]
    with pytest.raises(drs.PolicyError, match=rf"sum to 8, not 1, at row {bad}"):
        drs.evaluate(open_log(table), policy, M.Ridge(), crossfit=3)
    rewards = table["reward"].to_numpy().copy()
    rewards[bad] = 7.0
    table = table.set_column(table.schema.get_field_index("reward"), "reward", pa.array(rewards))
    with pytest.raises(drs.DrstreamError, match=rf"a reward is 7 at row {bad}, outside of reward_range"):
        drs.evaluate(open_log(table), POLICY, M.Ridge(), crossfit=3, reward_range=(-1, 6))


# The same bits


@not_plain
@pytest.mark.parametrize("cluster", [None, "user"])
def test_batches_and_threads_change_no_bit(table, tmp_path, cluster):
    path = tmp_path / "log.parquet"
    pq.write_table(table, path, row_group_size=ROWS // 7)
    models = {"model": M.Logistic(), "propensity": M.Propensity(), "crossfit": 3, "cluster": cluster}

    def evaluated(threads, **options):
        result = evaluate(open_log(path, **options), POLICY, threads=threads, **models)
        return [row["value"] for row in result.rows()], result.r2, result.calibration

    def replayed(threads, **options):
        run = drs.replay(open_log(path, **options), drs.policies.UCB1(), 10, q=0.1, threads=threads, **models)
        return run.value, run.r2, run.calibration

    for pass_over in (evaluated, replayed):
        wanted = pass_over(1)
        for threads, size in ((2, 50), (3, ROWS)):
            assert pass_over(threads, batch_size=size) == wanted
    with ThreadPoolExecutor(2) as executor:
        result = evaluate(open_log(path), POLICY, executor=executor, **models)
    assert [row["value"] for row in result.rows()] == evaluated(1)[0]


# Errors and warnings


@pytest.mark.parametrize("crossfit", [1, 0, -2, "5", 2.0, True, 1001, np.nan])
def test_numbers_of_folds_that_are_none(table, crossfit):
    for use in (
        lambda: evaluate(table, POLICY, M.Ridge(), crossfit=crossfit),
        lambda: drs.replay(table, POLICY, 10, M.Ridge(), crossfit=crossfit),
    ):
        with pytest.raises(
            drs.DrstreamError,
            match=f"crossfit={crossfit!r}: it must be a whole number of folds, at least 2 and at most 1000",
        ):
            use()


@pytest.mark.parametrize("seed", ["a", 1.5, None])
def test_seeds_of_folds_that_are_none(table, seed):
    with pytest.raises(drs.DrstreamError, match=f"fold_seed={seed!r}: it must be a whole number"):
        evaluate(table, POLICY, M.Ridge(), crossfit=3, fold_seed=seed)


def test_seeds_of_folds_make_other_folds(table):
    log = open_log(table)
    found = {evaluate(log, POLICY, M.Ridge(), crossfit=3, fold_seed=s)["dr"].value for s in (0, 1, -1, 2**63)}
    assert len(found) == 4


def test_folds_need_something_to_fit(table):
    log = open_log(table)
    train, test = log.split(0.5)
    for model in (M.Constant(0.5), M.Ridge().fit(train)):
        name = type(model).__name__
        with pytest.raises(drs.ModelError, match=f"that are not yet fitted, and {name} can be used as it is"):
            evaluate(test, POLICY, model, crossfit=3)
    with pytest.raises(drs.ModelError, match="there is none"):
        evaluate(test, POLICY, crossfit=3)
    with pytest.raises(drs.ModelError, match="is not fitted: call"):
        evaluate(log, POLICY, M.Ridge())
    with pytest.raises(drs.ModelError, match=r"the propensity model Propensity.* is not fitted"):
        evaluate(log, POLICY, propensity=M.Propensity())
    with pytest.raises(drs.DrstreamError, match=r"cluster='user' is about folds: pass crossfit=5"):
        drs.replay(log, drs.policies.EpsilonGreedy(), horizon=5, model=M.Constant(0.0), cluster="user")
    assert evaluate(log, POLICY, M.Constant(0.0), cluster="user").crossfit is None  # clusters of intervals


def test_models_that_no_estimator_needs_are_not_fitted(table):
    """So that the same arguments serve every estimator."""
    log = open_log(table)
    models = {"model": M.Ridge(), "crossfit": 3, "cluster": "user"}
    plain = evaluate(log, POLICY, estimators="ips")
    result = evaluate(log, POLICY, estimators="ips", **models)
    assert result["ips"].value == plain["ips"].value
    assert result.crossfit is None
    both = evaluate(log, POLICY, estimators="dm", propensity=M.Propensity(), **models)
    assert both["dm"].value == evaluate(log, POLICY, estimators="dm", **models)["dm"].value
    assert not both.estimated_propensities


def test_clusters_that_cannot_be_used(table):
    log = open_log(table)
    with pytest.raises(drs.LogError, match="usr"):
        evaluate(log, POLICY, M.Ridge(), crossfit=3, cluster="usr")
    users = pa.array([None if k == 11 else k // 9 for k in range(ROWS)])
    broken = open_log(table.set_column(table.num_columns - 1, "user", users))
    for model in (M.Ridge(), M.Logistic()):
        with pytest.raises(drs.LogError, match="cluster is null at row 11, column 'user'"):
            evaluate(broken, POLICY, model, crossfit=3, cluster="user")
    result = evaluate(broken, POLICY, M.Ridge(), crossfit=3, cluster="user", on_bad_row="skip")
    assert result.skipped == {"cluster is null": 1}
    assert result.n == ROWS - 1


def test_a_stream_that_is_read_once(table):
    log = open_log(table.to_reader(100), actions=K)
    with pytest.raises(drs.LogError, match="can be read only once"):
        evaluate(log, POLICY, M.Ridge(), crossfit=3)


def test_folds_without_events():
    """All rows in one fold leave none to fit on for it; more folds than rows are no trouble else."""
    rows = {"action": [0, 1], "reward": [1.0, 0.0], "propensity": [0.5] * 2, "x0": [1.0, 2.0], "user": [1, 1]}
    uniform = drs.policies.Uniform()
    for model in (M.Ridge(), M.Logistic(), M.from_sklearn(SklearnRidge())):
        with pytest.raises(
            drs.LogError, match="fall into one fold, and the others have none: column 'user' has one value"
        ):
            evaluate(drs.Log(pa.table(rows), context=["x0"]), uniform, model, crossfit=3, cluster="user")
    apart = {**rows, "user": [0, 1]}
    seed = next(s for s in range(99) if reference.fold(0, 50, s) != reference.fold(1, 50, s))
    log = drs.Log(pa.table(apart), context=["x0"])
    with pytest.warns(UserWarning, match="48 of the folds are empty, as there are few rows for crossfit=50"):
        result = evaluate(log, drs.policies.Constant(0), M.Ridge(), "dm", crossfit=50, fold_seed=seed)
    assert result["dm"].value == 0.5  # of an action that the other event has not: the other's mean reward, 0, then 1


REMEDY = r"pass an unfitted one with crossfit=5, or fit it on other events, e.g. train, test = log.split\(0.5\)"


@pytest.mark.parametrize("kept", [False, True], ids=["fitted", "loaded"])
def test_a_model_that_knows_the_events_is_warned_about(table, tmp_path, kept):
    path = tmp_path / "log.parquet"
    pq.write_table(table, path)
    log = open_log(path)
    train, test = log.split(0.5)

    def fitted(model):
        model = model.fit(train)
        if not kept:
            return model
        model.save(tmp_path / "model")
        return M.load(tmp_path / "model")

    reward, chosen = fitted(M.Ridge()), fitted(M.Propensity())
    for use in (drs.evaluate, lambda *args, **more: drs.replay(*args[:2], 10, *args[2:], **more)):
        with pytest.warns(UserWarning, match=rf"the reward model was .*which flatters DM and DR: {REMEDY}") as caught:
            use(log, POLICY, reward)
        assert caught[0].filename == __file__
        with pytest.warns(UserWarning, match=rf"the propensity model was .*IPS and DR rest on: {REMEDY}"):
            use(log, POLICY, propensity=chosen)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            use(test, POLICY, reward, propensity=chosen)
            use(log, POLICY, M.Ridge(), crossfit=2)
    with pytest.warns(UserWarning, match="the propensity model was"):  # the other is by fold
        evaluate(log, POLICY, M.Ridge(), crossfit=2, propensity=chosen)


def test_bad_rows_in_all_columns(table):
    """Rows that a fit and a pass leave out are the same, whatever each of them reads."""
    X, _, r, p = arrays(table, D)
    r, p, x0 = r.copy(), p.copy(), X[:, 0].copy()
    r[0], p[1], x0[2] = np.nan, 0.0, np.inf
    broken = table.set_column(1, "reward", pa.array(r)).set_column(2, "propensity", pa.array(p))
    broken = broken.set_column(3, "x0", pa.array(x0))
    log = open_log(broken, on_bad_row="skip", actions=K)
    result = evaluate(log, POLICY, M.Ridge(), crossfit=2)
    assert (result.n, sum(result.skipped.values())) == (ROWS - 3, 3)
    other = evaluate(log, POLICY, M.Ridge(), crossfit=2, propensity=M.Propensity())
    assert (other.n, sum(other.skipped.values())) == (ROWS - 2, 2)  # propensities are not looked at


def test_a_model_of_the_users_own_is_cross_fitted():
    table = world().table(400, seed=5)
    result = evaluate(table, drs.policies.Uniform(), ByHand(), "dm", crossfit=4)
    log = drs.Log(table)
    folds = log.folds(4)
    fold = folds.of(np.arange(400, dtype=np.uint64))
    action, reward = table["action"].to_numpy(), table["reward"].to_numpy()
    total = 0.0
    for f in range(4):
        others = fold != f
        means = [reward[others & (action == a)].mean() for a in range(log.n_actions)]
        total += (~others).sum() * np.mean(means)
    assert result["dm"].value == pytest.approx(total / 400, rel=1e-12)


def test_a_model_of_the_users_own_that_is_fitted_is_left_alone():
    table = world().table(400, seed=5)
    train, test = drs.Log(table).split(0.5)
    model = ByHand().fit(train)
    with pytest.raises(drs.ModelError, match="ByHand can be used as it is: leave crossfit= out"):
        evaluate(test, drs.policies.Uniform(), model, "dm", crossfit=2)
    result = evaluate(test, drs.policies.Uniform(), model, propensity=drs.models.Propensity(), crossfit=2)
    assert result["dm"].value == pytest.approx(model.means.mean(), rel=1e-12)
    assert "reward model: R²" in result.how()
    assert "propensities estimated, cross-fitted in 2 folds: at least" in result.how()


def test_models_of_the_wrong_kind(table):
    """A model of propensities is none of rewards, nor the other way round; scikit-learn's are to be wrapped."""
    log = open_log(table)
    train, test = log.split(0.5)
    mu = M.Propensity().fit(train)
    for model, message in (
        (mu, "gives probabilities, not rewards: it is for propensity="),
        (SklearnRidge(), "an estimator of scikit-learn is wrapped"),
    ):
        with pytest.raises(drs.ModelError, match=message):
            evaluate(test, POLICY, model)
    for propensity, message in (
        (M.Ridge(), "predicts rewards: pass drs.models.Propensity"),
        (LogisticRegression(), r"wrap it, drs.models.Propensity.from_sklearn\(LogisticRegression"),
    ):
        with pytest.raises(drs.ModelError, match=message):
            evaluate(log, POLICY, propensity=propensity, crossfit=2)
    with pytest.raises(drs.ModelError, match="clamp=True is about a reward model"):
        evaluate(log, POLICY, clamp=True)


def test_a_model_of_another_reward_draws_a_warning(table):
    more = table.append_column("spend", pa.array(np.arange(float(table.num_rows))))
    train, _ = drs.Log(more, context="x?", reward="spend", actions=K).split(0.5)
    _, test = drs.Log(more, context="x?", actions=K).split(0.5)
    with pytest.warns(UserWarning, match="fitted on the reward 'spend'; the log's is 'reward'"):
        evaluate(test, POLICY, M.Ridge().fit(train))


def test_fits_report_their_passes(table, monkeypatch):
    told = []

    @contextlib.contextmanager
    def reporter(progress, total):
        yield lambda done, text="": told.append((progress, text))

    monkeypatch.setattr(execution, "reporter", reporter)
    M.Logistic().fit(open_log(table), progress=True)
    assert (True, "pass 1") in told
    assert (True, "pass 3") in told
    told.clear()
    evaluate(open_log(table), POLICY, M.Ridge(), crossfit=2, progress=True)
    assert len(told) == 2  # a pass to fit, and one to evaluate
