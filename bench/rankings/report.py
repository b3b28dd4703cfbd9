"""Writes the page's section about rankings."""

from __future__ import annotations

from bench.common.markdown import Info, against, millions, spread, table
from bench.rankings import cases

RANKINGS = (
    f"{', '.join(cases.ESTIMATORS)} of a policy that is a column of lists, 2 threads. drstream also checks that no "
    "list has an item twice. The two sides run in turns. The ratio is drstream's throughput over that of a scan that "
    "decodes the same columns and does nothing with them, the median over pairs."
)


def sections(kinds: dict[str, list[Info]], full: bool) -> list[str]:
    if not kinds["rankings"]:
        return []
    rows = (
        (
            f"{info['log']}, {millions(info['rows'])} lists",
            millions(info["events_per_second"]),
            millions(info["items_per_second"]),
            against(info),
            millions(info["baseline_events_per_second"]),
            spread(info["ratio"], info["ratios"]),
        )
        for info in kinds["rankings"]
    )
    return ["## Rankings", RANKINGS, table(("log", "lists/s", "items/s", "against", "lists/s", "ratio"), rows)]
