"""Classifiers as policies: features by name, frames with text and nulls, other libraries with the same interface."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC

import drstream as drs
from drstream import frames
from tests.helpers.cut import cut_log
from tests.helpers.frames import ACTIONS, best_actions, frame, naive_ips, shop
from tests.helpers.logs import world
from tests.helpers.passes import PLAIN

lightgbm = pytest.importorskip("lightgbm")
ROWS = 200 if PLAIN else 1500
LABELS = np.array(ACTIONS)


@pytest.fixture(scope="module")
def table():
    return shop(ROWS)


def lgbm(**options):
    return lightgbm.LGBMClassifier(n_estimators=4, min_child_samples=5, verbose=-1, n_jobs=1, **options)


def pipeline(*text):
    """Of text and numbers, both with nulls."""
    encoded = make_pipeline(SimpleImputer(strategy="constant", fill_value="?"), OneHotEncoder(handle_unknown="ignore"))
    return make_pipeline(
        make_column_transformer((encoded, list(text)), remainder=make_pipeline(SimpleImputer(), StandardScaler())),
        LogisticRegression(max_iter=200),
    )


def ips(source, classifier, **options):
    return drs.evaluate(source, drs.policies.from_sklearn(classifier), estimators=["ips"], **options)["ips"].value


def test_columns_in_another_order_are_found_by_name():
    """Contexts x0, x1, x2; the classifier was fitted on x2, x0, x1."""
    table = world().table(ROWS, seed=3)
    X = table.select(["x2", "x0", "x1"]).to_pandas()
    y = np.where(X["x2"] > 0.3, 1, np.where(X["x0"] > 0, 2, 3))
    classifier = LogisticRegression().fit(X, y)
    pi = np.zeros((ROWS, 4))
    pi[:, 1:] = classifier.predict_proba(X)
    got = ips(table, classifier)
    assert got == pytest.approx(naive_ips(table, pi, [0, 1, 2, 3]), rel=1e-9)
    wrong = pi.copy()
    wrong[:, 1:] = LogisticRegression().fit(X.to_numpy(), y).predict_proba(X[["x0", "x1", "x2"]].to_numpy())
    assert got != pytest.approx(naive_ips(table, wrong, [0, 1, 2, 3]), rel=1e-3)


def test_a_missing_feature_has_near_names(table):
    X = frame(table, ["age"]).rename(columns={"age": "aeg"})
    classifier = LogisticRegression().fit(X, LABELS[best_actions(table)])
    with pytest.raises(drs.PolicyError, match=r"classifier of policy 'new' reads a column 'aeg'.*did you mean 'age'\?"):
        drs.evaluate(table, {"new": drs.policies.from_sklearn(classifier)})


@pytest.mark.parametrize("context", [[], ["age"]])
def test_a_pipeline_of_text_and_numbers(table, context):
    """Whether or not some of the columns are contexts."""
    names = ["income", "kind", "land", "age"]
    X = frame(table, names)
    classifier = pipeline("land", "kind").fit(X, LABELS[best_actions(table)])
    got = ips(drs.Log(table, context=context), classifier)
    assert got == pytest.approx(naive_ips(table, classifier.predict_proba(X)), rel=1e-9)


@pytest.mark.parametrize("fitted_on", ["text", "category", "whole numbers as categories"])
def test_lightgbm_as_it_is(table, fitted_on, tmp_path):
    """Text of the log becomes the category that LightGBM was fitted on, and nulls reach it."""
    names = ["land", "age", "income", "kind"]
    categories = {"text": ["land"], "category": ["land"], "whole numbers as categories": ["land", "age"]}[fitted_on]
    X = frame(table, names, categories)
    classifier = lgbm().fit(X, LABELS[best_actions(table)])
    ref = naive_ips(table, classifier.predict_proba(X))
    stored = table
    if fitted_on == "category":
        stored = table.set_column(2, "land", table["land"].dictionary_encode())
    pq.write_table(stored, tmp_path / "shop.parquet", row_group_size=300)
    found = {
        ips(cut_log(tmp_path / "shop.parquet", batch_size=size), classifier, threads=threads)
        for size, threads in ((None, 1), (None, 2), (23, 2))
    }
    assert len(found) == 1
    assert found.pop() == pytest.approx(ref, rel=1e-9)


def test_a_category_that_lightgbm_has_not_seen_is_missing_to_it(table):
    X = frame(table, ["land", "age"], ["land"])
    classifier = lgbm().fit(X, LABELS[best_actions(table)])
    land = ["ES" if x == "DE" else x for x in table["land"].to_pylist()]
    ref = frame(
        table.set_column(2, "land", pa.array([None if x == "ES" else x for x in land])), ["land", "age"], ["land"]
    )
    got = ips(table.set_column(2, "land", pa.array(land)), classifier)
    assert got == pytest.approx(naive_ips(table, classifier.predict_proba(ref)), rel=1e-9)


def test_lightgbm_inside_a_search(table):
    X = frame(table, ["land", "age"], ["land"])
    search = GridSearchCV(lgbm(), {"num_leaves": [3]}, cv=2).fit(X, LABELS[best_actions(table)])
    assert ips(table, search) == pytest.approx(naive_ips(table, search.predict_proba(X)), rel=1e-9)


def test_lightgbm_that_was_fitted_on_an_array():
    table = world().table(ROWS, seed=3)
    X = table.select(["x0", "x1", "x2"]).to_pandas().to_numpy()
    classifier = lgbm().fit(X, table["action"].to_numpy())
    assert ips(table, classifier) == pytest.approx(
        naive_ips(table, classifier.predict_proba(X), [0, 1, 2, 3]), rel=1e-6
    )
    with pytest.raises(drs.PolicyError, match="LGBMClassifier was fitted on an array of 3 features, and the log has 2"):
        ips(drs.Log(table, context=["x0", "x1"]), classifier)


@pytest.mark.slow
def test_xgboost(table):
    xgboost = pytest.importorskip("xgboost")
    table = shop(ROWS, integers=True)
    X = frame(table, ["land", "age", "kind"], ["land"])
    classifier = xgboost.XGBClassifier(n_estimators=3, enable_categorical=True, n_jobs=1).fit(X, best_actions(table))
    got = ips(table, classifier)
    assert got == pytest.approx(naive_ips(table, classifier.predict_proba(X), [0, 1, 2]), rel=1e-5)


@pytest.mark.slow
def test_an_xgboost_that_forgets_categories_is_refused(table, monkeypatch):
    xgboost = pytest.importorskip("xgboost")
    X = frame(table, ["land", "age"], ["land"])
    classifier = xgboost.XGBClassifier(n_estimators=1, enable_categorical=True).fit(X, best_actions(table))
    monkeypatch.setattr(xgboost, "__version__", "2.1.4")
    with pytest.raises(drs.PolicyError, match=r"XGBoost 2\.1\.4 does not store the categories"):
        ips(shop(ROWS, integers=True), classifier)


@pytest.mark.slow
def test_catboost(table):
    catboost = pytest.importorskip("catboost")
    filled = table.set_column(2, "land", table["land"].fill_null("?"))
    X = frame(filled, ["land", "age"])
    classifier = catboost.CatBoostClassifier(
        iterations=3, cat_features=["land"], verbose=0, allow_writing_files=False, thread_count=1
    ).fit(X, LABELS[best_actions(table)])
    assert ips(filled, classifier) == pytest.approx(naive_ips(table, classifier.predict_proba(X)), rel=1e-9)


def test_a_classifier_without_probabilities(table):
    classifier = LinearSVC().fit(frame(table, ["age"]), LABELS[best_actions(table)])
    pi = np.eye(3)[[ACTIONS.index(x) for x in classifier.predict(frame(table, ["age"]))]]
    assert ips(table, classifier) == pytest.approx(naive_ips(table, pi), rel=1e-12)


def test_in_a_replay(table):
    """What a classifier reads is known only once it meets the log."""
    X = frame(table, ["land", "age"], ["land"])
    classifier = lgbm().fit(X, LABELS[best_actions(table)])
    column = table.append_column("pi", pa.array(list(classifier.predict_proba(X))))
    options = {"horizon": 20, "bias": 0.05}
    got = drs.replay(table, drs.policies.from_sklearn(classifier), **options)
    assert got.value == pytest.approx(drs.replay(column, drs.policies.Column("pi"), **options).value, rel=1e-9)
    mixed = drs.policies.Epsilon(drs.policies.from_sklearn(classifier), 0.1)
    ref = drs.policies.Epsilon(drs.policies.Column("pi"), 0.1)
    assert drs.evaluate(table, mixed)["ips"].value == pytest.approx(drs.evaluate(column, ref)["ips"].value, rel=1e-9)


def test_nulls_in_contexts_are_bad_rows_and_elsewhere_are_not(table):
    X = frame(table, ["income", "age"])
    classifier = lgbm().fit(X, LABELS[best_actions(table)])
    ref = naive_ips(table, classifier.predict_proba(X))
    assert ips(drs.Log(table, context=[]), classifier) == pytest.approx(ref, rel=1e-9)
    with pytest.raises(drs.LogError, match="context is null at row"):
        ips(drs.Log(table, context=["income"]), classifier)
    skipped = drs.evaluate(
        drs.Log(table, context=["income"], on_bad_row="skip"), drs.policies.from_sklearn(classifier)
    ).skipped
    assert skipped == {"context is null": table["income"].null_count}
    assert ips(drs.Log(table, context=["income"], missing="keep"), classifier) == pytest.approx(ref, rel=1e-9)
    replaced = naive_ips(table, classifier.predict_proba(X.fillna({"income": 2.5})))
    assert ips(drs.Log(table, context=["income"], missing=2.5), classifier) == pytest.approx(replaced, rel=1e-9)


# What does not fit


def test_a_regressor_is_a_reward_model(table):
    for regressor in (LinearRegression(), lightgbm.LGBMRegressor()):
        with pytest.raises(
            drs.PolicyError,
            match=r"is a regressor: it predicts rewards.*drs\.models\.from_sklearn\(.*drs\.policies\.Greedy\(model\)",
        ):
            drs.policies.from_sklearn(regressor)
    with pytest.raises(drs.PolicyError, match="LogisticRegression has no classes_: fit it"):
        drs.policies.from_sklearn(LogisticRegression())


def test_estimators_and_models_as_they_are_get_a_hint(table):
    hints = (
        (LogisticRegression(), r"LogisticRegression: wrap it, drs\.policies\.from_sklearn"),
        (LinearRegression(), r"which predicts rewards.*drs\.policies\.Greedy\(drs\.models\.from_sklearn"),
        (drs.models.Constant(1.0), r"Constant, which predicts rewards: .* drs\.policies\.Greedy\(model\)"),
    )
    for policy, hint in hints:
        with pytest.raises(drs.PolicyError, match=f"policy 'new' is a {hint}" if "wrap" in hint else hint):
            drs.evaluate(table, {"new": policy})


def test_classes_are_matched_by_value(table):
    shuffled = np.array([2, 0, 1])
    X, y = frame(table, ["age"]), best_actions(table)
    log = drs.Log(shop(ROWS, integers=True), actions=[7, 8, 0, 1, 2])
    classifier = LogisticRegression().fit(X, shuffled[y])
    pi = np.zeros((ROWS, 5))
    pi[:, [2, 3, 4]] = classifier.predict_proba(X)
    assert ips(log, classifier) == pytest.approx(naive_ips(shop(ROWS, integers=True), pi, [7, 8, 0, 1, 2]), rel=1e-9)


def test_classes_that_are_no_actions(table):
    X, y = frame(table, ["age"]), best_actions(table)
    with pytest.raises(
        drs.PolicyError,
        match=r"class 0 of the classifier is not among the 3 actions 'banner', 'mail', 'none'.*and are 0, 1, 2",
    ):
        ips(table, LogisticRegression().fit(X, y))
    with pytest.raises(drs.PolicyError, match=r"class '0' of the classifier is not among the 3 actions 0, 1, 2"):
        ips(shop(ROWS, integers=True), LogisticRegression().fit(X, y.astype(str)))


@pytest.mark.parametrize("name", ["action", "reward"])
def test_features_that_a_policy_cannot_know(name):
    table = shop(ROWS, integers=True)
    classifier = LogisticRegression().fit(frame(table, ["age", name]), best_actions(table))
    with pytest.raises(drs.PolicyError, match=rf"fitted on '{name}', the log's {name}.*prefit=True.*Greedy\(model\)"):
        ips(table, classifier)


def test_names_that_libraries_invent():
    class Named:
        def __init__(self, **names):
            vars(self).update(names)

    assert frames.feature_names(Named(feature_names_in_=np.array(["a", "b"], object))) == ("a", "b")
    assert frames.feature_names(Named(feature_names_=["a", "1"])) == ("a", "1")
    assert frames.feature_names(Named(feature_names_=["0", "1"])) is None
    assert frames.feature_names(Named(feature_names_in_=["Column_0", "Column_1"])) is None
    assert frames.feature_names(Named()) is None
    assert frames.feature_names(Named(feature_names_in_=[1, 2])) is None


def test_without_pandas(table, monkeypatch):
    classifier = LogisticRegression().fit(frame(table, ["age"]), LABELS[best_actions(table)])
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(drs.PolicyError, match="in a pandas frame: pip install pandas"):
        ips(drs.Log(table, context=[]), classifier)
