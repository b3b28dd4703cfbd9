"""Pictures with matplotlib: the same rows as those of the report."""

from __future__ import annotations

import math
from typing import Any

from drstream.errors import DrstreamError, shown
from drstream.report.pictures import Bars, Lines, Picture, Spans

# Colours that people with any colour vision tell apart (Okabe and Ito 2008), with line styles that do so alone
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#5b6570", "#E69F00")
STYLES = ("-", "--", ":", "-.", (0, (1, 2)), (0, (7, 2)))
TONES = {"better": COLOURS[0], "worse": COLOURS[1], "stop": COLOURS[5], "look": COLOURS[5], "inner": COLOURS[4]}
GREY, LONGEST = "#5b6570", 40


def draw(picture: Picture, ax: Any) -> Any:
    """Draw a picture on axes of matplotlib, by default on new ones, and return the axes."""
    try:
        from matplotlib import pyplot
        from matplotlib.axes import Axes
    except ImportError:
        raise DrstreamError("plot() draws with matplotlib: pip install 'drstream[plot]', or write a report") from None
    if ax is None:
        height = 1.2 + 0.28 * len(picture.drawn) if isinstance(picture, Spans | Bars) else 4.2
        _, ax = pyplot.subplots(figsize=(7.5, min(max(height, 2.4), 14)), layout="constrained")
    elif not isinstance(ax, Axes):
        raise DrstreamError(f"plot(ax={ax!r}): it must be axes of matplotlib, as plt.subplots() returns")
    if isinstance(picture, Spans):
        _spans(picture, ax)
    elif isinstance(picture, Lines):
        _lines(picture, ax)
    else:
        assert isinstance(picture, Bars)
        _bars(picture, ax)
    ax.set_title(_plain(picture.title), loc="left", fontsize="medium")
    return ax


def _plain(text: str) -> str:
    """Return text that matplotlib shows as it is: without formulas, control characters and great length."""
    short = text if len(text) <= 2 * LONGEST else f"{text[: 2 * LONGEST - 1]}…"
    return shown(short).replace("$", r"\$")


def _label(row: dict[str, Any]) -> str:
    parts = [str(part) for part in (row.get("group"), row["label"]) if part]
    return _plain(", ".join(part if len(part) <= LONGEST else f"{part[: LONGEST - 1]}…" for part in parts))


def _spans(picture: Spans, ax: Any) -> None:
    for place, row in enumerate(picture.drawn):
        tone = TONES.get(row.get("tone") or "", COLOURS[0] if row.get("main") else GREY)
        if math.isfinite(row["low"]) and math.isfinite(row["high"]):
            ends = [row["low"], row["high"]]
            ax.plot(ends, [place, place], color=tone, linewidth=2.5 if row.get("main") else 1.5, marker="|")
        if math.isfinite(row["value"]):
            ax.plot([row["value"]], [place], color=tone, marker="o", markersize=7 if row.get("main") else 5)
    if math.isfinite(picture.reference):
        ax.axvline(picture.reference, color=GREY, linestyle="--", linewidth=1, label=_plain(picture.reference_label))
        ax.legend(loc="best", frameon=False, fontsize="small")
    ax.set_xlim(*picture.limits())
    ax.set_xlabel(_plain(picture.axis))
    _rows(picture, ax)


def _bars(picture: Bars, ax: Any) -> None:
    rows = picture.drawn
    values = [row["value"] if math.isfinite(row["value"]) else 0.0 for row in rows]
    colours = [TONES.get(row.get("tone") or "", COLOURS[0]) for row in rows]
    bars = ax.barh(range(len(rows)), values, color=colours, height=0.6)
    ax.bar_label(bars, [_plain(str(row["said"])) for row in rows], padding=4, fontsize="small")
    low, high = picture.limits()
    ax.set_xlim(low, high + 0.35 * (high - low))
    _rows(picture, ax)


def _rows(picture: Spans | Bars, ax: Any) -> None:
    ax.set_yticks(range(len(picture.drawn)), [_label(row) for row in picture.drawn])
    ax.set_ylim(len(picture.drawn) - 0.5, -0.5)
    ax.spines[["top", "right"]].set_visible(False)


def _lines(picture: Lines, ax: Any) -> None:
    for i, line in enumerate(picture.lines):
        rows, colour = picture.points(line), COLOURS[i % len(COLOURS)]
        x, y = [row[picture.x] for row in rows], [row[line.y] for row in rows]
        if line.dots:
            ax.plot(x, y, "o", color=colour, markersize=5, label=_plain(line.name))
            continue
        ax.plot(x, y, color=colour, linestyle=STYLES[i % len(STYLES)], label=_plain(line.name))
        if line.low:
            low, high = [row[line.low] for row in rows], [row[line.high] for row in rows]
            ax.fill_between(x, low, high, color=colour, alpha=0.17, linewidth=0)
    (left, right), (bottom, top) = picture.limits()
    if picture.diagonal:
        ax.plot([left, right], [left, right], color=GREY, linestyle="--", linewidth=1)
    ax.set_xlim(left, right)
    ax.set_ylim(bottom, top)
    ax.set_xlabel(_plain(picture.x_label))
    ax.set_ylabel(_plain(picture.y_label))
    if len(picture.lines) > 1:
        ax.legend(frameon=False, fontsize="small")
    ax.spines[["top", "right"]].set_visible(False)
