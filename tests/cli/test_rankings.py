"""Rankings on the command line."""

import json

import pyarrow.parquet as pq
import pytest

import drstream as drs
from tests.helpers.command import drstream, fails
from tests.helpers.rankings import NEW, ROLES, Simulated

OPENED = ["--action", "items", "--propensity", "p", "--reward", "r"]
POLICY = ["--policy", "new=column:new"]


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = tmp_path_factory.mktemp("rankings") / "lists.parquet"
    pq.write_table(Simulated("cascade").table(500, 1), path)
    return str(path)


def test_evaluate(log):
    done = drstream("evaluate", log, *OPENED, *POLICY, "--positions", "independent")
    assert done.returncode == 0, done.stderr
    assert "500 rankings of 3 items; the logging policy's mean r of a list: " in done.stdout
    for line in ("assumed by rips: users go from top to bottom", "assumed by iips: a reward depends on its own item"):
        assert line in done.stdout
    found = drstream("evaluate", log, *OPENED, *POLICY, "--positions", "independent", "--estimator", "pi,ips", "--json")
    wanted = drs.evaluate(drs.Log(log, **ROLES, positions="independent"), {"new": NEW}, estimators=["pi", "ips"])
    rows = json.loads(found.stdout)["estimates"]
    assert [row["value"] for row in rows] == [wanted["new", name].value for name in ("pi", "ips")]


@pytest.mark.parametrize("model", ["positions:q,q_new", "positions:q,new=q_new", "positions:q, new = q_new"])
def test_predictions(log, model):
    asked = *OPENED, *POLICY, "--positions", "independent", "--model", model, "--estimator", "cascade-dr", "--json"
    found = json.loads(drstream("evaluate", log, *asked).stdout)["estimates"]
    opened = drs.Log(log, **ROLES, positions="independent")
    wanted = drs.evaluate(opened, {"new": NEW}, drs.models.Positions("q", "q_new"), ["cascade-dr"])
    assert [row["value"] for row in found] == [wanted["cascade-dr"].value]


def test_describe(log):
    done = drstream("describe", log, *OPENED, "--positions", "independent")
    assert done.stdout.startswith(f"Log of rankings in {log}: 500 rows")
    assert "  lists       from 3 to 3 items, 3 on average" in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["evaluate", *POLICY], "Where positions are filled independently, that may be: --positions independent."),
        (
            ["evaluate", *POLICY, "--positions", "odd"],
            "--positions odd: it must be one of marginal, conditional, indepe",
        ),
        (
            ["evaluate", *POLICY, "--positions", "independent", "--crossfit", "2"],
            "Leave out --crossfit, which is about",
        ),
        (["evaluate", *POLICY, "--estimator", "cascade-dr"], "pass --model, e.g. positions:q,new=q_new"),
        (
            ["evaluate", *POLICY, "--model", "positions:q"],
            "write positions:COLUMN,COLUMN or positions:COLUMN,POLICY=COL",
        ),
        (["evaluate", *POLICY, "--model", "positions:q,new=p,r"], "write positions:COLUMN,COLUMN or"),
        (
            ["evaluate", "--policy", "uniform", "--positions", "independent"],
            "'uniform' is a Uniform, and this is a log",
        ),
        (
            ["audit"],
            "column 'items' holds lists, so this is a log of rankings. Only drstream evaluate, describe and",
        ),
        (
            ["replay", "--policy", "epsilon-greedy", "--horizon", "9"],
            "this is a log of rankings. Only drstream ev",
        ),
        (
            ["fit", "--model", "ridge", "--output", "model.npz"],
            "this is a log of rankings. Only drstream evaluate",
        ),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)
def test_mistakes(log, words, message, tmp_path):
    fails(message, words[0], log, *OPENED, *words[1:], cwd=tmp_path)
