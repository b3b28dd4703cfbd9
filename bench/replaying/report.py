"""The page's sections about replay: from what the benchmarks noted to Markdown."""

from __future__ import annotations

from typing import Any

from bench.common.markdown import megabytes, millions, seconds, spread, table, verdict
from bench.replaying import cases as replay_cases

Info = dict[str, Any]

THROUGHPUT = (
    "DR-ns of an ε-greedy learner with linear scores, T = 300 steps, q = 0.05, ridge model, K = 10, d = 20, 2 threads. "
    "Runs alternate; the ratio is the median over pairs of drstream's throughput to the baseline's. Other libraries "
    "are slow: they get the log's first events only, and drstream all of it, so that the ratio is one of events/s."
)
SHARE = (
    "The policy is `Retrained`: for each of 10 actions a logistic regression of scikit-learn, fitted again after every "
    "15 acceptances. The engine's share is the wall time of `replay` outside the policy's methods; median of five."
)
TRACKER = "Values inserted a second, the quantile asked for after each, while the tracker holds this many others."
MEMORY = (
    "Of a process that replays a uniform policy with T a tenth of the rows: 0.4 of the log to a replicate. Q holds the "
    "ratios below 1; median of three each."
)


def sections(kinds: dict[str, list[Info]], full: bool) -> list[str]:
    parts = []
    if kinds["replay"]:
        remarks = [f"- {info['remark']}" for info in kinds["replay"] if info["remark"]]
        parts += ["## Replay: throughput", THROUGHPUT, throughput(kinds["replay"], full), "\n".join(remarks)]
    if kinds["share"]:
        parts += ["## Replay: a policy in Python", SHARE, share(kinds["share"], full)]
    if kinds["tracker"]:
        parts += ["## Replay: the quantile of Q", TRACKER, tracker(kinds["tracker"], full)]
    if kinds["replay memory"]:
        parts += ["## Replay: peak memory", MEMORY, *(memory(info, full) for info in kinds["replay memory"])]
    return parts


def throughput(found: list[Info], full: bool) -> str:
    rows = (
        (
            info["task"],
            f"{info['log']}, {millions(info['rows'])} rows",
            millions(info["events_per_second"]),
            info["baseline"] + (f", {info['baseline_rows']:,} rows" if info["baseline_rows"] < info["rows"] else ""),
            millions(info["baseline_events_per_second"]),
            spread(info["ratio"], info["ratios"]),
            "" if info["required"] is None else f"{info['required']:.3g}",
            verdict(info, full),
        )
        for info in found
    )
    return table(("what", "log", "events/s", "against", "events/s", "ratio", "required", "met"), rows)


def share(found: list[Info], full: bool) -> str:
    rows = (
        (
            f"{info['log']}, {info['events']:,} events",
            seconds(info["seconds"]),
            f"{info['share']:.1%} ({min(info['shares']):.1%} to {max(info['shares']):.1%})",
            f"{info['required']:.0%}",
            verdict(info, full),
        )
        for info in found
    )
    return table(("log", "wall time", "engine's share", "required: at most", "met"), rows)


def tracker(found: list[Info], full: bool) -> str:
    rows = (
        (
            info["tracker"],
            f"{info['q']:g}",
            millions(info["values"]),
            f"{millions(info['rate'])} ({millions(min(info['rates']))} to {millions(max(info['rates']))})",
            "" if info["required"] is None else millions(info["required"]),
            verdict(info, full),
        )
        for info in found
    )
    return table(("tracker", "q", "values inside", "values/s", "required", "met"), rows)


def memory(info: Info, full: bool) -> str:
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
            f"{megabytes(info['required_mb'])}, {replay_cases.BYTES_A_VALUE} bytes a value",
            verdict({"required": 0, "passed": info["exact_passed"]}, full),
        ),
    ]
    return table(("tracker", "peak", "peak", "", "required: at most", "met"), rows)
