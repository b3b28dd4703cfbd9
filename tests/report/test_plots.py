"""Plots with matplotlib: the same pictures as in the report, drawn on axes."""

import builtins

import numpy as np
import pytest

import drstream as drs
from drstream.report.kinds import _of
from tests.helpers import reports

matplotlib = pytest.importorskip("matplotlib", reason="plots need matplotlib")
matplotlib.use("agg")
from matplotlib import pyplot  # noqa: E402


@pytest.fixture(autouse=True)
def _no_figure_is_left():
    yield
    pyplot.close("all")


def drawn(ax):
    ax.figure.canvas.draw()
    return ax


@pytest.mark.parametrize("kind", reports.ALL)
def test_every_picture_is_drawn_or_says_what_is_lacking(kind):
    result = reports.ALL[kind]()
    lacking, ax = {}, pyplot.subplots()[1]  # a new figure for each would take most of the time
    names = [None, *_of(result).PICTURES]
    for name in names:
        ax.clear()
        try:
            assert result.plot(name, ax=ax) is ax
        except drs.DrstreamError as error:
            lacking[name] = str(error)
        else:
            assert ax.get_title(loc="left")
    assert len(lacking) <= len(names) - 2
    assert all(message.startswith(f"plot({name!r}): ") for name, message in lacking.items())
    assert None not in lacking
    drawn(ax)


def test_the_plot_shows_the_rows_of_the_report():
    result = reports.evaluation()
    picture = _of(result).PICTURES["estimates"](result)[0]
    ax = result.plot("estimates")
    dots = {round(float(line.get_xdata()[0]), 12) for line in ax.lines if line.get_marker() == "o"}
    assert dots == {round(row["value"], 12) for row in picture.rows}
    assert [text.get_text() for text in ax.get_yticklabels()][1] == "new, ips"
    curve = reports.replay().plot()
    line = curve.lines[0]
    table = reports.replay().curve
    assert np.isin(line.get_xdata(), table["t"].to_numpy()).all()
    assert line.get_ydata()[-1] == pytest.approx(table["average"].to_numpy()[-1])


def test_axes_of_the_user():
    _, (left, right) = pyplot.subplots(1, 2)
    assert reports.evaluation().plot("weights", ax=right) is right
    assert reports.audit().plot(ax=left) is left
    with pytest.raises(drs.DrstreamError, match="must be axes of matplotlib"):
        reports.audit().plot(ax="left")


def test_names_that_are_not_known():
    with pytest.raises(drs.DrstreamError, match="did you mean 'segments'"):
        reports.evaluation().plot("segment")
    with pytest.raises(drs.DrstreamError, match=r"plot\('segments'\).*by="):
        reports.merged().plot("segments")
    with pytest.raises(drs.DrstreamError, match="explain=True"):
        reports.candidates().plot("histogram")


def test_hostile_names_are_drawn_as_they_are():
    for result in reports.hostile().values():
        drawn(result.plot())
    labels = [text.get_text() for text in reports.hostile()["evaluation"].plot("differences").get_yticklabels()]
    assert any("<script>" in label for label in labels)
    assert not any("\x1b" in label for label in labels)
    drawn(drs.evaluate(drs.Log(reports.table(200), context="x?"), {"$x_$ \\alpha": drs.policies.Uniform()}).plot())


def test_without_matplotlib(monkeypatch):
    real = builtins.__import__

    def without(name, *more, **options):
        if name.split(".")[0] == "matplotlib":
            raise ImportError(name)
        return real(name, *more, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(drs.DrstreamError, match=r"pip install 'drstream\[plot\]'"):
        reports.audit().plot()
