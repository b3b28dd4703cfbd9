"""The fixed policies."""

import numpy as np
import pyarrow as pa
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

import drstream as drs
from tests.helpers import reference
from tests.helpers.evaluations import evaluate
from tests.helpers.logs import arrays, world


@pytest.fixture(scope="module")
def table():
    return world().table(300, seed=5)


def ips(table, policy, **options):
    return evaluate(drs.Log(table, **options), policy, estimators=["ips"])["ips"].value


def test_probabilities_have_the_users_shape():
    X = np.random.default_rng(0).standard_normal((7, 3))
    weights, intercept = np.random.default_rng(1).standard_normal((4, 3)), np.array([0.1, 0, -0.1, 0.3])
    soft = drs.policies.Softmax(weights, intercept, temperature=0.5)
    np.testing.assert_allclose(soft.probabilities(X), reference.softmax(weights * 2, intercept * 2, X), rtol=1e-13)
    hard = drs.policies.Linear(weights, intercept)
    assert (hard.probabilities(X) == reference.argmax(weights, intercept, X)).all()
    mixed = drs.policies.Epsilon(hard, 0.2).probabilities(X)
    np.testing.assert_allclose(mixed, 0.8 * reference.argmax(weights, intercept, X) + 0.05)


def test_a_policy_keeps_the_callers_arrays():
    weights, intercept = np.ones((2, 2)), np.ones(2)
    drs.policies.Softmax(weights, intercept, temperature=0.5)
    assert (weights == 1).all()
    assert (intercept == 1).all()


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_function_is_what_the_built_in_policy_is(table, order):
    w = world()
    built_in = ips(table, drs.policies.Softmax(w.taste))
    by_function = ips(table, lambda X: np.asarray(reference.softmax(w.taste, 0, X), order=order))
    assert by_function == pytest.approx(built_in, rel=1e-13)

    class Mine:
        def probabilities(self, X):
            return reference.softmax(w.taste, 0, X).astype(np.float32)

    assert ips(table, Mine()) == pytest.approx(built_in, rel=1e-6)


def test_columns_of_the_log(table):
    """A policy of the log's own: probabilities of all actions, of the logged one, or the action taken."""
    w = world()
    X, a, _, _ = arrays(table, 3)
    pi = reference.softmax(w.taste, 0, X)
    choice = pi.argmax(axis=1)
    more = (
        table.append_column("all", pa.array(list(pi)))
        .append_column("fixed", pa.FixedSizeListArray.from_arrays(pa.array(pi.reshape(-1)), 4))
        .append_column("logged", pa.array(pi[np.arange(300), a]))
        .append_column("taken", pa.array(choice))
    )
    soft = ips(table, drs.policies.Softmax(w.taste))
    for name in ("all", "fixed", "logged"):
        assert ips(more, drs.policies.Column(name)) == pytest.approx(soft, rel=1e-13)
        assert ips(more.slice(0), drs.policies.Epsilon(drs.policies.Column(name), 0.25)) == pytest.approx(
            ips(table, drs.policies.Epsilon(drs.policies.Softmax(w.taste), 0.25)), rel=1e-12
        )
    assert ips(more, drs.policies.Column("taken")) == pytest.approx(ips(table, drs.policies.Linear(w.taste)), rel=1e-13)
    assert ips(more.slice(7, 100), drs.policies.Column("fixed")) == pytest.approx(
        ips(more.slice(7, 100), drs.policies.Column("logged")), rel=1e-13
    )


def test_column_of_labels(table):
    names = np.array(["a", "b", "c", "d"])
    text = table.set_column(0, "action", pa.array(names[table["action"].to_numpy()])).append_column(
        "pick", pa.array(["b"] * 300).dictionary_encode()
    )
    assert ips(text, drs.policies.Column("pick")) == ips(text, drs.policies.Constant("b"))
    bad = text.set_column(text.schema.get_field_index("pick"), "pick", pa.array(["b"] * 299 + ["q"]))
    with pytest.raises(drs.PolicyError, match=r"holds 'q' at row 299, which is not among the 4 actions"):
        ips(bad, drs.policies.Column("pick"))
    none = text.set_column(text.schema.get_field_index("pick"), "pick", pa.array(["b"] * 299 + [None]))
    with pytest.raises(drs.PolicyError, match=r"column 'pick' is null at row 299"):
        ips(none, drs.policies.Column("pick"))
    short = table.append_column("pi", pa.array([[0.5, 0.5]] * 300))
    with pytest.raises(drs.PolicyError, match=r"holds 2 probabilities at row 0; there are 4 actions"):
        ips(short, drs.policies.Column("pi"))


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[("a", 1.0)]] * 300, pa.map_(pa.string(), pa.float64())),
        pa.array([{"a": 1.0}] * 300),
        pa.array([b"a"] * 300),
        pa.array([1] * 300).cast(pa.decimal128(21, 2)),
        pa.array([0] * 300, pa.int32()).cast(pa.date32()),
    ],
    ids=lambda column: str(column.type),
)
def test_columns_that_are_no_policy(table, column):
    with pytest.raises(drs.PolicyError, match=r"column 'pick' has type .*: it must hold labels of actions.*from_arrow"):
        ips(table.append_column("pick", column), drs.policies.Column("pick"))


