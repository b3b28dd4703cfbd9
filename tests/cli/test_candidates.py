"""--candidates, --items and --action-is, as typed."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

import drstream as drs
from tests.helpers.candidate_logs import DZ, NAMES, D, events, items_of, log_of, table_of
from tests.helpers.command import drstream, fails

LISTS, ITEMS = (
    ("--candidates", "items,z"),
    ("--candidates", f"items,{','.join(NAMES)}", "--items", "items.parquet:item"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli-candidates")
    found = events(rows=400)
    pq.write_table(table_of(found)[0], folder / "log.parquet")
    pq.write_table(table_of(found, "items")[0], folder / "ids.parquet")
    pq.write_table(table_of(found, position=True)[0], folder / "positions.parquet")
    pq.write_table(items_of(found), folder / "items.parquet")
    rng = np.random.default_rng(0)
    np.savez(folder / "soft.npz", weights=rng.normal(size=D + DZ), interactions=rng.normal(size=(D, DZ)))
    return folder


def done(*words, cwd):
    found = drstream(*words, cwd=cwd)
    assert found.returncode == 0, found.stderr
    return found


def estimates(*words, cwd):
    found = json.loads(done("evaluate", *words, "--json", cwd=cwd).stdout)["estimates"]
    return {(row["policy"], row["estimator"]): row["value"] for row in found}


def test_describe_and_audit(folder):
    shown = done("describe", "log.parquet", *LISTS, cwd=folder).stdout
    assert "candidates  items, with 3 features each: z[0], z[1], z[2]" in shown
    assert "a row has   1 to 5 candidates" in shown
    shown = drstream("audit", "ids.parquet", *ITEMS, cwd=folder).stdout
    assert "inverse_over_candidates" in shown


def test_evaluate_is_that_of_python(folder):
    policies = "--policy", "uniform", "--policy", "soft=softmax:soft.npz"
    model = "--model", "ridge:2:interactions", "--crossfit", "3"
    got = estimates("log.parquet", *LISTS, *policies, *model, cwd=folder)
    file = np.load(folder / "soft.npz")
    soft = drs.policies.Softmax(file["weights"], interactions=file["interactions"])
    log = log_of(events(rows=400))
    wanted = drs.evaluate(
        log, {"uniform": drs.policies.Uniform(), "soft": soft}, drs.models.Ridge(2, interactions=True), crossfit=3
    )
    assert got == {(row["policy"], row["estimator"]): row["value"] for row in wanted.rows()}
    assert estimates("ids.parquet", *ITEMS, *policies, *model, cwd=folder) == got
    all_numbers = "--candidates", "items", "--items", "items.parquet"
    assert estimates("ids.parquet", *all_numbers, *policies, *model, cwd=folder) == got
    by_position = "--candidates", "items,z", "--action-is", "position"
    assert estimates("positions.parquet", *by_position, *policies, *model, cwd=folder) == got
    no_ids = "--candidates", "none,z"
    assert estimates("positions.parquet", *no_ids, *policies, *model, cwd=folder) == got


def test_constants_are_ids_or_positions(folder):
    got = estimates("positions.parquet", "--candidates", "none,z", "--policy", "first=constant:0", cwd=folder)
    first = drs.Log(folder / "positions.parquet", candidates=drs.Candidates(features="z"))
    assert got["first", "ips"] == drs.evaluate(first, drs.policies.Constant(0))["ips"].value
    words = "evaluate", "log.parquet", *LISTS, "--policy", "constant:item-1"
    fails("takes 'item-1', which is not among the candidates at row", *words, cwd=folder)


def test_fit_and_greedy(folder):
    done("fit", "log.parquet", *LISTS, "--model", "logistic:interactions", "--share", "0.5", "-o", "m.npz", cwd=folder)
    got = estimates("log.parquet", *LISTS, "--policy", "new=greedy:m.npz,epsilon=0.1", "--model", "m.npz", cwd=folder)
    assert set(got) == {("new", name) for name in ("dm", "ips", "snips", "dr")}


def test_replay_and_plan_are_those_of_python(folder):
    learner = "--policy", "new=epsilon-greedy:epsilon=0.2,interactions=true", "--horizon", "10"
    model = "--model", "ridge", "--crossfit", "3"
    found = done("replay", "log.parquet", *LISTS, *learner, *model, "--bias", "0.1", "--json", cwd=folder).stdout
    (run,) = json.loads(found)["runs"]
    policy = drs.policies.EpsilonGreedy(0.2, interactions=True)
    log = log_of(events(rows=400))
    wanted = drs.replay(log, policy, 10, drs.models.Ridge(), crossfit=3, bias=0.1)
    assert (run["policy"], run["value"], run["replicates"]) == ("new", wanted.value, wanted.complete)
    shown = done("plan", "ids.parquet", *ITEMS, *learner, "--bias", "0.1", cwd=folder).stdout
    assert "new" in shown
    for word in ("ucb1", "exp3"):
        known = "--policy", word, "--horizon", "10"
        fails("all events share, and this log has --candidates", "replay", "log.parquet", *LISTS, *known, cwd=folder)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--candidates", "items,"), "write IDS or IDS,FEATURE,..."),
        (("--items", "items.parquet"), "--items items.parquet is about candidates"),
        (("--action-is", "id"), "--action-is id is about candidates"),
        (("--candidates", "item,z"), "did you mean 'items'?"),
        (("--candidates", "items,z", "--actions", "3"), "--actions are labels for all events, and --candidates"),
        (("--candidates", "items,z", "--items", "none.parquet"), "no such file"),
    ],
)
def test_mistakes_are_named(folder, words, message):
    fails(message, "evaluate", "log.parquet", "--policy", "uniform", *words, cwd=folder)


def test_convert_takes_candidates(folder, tmp_path):
    for log, words in (("log.parquet", LISTS), ("ids.parquet", ITEMS)):
        found = done("convert", log, tmp_path / log, *words, cwd=folder)
        assert "400 rows" in found.stdout


def test_names_with_commas(folder):
    words = "evaluate", "log.parquet", *LISTS, "--policy", "uniform", "--context", "x0,x1"
    fails("no column 'x0,x1' for the context: give the option once for each column", *words, cwd=folder)
