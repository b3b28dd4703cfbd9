"""drstream audit, as typed: exit codes 0, 2 and 3, text and JSON."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.helpers.command import drstream, fails
from tests.helpers.logs import world


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audit")
    table = world().table(3000, seed=1)
    table = table.append_column("id", pa.array(np.arange(3000))).append_column("day", pa.array(["monday"] * 3000))
    table = table.append_column("shown_at", pa.array(np.arange(3000)).cast(pa.timestamp("s")))
    pq.write_table(table, folder / "log.parquet")
    wrong = table.set_column(2, "propensity", pa.array(np.full(3000, 0.25)))
    pq.write_table(wrong, folder / "wrong.parquet")
    return folder


def test_a_log_that_is_right(folder):
    done = drstream("audit", "log.parquet", "--event-id", "id", "--time", "shown_at", cwd=folder)
    assert done.returncode == 0, done.stderr
    shown = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert shown[0] == "log.parquet: ok; 3,000 rows, 4 actions"
    assert "ok bad_values No row has a bad value." in shown
    assert "action count share mean inverse stderr z" in shown
    assert any(line.startswith("1970-01-01 00:00:00.000 ") for line in shown)


def test_a_log_that_is_wrong(folder):
    done = drstream("audit", "wrong.parquet", cwd=folder)
    assert done.returncode == 3, done.stderr
    assert "wrong.parquet: stop; 3,000 rows" in done.stdout
    assert "stop    guessed_action" in done.stdout
    done = drstream("audit", "wrong.parquet", "--json", cwd=folder)
    assert done.returncode == 3
    found = json.loads(done.stdout)
    assert found["level"] == "stop"
    assert {"level": "stop", "check": "guessed_action"}.items() <= found["findings"][3].items()
    assert [row["action"] for row in found["actions"]] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["log.parquet", "--time", "shown"], "the log has no column 'shown' for the time: did you mean 'shown_at'?"),
        (["log.parquet", "--time", "day"], "--time day: the column has type string"),
        (["log.parquet", "./log.parquet"], "is given twice, as 'log.parquet' and as './log.parquet'"),
        (["lgo.parquet"], "no such file"),
    ],
)
def test_mistakes(folder, words, message):
    fails(message, "audit", *words, cwd=folder)


def test_roles_and_help(folder):
    done = drstream("audit", "log.parquet", "--propensity", "none", "--actions", "5", "--context", "x0", cwd=folder)
    assert done.returncode == 0
    assert "1 of 5 actions was never logged: 4." in done.stdout
    done = drstream("audit", "--help")
    assert all(word in done.stdout for word in ("--event-id", "--time", "--expected-rows", "--json"))


def test_what_is_expected(folder):
    done = drstream("audit", "log.parquet", "--expected-rows", "3000", "--expected-reward", "9.5", cwd=folder)
    assert done.returncode == 3, done.stderr
    assert "ok      expected_rows" in done.stdout
    assert "stop    expected_reward" in done.stdout
