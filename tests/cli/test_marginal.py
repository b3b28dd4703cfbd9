"""--embedding, as typed; and files with candidates that drstream convert wrote."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import drstream as drs
from tests.helpers.candidate_logs import NAMES, events, items_of, table_of
from tests.helpers.command import drstream, fails
from tests.helpers.systems import dsjson_lines, write
from tests.helpers.systems import events as dsjson_events

KINDS = {"ad": "paid", "news": "free", "shop": "paid", "video": "free"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli-marginal")
    rng = np.random.default_rng(0)
    mu = rng.dirichlet(np.ones(4), 400) * 0.6 + 0.1
    a = np.array([rng.choice(4, p=p) for p in mu])
    names = np.array(list(KINDS))[a]
    columns = {"action": names, "reward": rng.random(400), "propensity": mu[np.arange(400), a], "mu": list(mu)}
    columns["kind"] = [KINDS[name] for name in names]
    pq.write_table(pa.table(columns), folder / "log.parquet")
    table = pa.table({"name": list(KINDS), "kind": list(KINDS.values())})
    pyarrow.csv.write_csv(table, folder / "kinds.csv")
    pq.write_table(table, folder / "kinds.parquet")

    found = events(rows=200)
    of_all = [rng.dirichlet(np.ones(len(s))).tolist() for s in found["sets"]]
    found["propensity"] = np.array([p[a] for p, a in zip(of_all, found["position"], strict=True)])
    ids, _ = table_of(found, "items")
    pq.write_table(ids.append_column("mu", pa.array(of_all)), folder / "ids.parquet")
    kinds = pa.array([f"k{k % 3}" for k in range(len(found["ids"]))])
    pq.write_table(items_of(found).append_column("kind", kinds), folder / "items.parquet")
    write(folder / "log.dsjson", dsjson_lines(dsjson_events(200)))
    return folder


def values(*words, cwd):
    done = drstream("evaluate", *words, "--policy", "uniform", "--json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    return {row["estimator"]: row["value"] for row in json.loads(done.stdout)["estimates"]}


def test_categories_by_column_and_by_file(folder):
    options = "log.parquet", "--propensities", "mu"
    log = drs.Log(folder / "log.parquet", propensities="mu")
    wanted = drs.evaluate(log, drs.policies.Uniform(), embedding=KINDS)
    for embedding in ("kind", "kinds.csv:name,kind", "kinds.parquet:name, kind"):
        found = values(*options, "--embedding", embedding, cwd=folder)
        assert found == {name: wanted[name].value for name in ("ips", "snips", "mips", "snmips")}
    words = "--embedding", "kind", "--estimator", "mips", "--policy", "uniform", "--sample", "1"
    planned = drstream("plan", *options, *words, cwd=folder)
    assert planned.returncode == 0, planned.stderr
    assert "mips" in planned.stdout


def test_categories_of_candidates(folder):
    options = "--candidates", f"items,{','.join(NAMES)}", "--items", "items.parquet:item", "--propensities", "mu"
    found = values("ids.parquet", *options, "--embedding", "kind", "--estimator", "mips", cwd=folder)
    items = drs.Items(folder / "items.parquet", features=NAMES)
    log = drs.Log(folder / "ids.parquet", candidates=drs.Candidates("items", items), propensities="mu")
    wanted = drs.evaluate(log, drs.policies.Uniform(), estimators="mips", embedding="kind")["mips"].value
    assert found == {"mips": wanted}
    words = "evaluate", "ids.parquet", "--policy", "uniform", *options, "--embedding", "items.parquet:item,kind"
    fails("must be a column in a log of candidates", *words, cwd=folder)


def test_a_converted_file_with_candidates(folder):
    for words in (
        ["convert", "log.dsjson", "log.arrow", "--bits", "8"],
        ["fit", "log.arrow", "--model", "ridge", "--share", "0.5", "--output", "model.npz"],
        ["describe", "log.arrow"],
        ["audit", "log.arrow"],
        ["evaluate", "log.arrow", "--policy", "greedy:model.npz", "--model", "model.npz"],
    ):
        done = drstream(*words, cwd=folder)
        assert done.returncode in (0, 3), done.stderr
        assert "Traceback" not in done.stderr
    found = values("log.arrow", "--estimator", "ips", cwd=folder)
    typed = "--candidates", "items,item_features:256", "--action-is", "position", "--estimator", "ips"
    wanted = drs.evaluate(drs.Log(folder / "log.arrow"), drs.policies.Uniform(), estimators="ips")["ips"].value
    assert found == {"ips": wanted} == values("log.arrow", *typed, cwd=folder)


@pytest.mark.parametrize(
    ("embedding", "message"),
    [
        ("nope", "the log has no column 'nope' for the embedding"),
        ("kinds.csv:name,nope", "kinds.csv has no column 'nope': there are: name, kind"),
        ("none.csv:name,kind", "cannot read none.csv"),
    ],
)
def test_mistakes(folder, embedding, message):
    words = "evaluate", "log.parquet", "--propensities", "mu", "--policy", "uniform", "--embedding", embedding
    fails(message, *words, cwd=folder)


def test_what_is_missing_is_named_as_an_option(folder):
    words = "evaluate", "log.parquet", "--policy", "uniform", "--estimator", "mips"
    fails("needs the categories of actions: pass --embedding with the column that has them", *words, cwd=folder)
    fails("name their column of lists with --propensities", *words, "--embedding", "kind", cwd=folder)
