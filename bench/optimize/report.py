"""Writes the page's section about policy optimisation."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from bench.common.baselines import SCAN
from bench.common.markdown import Info, millions, spread, table

EPOCHS = (
    "drstream minimises DR's losses directly, with a ridge model, K = 10, d = 20, 2 threads, from Parquet. The time of "
    "an epoch is the time of a fit of several epochs minus that of a fit of one, divided by the number of additional "
    "epochs. The first pass decodes the log. Its time is that of a fit of one epoch minus that of an epoch, both "
    "medians. After the first pass contexts are in memory, but each epoch completes the losses again. Fits of both "
    "lengths and the baseline run in turns. The ratio is the baseline's time over drstream's, the median over rounds. "
    "The scan decodes the same columns once. NumPy has standardised contexts and completed losses in memory, in "
    "float64, and takes one run after the other."
)
THROUGHPUT = (
    "K = 10, d = 20, a ridge model, 2 threads. The two sides run in turns. The ratio is drstream's throughput over the "
    "baseline's in events/s, the median over pairs. Policies are learned before the clock starts. A baseline in memory "
    "does not read the log within the measured time. Where the table gives the baseline's rows, it gets only the log's "
    "first events."
)


def sections(kinds: dict[str, list[Info]], full: bool) -> list[str]:
    parts = ["## Policy optimisation"]
    if kinds["dlm"]:
        rows = [row for info in kinds["dlm"] for row in epochs(info)]
        parts += [EPOCHS, table(("what", "log", "time", "for each run", "against", "time", "ratio"), rows)]
    if kinds["optimize"]:
        head = ("what", "log", "events/s", "against", "events/s", "ratio")
        parts += [THROUGHPUT, table(head, map(throughput, kinds["optimize"]))]
    return parts if len(parts) > 1 else []


def epochs(info: Info) -> Iterator[tuple[str, ...]]:
    """One row for an epoch. The case of one run against the scan has another row, for the first pass."""
    log = f"{info['log']}, {millions(info['rows'])} rows"
    against = info["baseline"], milliseconds(info["baseline_seconds"])
    if info["baseline"] == SCAN and info["runs"] == 1:
        first = info["first_seconds"]
        yield "first pass", log, milliseconds(first), "", *against, f"{info['baseline_seconds'] / first:.2f}"
    time, ratios = info["epoch_seconds"], info["ratios"]
    each = milliseconds(time / info["runs"])
    yield f"epoch, {info['task']}", log, milliseconds(time), each, *against, spread(median(ratios), ratios)


def throughput(info: Info) -> tuple[str, ...]:
    first = f", {info['baseline_rows']:,} rows" if info["baseline_rows"] < info["rows"] else ""
    return (
        info["task"],
        f"{info['log']}, {millions(info['rows'])} rows",
        millions(info["events_per_second"]),
        info["baseline"] + first,
        millions(info["baseline_events_per_second"]),
        spread(info["ratio"], info["ratios"]),
    )


def milliseconds(time: float) -> str:
    return f"{1000 * time:,.0f} ms"
