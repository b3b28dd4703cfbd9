"""Makes the tables of conversions."""

from __future__ import annotations

import math

from scripts.studies.conversions.measure import ACTIONS, FEATURES, GROUP_ROWS, Measured, Source
from scripts.studies.results import Found

HEAD = ["to", "MB", "convert, s", "evaluate, M rows/s", "pays from", "replay, M rows/s", "pays from"]


def add(measured: Measured, found: Found) -> None:
    csv = measured.csv
    found.figures = {
        "rows": f"{measured.rows:,}",
        "actions, features": f"{ACTIONS}, {FEATURES}",
        "runs that took turns": f"{measured.rounds}",
        "rows of CSV": f"{csv['rows']:,.0f}",
        "MB of CSV": f"{csv['bytes'] / 1e6:.0f}",
        "seconds to convert CSV": f"{csv['convert']:.1f}",
        "M rows of CSV a second": f"{csv['rows'] / csv['convert'] / 1e6:.2f}",
    }
    for source in measured.sources:
        found.table(
            f"From {source.name}, {source.path.stat().st_size / 1e6:.0f} MB", HEAD, _of_source(source, measured.rows)
        )
    _of_groups(measured, found)


def _of_source(source: Source, rows: int) -> list[list[str]]:
    lines = [["(as it is)", "", "", _speed(rows, source.evaluate), "", _speed(rows, source.replay), ""]]
    for name, one in source.conversions.items():
        lines.append(
            [
                name,
                f"{one['bytes'] / 1e6:.0f}",
                f"{one['convert']:.2f}",
                _speed(rows, one["evaluate"]),
                _runs(one["convert"], one["evaluate gain"]),
                _speed(rows, one["replay"]),
                _runs(one["convert"], one["replay gain"]),
            ]
        )
    return lines


def _runs(cost: float, gain: float) -> str:
    """Return after how many runs a conversion has saved as much time as it took."""
    if gain <= 0:
        return "no clear gain"
    runs = math.ceil(cost / gain)
    return "1 run" if runs == 1 else f"{runs} runs"


def _of_groups(measured: Measured, found: Found) -> None:
    heads = ["rows"]
    for kind in ("Parquet", "Arrow IPC"):
        heads += [f"{kind}: MB", "evaluate, M rows/s", "3 columns, M rows/s", "peak memory of convert, MB"]
    lines = []
    for rows in GROUP_ROWS:
        cells = [f"{rows:,}"]
        for kind in ("Parquet", "Arrow IPC"):
            one = measured.groups[kind, rows]
            cells += [f"{one['bytes'] / 1e6:.0f}", _speed(measured.rows, one["evaluate"])]
            cells += [_speed(measured.rows, one["columns"]), f"{one['memory'] / 1e6:.0f}"]
        lines.append(cells)
    found.table("Rows of a row group, or of a record batch, written from the first log", heads, lines)


def _speed(rows: int, seconds: float) -> str:
    return f"{rows / seconds / 1e6:.1f}"
