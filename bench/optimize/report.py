"""The page's section about policy optimisation: from what the benchmarks noted to Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from bench.common.baselines import SCAN
from bench.common.markdown import Info, millions, spread, table

EPOCHS = (
    "Direct loss minimisation of DR's losses with a ridge model, K = 10, d = 20, 2 threads, from Parquet. An epoch is "
    "what a fit of several takes longer than a fit of one, over the epochs that it has more; the first pass, which "
    "decodes the log, is what the fit of one takes longer than an epoch, in the median. After it contexts are in "
    "memory; losses are completed anew in each epoch. Fits of both lengths and the baseline alternate; the ratio is "
    "the median over rounds of the baseline's time to drstream's. The scan decodes the same columns once. NumPy has "
    "standard contexts and completed losses in memory, in float64, and takes one run after the other."
)
THROUGHPUT = (
    "K = 10, d = 20, ridge model, 2 threads. Runs alternate; the ratio is the median over pairs of drstream's "
    "throughput to the baseline's. Policies are learned before the time counts. What NumPy has in memory it does not "
    "read in the time that counts; where it gets the log's first events only, the ratio is one of events/s."
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
    """One row; against the scan, one more for the first pass, which is the same for any number of runs."""
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
