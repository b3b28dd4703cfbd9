"""Reward models of other libraries that read columns of the log by name."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LinearRegression, LogisticRegression, SGDRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import drstream as drs
from drstream.models import from_sklearn
from tests.helpers.cut import cut_log
from tests.helpers.frames import ACTIONS, frame, naive_dr, shop
from tests.helpers.logs import world
from tests.helpers.passes import PLAIN

lightgbm = pytest.importorskip("lightgbm")
ROWS = 300 if PLAIN else 1500
LABELS = np.array(ACTIONS)
QUIET = {"n_estimators": 3, "min_child_samples": 5, "verbose": -1, "n_jobs": 1}
NAMES = ["land", "age", "income", "kind"]
ENCODED = make_pipeline(
    make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["land", "kind"]), remainder="passthrough"),
    LinearRegression(),
)
ENCODED_ACTION = make_pipeline(
    make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["land", "action"]), remainder="passthrough"),
    LinearRegression(),
)


@pytest.fixture(scope="module")
def table():
    return shop(ROWS)


@pytest.fixture(scope="module")
def train():
    return shop(ROWS, seed=1)


def expected(model, X):
    return model.predict_proba(X) @ model.classes_ if hasattr(model, "classes_") else model.predict(X)


def by_hand(estimator, action, train, table, names, categories=()):
    """(n, K), fitted on frames in plain pandas."""
    X, at = frame(train, names, categories), frame(table, names, categories)
    logged, reward = np.array(train["action"].to_pylist()), train["reward"].to_numpy()
    if action == "separate":
        models = [clone(estimator).fit(X[logged == label], reward[logged == label]) for label in ACTIONS]
        return np.column_stack([expected(model, at) for model in models])
    kind = X.assign(action=logged)
    kind["action"] = kind["action"].astype("category")
    model = clone(estimator).fit(kind, reward)
    columns = [at.assign(action=label).astype({"action": kind["action"].dtype}) for label in ACTIONS]
    return np.column_stack([expected(model, column) for column in columns])


@pytest.mark.parametrize(
    ("estimator", "action", "names", "categories"),
    [
        (lightgbm.LGBMRegressor(**QUIET), "separate", NAMES, ["land"]),
        (lightgbm.LGBMRegressor(**QUIET), "feature", NAMES, ["land"]),
        (lightgbm.LGBMClassifier(**QUIET), "separate", NAMES, ["land"]),
        (lightgbm.LGBMClassifier(**QUIET), "feature", ["income", "land"], ["land"]),
        (ENCODED, "separate", ["age", "land", "kind"], []),
        (ENCODED_ACTION, "feature", ["age", "land"], []),
    ],
    ids=["lgbm-separate", "lgbm-feature", "classifier-separate", "classifier-feature", "pipeline", "pipeline-feature"],
)
def test_columns_equal_frames_by_hand(table, train, estimator, action, names, categories):
    model = from_sklearn(estimator, action=action, columns=names).fit(drs.Log(train, context=[]))
    ref = by_hand(estimator, action, train, table, names, categories)
    np.testing.assert_allclose(model.predict(table), ref, rtol=1e-9)
    np.testing.assert_allclose(model.predict(table.to_pandas()), ref, rtol=1e-9)
    assert model.features_ == tuple(names)
    policy = drs.policies.Uniform()
    got = drs.evaluate(drs.Log(table, context=["age"]), policy, model, ["dr"])["dr"].value
    assert got == pytest.approx(naive_dr(table, np.full((ROWS, 3), 1 / 3), ref), rel=1e-9)


def test_any_batch_size_and_threads_give_the_same_bits(table, tmp_path):
    pq.write_table(table, tmp_path / "shop.parquet", row_group_size=250)
    model = from_sklearn(lightgbm.LGBMRegressor(**QUIET), columns=NAMES, action="feature", sample=200)
    found = set()
    for size, threads in ((None, 1), (None, 2), (19, 2)):
        log = cut_log(tmp_path / "shop.parquet", context=[], batch_size=size)
        result = drs.evaluate(log, drs.policies.Uniform(), model, crossfit=2, threads=threads)
        found.add((result["dr"].value, result["dm"].value))
    assert len(found) == 1


def test_by_batches(train):
    """partial_fit sees frames, batch by batch."""
    seen = []

    class Watched(SGDRegressor):
        def partial_fit(self, X, y):
            seen.append(list(X.columns))
            return super().partial_fit(X, y)

    model = from_sklearn(Watched(random_state=0), columns=["age"], partial=True).fit(drs.Log(train, context=[]))
    assert seen == [["age"]] * 3
    X, a = frame(train, ["age"]), np.array(train["action"].to_pylist())
    ref = SGDRegressor(random_state=0).partial_fit(X[a == "mail"], train["reward"].to_numpy()[a == "mail"]).predict(X)
    np.testing.assert_allclose(model.predict(train)[:, 1], ref, rtol=1e-9)


def test_in_a_replay(table, train):
    model = from_sklearn(lightgbm.LGBMRegressor(**QUIET), columns=NAMES).fit(drs.Log(train, context=[]))
    column = table.append_column("rhat", pa.array(list(model.predict(table))))
    run = {"horizon": 20, "bias": 0.05}
    got = drs.replay(table, drs.policies.Uniform(), model=model, **run)
    ref = drs.replay(column, drs.policies.Uniform(), model=drs.models.Column("rhat"), **run)
    assert got.value == pytest.approx(ref.value, rel=1e-9)


def test_files(table, train, tmp_path):
    model = from_sklearn(ENCODED, columns=["land", "age", "kind"]).fit(drs.Log(train, context=[]))
    model.save(tmp_path / "model.skops")
    same = drs.models.load(tmp_path / "model.skops")
    assert (same.predict(table) == model.predict(table)).all()
    got = drs.evaluate(drs.Log(table, context=[]), drs.policies.Greedy(same))["ips"].value
    assert got == drs.evaluate(drs.Log(table, context=[]), drs.policies.Greedy(model))["ips"].value


def test_the_action_may_have_another_name_than_in_the_fit(table, train, tmp_path):
    model = from_sklearn(ENCODED_ACTION, columns=["land", "age"], action="feature").fit(drs.Log(train, context=[]))
    ref = model.predict(table)
    model.save(tmp_path / "model.skops")
    same = drs.models.load(tmp_path / "model.skops")
    assert (same.predict(table) == ref).all()
    renamed = drs.Log(table.rename_columns({"action": "arm"}), context=[])
    got = drs.evaluate(renamed, drs.policies.Uniform(), same)["dm"].value
    assert got == pytest.approx(ref.mean(), rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("library", ["xgboost", "catboost"])
@pytest.mark.parametrize("action", ["separate", "feature"])
def test_other_libraries(table, train, library, action):
    module = pytest.importorskip(library)
    filled = [t.set_column(2, "land", t["land"].fill_null("?")) for t in (train, table)]
    if library == "xgboost":
        estimator, categories = module.XGBRegressor(n_estimators=2, enable_categorical=True, n_jobs=1), ["land"]
    else:
        text = ["land", *["action"] * (action == "feature")]
        estimator = module.CatBoostRegressor(
            iterations=2, cat_features=text, verbose=0, allow_writing_files=False, thread_count=1
        )
        categories = []
    model = from_sklearn(estimator, columns=["land", "age"], action=action).fit(drs.Log(filled[0], context=[]))
    ref = model.predict(filled[1])
    assert ref.std(axis=0).min() > 0
    if library == "xgboost":
        np.testing.assert_allclose(ref, by_hand(estimator, action, *filled, ["land", "age"], categories), rtol=1e-5)
    result = drs.evaluate(drs.Log(filled[1], context=[]), drs.policies.Uniform(), model)
    assert result["dm"].value == pytest.approx(ref.mean(), rel=1e-9)


def test_propensities_from_columns(table, train):
    model = drs.models.Propensity.from_sklearn(lightgbm.LGBMClassifier(**QUIET), columns=NAMES)
    bare = drs.Log(table, context=[], propensity=None)
    fitted = lightgbm.LGBMClassifier(**QUIET).fit(frame(train, NAMES, ["land"]), train["action"].to_pylist())
    policy = drs.policies.from_sklearn(fitted)
    got = drs.evaluate(bare, drs.policies.Uniform(), propensity=model.fit(drs.Log(train, context=[])))
    assert got["ips"].value == pytest.approx(
        drs.evaluate(bare, drs.policies.Uniform(), propensity=policy)["ips"].value, rel=1e-9
    )
    by_fold = drs.evaluate(bare, drs.policies.Uniform(), propensity=model.fresh(), crossfit=2)
    assert by_fold["ips"].value == pytest.approx(got["ips"].value, rel=0.5)
    with pytest.raises(drs.ModelError, match="columns= has 'action', which came after"):
        drs.models.Propensity.from_sklearn(lightgbm.LGBMClassifier(), columns=["action"]).fit(train)


# Fitted elsewhere


@pytest.mark.parametrize(
    "kind", ["text", "category", "integers", "whole numbers as categories", "classifier", "pipeline"]
)
def test_one_estimator_of_the_context_and_the_action(kind):
    """The action's column takes each label in turn, in the type that the estimator was fitted on."""
    integers = kind in ("integers", "whole numbers as categories")
    labels = [0, 1, 2] if integers else ACTIONS
    train, table = shop(ROWS, seed=1, integers=integers), shop(ROWS, integers=integers)
    names = ["income", "action", "land"]
    categories = ["land"] if kind in ("integers", "pipeline") else ["land", "action"]
    estimator = lightgbm.LGBMRegressor(**QUIET)
    if kind == "classifier":
        estimator = lightgbm.LGBMClassifier(**QUIET)
    if kind == "pipeline":
        names, categories, estimator = ["age", "action", "land"], [], ENCODED_ACTION
    X, at = frame(train, names, categories), frame(table, names, categories)
    fitted = clone(estimator).fit(X, train["reward"].to_numpy())
    kinds = X.dtypes
    ref = np.column_stack([expected(fitted, at.assign(action=a).astype({"action": kinds["action"]})) for a in labels])
    if kind == "category":
        table = table.set_column(6, "action", table["action"].dictionary_encode())
    log = drs.Log(table, context=[])
    model = from_sklearn(fitted, prefit=True)
    pi = np.full((ROWS, 3), 1 / 3)
    got = drs.evaluate(log, drs.policies.Uniform(), model, ["dr"])["dr"].value
    assert got == pytest.approx(naive_dr(table, pi, ref, labels), rel=1e-9)
    best = np.eye(3)[ref.argmax(axis=1)]
    got = drs.evaluate(log, drs.policies.Greedy(model), model, ["dr"])["dr"].value
    assert got == pytest.approx(naive_dr(table, best, ref, labels), rel=1e-9)


