"""The code that a report prints makes the result again; what it cannot say, it names."""

import html
import re
import warnings

import numpy as np
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

import drstream as drs
from drstream import recipe
from drstream.states.identity import Digest

M, P = drs.models, drs.policies
ROWS = 1_200


@pytest.fixture(scope="module", autouse=True)
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("again")
    table = drs.synth.World(n_actions=3, n_features=3).table(ROWS)
    pq.write_table(table, folder / "a.parquet", row_group_size=500)
    csv.write_csv(table, folder / "a.csv")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield folder


def read(path="a.parquet", **options):
    return drs.Log(path, **options)


CASES = {
    "evaluate": lambda: drs.evaluate(
        read(), {"u": P.Uniform(), "my policy": P.Constant(1)}, M.Ridge(alpha=2.0), crossfit=3, confidence=0.9
    ),
    "paths": lambda: drs.evaluate("a.parquet", P.Uniform()),
    "list": lambda: drs.evaluate(drs.Log(["a.parquet"], context="x?", exclude=["x1"]), P.Uniform()),
    "split": lambda: drs.evaluate(read().split(0.7, seed=5)[1].split(0.5, cluster="action")[0], P.Uniform()),
    "before": lambda: drs.evaluate(read().rows_before(1_000), P.Uniform()),
    "csv": lambda: drs.evaluate(
        drs.read_csv("a.csv", filter="x0 > -1", on_bad_row="skip", types={"x1": "float32"}),
        P.Softmax(np.ones((3, 3)), temperature=2.0),
        propensity=M.Propensity(C=0.5),
        crossfit=5,
        interval=["normal", "bootstrap"],
        reward_range=(0, 1),
    ),
    "options": lambda: drs.evaluate(
        read(propensity=1 / 3, actions=3, missing="error"), P.Epsilon(P.Constant(1), 0.1), explain=drs.Explain()
    ),
    "replay": lambda: drs.replay(read(), {"eps": P.EpsilonGreedy(epsilon=0.2), "ucb": P.LinUCB()}, 50, seed=3),
    "plan": lambda: drs.plan(read(), P.Uniform(), sample=0.5),
    "audit": lambda: read().audit(time="x0"),
}


def printed(result):
    """The code in a report."""
    result.report("report.html")
    with open("report.html", encoding="utf-8") as file:
        (code,) = re.findall(r"To make it again</h3><pre[^>]*><code>(.*?)</code>", file.read(), re.DOTALL)
    return html.unescape(code)


def said(result):
    """All that a result says, but for its code."""
    found = result.to_dict()
    found["provenance"] = {name: value for name, value in found["provenance"].items() if name != "call"}
    return repr(found)


@pytest.mark.parametrize("name", CASES)
def test_the_printed_code_runs_and_makes_the_same_result(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = CASES[name]()
        code = printed(result)
        assert "cannot say" not in code
        found = {}
        exec(code, found)
    assert said(found["result"]) == said(result)


def test_what_code_cannot_say_is_named():
    log = read()
    train, test = log.split(0.5)
    model = M.Ridge().fit(train)
    policies = {"new policy": P.Greedy(model), "f": lambda X: np.full((len(X), 3), 1 / 3)}
    result = drs.evaluate(drs.Log(test.to_arrow()), policies, model)
    code = printed(result)
    for name in ("my_rows", "my_policies_new_policy", "my_policies_f", "my_model"):
        assert f"cannot say what {name} is: " in code
    assert "my_rows is: table" in code
    given = {"my_rows": test.to_arrow(), "my_model": model}
    exec(code, given := {**given, "my_policies_new_policy": policies["new policy"], "my_policies_f": policies["f"]})
    assert given["result"]["f", "dr"].value == result["f", "dr"].value


def test_states(tmp_path):
    drs.evaluate(read(), P.Uniform(), state=tmp_path / "one.state")
    result = drs.merge(tmp_path / "one.state")
    found = {}
    exec(printed(result), found)
    assert said(found["result"]) == said(result)


@pytest.mark.parametrize(
    "value",
    [
        P.Uniform(3),
        P.Constant(2),
        P.Linear([[1.0, 2.0], [0.5, 0]], [1.0, 2]),
        P.Softmax([[1.0, 2.0], [0.5, 0]], temperature=3.0),
        P.Epsilon(P.Softmax([[1.0], [2.0]]), 0.25),
        P.Column("target"),
        P.Column(["p0", "p1"]),
        P.EpsilonGreedy(epsilon=0.3),
        P.Boltzmann(),
        P.LinUCB(alpha=2.0),
        P.UCB1(),
        P.SquareCB(),
        P.Exp3(),
        M.Ridge(alpha=3.0, fit_intercept=False),
        M.Logistic(C=2.0),
        M.Constant([0.1, 0.2]),
        M.Column("rhat"),
        M.Propensity(C=2.0, floor=0.01),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_expression_makes_an_equal_value(value):
    text = recipe.expression(value)
    assert text is not None
    assert Digest.of(eval(text, {"drs": drs})) == Digest.of(value)


def test_no_secret_is_printed():
    assert recipe.expression("s3://KEY:SECRET@bucket/log.parquet") is None


def test_large_arrays_are_not_printed():
    assert recipe.expression(P.Linear(np.ones((3, 100)))) is None
