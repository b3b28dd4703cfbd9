"""The page's section about sparse contexts: from what the benchmarks noted to Markdown."""

from __future__ import annotations

from bench.common.markdown import Info, millions, spread, table
from bench.sparse import log as sparse_log

SPARSE = (
    f"K = {sparse_log.ACTIONS} topics, d = {sparse_log.DIM:,} features, ridge model, 2 threads. Every document of "
    f"{sparse_log.DOCUMENTS:,} stands in the log {sparse_log.COPIES} times, with other actions. Runs alternate; the "
    "ratio is the median over pairs of drstream's throughput to the baseline's. SciPy's side reads the file in the "
    "time that counts; the loop in Python has its events in memory, and gets the log's first ones only, so that the "
    "ratio is one of events/s."
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
            info["baseline"] + (f", {info['baseline_rows']:,} rows" if info["baseline_rows"] < info["rows"] else ""),
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