def test_an_estimator_for_each_action(table, train):
    a, r = np.array(train["action"].to_pylist()), train["reward"].to_numpy()
    X = frame(train, NAMES, ["land"])
    fitted = {x: lightgbm.LGBMRegressor(**QUIET).fit(X[a == x], r[a == x]) for x in reversed(ACTIONS)}
    ref = np.column_stack([fitted[x].predict(frame(table, NAMES, ["land"])) for x in ACTIONS])
    got = drs.evaluate(drs.Log(table, context=[]), drs.policies.Uniform(), from_sklearn(fitted, prefit=True), ["dr"])
    assert got["dr"].value == pytest.approx(naive_dr(table, np.full((ROWS, 3), 1 / 3), ref), rel=1e-9)
    for wrong, message in (
        ({**fitted, "post": fitted["mail"]}, "'post' is no action"),
        ({"mail": fitted["mail"]}, "there is none for 'banner'"),
    ):
        with pytest.raises(drs.ModelError, match=message):
            drs.evaluate(drs.Log(table, actions=ACTIONS), drs.policies.Uniform(), from_sklearn(wrong, prefit=True))
    more = from_sklearn({**fitted, "post": fitted["mail"]}, prefit=True)  # an action that was never logged
    assert set(drs.evaluate(drs.Log(table, context=[]), drs.policies.Greedy(more), more).labels) == {*ACTIONS, "post"}


