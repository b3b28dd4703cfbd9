"""The page's sections about models: from what the benchmarks noted to Markdown."""

from __future__ import annotations

from bench.common.markdown import Info, millions, spread, table, verdict

FIT = (
    "K = 10, d = 20, 2 threads on each side. Both read the Parquet file in the time that counts: drstream streams it, "
    "scikit-learn is given one array, of the type that is named; its parameters are its defaults. Runs alternate; the "
    "ratio is the median over pairs of drstream's throughput to scikit-learn's. Passes are those over all of the log, "
    "beside one over actions and rewards and one that takes a sample; Ridge has the one only. The difference is the "
    "largest of 500,000 predictions, for Ridge over the largest prediction. LogisticRegression stops at tol=1e-4; at "
    "1e-8 it agrees with drstream to 1e-5, which is checked on 150,000 rows."
)
CROSSFIT = (
    "Models are fitted for each fold on the others, and the log is evaluated, in the time that counts; the other side "
    "evaluates with a model that was fitted before."
)


def sections(kinds: dict[str, list[Info]], full: bool) -> list[str]:
    parts = []
    if kinds["fit"]:
        parts += ["## Models: fits", FIT, fits(kinds["fit"], full)]
    if kinds["crossfit"]:
        parts += ["## Models: cross-fitting", CROSSFIT, crossfit(kinds["crossfit"])]
    return parts


def fits(found: list[Info], full: bool) -> str:
    rows = (
        (
            info["model"],
            f"{info['log']}, {millions(info['rows'])} rows",
            millions(info["events_per_second"]),
            str(info["passes"]),
            f"scikit-learn's {info['baseline']}",
            millions(info["baseline_events_per_second"]),
            f"{info['difference']:.1e}",
            spread(info["ratio"], info["ratios"]),
            "" if info["required"] is None else f"{info['required']:.2f}",
            verdict(info, full),
        )
        for info in found
    )
    head = ("model", "log", "events/s", "passes", "against", "events/s", "difference", "ratio", "required", "met")
    return table(head, rows)


def crossfit(found: list[Info]) -> str:
    rows = (
        (
            info["task"],
            f"{info['log']}, {millions(info['rows'])} rows",
            millions(info["events_per_second"]),
            info["baseline"],
            millions(info["baseline_events_per_second"]),
            spread(info["ratio"], info["ratios"]),
        )
        for info in found
    )
    return table(("what", "log", "events/s", "against", "events/s", "ratio"), rows)
