"""Draws the page's plots as SVG. The same figures give the same file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from bench.common.markdown import Info
from scripts.studies.paper.plots import COLOURS, pyplot, save

FOLDER = "benchmarks"  # beside the page
COLUMNS = 4  # panels side by side
MARKERS = "os^Dvx"

Course = Mapping[str, Sequence[float | None]]  # for each main row, its figure at each commit; None: not measured


def scaling(path: Path, axes: Mapping[str, Sequence[Info]]) -> None:
    """One panel for each axis: a line where the axis has numbers, otherwise bars."""
    plt = pyplot()
    height = -(-len(axes) // COLUMNS)
    figure, panels = plt.subplots(height, COLUMNS, figsize=(3.2 * COLUMNS, 2.8 * height), squeeze=False)
    for panel in panels.flat[len(axes) :]:
        panel.remove()
    for panel, (axis, found) in zip(panels.flat, axes.items(), strict=False):
        sides = {"drstream": "events_per_second", "bare scan": "scan_events_per_second"}
        numbers = all(info["x"] is not None for info in found)
        for i, (side, key) in enumerate(sides.items()):
            points = [(info["x"] if numbers else n, info[key] / 1e6) for n, info in enumerate(found) if info[key]]
            x, y = zip(*points, strict=True) if points else ((), ())
            if numbers:
                panel.plot(x, y, label=side, color=COLOURS[i], marker="o", ms=3, lw=1)
            else:
                panel.bar([at + 0.4 * (i - 0.5) for at in x], y, 0.4, label=side, color=COLOURS[i])
        if numbers:
            panel.set(xscale="log", yscale="log", xticks=[info["x"] for info in found])
            panel.xaxis.set_minor_locator(plt.NullLocator())
            plain_numbers(panel.yaxis)
        else:
            panel.set_xticks(range(len(found)))
        panel.set_xticklabels([info["label"] for info in found], rotation=30, ha="right")
        panel.set_title(axis)
    panels[0, 0].set_ylabel("million events/s")
    panels[0, 0].legend(fontsize=7)
    figure.tight_layout()
    save(figure, path)


def course(path: Path, commits: Sequence[str], panels: Mapping[str, Course]) -> None:
    """Ratios over their requirements, commit by commit, one panel for each topic. Above the line, they are met."""
    plt = pyplot()
    figure, axes = plt.subplots(len(panels), 1, figsize=(9, 3 * len(panels)), squeeze=False)
    for axis, (title, rows) in zip(axes[:, 0], panels.items(), strict=True):
        axis.axhline(1, color="black", lw=0.8)
        for (name, ratios), colour, marker in zip(rows.items(), cycle(COLOURS), cycle(MARKERS), strict=False):
            points = [(at, ratio) for at, ratio in enumerate(ratios) if ratio is not None]
            x, y = zip(*points, strict=True) if points else ((), ())
            axis.plot(x, y, label=name, color=colour, marker=marker, ms=3, lw=1)
        axis.set(title=title, ylabel="ratio / required", yscale="log", xlim=(-0.5, len(commits) - 0.5))
        plain_numbers(axis.yaxis)
        axis.set_xticks(range(len(commits)), commits, rotation=30, ha="right")
        axis.legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.tight_layout()
    save(figure, path)


def plain_numbers(axis: Any) -> None:
    """0.6 instead of 6 x 10⁻¹."""
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter("{x:g}")