@pytest.mark.parametrize("separate", [False, True])
def test_fitted_on_arrays(separate):
    table = world().table(ROWS, seed=3)
    X = table.select(["x0", "x1", "x2"]).to_pandas().to_numpy()
    a, r = table["action"].to_numpy(), table["reward"].to_numpy()
    if separate:
        model = {k: LinearRegression().fit(X[a == k], r[a == k]) for k in range(4)}
        ref = np.column_stack([model[k].predict(X) for k in range(4)])
    else:
        model = LinearRegression().fit(np.hstack([X, np.eye(4)[a]]), r)
        ref = np.column_stack([model.predict(np.hstack([X, np.tile(np.eye(4)[k], (ROWS, 1))])) for k in range(4)])
    got = drs.evaluate(table, drs.policies.Uniform(), from_sklearn(model, prefit=True))["dm"].value
    assert got == pytest.approx(ref.mean(), rel=1e-6)
    with pytest.raises(drs.ModelError, match=r"was fitted on an array of \d features, and the log has 2"):
        drs.evaluate(drs.Log(table, context=["x0", "x1"]), drs.policies.Uniform(), from_sklearn(model, prefit=True))


# What does not fit


def test_mistakes_in_columns(table, train):
    with pytest.raises(drs.ModelError, match=r"reads a column 'aeg', and the log has none: did you mean 'age'\?"):
        from_sklearn(LinearRegression(), columns=["aeg"]).fit(train)
    with pytest.raises(drs.ModelError, match="columns= has 'reward', the log's reward, which no model may know"):
        from_sklearn(LinearRegression(), columns=["reward"]).fit(train)
    with pytest.raises(drs.ModelError, match="columns= has 'action', the log's action: action=\"feature\" adds it"):
        from_sklearn(LinearRegression(), columns=["action"]).fit(train)
    model = from_sklearn(LinearRegression(), columns=["age"]).fit(drs.Log(train, context=[]))
    with pytest.raises(drs.ModelError, match="reads a column 'age'"):
        drs.evaluate(table.drop_columns(["age"]), drs.policies.Uniform(), model)
    with pytest.raises(drs.ModelError, match="reads a column 'age'"):
        model.predict(table.drop_columns(["age"]))
    with pytest.raises(ValueError, match="could not convert string to float") as caught:
        from_sklearn(LinearRegression(), columns=["land"]).fit(train.filter(train["land"].is_valid()))
    assert "raised by LinearRegression" in caught.value.__notes__[0]


