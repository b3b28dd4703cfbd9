"""Writes the page's section about `evaluate`."""

from __future__ import annotations

from bench.common.markdown import Info, against, millions, spread, table, verdict

THROUGHPUT = (
    "The log has K = 10 actions and d = 20 continuous float32 features. Each side has 2 threads, and the two sides run "
    "in turns. The ratio is drstream's throughput over the baseline's: the median over all pairs of runs, with the "
    "smallest and the largest pair in parentheses."
)


def sections(kinds: dict[str, list[Info]], full: bool) -> list[str]:
    found = kinds["throughput"]
    return ["## Throughput", THROUGHPUT, throughput(found, full)] if found else []


def throughput(found: list[Info], full: bool) -> str:
    head = ("what", "log", "events/s", "against", "events/s", "ratio", "required", "met")
    return table(
        head,
        (
            (
                info["task"],
                f"{info['log']}, {millions(info['rows'])} rows",
                millions(info["events_per_second"]),
                against(info),
                millions(info["baseline_events_per_second"]),
                spread(info["ratio"], info["ratios"]),
                "" if info["required"] is None else f"{info['required']:.2f}",
                verdict(info, full),
            )
            for info in found
        ),
    )
