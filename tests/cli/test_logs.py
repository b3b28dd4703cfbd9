"""Options about the log that all commands share: --filter, --exclude, --propensity and --action; and describe."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import drstream as drs
from tests.helpers.command import drstream, fails
from tests.helpers.logs import world

N = 3_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("logs")
    table = world().table(N, seed=1)
    action = pa.array(np.array([11, 22, 33, 44])[table["action"].to_numpy()])
    table = table.set_column(table.schema.get_field_index("action"), "action", action)
    table = table.append_column("country", pa.array(np.array(["DE", "AT", "CH"])[np.arange(N) % 3]))
    table = table.append_column("user_id", pa.array(np.arange(N)))
    table = table.append_column("pi", pa.array(np.linspace(0, 1, N)))
    pq.write_table(table, folder / "log.parquet", row_group_size=700)
    return folder


CHOSEN = ["--filter", "country in ['DE', 'AT'] and user_id >= 300"]
TEXT = CHOSEN[1]


def chosen(folder, **options):
    return drs.Log(folder / "log.parquet", filter=TEXT, **options)


def result_of(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_filter_on_every_command(folder, tmp_path):
    log = chosen(folder)
    rows = log.to_arrow().num_rows
    assert 0 < rows < N
    found = result_of(drstream("evaluate", "log.parquet", "--policy", "constant:22", *CHOSEN, "--json", cwd=folder))
    assert found["estimates"][0]["value"] == drs.evaluate(log, drs.policies.Constant(22)).rows()[0]["value"]
    assert result_of(drstream("describe", "log.parquet", *CHOSEN, "--json", cwd=folder))["rows"] == rows
    audited = drstream("audit", "log.parquet", *CHOSEN, "--json", cwd=folder)
    assert json.loads(audited.stdout)["rows"] == rows
    planned = drstream("plan", "log.parquet", "--policy", "uniform", *CHOSEN, "--json", cwd=folder)
    assert result_of(planned)["events"] == rows
    for command in (
        ["fit", "log.parquet", "--model", "ridge", "-o", tmp_path / "m.npz"],
        ["optimize", "log.parquet", "--learner", "dlm:epochs=2,restarts=1", "--share", "1", "-o", tmp_path / "p.npz"],
        ["replay", "log.parquet", "--policy", "epsilon-greedy", "--horizon", "20", "--q", "0.1"],
        ["convert", "log.parquet", tmp_path / "some.parquet"],
    ):
        done = drstream(*command, *CHOSEN, cwd=folder)
        assert done.returncode == 0, done.stderr
        assert f"{rows:,} " in done.stdout + done.stderr
    assert drs.models.load(tmp_path / "m.npz").labels_ == [11, 22, 33, 44]
    assert drs.Log(tmp_path / "some.parquet").rows == rows


def test_wrong_filters(folder):
    words = "evaluate", "log.parquet", "--policy", "uniform", "--filter"
    fails(
        "--filter contry == 'DE': the log has no column 'contry': did you mean 'country'?",
        *words,
        "contry == 'DE'",
        cwd=folder,
    )
    fails("A filter is data, not code", *words, "open('x') == 3", cwd=folder)


@pytest.mark.parametrize("propensity", ["0.25", "1/4", "uniform"])
def test_constant_propensities(folder, propensity):
    words = "evaluate", "log.parquet", "--policy", "constant:22", "--estimator", "ips", "--json"
    found = result_of(drstream(*words, "--propensity", propensity, cwd=folder))
    log = drs.Log(folder / "log.parquet", propensity=0.25)
    assert found["estimates"][0]["value"] == drs.evaluate(log, drs.policies.Constant(22))["ips"].value


def test_wrong_constant_propensities(folder):
    words = "describe", "log.parquet", "--propensity"
    assert "it is no number" in drstream(*words, "1/0", cwd=folder).stderr
    done = drstream(*words, "1.5", cwd=folder)
    assert (done.returncode, "must be in (0, 1]" in done.stderr) == (2, True)


def test_a_log_without_actions(folder):
    words = "evaluate", "log.parquet", "--action", "none", "--estimator", "ips", "--json", "--policy"
    found = result_of(drstream(*words, "column:pi", cwd=folder))
    ref = drs.evaluate(drs.Log(folder / "log.parquet"), drs.policies.Column("pi"))["ips"].value
    assert found["estimates"][0]["value"] == ref
    fails("opened with --action none, and this needs the actions", *words, "uniform", cwd=folder)


def test_describe(folder):
    words = "describe", "log.parquet", "--context", "*", "--exclude", "x1", "--exclude", "country"
    table = pq.read_table(folder / "log.parquet")
    found = result_of(drstream(*words, "--json", cwd=folder))
    assert (found["context"], found["left_out"]) == (["x0", "x2", "pi"], ["user_id"])
    assert found["labels"] == [11, 22, 33, 44]
    assert found["counts"] == [table["action"].to_pylist().count(label) for label in found["labels"]]
    assert found["reward_mean"] == pytest.approx(np.mean(table["reward"].to_numpy()))
    assert found["smallest_propensity"] == table["propensity"].to_numpy().min()


def test_describe_prints_it(folder):
    done = drstream("describe", "log.parquet", "--context", "x*", *CHOSEN, cwd=folder)
    assert done.returncode == 0, done.stderr
    for shown in (
        "unused      pi",
        "rewards     mean ",
        "smallest p  ",
        "11 ",
        f"filter      {TEXT}",
        " of 3,000 rows",
    ):
        assert shown in done.stdout
