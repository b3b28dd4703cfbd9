"""Draws figures as SVG. The same rows give the same file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from drstream.storage import atomic_path

COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#888888")  # safe for colour-blind readers


def pyplot() -> Any:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "drstream", "font.size": 9, "axes.spines.right": False})
    matplotlib.rcParams.update({"axes.spines.top": False, "legend.frameon": False})
    import matplotlib.pyplot as plt

    return plt


def save(figure: Any, path: Path) -> None:
    with atomic_path(path) as unfinished:
        figure.savefig(unfinished, format="svg", bbox_inches="tight", metadata={"Date": None, "Creator": None})
    pyplot().close(figure)


Bars = Mapping[str, Sequence[tuple[float, float]]]  # for each series, the height and its error in each group


def grouped_bars(path: Path, groups: Sequence[str], panels: Mapping[str, Bars], *, log: bool = False) -> None:
    """Draws panels side by side. Each has a group of bars for every data set."""
    plt = pyplot()
    figure, axes = plt.subplots(1, len(panels), figsize=(5 * len(panels), 3), squeeze=False)
    for axis, (title, series) in zip(axes[0], panels.items(), strict=True):
        width = 0.8 / len(series)
        for i, (name, bars) in enumerate(series.items()):
            places = [g + (i - (len(series) - 1) / 2) * width for g in range(len(groups))]
            heights, errors = zip(*bars, strict=True)
            axis.bar(places, heights, width, yerr=errors, label=name, color=COLOURS[i], error_kw={"lw": 0.8})
        axis.set_title(title)
        axis.set_xticks(range(len(groups)), groups, rotation=45, ha="right")
        if log:
            axis.set_yscale("log")
        axis.legend(fontsize=7)
    save(figure, path)


def curves(path: Path, panels: Mapping[str, Mapping[str, Sequence[tuple[float, float, float]]]], xlabel: str) -> None:
    """Draws lines of (x, y, error of y). Both axes are logarithmic."""
    plt = pyplot()
    figure, axes = plt.subplots(1, len(panels), figsize=(5 * len(panels), 3), squeeze=False)
    for axis, (title, series) in zip(axes[0], panels.items(), strict=True):
        for i, (name, points) in enumerate(series.items()):
            x, y, error = zip(*points, strict=True)
            axis.errorbar(x, y, error, label=name, color=COLOURS[i], marker="o", ms=3, lw=1, capsize=2)
        axis.set(title=title, xlabel=xlabel, xscale="log", yscale="log")
        axis.legend(fontsize=7)
    save(figure, path)
