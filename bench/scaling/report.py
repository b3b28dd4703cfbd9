"""Writes the page's section about scaling."""

from __future__ import annotations

from bench.common.markdown import Info, millions, table

SCALING = (
    "dm, ips, snips and dr of softmax policies with a ridge model. Each table changes one size or form of the log. "
    "Otherwise K = 10, d = 20, one policy, two threads, wide snappy, 262,144 rows in a row group. Runs take turns with "
    "a bare scan of the same columns, one row group per thread. Figures are medians "
    "of three runs, with the slowest and the fastest. Nothing here is required."
)


def sections(kinds: dict[str, list[Info]], full: bool) -> list[str]:
    if not kinds["scaling"]:
        return []
    parts = ["## Scaling", SCALING]
    for axis, found in by_axis(kinds["scaling"]).items():
        rows = (
            (
                info["label"],
                millions(info["rows"]),
                f"{millions(info['events_per_second'])} ({millions(min(info['all_events_per_second']))} to "
                f"{millions(max(info['all_events_per_second']))})",
                millions(info["scan_events_per_second"]),
                f"{info['events_per_second'] / info['scan_events_per_second']:.2f}",
            )
            for info in found
        )
        parts.append(table((axis, "rows of the log", "events/s", "scan, events/s", "ratio"), rows))
    return parts


def by_axis(found: list[Info]) -> dict[str, list[Info]]:
    axes: dict[str, list[Info]] = {}
    for info in found:
        axes.setdefault(info["axis"], []).append(info)
    return axes
