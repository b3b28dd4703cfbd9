"""Writes the page's section about decoding."""

from __future__ import annotations

from bench.common.markdown import Info, millions, spread, table

DECODING = (
    "drstream decodes columns of numbers itself, and does nothing else here. pyarrow decodes the same columns. Each "
    "side has 2 threads and takes a row group at a time, and the two sides run in turns. The ratio is drstream's "
    "throughput over pyarrow's."
)


def sections(kinds: dict[str, list[Info]], full: bool) -> list[str]:
    if not kinds["decoding"]:
        return []
    rows = (
        (
            info["what"],
            f"{info['log']}, {millions(info['rows'])} rows",
            millions(info["events_per_second"]),
            millions(info["baseline_events_per_second"]),
            spread(info["ratio"], info["ratios"]),
        )
        for info in kinds["decoding"]
    )
    return ["## Decoding", DECODING, table(("what", "log", "rows/s", "pyarrow, rows/s", "ratio"), rows)]
