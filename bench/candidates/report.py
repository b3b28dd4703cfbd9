"""Writes the page's section about candidates."""

from __future__ import annotations

from bench.common.markdown import Info, millions, spread, table, verdict

CANDIDATES = (
    "Each event has 20 candidates of its own, with 10 features each, and a context of 20 features. drstream reads and "
    "checks them, and computes four estimates of a softmax policy with a ridge model; weights are shared by all "
    "candidates. The scan decodes the same columns, a row group a thread, and does nothing with them. Where features "
    "are looked up by id, it decodes ids only, so its row is for information. Each side has 2 threads, and the two "
    "sides run in turns. The ratio is drstream's throughput over the scan's."
)
MEMORY = (
    "Peak memory of a process that evaluates with interactions, on a small and on a large log. Growth is the ratio of "
    "the two peaks, less the table of items itself."
)


def sections(kinds: dict[str, list[Info]], full: bool) -> list[str]:
    parts = []
    if found := kinds["candidates"]:
        rows = (
            (
                info["task"],
                f"{info['log']}, {millions(info['rows'])} rows",
                millions(info["events_per_second"]),
                millions(info["baseline_events_per_second"]),
                spread(info["ratio"], info["ratios"]),
                "" if info["required"] is None else f"{info['required']:.2f}",
                verdict(info, full),
            )
            for info in found
        )
        head = ("what", "log", "events/s", "scan, events/s", "ratio", "required", "met")
        parts += ["## Candidates", CANDIDATES, table(head, rows)]
    if memory := kinds["candidate memory"]:
        lines = (
            (
                info["name"],
                f"{info['small']}: {info['peak_mb'][0]:.0f} MB",
                f"{info['large']}: {info['peak_mb'][1]:.0f} MB, {info['of_items']:.0f} MB of them items",
                f"{info['growth']:.2f}",
                f"{info['required']:.2f}",
                verdict(info, full),
            )
            for info in memory
        )
        parts += [MEMORY, table(("what", "small", "large", "growth", "allowed", "met"), lines)]
    return parts
