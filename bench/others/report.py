"""Writes the page's section about files of other writers."""

from __future__ import annotations

from bench.common.markdown import Info, millions, spread, table, verdict
from bench.others.files import ROWS

OTHERS = (
    f"Logs of {ROWS:,} events, K = 10 and d = 20, as other programs write them by default. Noise is normal. In a "
    "realistic log, contexts are rounded numbers, counts, flags and codes, and segments have different sizes. "
    "parquet-mr's settings are Snappy, dictionaries, row groups of 128 MB and pages of 1 MB, written by pyarrow. Four "
    "estimators of a softmax policy with a ridge model run in turns with a scan by pyarrow, which decodes the same "
    "columns, one row group per thread. Nothing is mapped. Rows of the middle and the worst file have requirements. "
    "The other rows ask for more in the same pass, or do the same by hand."
)


def sections(kinds: dict[str, list[Info]], full: bool) -> list[str]:
    found = kinds["others"]
    if not found:
        return []
    rows = (
        (
            info["name"],
            millions(info["events_per_second"]),
            millions(info["baseline_events_per_second"]),
            spread(info["ratio"], info["ratios"]),
            "" if info["required"] is None else f"{info['required']:.2g}",
            verdict(info, full),
        )
        for info in found
    )
    head = ("what", "events/s", "baseline, events/s", "ratio", "required", "met")
    return ["## Files of other writers", OTHERS, table(head, rows)]


def main_cells(info: Info) -> tuple[str, str]:
    """The figure, with the file and its writer where it is one of many, and the requirement."""
    figure = spread(info["ratio"], info["ratios"])
    one = f": {info['log']}" if info["kind"] == "others in short" else ""
    return f"{figure}{one}", f"{info['required']:.2g}"
