"""What a user types first: help, examples, mistakes; and how much a command says, and how wide."""

import json
import os
import re
import shlex
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

from drstream.cli.app import COMMANDS
from drstream.cli.examples import EXAMPLES
from tests.helpers.command import PROGRAM, drstream, fails, on_a_terminal, program_in
from tests.helpers.logs import world

N = 3_000
NAMES = [command.__name__ for command in COMMANDS]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with what the examples name."""
    folder = tmp_path_factory.mktemp("examples")
    w = world()
    table = w.table(N, seed=1).append_column("id", pa.array(np.arange(N)))
    table = table.append_column("day", pa.array(np.arange(N) // 1000))
    pq.write_table(table, folder / "clicks.parquet", row_group_size=1000)
    csv.write_csv(table, folder / "clicks.csv")
    np.savez(folder / "weights.npz", weights=w.taste, intercept=w.appeal)
    return folder


def test_each_command_has_examples():
    assert set(EXAMPLES) == {"", *NAMES}
    assert all(
        line.startswith(f"drstream {command}".rstrip()) for command, lines in EXAMPLES.items() for _, line in lines
    )


@pytest.mark.parametrize(
    "line", [line for name, lines in EXAMPLES.items() if name for _, line in lines], ids=lambda line: line[9:70]
)
def test_examples_run(line, folder):
    """In the order of the list: what one leaves, the next finds."""
    if "|" in line:
        command = ["bash", "-o", "pipefail", "-c", line]
        with program_in(folder / "bin") as path:
            env = {**os.environ, "PATH": path}
            done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=env, check=False)
    else:
        done = drstream(*shlex.split(line)[1:], cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize("name", ["", *NAMES])
def test_help_of_every_command(name):
    """At 60 columns: no line is longer but those of examples, no word is cut, and examples and exit codes are there."""
    words = [name] if name else []
    done, short = (drstream(*words, flag, COLUMNS="60") for flag in ("--help", "-h"))
    assert (done.returncode, done.stdout) == (0, short.stdout)
    text, _, rest = done.stdout.partition("Examples:\n")
    assert max(map(len, text.splitlines())) <= 60
    assert "…" not in text
    assert "\x1b" not in text
    for _, line in EXAMPLES[name]:
        assert f"  {line}\n" in rest
    for code in ("0", "1", "2", "3", "130", "143"):
        assert re.search(rf"^  {code} +\w", rest, re.MULTILINE)


def test_help_without_a_command():
    done = drstream()
    assert (done.returncode, done.stdout) == (2, drstream("-h").stdout)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("evaluate", "x", "--polcy", "a"), "No such option: --polcy, did you mean --policy?"),
        (("describe", "x", "--polcy", "a"), "No such option: --polcy. 'drstream describe -h' shows what there is"),
        (("describe", "x", "--policy", "a"), "It is an option of drstream plan, drstream evaluate, drstream replay."),
        (("evaluat",), "No such command 'evaluat'. Did you mean 'evaluate'?"),
        (("evaluate", "x"), "Missing option '--policy'"),
        (("evaluate", "x", "--policy", "uniform", "--fit", "2"), "Invalid value for '--fit'"),
        (("demo", "--rows", "many"), "Invalid value for '--rows'"),
        (("demo", "rows"), "unexpected extra argument"),
    ],
)
def test_mistakes_are_one_line(words, message, folder):
    done = fails(message, *words, cwd=folder)
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) == 1


def test_quiet_prints_the_result_only(folder, tmp_path):
    words = "evaluate", "clicks.parquet", "--policy", "uniform", "--model", "ridge"
    loud, quiet = drstream(*words, cwd=folder), drstream(*words, "--quiet", cwd=folder)
    assert (quiet.stdout, quiet.stderr) == (loud.stdout, "")
    assert "events/s" in loud.stderr
    done = drstream("fit", "clicks.parquet", "--model", "ridge", "-o", tmp_path / "m.npz", "-q", cwd=folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "m.npz").exists()
    fails("no such file", "evaluate", "nope.parquet", "--policy", "uniform", "-q", cwd=folder)


def test_verbose_tells_roles_versions_and_where_errors_arise(folder):
    words = "evaluate", "clicks.parquet", "--policy", "uniform", "--json", "-v"
    done = drstream(*words, cwd=folder)
    assert json.loads(done.stdout)["events"] == N
    for text in ("Python 3.", "pyarrow ", "propensity  propensity", "all of it: "):
        assert text in done.stderr
    failed = drstream(*words, "--estimator", "ipps", cwd=folder)
    assert failed.returncode == 2
    assert "Traceback" in failed.stderr
    assert failed.stderr.splitlines()[-1].startswith("error: there is no estimator 'ipps'")


def test_output_on_standard_output(folder, tmp_path):
    words = "evaluate", "clicks.parquet", "--policy", "uniform", "--model", "ridge"
    done = drstream(*words, "--output", "-", cwd=folder)
    assert drstream(*words, "--output", tmp_path / "out.csv", cwd=folder).returncode == 0
    assert done.stdout == (tmp_path / "out.csv").read_text()
    assert "models were fitted on 50 %" in done.stderr
    for other in (
        ["plan", "clicks.parquet", "--policy", "uniform", "--sample", "1"],
        ["replay", "clicks.parquet", "--policy", "ucb1", "--horizon", "20", "--q", "0.1"],
    ):
        shown = drstream(*other, "--output", "-", "-q", cwd=folder)
        assert '"policy",' in shown.stdout.splitlines()[0], shown.stderr
    fails("both print to standard output", *words, "--output", "-", "--json", cwd=folder)
    fails("name a file", "fit", "clicks.parquet", "--model", "ridge", "-o", "-", cwd=folder)


@pytest.mark.parametrize("columns", [30, 60, 80, 200])
def test_no_number_is_cut_where_it_is_narrow(columns, folder):
    """All numbers of the widest table are in narrower ones, below each other, and no line is too long."""
    words = "evaluate", "clicks.parquet", "--policy", "a_rather_long_name=uniform", "--policy", "constant:2"
    wide, narrow = (drstream(*words, cwd=folder, COLUMNS=width).stdout for width in (200, columns))
    assert max(map(len, narrow.splitlines())) <= columns
    numbers = re.findall(r"\d+[.,]\d+", wide)
    assert len(numbers) > 20
    assert set(numbers) <= set(re.findall(r"\d+[.,]\d+", narrow))
    assert "…" not in narrow


def test_wide_in_a_pipe_and_plain_where_no_colour_is_wanted(folder):
    words = "evaluate", "clicks.parquet", "--policy", "uniform"
    assert len(drstream(*words, cwd=folder).stdout.splitlines()[1]) > 80
    _, shown = on_a_terminal(*words, "--polcy", cwd=folder, columns=60, check=False)
    assert b"\x1b" not in shown


def test_bold_on_a_terminal_unless_no_colour_is_wanted(folder):
    code = "from drstream.cli.help import _bold; print(repr(_bold('x')))"
    for settings, styled in (({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)):
        kept = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            env={**kept, "TERM": "xterm", **settings},
            check=True,
        )
        assert ("x1b" in done.stdout) == styled


def test_completion(folder):
    """As bash asks for it: names of commands and of options."""
    for words, place, found in (
        ("drstream ev", 1, "evaluate"),
        ("drstream evaluate --propensity-m", 2, "--propensity-model"),
    ):
        env = {**os.environ, "_DRSTREAM_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(place)}
        done = subprocess.run(PROGRAM, capture_output=True, text=True, env=env, check=False)
        assert found in done.stdout.split(), done.stderr
    env = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    shown = subprocess.run(
        [*PROGRAM, "--show-completion", "bash"], capture_output=True, text=True, env=env, check=False
    )
    assert "_DRSTREAM_COMPLETE=complete_bash" in shown.stdout
