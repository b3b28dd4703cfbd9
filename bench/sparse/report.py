"""Writes the page's section about sparse contexts."""

from __future__ import annotations

from bench.common.markdown import Info, against, millions, spread, table
from bench.sparse import log

SPARSE = (
    f"K = {log.ACTIONS} topics, d = {log.DIM:,} features, a ridge model, 2 threads. The log holds each of "
    f"{log.DOCUMENTS:,} documents {log.COPIES} times, with other actions each time. The two sides run in turns. The "
    "ratio is drstream's throughput over the baseline's in events/s, the median over pairs. SciPy's side reads the "
    "file within the measured time. The loop in Python has its events in memory and gets only the log's first ones."
)


def sections(kinds: dict[str, list[Info]], full: bool) -> list[str]:
    found = kinds["sparse"]
    if not found:
        return []
    rows = (
        (
            info["task"],
            f"{info['log']}, {millions(info['rows'])} rows, {millions(info['nonzeros'])} nonzeros",
            millions(info["events_per_second"]),
            millions(info["nonzeros_per_second"]),
            against(info),
            millions(info["baseline_events_per_second"]),
            spread(info["ratio"], info["ratios"]),
        )
        for info in found
    )
    return [
        "## Sparse contexts",
        SPARSE,
        table(("what", "log", "events/s", "nonzeros/s", "against", "events/s", "ratio"), rows),
    ]
