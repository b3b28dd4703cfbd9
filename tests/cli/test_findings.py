"""Intervals, findings, segments, several rewards and down-sampled logs on the command line."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import drstream as drs
from tests.helpers.command import drstream, fails
from tests.helpers.logs import world

POLICY = ("--policy", "uniform", "--policy", "constant:1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("findings")
    table = world().table(3000, seed=1)
    rng = np.random.default_rng(0)
    spend = table["reward"].to_numpy() * 2
    for name, column in {
        "country": pa.array(rng.choice(["DE", "FR"], 3000)),
        "user": pa.array(rng.integers(0, 200, 3000)),
        "spend": pa.array(spend),
        "rate": pa.array(np.full(3000, 0.5)),
    }.items():
        table = table.append_column(name, column)
    pq.write_table(table, folder / "log.parquet")
    return folder


def run(folder, *words, code=0):
    done = drstream("evaluate", "log.parquet", *POLICY, *words, cwd=folder)
    assert done.returncode == code, done.stderr
    return done


def test_intervals_by_name(folder):
    words = ("--interval", "likelihood, normal", "--reward-range", "0,1", "--json")
    rows = json.loads(run(folder, *words).stdout)["estimates"]
    wanted = drs.evaluate(
        folder / "log.parquet",
        {"uniform": drs.policies.Uniform(), "constant:1": drs.policies.Constant(1)},
        interval=["likelihood", "normal"],
        reward_range=(0, 1),
    )
    for row in rows:
        found = wanted[row["policy"], row["estimator"]]
        assert (row["low"], row["high"]) == pytest.approx(found.intervals["likelihood"])
        assert (row["normal_low"], row["normal_high"]) == pytest.approx(found.intervals["normal"])
        assert row["method"] == "likelihood"


def test_clusters(folder):
    rows = json.loads(run(folder, "--cluster", "user", "--json").stdout)["estimates"]
    assert {row["method"] for row in rows} == {"cluster"}


def test_findings_stand_below_the_table_and_strict_exits_with_3(folder):
    done = run(folder, "--actions", "5")
    assert "of its mass on actions that were never logged" in done.stdout
    assert "stop: uniform puts 20.00% of its mass on actions that were never logged (4)." in done.stdout
    assert run(folder, "--actions", "5", "--strict", code=3).stdout == done.stdout
    run(folder, "--strict")
    found = json.loads(run(folder, "--actions", "5", "--strict", "--json", code=3).stdout)["findings"]
    assert {"stop", "ok"} <= {finding["level"] for finding in found}


def test_segments(folder):
    done = run(folder, "--by", "country")
    assert "q-value" in done.stdout
    assert done.stdout.count("DE") == 2
    found = json.loads(run(folder, "--by", "country", "--json").stdout)["segments"]
    assert len(found) == 2 * 2 * 2
    assert sum(row["n"] for row in found if (row["policy"], row["estimator"]) == ("uniform", "ips")) == 3000


def test_several_rewards(folder):
    done = run(folder, "--reward", "reward,spend")
    assert "mean reward:" in done.stdout
    assert "mean spend:" in done.stdout
    found = json.loads(run(folder, "--reward", "reward,spend", "--json").stdout)
    one, two = found["estimates"][0], found["rewards"]["spend"]["estimates"][0]
    assert two["value"] == pytest.approx(2 * one["value"])


def test_a_down_sampled_log(folder):
    one, two = (json.loads(run(folder, *words, "--json").stdout) for words in ((), ("--sample-rate", "rate")))
    assert two["estimates"][0]["value"] == pytest.approx(one["estimates"][0]["value"])


def test_a_grid_of_limits(folder):
    found = json.loads(run(folder, "--model", "ridge", "--lambda", "auto", "--json").stdout)
    assert {row["estimator"] for row in found["grid"]} == {"dros", "switch-dr", "ips-capped", "dr-capped"}
    run(folder, "--model", "ridge", "--lambda", "5")


def test_dm_has_an_interval_on_request_only(folder):
    done = run(folder, "--model", "ridge")
    assert "given the model" not in done.stdout
    assert "given the model" in run(folder, "--model", "ridge", "--interval", "normal").stdout


def test_a_file_of_estimates_has_the_intervals(folder):
    run(folder, "--interval", "tails,normal", "--output", "out.csv")
    table = pyarrow.csv.read_csv(folder / "out.csv")
    assert {"normal_low", "tails_high", "method", "warning"} <= set(table.column_names)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--interval", "likelyhood"], "--interval likelyhood: no such interval; did you mean 'likelihood'"),
        (["--interval", "bernstein"], "--interval bernstein needs the range of the rewards: pass --reward-range"),
        (["--reward-range", "0,1,2"], "--reward-range"),
        (["--reward-range", "0;1"], "--reward-range '0;1': write numbers, separated by commas"),
        (["--reward-range", "0,0.5"], "outside of --reward-range (0.0, 0.5): give the range"),
        (["--max-weight-bound", "1.5"], "outside of --max-weight-bound 1.5: give"),
        (["--by", "x0"], "--by names column 'x0', which has type float"),
        (["--by", "contry"], "did you mean 'country'"),
        (["--lambda", "automatic"], "--lambda 'automatic': write numbers"),
        (["--cluster", "usr"], "the log has no column 'usr' for the cluster: did you mean 'user'"),
    ],
    ids=lambda x: x if isinstance(x, str) else " ".join(x),
)
def test_bad_options(folder, words, message):
    fails(message, "evaluate", "log.parquet", *POLICY, *words, cwd=folder)
