"""progress=True: a bar on a terminal (tests/cli), one in a notebook, lines in a log file, nothing for short runs."""

import builtins
import importlib.machinery
import re
import sys
import time
import types

import pytest

import drstream as drs
from drstream.running import progress
from tests.helpers.logs import world


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = tmp_path_factory.mktemp("progress") / "log.parquet"
    world().write(path, 3000, seed=1, row_group_rows=500)
    return path


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def passes(steps, total=1000, between=0.0):
    """Walk a clock through passes, each a list of (seconds, rows done)."""
    clock = Clock()
    lines = progress.ProgressLines(clock)
    for one in steps:
        with lines.of_a_pass(total) as report:
            for seconds, done in one:
                clock.now += seconds
                report(done, "text" if total is None else "")
        clock.now += between


def test_a_line_every_ten_seconds_and_one_at_the_end(capsys):
    passes([[(4, 100), (4, 200), (4, 300), (4, 400), (4, 500), (4, 600), (1, 1000)]], total=1000)
    found = capsys.readouterr().err.splitlines()
    assert found == [
        "300 of 1,000 events (30 %): 25 events/s, 0:00:28 left",
        "600 of 1,000 events (60 %): 25 events/s, 0:00:16 left",
        "1,000 events in 25 s: 40 events/s",
    ]


def test_no_line_for_a_short_run(capsys):
    passes([[(4, 500), (4, 1000)]])
    assert capsys.readouterr().err == ""


def test_many_short_passes_are_a_long_run(capsys):
    """The passes of a fit follow each other at once. Runs that a user starts one by one do not."""
    passes([[(4, 1000)]] * 6)
    assert len(capsys.readouterr().err.splitlines()) == 4  # two passes had a line, and their ends
    passes([[(4, 1000)]] * 6, between=5.0)
    assert capsys.readouterr().err == ""


def test_without_a_total_and_with_a_text(capsys):
    passes([[(20, 2_000_000)]], total=None)
    assert capsys.readouterr().err.splitlines()[0] == "2,000,000 events: 0.1 M events/s; text"


def test_no_last_line_after_an_error(capsys):
    clock = Clock()

    def fail():
        with progress.ProgressLines(clock).of_a_pass(10) as report:
            clock.now += 20
            report(5)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_lines_of_an_evaluation(log, capsys, monkeypatch):
    monkeypatch.setattr(progress.lines, "every", 0.0)
    drs.evaluate(log, drs.policies.Uniform(), progress=True)
    found = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"[\d,]+ of 3,000 events \(\d+ %\): [\d.,]+ (M )?events/s, 0:00:\d\d left", found[0])
    assert re.fullmatch(r"3,000 events in \d+ s: [\d.,]+ (M )?events/s", found[-1])
    monkeypatch.setattr(progress, "shown", False)  # as --quiet does
    drs.evaluate(log, drs.policies.Uniform(), progress=True)
    assert capsys.readouterr().err == ""


def test_a_bar_in_a_notebook(log, capsys, monkeypatch):
    """With rich's own support: a widget is shown once, and its text changes."""
    shown, widgets = [], []

    class Output:
        def __init__(self):
            widgets.append(self)
            self.cleared = 0

        def __enter__(self):
            return self

        def __exit__(self, *error):
            return None

        def clear_output(self, wait):
            self.cleared += 1

        def close(self):
            self.closed = True

    def module(name, **names):
        made = types.ModuleType(name)
        made.__spec__ = importlib.machinery.ModuleSpec(name, None)
        vars(made).update(names)
        monkeypatch.setitem(sys.modules, name, made)
        return made

    display = module("IPython.display", display=lambda *things, **named: shown.extend(things))
    module("IPython", display=display)
    module("ipywidgets", Output=Output)
    shell = type("ZMQInteractiveShell", (), {})()
    monkeypatch.setattr(builtins, "get_ipython", lambda: shell, raising=False)
    with progress.reporter(True, 4000) as report:
        report(3000)
        time.sleep(0.3)  # it is drawn ten times a second
    assert len(widgets) == 1
    assert widgets[0].closed
    texts = [thing._repr_mimebundle_([], [])["text/plain"] for thing in shown if hasattr(thing, "_repr_mimebundle_")]
    assert any("3,000 events" in text for text in texts)
    assert capsys.readouterr().err == ""
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    monkeypatch.setattr(progress.lines, "every", 0.0)
    monkeypatch.setattr(progress.importlib.util, "find_spec", lambda name: None)
    drs.evaluate(log, drs.policies.Uniform(), progress=True)  # without ipywidgets: lines
    assert "3,000 events in " in capsys.readouterr().err
