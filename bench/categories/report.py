"""Writes the page's section about categories."""

from __future__ import annotations

from bench.common.markdown import Info, millions, spread, table, verdict

CATEGORIES = (
    "Six string columns become one-hot features, dense up to 256 features and sparse beyond. drstream decodes them as "
    "dictionaries and writes the features of each block. The scans decode the same columns, and the reward, as text or "
    "as dictionaries. Each side has 2 threads, and the two sides run in turns. The ratio is drstream's throughput over "
    "the scan's."
)


def sections(kinds: dict[str, list[Info]], full: bool) -> list[str]:
    found = kinds["categories"]
    if not found:
        return []
    rows = (
        (
            info["task"],
            f"{info['log']}, {millions(info['rows'])} rows",
            f"{info['features']:,}",
            millions(info["events_per_second"]),
            info["baseline"],
            millions(info["baseline_events_per_second"]),
            spread(info["ratio"], info["ratios"]),
            "" if info["required"] is None else f"{info['required']:.2f}",
            verdict(info, full),
        )
        for info in found
    )
    head = ("what", "log", "features", "events/s", "against", "events/s", "ratio", "required", "met")
    return ["## Categories", CATEGORIES, table(head, rows)]
