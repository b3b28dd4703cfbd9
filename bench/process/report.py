"""Writes the page's sections about peak memory and start-up."""

from __future__ import annotations

from bench.common.markdown import Info, megabytes, millions, seconds, table, verdict
from bench.process import cases, compiling

STEPS = {
    "interpreter": "interpreter starts",
    "imports": "imports of numpy, scipy, pyarrow, numba",
    "kernels": "drstream and its kernels",
    "fit": "reward model fitted on 10,000 rows",
    "task": "evaluation",
    "exit": "exit",
}
MEMORY = "Each process evaluates dm, ips, snips and dr of a softmax policy. Peaks are medians of three processes."
REPLAY_MEMORY = (
    "Each process replays a uniform policy. T is a tenth of the log's rows, and a replicate takes 0.4 of the log. Q "
    "holds the ratios below 1. Peaks are medians of three processes."
)
FIT_MEMORY = (
    "Each process fits one model, once. drstream keeps up to 268 MB of decoded events for later passes. The process of "
    "scikit-learn holds the log in one array and does not load drstream."
)
START = (
    "The process reads a Parquet log of 1,000 rows. Times with kernels in the cache are medians of five processes. The "
    "process with an empty cache runs once."
)
COMPILING = (
    "A process whose cache is empty compiles the kernels that it calls. A plain kernel is one loop, compiled in a "
    "process of its own, the start of Numba included. Seconds are until the result, with imports before the first one."
)
STARTS = {
    "evaluate": "A process that evaluates dm, ips, snips and dr of a softmax policy:",
    "replay": "A process that replays an ε-greedy learner:",
}


def sections(kinds: dict[str, list[Info]], full: bool) -> list[str]:
    parts = []
    if kinds["memory"]:
        parts += ["## Peak memory: evaluation", MEMORY, memory(kinds["memory"], full)]
    if kinds["replay memory"]:
        tables = (replay_memory(info, full) for info in kinds["replay memory"])
        parts += ["## Peak memory: replay", REPLAY_MEMORY, *tables]
    if kinds["fit memory"]:
        parts += ["## Peak memory: fits of models", FIT_MEMORY, fit_memory(kinds["fit memory"], full)]
    if kinds["start"]:
        parts += ["## A fresh process", START]
        for info in kinds["start"]:
            parts += [STARTS[info["task"]], start(info, full)]
    if kinds["compiling"]:
        parts += ["## Compiling for first results", COMPILING, compiled(kinds["compiling"], full)]
    return parts


def main_cells(info: Info) -> tuple[str, str]:
    """The figure and the requirement, for the main table."""
    if info["kind"] == "compiling":
        return (
            f"{info['seconds']:.1f} s, {info['growth']:.1f} plain kernels",
            f"at most {info['required']} plain kernels",
        )
    peak, rows = info["peak_mb"][1], info["rows"]
    figure = f"{info['growth']:.2f}, {megabytes(peak)} at {millions(rows[1])} rows against {millions(rows[0])}"
    return figure, f"at most {info['required_growth']:.2f}, below {info['required_mb']} MB"


def memory(found: list[Info], full: bool) -> str:
    rows = (
        (
            info["log"],
            *(
                f"{peak:.0f} MB at {millions(count)} rows"
                for count, peak in zip(info["rows"], info["peak_mb"], strict=True)
            ),
            f"{info['growth']:.2f}",
            f"{info['required_growth']:.2f}, below {info['required_mb']} MB",
            verdict(info, full),
        )
        for info in found
    )
    return table(("log", "peak", "peak", "ratio", "required: at most", "met"), rows)


def replay_memory(info: Info, full: bool) -> str:
    (short, long), (short_mb, long_mb) = info["rows"], info["peak_mb"]
    rows = [
        (
            "sketch",
            f"{megabytes(short_mb)} at {millions(short)} rows",
            f"{megabytes(long_mb)} at {millions(long)} rows",
            f"ratio {info['growth']:.2f}",
            f"{info['required_growth']:.2f}",
            verdict({"required": 0, "passed": info["growth_passed"]}, full),
        ),
        (
            f"exact, up to {millions(info['values'])} values in Q",
            f"{megabytes(long_mb)} with the sketch",
            f"{megabytes(info['exact_mb'])} at {millions(long)} rows",
            f"{megabytes(info['exact_mb'] - long_mb)} more",
            f"{megabytes(info['required_mb'])}, {cases.BYTES_A_VALUE} bytes a value",
            verdict({"required": 0, "passed": info["exact_passed"]}, full),
        ),
    ]
    return table(("tracker", "peak", "peak", "", "required: at most", "met"), rows)


def fit_memory(found: list[Info], full: bool) -> str:
    rows = (
        (
            info["model"],
            *(
                f"{megabytes(peak)} at {millions(count)} rows"
                for count, peak in zip(info["rows"], info["peak_mb"], strict=True)
            ),
            f"{info['growth']:.2f}",
            f"{info['required']:.2f}",
            verdict(info, full),
            f"{megabytes(info['sklearn_mb'])} at {millions(info['rows'][0])} rows, {info['sklearn_kind']}",
        )
        for info in found
    )
    return table(("model", "peak", "peak", "ratio", "required: at most", "met", "scikit-learn's peak"), rows)


def start(info: Info, full: bool) -> str:
    labels = {**STEPS, "task": "replay"} if info["task"] == "replay" else STEPS
    rows = [(label, seconds(info["times"][step]), seconds(info["cold_times"][step])) for step, label in labels.items()]
    rows.append(("**all**", f"**{seconds(info['seconds'])}**", seconds(info["cold_seconds"])))
    if info["required"] is not None:
        rows.append((f"required: below {info['required']} s", verdict(info, full), ""))
    return table(("step", "kernels in the cache", f"empty cache, {info['kernels']} kernels compiled"), rows)


def compiled(found: list[Info], full: bool) -> str:
    rows = (
        (
            compiling.STEPS[info["step"]],
            str(info["kernels"]),
            seconds(info["seconds"]),
            f"{info['growth']:.1f}",
            str(info["required"]),
            verdict(info, full),
        )
        for info in found
    )
    return table(
        ("first result", "kernels", "time", "plain kernels that take as long", "required: at most", "met"), rows
    )
