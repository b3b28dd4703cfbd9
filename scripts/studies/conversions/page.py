"""The measured tables of docs/convert.md."""

from __future__ import annotations

import math
import os
from datetime import UTC, datetime
from pathlib import Path

from drstream.storage import atomic_path
from scripts.studies.conversions.measure import ACTIONS, FEATURES, GROUP_ROWS, Measured, Source
from scripts.studies.paper.page import wrapped
from scripts.studies.paper.rows import table

BEGIN, END = "<!-- measured: scripts/conversions -->\n", "<!-- end -->\n"


def write(tables: str, path: Path) -> None:
    """Replace what stands between the two marks of the page."""
    before, _, rest = path.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    with atomic_path(path) as unfinished:
        unfinished.write_text(f"{before}{BEGIN}\n{tables}\n{END}{after}")


def tables(found: Measured) -> str:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    about = (
        f"Measured by `scripts/conversions` on {datetime.now(UTC):%Y-%m-%d}: {found.rows:,} rows, {ACTIONS} actions, "
        f"{FEATURES} float32 features and 3 more columns, {cores} cores, files in the page cache. Times are medians of "
        f"{found.rounds} runs that took turns ({max(3, found.rounds // 3)} for conversions). There is no "
        "clear gain where a quarter of the rounds, or more, saved no time."
    )
    shown = [wrapped(about)]
    for source in found.sources:
        size = source.path.stat().st_size if source.path.exists() else 0
        shown += [f"**From {source.name}**{f', {size / 1e6:.0f} MB' if size else ''}:", _of_source(source, found.rows)]
    shown += ["**Rows of a row group, or of a record batch**, written from the first log:", _of_groups(found)]
    csv = found.csv
    shown.append(
        wrapped(
            f"CSV is slow to parse: the first {csv['rows']:,.0f} rows of the same log, {csv['bytes'] / 1e6:.0f} MB of "
            f"CSV, took {csv['convert']:.1f} s, {csv['rows'] / csv['convert'] / 1e6:.2f} M rows a second."
        )
    )
    return "\n\n".join(part.strip() for part in shown) + "\n"


def _of_source(source: Source, rows: int) -> str:
    heads = ["to", "MB", "convert, s", "evaluate, M rows/s", "pays from", "replay, M rows/s", "pays from"]
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
    return table(heads, lines)


def _runs(cost: float, gain: float) -> str:
    """Return after how many runs a conversion has saved as much time as it took."""
    if gain <= 0:
        return "no clear gain"
    runs = math.ceil(cost / gain)
    return "1 run" if runs == 1 else f"{runs} runs"


def _of_groups(found: Measured) -> str:
    heads = ["rows"]
    for kind in ("Parquet", "Arrow IPC"):
        heads += [f"{kind}: MB", "evaluate, M rows/s", "3 columns, M rows/s", "peak memory of convert, MB"]
    lines = []
    for rows in GROUP_ROWS:
        cells = [f"{rows:,}"]
        for kind in ("Parquet", "Arrow IPC"):
            one = found.groups[kind, rows]
            cells += [f"{one['bytes'] / 1e6:.0f}", _speed(found.rows, one["evaluate"])]
            cells += [_speed(found.rows, one["columns"]), f"{one['memory'] / 1e6:.0f}"]
        lines.append(cells)
    return table(heads, lines)


def _speed(rows: int, seconds: float) -> str:
    return f"{rows / seconds / 1e6:.1f}"
