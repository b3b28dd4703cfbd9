"""Writes the page's section about eligible sets."""

from __future__ import annotations

from bench.common.markdown import Info, millions, spread, table, verdict

ELIGIBLE = (
    "Each event could choose about half of the K actions, another set each time. A softmax policy and a ridge model "
    "are evaluated over the sets, in turns with the same file read without them. To decode 25 items an event takes "
    "Parquet longer than 20 columns of contexts; an Arrow file, as `drstream convert` writes it, needs no decoding."
)


def sections(kinds: dict[str, list[Info]], full: bool) -> list[str]:
    if not kinds["eligible"]:
        return []
    rows = (
        (
            f"{info['actions']}",
            f"{info['log']}, {millions(info['rows'])} rows",
            info["baseline"],
            millions(info["events_per_second"]),
            millions(info["baseline_events_per_second"]),
            spread(info["ratio"], info["ratios"]),
            "" if info["required"] is None else f"{info['required']:.2f}",
            verdict(info, full),
        )
        for info in kinds["eligible"]
    )
    head = ("K", "log", "baseline", "events/s", "baseline, events/s", "ratio", "required", "met")
    return ["## Eligible sets", ELIGIBLE, table(head, rows)]
