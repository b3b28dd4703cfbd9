"""What was fitted on categories: feature names, files, other logs that it meets by name, and what cannot be met."""

import numpy as np
import pyarrow as pa
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.linear_model import Ridge as SklearnRidge

import drstream as drs
from drstream.log import encoding
from tests.helpers.categories import one_hot, table
from tests.helpers.cut import cut_log

CONTEXT = ["age", "country", "zip", "member"]
HASHED = ["age", drs.Hashed("agent", bits=9), "country"]
ELSEWHERE = ("AT", "FR", "US")  # AT is new, DE is gone


def here(rows=600, **options):
    return drs.Log(table(rows), **{"context": CONTEXT, "categorical": ["zip"], **options})


def elsewhere(**options):
    """Another log, with its columns in another order."""
    return drs.Log(table(400, 7, ELSEWHERE), **{"context": CONTEXT[::-1], "categorical": ["zip"], **options})


def by_hand(data):
    """The features of `here`, whatever the log."""
    country, digits = one_hot(data["country"].to_pylist(), ["DE", "FR", "US"]), data["zip"].to_pylist()
    member = data["member"].to_numpy(zero_copy_only=False)
    return np.column_stack([data["age"], country, one_hot(digits, range(100, 105)), member]).astype(float)


def test_ridge_equals_scikit_learns_on_features_by_hand():
    log = here()
    data = log.source.table
    model = drs.models.Ridge(alpha=2.0).fit(log)
    assert model.feature_names_ == [
        *("age", "country=DE", "country=FR", "country=US"),
        *(f"zip={z}" for z in range(100, 105)),
        "member",
    ]
    assert model.features_ == tuple(CONTEXT)
    X, action, reward = by_hand(data), data["action"].to_numpy(), data["reward"].to_numpy()
    for a in range(2):
        theirs = SklearnRidge(alpha=2.0).fit(X[action == a], reward[action == a])
        np.testing.assert_allclose(model.coef_[a], theirs.coef_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(model.predict(X)[:, 1], theirs.predict(X), rtol=1e-6)


FITS = {
    "ridge": lambda log: drs.models.Ridge().fit(log),
    "logistic": lambda log: drs.models.Logistic().fit(log),
    "scikit-learn": lambda log: drs.models.from_sklearn(SklearnRidge(alpha=1.0)).fit(log),
}
LEARNERS = {
    "dlm": lambda log: drs.optimize.DirectLossMinimizer(restarts=1, epochs=3).fit(log),
    "filter tree": lambda log: drs.optimize.FilterTree().fit(log),
    "progressive": lambda log: drs.optimize.ProgressivePolicy(drs.policies.EpsilonGreedy()).fit(log),
}


@pytest.mark.parametrize("name", FITS)
@pytest.mark.filterwarnings("ignore:.*that the reward model does not know")
def test_a_saved_model_brings_its_encoding(tmp_path, name):
    model = FITS[name](here())
    model.save(tmp_path / "model")
    loaded = drs.models.load(tmp_path / "model")
    assert loaded.encoding_ == model.encoding_
    assert loaded.feature_names_ == model.feature_names_
    log = elsewhere()
    seen = drs.evaluate(log, drs.policies.Uniform(), loaded, estimators=["dm", "dr"])
    lists = log.source.table.append_column("rhat", pa.array(list(model.predict(by_hand(log.source.table)))))
    wanted = drs.evaluate(
        lists, drs.policies.Uniform(), drs.models.Column("rhat"), estimators=["dm", "dr"]
    )  # the same predictions, by hand
    assert seen["dm"].value == pytest.approx(wanted["dm"].value, rel=1e-6)
    assert seen["dr"].value == pytest.approx(wanted["dr"].value, rel=1e-6)


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.filterwarnings("ignore:.*that the policy does not know")
def test_a_saved_policy_brings_its_encoding(tmp_path, name):
    policy = LEARNERS[name](here())
    policy.save(tmp_path / "policy")
    loaded = drs.optimize.load(tmp_path / "policy")
    log = elsewhere()
    pi = np.asarray(policy.probabilities(by_hand(log.source.table)))
    lists = log.source.table.append_column("pi", pa.array(list(pi)))
    wanted = drs.evaluate(lists, drs.policies.Column("pi"), estimators="ips")["ips"].value
    assert drs.evaluate(log, loaded, estimators="ips")["ips"].value == pytest.approx(wanted, rel=1e-9)
    mixed = drs.evaluate(log, drs.policies.Epsilon(loaded, 0.5), estimators="ips")["ips"].value
    even = drs.evaluate(log, drs.policies.Uniform(), estimators="ips")["ips"].value
    assert mixed == pytest.approx((wanted + even) / 2, rel=1e-9)


@pytest.mark.parametrize(
    "model", [drs.models.Propensity(), drs.models.Propensity.from_sklearn(LogisticRegression())], ids=["ours", "theirs"]
)
@pytest.mark.filterwarnings("ignore:.*that the propensity model does not know")
def test_a_propensity_model_brings_its_encoding(model):
    log, model = elsewhere(), model.fit(here())
    seen = drs.evaluate(log, drs.policies.Uniform(), propensity=model, estimators="ips")["ips"].value
    data = log.source.table
    action, reward = data["action"].to_numpy(), data["reward"].to_numpy()
    p = model.probabilities(by_hand(data))[np.arange(len(action)), action]
    assert seen == pytest.approx((0.5 / p * reward).mean(), rel=1e-6)


def test_a_replay_with_a_model_of_another_log():
    model = drs.models.Ridge().fit(here())
    with pytest.warns(drs.DrstreamWarning, match="that the reward model does not know"):
        run = drs.replay(elsewhere(), drs.policies.LinUCB(), 5, model)
    assert run.complete > 0


def test_unknown_categories_are_counted():
    model = drs.models.Ridge().fit(here())
    log = elsewhere(filter=pa.compute.field("age") > 0)
    data = log.source.table.filter(pa.compute.field("age") > 0)
    count = data["country"].to_pylist().count("AT")
    with pytest.warns(drs.DrstreamWarning, match=rf"{count} events have a category in 'country' that the reward model"):
        result = drs.evaluate(log, drs.policies.Uniform(), model)
    found = next(finding for finding in result.findings if finding.check == "categories")
    assert (found.level, found.value) == ("look", count / data.num_rows)
    assert f"{count} of {data.num_rows} events" in found.message
    assert "'country' that the reward model does not know" in found.message


def test_a_model_meets_a_log_of_the_same_categories_without_a_word(recwarn):
    train, test = here().split(0.5)
    drs.evaluate(test, drs.policies.Uniform(), drs.models.Ridge().fit(train))
    other = drs.Log(table(300, 3), context=CONTEXT[::-1], categorical=["zip"])  # in another order
    result = drs.evaluate(other, drs.policies.Uniform(), drs.models.Ridge().fit(train))
    assert not [f for f in result.findings if f.check == "categories"]
    assert not recwarn.list


def test_numbers_are_met_by_name_too():
    data = drs.synth.World(n_actions=2, n_features=2, seed=1).table(500)
    model = drs.models.Ridge().fit(drs.Log(data.slice(0, 250), context=["x0", "x1"]))
    rest = data.slice(250)
    values = [
        drs.evaluate(drs.Log(rest, context=context), drs.policies.Uniform(), model, estimators="dm")["dm"].value
        for context in (["x0", "x1"], ["x1", "x0"])
    ]
    assert values[0] == pytest.approx(values[1], rel=1e-6)


# What cannot be met


def test_numbers_only_and_a_log_with_categories():
    model = drs.models.Ridge().fit(here(context=["age"], categorical=None))
    with pytest.raises(drs.ModelError, match=r"the context age; the log's is age, country\. It does not know "):
        drs.evaluate(here(context=["age", "country"], categorical=None), drs.policies.Uniform(), model)
    with pytest.raises(drs.ModelError, match=r"knows numbers only\. Open the log with context=\['age'\]"):
        drs.evaluate(here(context=["country", "age"], categorical=None), drs.policies.Uniform(), model)


def test_text_where_numbers_were():
    model = drs.models.Ridge().fit(here(context=["age", "zip"], categorical=None))
    data = table(50)
    place = data.column_names.index("zip")
    text = data.set_column(place, "zip", pa.array([None, *(f"D-{z}" for z in data["zip"].to_pylist()[1:])]))
    log = drs.Log(text, context=["age", "zip"], on_bad_row="skip")
    first = text["zip"][1].as_py()
    with pytest.raises(drs.ModelError, match=rf"fitted on numbers in the column 'zip', .* e.g. '{first}' at row 1"):
        drs.evaluate(log, drs.policies.Uniform(), model)
    model = drs.models.Ridge().fit(here(context=["age", "zip"]))
    with pytest.raises(drs.ModelError, match="fitted on integers in the column 'zip', and the log's has type string"):
        drs.evaluate(log, drs.policies.Uniform(), model)


def test_categories_and_lists():
    lists = pa.table({**{n: table(50)[n] for n in ("action", "reward", "propensity")}, "x": [[0.0] * 4] * 50})
    model = drs.models.Ridge().fit(here(context=["age", "country"], categorical=None))
    with pytest.raises(drs.ModelError, match="columns with categories: age, country; the log's context is a list"):
        drs.evaluate(drs.Log(lists), drs.policies.Uniform(), model)
    model = drs.models.Ridge().fit(lists)
    with pytest.raises(drs.ModelError, match="a list of numbers; the log's context is columns with categories"):
        drs.evaluate(here(context=["age", "country"], categorical=None), drs.policies.Uniform(), model)


def test_weights_of_numbers_and_a_log_with_categories():
    log = here(context=["age", "country"], categorical=None)
    with pytest.raises(drs.PolicyError, match=r"4 features of 2 columns: age, country \(3 categories: DE, FR, US\)"):
        drs.evaluate(log, drs.policies.Softmax([[1.0], [2.0]]))
    with pytest.raises(drs.PolicyError, match=r"log\.feature_names has the names"):
        drs.evaluate(log, drs.policies.Linear([[1.0], [2.0]]))


def test_a_file_whose_encoding_is_damaged(tmp_path):
    drs.models.Ridge().fit(here()).save(tmp_path / "model.npz")
    with np.load(tmp_path / "model.npz") as file:
        parts = dict(file)
    parts["about"] = np.frombuffer(parts["about"].tobytes().replace(b'"FR",', b""), np.uint8)
    np.savez(tmp_path / "bad.npz", **parts)
    with pytest.raises(drs.ModelError, match=r"9 features of the encoding for 10 of the fit.*damaged"):
        drs.models.load(tmp_path / "bad.npz")


def test_nulls_that_a_model_has_not_seen():
    """A model that was fitted without nulls follows the log that it meets: an error, or other."""
    model = drs.models.Ridge().fit(here(context=["age", "country"], categorical=None))
    data = table(100)
    place = data.column_names.index("country")
    data = data.set_column(place, "country", pa.array([None, *data["country"].to_pylist()[1:]]))
    with pytest.raises(drs.LogError, match="context is null at row 0, column 'country'"):
        drs.evaluate(drs.Log(data, context=["country", "age"]), drs.policies.Uniform(), model)
    skipping = drs.Log(data, context=["country", "age"], on_bad_row="skip")
    assert drs.evaluate(skipping, drs.policies.Uniform(), model).skipped == {"context is null": 1}
    with pytest.warns(drs.DrstreamWarning, match="1 events have a category in 'country'"):
        drs.evaluate(drs.Log(data, context=["country", "age"], missing=0), drs.policies.Uniform(), model)


# The same in every form


def policies(log):
    """Policies of all kinds, for the features of a log."""
    weights = np.random.default_rng(5).standard_normal((2, log.n_features))

    def function(X):
        X = X.toarray() if hasattr(X, "toarray") else X
        up = 1 / (1 + np.exp(-X @ weights[0]))
        return np.column_stack([up, 1 - up])

    return {"softmax": drs.policies.Softmax(weights), "linear": drs.policies.Linear(weights), "function": function}


@pytest.mark.parametrize("context", [CONTEXT, HASHED], ids=["dense", "sparse"])
def test_same_bits_for_all_threads_and_batch_sizes(tmp_path, context):
    path = tmp_path / "log.parquet"
    pa.parquet.write_table(table(3000), path, row_group_size=900)

    def run(threads, size):
        log = cut_log(path, context=context, batch_size=size)
        model = drs.models.Logistic().fit(log, threads=threads)
        replayed = drs.replay(log, drs.policies.EpsilonGreedy(), 20, drs.models.Ridge(), crossfit=2, threads=threads)
        found = drs.evaluate(log, policies(log), drs.models.Ridge(), crossfit=2, threads=threads)
        rows = found.to_arrow().to_pylist()
        return str(rows), replayed.value, model.coef_.tolist(), model.intercept_.tolist()

    first = run(1, None)
    assert run(2, 700) == first


def test_dense_and_sparse_forms_give_the_same_results(monkeypatch):
    dense = here(2000)
    assert not dense.is_sparse
    ours = {name: fit(dense) for name, fit in FITS.items() if name != "scikit-learn"}
    one = drs.evaluate(dense, policies(dense), drs.models.Ridge(), crossfit=2).to_arrow().to_pylist()
    run = drs.replay(dense, drs.policies.EpsilonGreedy(), 20, drs.models.Constant(0.5))
    monkeypatch.setattr(encoding, "DENSE", 0)
    sparse = here(2000)
    assert sparse.is_sparse
    for name, model in ours.items():
        np.testing.assert_allclose(FITS[name](sparse).coef_, model.coef_, rtol=1e-3, atol=2e-5)
    two = drs.evaluate(sparse, policies(sparse), drs.models.Ridge(), crossfit=2).to_arrow().to_pylist()
    for a, b in zip(one, two, strict=True):
        assert (a["policy"], a["estimator"]) == (b["policy"], b["estimator"])
        assert a["value"] == pytest.approx(b["value"], rel=1e-4)
    assert drs.replay(sparse, drs.policies.EpsilonGreedy(), 20, drs.models.Constant(0.5)).value == pytest.approx(
        run.value, rel=1e-6
    )


def test_dense_model_on_a_sparse_log_and_back():
    """The form is chosen by the size of the model's own encoding."""
    many = table(500)
    place = many.column_names.index("country")
    many = many.set_column(place, "country", pa.array([f"c{i % 300}" for i in range(500)]))
    few, context = table(500), ["age", "country"]
    for ours, theirs in ((few, many), (many, few)):
        model = drs.models.Ridge().fit(drs.Log(ours, context=context))
        log = drs.Log(theirs, context=context)
        assert log.is_sparse == (theirs is many)
        with pytest.warns(drs.DrstreamWarning, match="500 events have a category"):
            found = drs.evaluate(log, drs.policies.Uniform(), model, estimators="dm")["dm"].value
        X = np.zeros((500, model.n_features_))
        X[:, 0] = theirs["age"]
        assert found == pytest.approx(model.predict(X).mean(), rel=1e-6)


def test_audit_plan_and_convert_with_categories(tmp_path):
    log = here(3000)
    assert log.audit().level in ("ok", "look")
    drs.plan(log, drs.policies.Uniform(), estimators=["ips"])
    drs.convert(log, tmp_path / "copy.parquet")
    copy = drs.Log(tmp_path / "copy.parquet", context=CONTEXT, categorical=["zip"])
    assert copy.encoding == log.encoding
    with pytest.raises(drs.LogError, match="'country' holds categories, and lists hold numbers"):
        drs.convert(log, tmp_path / "packed.parquet", pack="x")
