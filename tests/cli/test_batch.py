"""docs/batch-jobs/daily: the states of days, any window of them, and exit code 3 where a number should not be used."""

import json
import os
import subprocess

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import drstream as drs
from tests.helpers import schemas
from tests.helpers.command import program_in
from tests.helpers.logs import world
from tests.helpers.places import ROOT

pytestmark = pytest.mark.slow  # a script of a page, in processes
SCRIPT = ROOT / "docs" / "batch-jobs" / "daily"
PAGE = ROOT / "docs" / "batch-jobs.md"
ROWS = 2000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Logs of three days, and one whose propensities are those of no logging policy."""
    folder = tmp_path_factory.mktemp("job")
    (folder / "logs").mkdir()
    w = world()
    for day in (1, 2, 3):
        pq.write_table(w.table(ROWS, seed=day), folder / "logs" / f"2026-11-0{day}.parquet")
    wrong = w.table(ROWS, seed=4)
    place = wrong.schema.get_field_index("propensity")
    wrong = wrong.set_column(place, "propensity", pa.array(np.full(ROWS, 0.9)))
    pq.write_table(wrong, folder / "logs" / "2026-11-04.parquet")
    np.savez(folder / "weights.npz", weights=w.taste, intercept=w.appeal)
    (folder / "drstream.toml").write_text(
        "actions = 4\n[evaluate]\npolicy = ['new=softmax:weights.npz', 'old=uniform']\n[merge]\ncompare = 'new,old'\n"
    )
    return folder


def daily(folder, day, **settings):
    with program_in(folder / "bin") as path:
        env = {**os.environ, "PATH": path, **settings}
        return subprocess.run([SCRIPT, day], cwd=folder, env=env, capture_output=True, text=True, check=False)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_days_and_their_window(folder):
    """Two days, the second with a window of both: what one pass over both logs gives."""
    for day in ("2026-11-01", "2026-11-02"):
        done = daily(folder, day)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    found = json.loads((folder / "results" / "2026-11-02.json").read_text())
    assert schemas.check(found) == "evaluate"
    logs = [folder / "logs" / f"2026-11-0{day}.parquet" for day in (1, 2)]
    w = world()
    policies = {"new": drs.policies.Softmax(w.taste, w.appeal), "old": drs.policies.Uniform()}
    ref = drs.evaluate(drs.Log(logs, actions=4), policies)
    assert found["events"] == ref.n == 2 * ROWS
    assert [row["value"] for row in found["estimates"]] == [row["value"] for row in ref.rows()]
    assert found["differences"][0]["low"] == ref.difference("new", "old", "ips").low
    assert names(folder / "states") == ["2026-11-01.state", "2026-11-02.state"]
    assert names(folder / "results") == [
        f"2026-11-0{day}.{kind}" for day in (1, 2) for kind in ("audit.txt", "html", "json", "txt")
    ]


def test_a_log_that_cannot_be_trusted_ends_the_job(folder):
    """Exit code 3. The audit says why, and the day has no state, so it is in no window."""
    done = daily(folder, "2026-11-04")
    assert done.returncode == 3, done.stderr
    assert "stop" in (folder / "results" / "2026-11-04.audit.txt").read_text()
    assert not list(folder.glob("*/2026-11-04.[sjh]*"))


def test_a_number_that_should_not_be_used(folder):
    """The window of one day of a policy that the log hardly ever follows."""
    text = (folder / "drstream.toml").read_text()
    log = drs.synth.World(n_actions=4, n_features=3).table(ROWS, seed=3).slice(0, 60)
    pq.write_table(log, folder / "logs" / "2026-11-03.parquet")
    try:
        (folder / "drstream.toml").write_text(text.replace("old=uniform", "old=constant:2"))
        done = daily(folder, "2026-11-03", DAYS="1")
    finally:
        (folder / "drstream.toml").write_text(text)
    assert done.returncode == 3, done.stderr
    found = json.loads((folder / "results" / "2026-11-03.json").read_text())
    assert found["events"] == 60
    assert "stop" in {finding["level"] for finding in found["findings"]}


def test_a_log_that_is_not_there(folder):
    before = names(folder / "results")
    done = daily(folder, "2026-11-09")
    assert done.returncode == 2
    assert "no such file" in done.stderr
    assert names(folder / "results") == before


def test_the_page_shows_the_script():
    assert f"```bash\n{SCRIPT.read_text()}```" in PAGE.read_text()
    assert os.access(SCRIPT, os.X_OK)
