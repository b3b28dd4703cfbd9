"""`drstream plan`, as typed."""

import json

import pyarrow.parquet as pq
import pytest

import drstream as drs
from tests.helpers.command import drstream, fails
from tests.helpers.logs import world


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plan")
    world().write(folder / "log.parquet", 20_000, seed=1, row_group_rows=1500)
    return folder


def test_tables_json_and_files(folder):
    words = ["plan", "log.parquet", "--policy", "uniform", "--policy", "ucb1", "--horizon", "50", "--sample", "0.2"]
    done = drstream(*words, "--output", "out.parquet", cwd=folder)
    assert done.returncode == 0, done.stderr
    for text in ("evaluate: 95 % intervals", "replay: replicates of 50 steps", "snips", "bias 0.01", "rows for half"):
        assert text in done.stdout
    policies = {"uniform": drs.policies.Uniform(), "ucb1": drs.policies.UCB1()}
    wanted = drs.plan(folder / "log.parquet", policies, horizon=50, sample=0.2)
    assert len(pq.read_table(folder / "out.parquet")) == len(wanted.to_arrow())
    got, wanted = json.loads(drstream(*words, "--json", cwd=folder).stdout), json.loads(wanted.to_json())
    assert got["provenance"].pop("log") == "log.parquet"
    assert wanted["provenance"].pop("log").endswith("log.parquet")
    assert "drs.Log('log.parquet')" in got["provenance"].pop("call")
    assert "log.parquet" in wanted["provenance"].pop("call")
    assert got == wanted


def test_errors(folder):
    words = ["plan", "log.parquet", "--policy", "uniform"]
    fails("--sample 2.0: the share of the rows must be in (0, 1]", *words, "--sample", "2", cwd=folder)
    fails("--horizon 0 must be a whole number of at least 1", *words, "--horizon", "0", cwd=folder)
    fails("no such file", "plan", "missing.parquet", "--policy", "uniform", cwd=folder)
