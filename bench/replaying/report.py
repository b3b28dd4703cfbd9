"""Writes the page's sections about `replay`."""

from __future__ import annotations

from bench.common.markdown import Info, against, millions, seconds, spread, table, verdict

THROUGHPUT = (
    "drstream replays DR-ns of learners with linear scores: T = 300 steps, q = 0.05 unless the row says otherwise, a "
    "ridge model, K = 10, d = 20, 2 threads. The two sides run in turns. The ratio is drstream's throughput over the "
    "baseline's in events/s, the median over pairs. Other libraries are slow, so they get only the log's first events, "
    "while drstream replays the whole log."
)
SHARE = (
    "The policy is `Retrained`. It has a logistic regression of scikit-learn for each of 10 actions and fits them "
    "again after every 15 acceptances. The engine's share is the part of the wall time that `replay` spends outside "
    "the policy's methods, the median of five runs."
)
TRACKER = (
    "The tracker holds the values of the third column before the clock starts. Then more values are inserted, and the "
    "tracker gives the quantile after each of them."
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
    return parts


def throughput(found: list[Info], full: bool) -> str:
    rows = (
        (
            info["task"],
            f"{info['log']}, {millions(info['rows'])} rows",
            millions(info["events_per_second"]),
            against(info),
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
