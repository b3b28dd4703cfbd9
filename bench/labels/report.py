"""Writes the page's section about labels."""

from __future__ import annotations

from bench.common.markdown import Info, millions, spread, table, verdict

LABELS = (
    "A log without `actions=` finds the distinct values of its action column before the first pass. Row groups whose "
    "statistics show nothing new are not read: with ids 0 to 99, all but the first. The other side decodes the same "
    "column, one row group per thread."
)


def sections(kinds: dict[str, list[Info]], full: bool) -> list[str]:
    if not kinds["labels"]:
        return []
    rows = (
        (
            info["ids"],
            f"{millions(info['rows'])} rows",
            millions(info["events_per_second"]),
            millions(info["baseline_events_per_second"]),
            spread(info["ratio"], info["ratios"]),
            "" if info["required"] is None else f"{info['required']:.2f}",
            verdict(info, full),
        )
        for info in kinds["labels"]
    )
    head = ("actions", "log", "rows/s", "scan, rows/s", "ratio", "required", "met")
    return ["## Labels", LABELS, table(head, rows)]
