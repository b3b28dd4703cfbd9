"""--report of evaluate, replay, audit and merge."""

import pyarrow.parquet as pq
import pytest

from tests.helpers.command import drstream, fails
from tests.helpers.reports import table


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("logs")
    pq.write_table(table(1_000), found / "clicks.parquet")
    return found


COMMANDS = {
    "evaluate": ("clicks.parquet", "--policy", "uniform", "--explain", "--state", "day.state"),
    "merge": ("day.state",),
    "replay": ("clicks.parquet", "--policy", "uniform", "--horizon", "20", "--bias", "0.1"),
    "audit": ("clicks.parquet",),
    "plan": ("clicks.parquet", "--policy", "uniform"),
    "demo": ("--rows", "2000"),
}


def test_each_command_writes_a_report_with_itself_in_it(folder):
    for command, words in COMMANDS.items():
        done = drstream(command, *words, "--report", "out.html", cwd=folder)
        assert done.returncode == 0, done.stderr
        assert "report: out.html" in done.stderr
        page = (folder / "out.html").read_text()
        assert f"drstream {command} {' '.join(words)} --report out.html</code>" in page
        assert page.endswith("</html>\n")


def test_reports_that_cannot_be_written_stop_before_the_pass(folder):
    words = "audit", "clicks.parquet", "--report"
    fails("there is no folder 'no'", *words, "no/out.html", cwd=folder)
    fails("the name must end in .html", *words, "out.pdf", cwd=folder)
    fails("is a file of the log itself", *words, "clicks.parquet", cwd=folder)
    (folder / "folder.html").mkdir()
    fails("cannot be written", *words, "folder.html", cwd=folder)
    fails("give two files", "merge", "x.html", "--report", "x.html", cwd=folder)