def test_mistakes_with_fitted_estimators(table, train):
    X, r = frame(train, ["age", "income"]).fillna(0), train["reward"].to_numpy()
    fitted = LinearRegression().fit(X, r)
    with pytest.raises(
        drs.ModelError, match=r"not fitted: call .fit\(log\).*or pass prefit=True to use this LinearReg"
    ):
        drs.evaluate(table, drs.policies.Uniform(), from_sklearn(fitted))
    with pytest.raises(
        drs.ModelError, match="action column 'action' is not among them, so it cannot tell actions apart"
    ):
        drs.evaluate(table, drs.policies.Uniform(), from_sklearn(fitted, prefit=True))
    with pytest.raises(drs.ModelError, match="prefit=True, but LinearRegression is not fitted"):
        from_sklearn(LinearRegression(), prefit=True)
    with pytest.raises(drs.ModelError, match="a mapping has a fitted estimator for each action: pass prefit=True"):
        from_sklearn({"mail": fitted})
    with pytest.raises(drs.ModelError, match="knows its columns"):
        from_sklearn(fitted, columns=["age"], prefit=True)
    with pytest.raises(drs.ModelError, match="the mapping of labels to estimators is empty"):
        from_sklearn({}, prefit=True)
    with pytest.raises(drs.ModelError, match="prefit=3: it is True or False"):
        from_sklearn(fitted, prefit=3)
    classifier = LogisticRegression().fit(X, train["action"].to_pylist())
    with pytest.raises(
        drs.ModelError, match=r"classes of LogisticRegression are 'banner'.*drs\.policies\.from_sklearn"
    ):
        from_sklearn(classifier, prefit=True)
    leaky = LinearRegression().fit(X.assign(reward=r, action=0), r)
    with pytest.raises(drs.ModelError, match="was fitted on 'reward', the log's reward, as a feature"):
        drs.evaluate(table, drs.policies.Uniform(), from_sklearn(leaky, prefit=True))
    several = dict.fromkeys(ACTIONS, LinearRegression().fit(X.assign(action=0), r))
    with pytest.raises(drs.ModelError, match="cannot have the action 'action' among its features"):
        drs.evaluate(table, drs.policies.Uniform(), from_sklearn(several, prefit=True))
    model = from_sklearn(fitted, prefit=True)
    for call in (lambda: model.fit(train), lambda: model.save("x"), lambda: model.predict(X)):
        with pytest.raises(drs.ModelError, match="prefit=True"):
            call()


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("rigde", r"names are for the command line. Pass a model, drs.models.Ridge\(\)"),
        ("logistic:2", r"Pass a model, drs.models.Logistic\(\)"),
        ("model.npz", r"a saved one is loaded with drs.models.load\(path\)"),
    ],
)
def test_a_name_instead_of_a_model(table, name, hint):
    with pytest.raises(drs.ModelError, match=hint):
        drs.evaluate(table, drs.policies.Uniform(), name)