def test_labels_of_another_kind(table):
    for column, shown in ((pa.array(["b"] * 300), "'b'"), (pa.array(["b"] * 300).dictionary_encode(), "'b'")):
        with pytest.raises(
            drs.PolicyError, match=f"holds {shown} at row 0, which is not among the 4 actions 0, 1, 2, 3"
        ):
            ips(table.append_column("pick", column), drs.policies.Column("pick"))
    text = table.set_column(0, "action", pa.array(["a", "b"] * 150)).append_column("pick", pa.array([1] * 300))
    with pytest.raises(drs.PolicyError, match="holds 1 at row 0, which is not among the 2 actions 'a', 'b'"):
        ips(text, drs.policies.Column("pick"))


def test_sklearn_classifiers(table):
    X, a, _, _ = arrays(table, 3)
    keep = a != 2  # a class that the classifier has never seen
    model = LogisticRegression().fit(X[keep], a[keep])
    got = ips(table, drs.policies.from_sklearn(model))
    pi = np.zeros((300, 4))
    pi[:, [0, 1, 3]] = model.predict_proba(X)
    assert got == pytest.approx(ips(table, lambda X: pi), rel=1e-6)  # the log's contexts are float32
    hard = LinearSVC().fit(X[keep], a[keep])
    assert ips(table, drs.policies.from_sklearn(hard)) == pytest.approx(
        ips(table, lambda X: np.eye(4)[hard.predict(X)])
    )
    names = np.array(["w", "x", "y", "z"])
    text = table.set_column(0, "action", pa.array(names[a]))
    named = LogisticRegression().fit(X[keep], names[a[keep]])
    assert ips(text, drs.policies.from_sklearn(named)) == pytest.approx(got, rel=1e-6)
    with pytest.raises(drs.PolicyError, match="fit it before"):
        drs.policies.from_sklearn(LogisticRegression())
    with pytest.raises(drs.PolicyError, match="class 'w' of the classifier is not among the 4 actions"):
        ips(table, drs.policies.from_sklearn(named))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: drs.policies.Linear([[[1, 2]]]), "must be .actions, features"),
        (lambda: drs.policies.Linear([[1.0], [2.0]], [1.0]), "1 intercepts for 2 actions"),
        (lambda: drs.policies.Softmax([[np.nan]]), "must be finite"),
        (lambda: drs.policies.Softmax([[1.0]], temperature=0), "temperature=0"),
        (lambda: drs.policies.Epsilon(drs.policies.Uniform(), 1.5), "epsilon=1.5"),
        (lambda: drs.policies.Uniform().probabilities(np.zeros((1, 1))), "how many actions"),
    ],
)
def test_bad_parameters(make, message):
    with pytest.raises(drs.PolicyError, match=message):
        make()


def test_sklearn_classes_are_labels_not_positions(table):
    X, a, _, _ = arrays(table, 3)
    shifted = table.set_column(0, "action", pa.array(a + 1))
    codes = LogisticRegression().fit(X, a)
    with pytest.raises(drs.PolicyError, match="class 0 of the classifier is not among the 4 actions 1, 2, 3, 4"):
        ips(shifted, drs.policies.from_sklearn(codes), actions=[1, 2, 3, 4])
    labels = LogisticRegression().fit(X, a + 1)
    got = ips(shifted, drs.policies.from_sklearn(labels), actions=[1, 2, 3, 4])
    assert got == pytest.approx(ips(table, drs.policies.from_sklearn(codes)), rel=1e-6)


def test_columns_of_probabilities_hold_numbers(table):
    with pytest.raises(drs.PolicyError, match="lists must hold numbers"):
        ips(table.append_column("pi", pa.array([["1", "0", "0", "0"]] * 300)), drs.policies.Column("pi"))
