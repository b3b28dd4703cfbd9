"""--eligible on every command."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import drstream as drs
from tests.helpers.command import drstream, fails
from tests.helpers.logs import world

WORDS = ["a", "b", "c", "d"]
SETS = ["--eligible", "items"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("eligible")
    table = world(eligible=0.6).table(3000, seed=1)
    named = {
        "action": pa.array([WORDS[a] for a in table["action"].to_pylist()]),
        "items": pa.array([[WORDS[a] for a in row] for row in table["items"].to_pylist()]),
    }
    for name, column in named.items():
        table = table.set_column(table.schema.get_field_index(name), name, column)
    pq.write_table(table, folder / "log.parquet", row_group_size=700)
    return folder


def result_of(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def value(found):
    return found["estimates"][0]["value"]


def test_policies_act_on_the_sets(folder):
    log = drs.Log(folder / "log.parquet", eligible="items")
    P = drs.policies
    for spec, policy in (
        ("uniform", P.Uniform()),
        ("constant:b,otherwise=uniform", P.Constant("b", otherwise=P.Uniform())),
        ("new=constant:b,otherwise=constant:a,otherwise=uniform", None),
    ):
        found = result_of(drstream("evaluate", "log.parquet", "--policy", spec, *SETS, "--json", cwd=folder))
        policy = policy or P.Constant("b", otherwise=P.Constant("a", otherwise=P.Uniform()))
        assert value(found) == drs.evaluate(log, policy).rows()[0]["value"]
    message = "otherwise=uniform"
    fails(message, "evaluate", "log.parquet", "--policy", "constant:b", *SETS, cwd=folder)


def test_other_commands(folder, tmp_path):
    described = result_of(drstream("describe", "log.parquet", *SETS, "--json", cwd=folder))
    assert described["eligible"] == "items"
    audited = json.loads(drstream("audit", "log.parquet", *SETS, "--json", cwd=folder).stdout)
    assert "eligible" in audited["actions"][0]
    planned = result_of(drstream("plan", "log.parquet", "--policy", "uniform", *SETS, "--json", cwd=folder))
    assert planned["events"] == 3000
    fitted = drstream("fit", "log.parquet", "--model", "propensity", *SETS, "-o", tmp_path / "p.npz", cwd=folder)
    assert fitted.returncode == 0, fitted.stderr
    words = ["evaluate", "log.parquet", "--policy", "uniform", *SETS, "--json"]
    uniform = result_of(drstream(*words, "--propensity", "uniform", cwd=folder))
    log = drs.Log(folder / "log.parquet", propensity="uniform", eligible="items")
    assert value(uniform) == drs.evaluate(log, drs.policies.Uniform()).rows()[0]["value"]
    estimated = result_of(
        drstream(*words, "--propensity", "none", "--propensity-model", "logistic", "--crossfit", "2", cwd=folder)
    )
    assert value(estimated) == pytest.approx(value(result_of(drstream(*words, cwd=folder))), rel=0.2)


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_convert_keeps_the_column(folder, tmp_path, suffix):
    out = tmp_path / f"out.{suffix}"
    done = drstream("convert", "log.parquet", out, "--columns", "x0", *SETS, cwd=folder)
    assert done.returncode == 0, done.stderr
    one, two = drs.Log(folder / "log.parquet", eligible="items"), drs.Log(out, eligible="items")
    assert two.to_arrow(["items"]).equals(one.to_arrow(["items"]))
    uniform = drs.policies.Uniform()
    assert drs.evaluate(one, uniform)["ips"].value == pytest.approx(drs.evaluate(two, uniform)["ips"].value)


def test_mistakes(folder):
    fails("no column 'itemz' for the eligible sets", "audit", "log.parquet", "--eligible", "itemz", cwd=folder)
    fails("eligible column 'x0' has type float", "audit", "log.parquet", "--eligible", "x0", cwd=folder)


def test_policies_that_learn(folder, tmp_path):
    log = drs.Log(folder / "log.parquet", eligible="items")
    words = ["replay", "log.parquet", "--policy", "epsilon-greedy:epsilon=0.2", "--horizon", "20", *SETS, "--json"]
    found = result_of(drstream(*words, "--q", "0.1", cwd=folder))
    run = drs.replay(log, drs.policies.EpsilonGreedy(0.2), 20, q=0.1)
    assert [one["value"] for one in found["runs"]] == [run.value]
    planned = result_of(
        drstream("plan", "log.parquet", "--policy", "ucb1", "--horizon", "20", *SETS, "--json", cwd=folder)
    )
    assert planned["replay"][0]["acceptance"] > 0
    for learner, file in (("dlm", "dlm.npz"), ("epsilon-greedy", "pv.npz")):
        done = drstream("optimize", "log.parquet", "--learner", learner, *SETS, "-o", tmp_path / file, cwd=folder)
        assert done.returncode == 0, done.stderr
        words = ["evaluate", "log.parquet", "--policy", tmp_path / file, *SETS, "--json"]
        assert 0 < value(result_of(drstream(*words, cwd=folder))) < 1
