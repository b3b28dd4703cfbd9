"""Writes the page's sections about models."""

from __future__ import annotations

from bench.common.markdown import Info, millions, spread, table, verdict

FIT = (
    "K = 10 and d = 20; each side has 2 threads. Both sides read the Parquet file within the measured time. drstream "
    "streams it. scikit-learn gets one array of the type in the table and keeps its default parameters. The two sides "
    "run in turns. The ratio is drstream's throughput over scikit-learn's, the median over pairs. Passes are those "
    "over the whole log. Logistic and Propensity take two more: one over actions and rewards, and one that draws a "
    "sample. The difference is the largest among 500,000 predictions; for Ridge, it is divided by the largest "
    "prediction. LogisticRegression stops at tol=1e-4. At tol=1e-8 it agrees with drstream to 1e-5, which is checked "
    "on 150,000 rows."
)
CROSSFIT = (
    "drstream fits a model for each fold on the other folds and evaluates the log, all within the measured time. One "
    "other side fits one model on the whole log, then evaluates. The second one evaluates with a model that was fitted "
    "before."
)


def sections(kinds: dict[str, list[Info]], full: bool) -> list[str]:
    parts = []
    if kinds["fit"]:
        parts += ["## Models: fits", FIT, fits(kinds["fit"], full)]
    if kinds["crossfit"]:
        parts += ["## Models: cross-fitting", CROSSFIT, crossfit(kinds["crossfit"], full)]
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


def crossfit(found: list[Info], full: bool) -> str:
    rows = (
        (
            info["task"],
            f"{info['log']}, {millions(info['rows'])} rows",
            millions(info["events_per_second"]),
            info["baseline"],
            millions(info["baseline_events_per_second"]),
            spread(info["ratio"], info["ratios"]),
            "" if info["required"] is None else f"{info['required']:.2f}",
            verdict(info, full),
        )
        for info in found
    )
    return table(("what", "log", "events/s", "against", "events/s", "ratio", "required", "met"), rows)
