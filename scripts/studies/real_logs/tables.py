"""Makes the tables of each log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scripts.studies.real_logs.open_bandit import MISTAKEN, OF_SHARES, RANDOM
from scripts.studies.results import Found
from scripts.studies.trials import Row

NAMES = {"ips": "IPS", "snips": "SNIPS", "dr": "DR", "dm": "DM"}
ABOUT = ("campaign", "reward", "unit")  # what a finding can be about
FINDING = ("policy", "level", "check")
SEGMENT_NAMES = {(0, 1): "women's only", (1, 0): "men's only", (1, 1): "both"}


def open_bandit(rows: dict[str, Any], found: Found) -> None:
    estimates, methods = rows["estimates"], rows["intervals"]
    mistaken = [row for row in estimates if row["policy"] == MISTAKEN]
    judged = [row for row in estimates if row["policy"] != MISTAKEN and row["low"] is not None]
    normal, default, free = (
        [row for row in methods if row["method"] == name] for name in ("normal", "gamma", "likelihood")
    )
    bounded = [row for row in methods if row["method"].startswith("likelihood,")]
    on_random = [row for row in normal if row["log"] == RANDOM]
    weights = [f["value"] for f in rows["findings"] if f["policy"] == MISTAKEN and f["check"] == "mean weight"]
    uncertain = [50 * (row["baseline_high"] - row["baseline_low"]) / row["baseline_value"] for row in rows["logs"]]
    errors = {e: [row["stderr"] for row in judged if row["estimator"] == e] for e in ("ips", "dr")}
    found.figures |= {
        "Open Bandit: default intervals that contain the truth": _count(judged, "inside"),
        "Open Bandit: default intervals that agree with it": _count(judged, "agrees"),
        "Open Bandit: clicks of a log": _range([row["clicks"] for row in rows["logs"]]),
        "Open Bandit: half width of the truths, %": _range(uncertain, ".0f"),
        "Open Bandit: width of gamma intervals over normal ones": _range(_ratios(default, normal), ".1f"),
        "Open Bandit: width of likelihood intervals": _range(_ratios(free, normal), ".0f"),
        "Open Bandit: the same with a bound on weights": _range(_ratios(bounded, on_random), ".1f"),
        "Open Bandit: R² of the reward model": _range([row["r2"] for row in rows["logs"]], ".3f"),
        "Open Bandit: standard error of DR over that of IPS": _range(
            [dr / ips for dr, ips in zip(errors["dr"], errors["ips"], strict=True)], ".2f"
        ),
        "Open Bandit: IPS over the truth with mean propensities": _range(
            [row["value"] / row["truth"] for row in mistaken if row["estimator"] == "ips"], ".1f"
        ),
        "Open Bandit: mean weight with mean propensities, instead of 1": _range(weights, ".2f"),
        "Open Bandit: standard error of balanced IPS over that of IPS": _range(_balanced_gain(rows["balanced"]), ".2f"),
    }
    found.table("Open Bandit: logs; rates in %", LOG_HEAD, map(_log, rows["logs"]))
    found.table("Open Bandit: each policy on the log of the other, %", BANDIT_HEAD, map(_bandit, estimates))
    found.table("Open Bandit: SNIPS with other intervals, %", METHOD_HEAD, map(_method, methods))
    found.table("Open Bandit: both logs as one, by logger", LOGGER_HEAD, map(_logger, rows["loggers"]))
    found.table("Open Bandit: balanced estimators", BALANCED_HEAD, map(_balanced_row, rows["balanced"]))
    _findings("Open Bandit", rows["findings"], found)


def hillstrom(rows: dict[str, Any], found: Found) -> None:
    segments, halves = rows["segments"], rows["halves"]
    largest = max((row for row in segments if row["difference"] is not None), key=lambda row: row["difference"])
    unsure = [row for row in segments if row["q_value"] > 0.05]
    found.figures |= {
        "Hillstrom: customers": f"{rows['events']:,}",
        "Hillstrom: random halves": f"{halves[0]['cases'] // len({row['policy'] for row in rows['estimates']})}",
        "Hillstrom: agreement with the other half, %": _least_and_most(halves),
        "Hillstrom: R² of the reward model": ", ".join(f"{r}: {value:.4f}" for r, value in rows["r2"].items()),
        "Hillstrom: largest gain in a segment, points": f"{100 * largest['difference']:+.1f}",
        "Hillstrom: differences in segments with a q-value above 0.05": f"{len(unsure)} of {len(segments)}",
    }
    found.table("Hillstrom: each e-mail to all customers", ARM_HEAD, map(_arm, rows["estimates"]))
    _agreement("Hillstrom", halves, "reward", found)
    found.table("Hillstrom: segments, DR of visits, %", SEGMENT_HEAD, map(_segment, segments))
    _findings("Hillstrom", rows["findings"], found)


def gotv(rows: dict[str, Any], found: Found) -> None:
    estimates, halves = rows["estimates"], rows["halves"]
    by_rows, by_households = ([row for row in estimates if row["unit"] == unit] for unit in ("rows", "households"))
    found.figures |= {
        "Voters: number": f"{rows['events']:,}",
        "Voters: households": f"{rows['households']:,}",
        "Voters: random halves": f"{halves[0]['cases'] // len({row['policy'] for row in estimates})}",
        "Voters: correlation of years of birth in a household, and of neighbours": (
            f"{rows['alike']['same']:.2f}, {rows['alike']['next']:.2f}"
        ),
        "Voters: width of intervals by households over those by rows": _range(_ratios(by_households, by_rows), ".2f"),
    } | {
        f"Voters: agreement of intervals by {unit} with the other half, %": _least_and_most(
            [row for row in halves if row["unit"] == unit]
        )
        for unit in ("rows", "households")
    }
    found.table("Voters: each letter to all, %", VOTER_HEAD, map(_voter, estimates))
    _agreement("Voters", halves, "unit", found)
    _findings("Voters", rows["findings"], found)


# Rows of tables

LOG_HEAD = ["campaign", "log", "items K", "events", "clicks", "click rate (%)", "interval", "smallest p"]
LOGGER_HEAD = ["campaign", "policy", "logger", "rows", "mean weight", "ESS", "largest weight", "IPS (%)"]
BALANCED_HEAD = ["campaign", "Thompson's propensities", "policy", "estimator", "value (%)", "mean weight", "level"]
BANDIT_HEAD = ["campaign", "policy", "estimator", "value", "interval", "method", "ESS", "truth", "inside", "agree"]
METHOD_HEAD = ["campaign", "policy", "interval by", "value", "interval", "truth", "inside", "agree"]
ARM_HEAD = ["reward", "policy", "estimator", "value", "interval", "truth", "inside"]
SEGMENT_HEAD = ["bought", "policy", "events", "value (%)", "interval", "truth", "inside", "difference", "q-value"]
VOTER_HEAD = ["intervals by", "policy", "estimator", "value (%)", "interval", "truth", "inside"]


def _log(row: Row) -> list[str]:
    rate, interval = _percent(row["baseline_value"]), _interval(row["baseline_low"], row["baseline_high"])
    sizes = [f"{row['actions']}", f"{row['events']:,}", f"{row['clicks']}"]
    return [row["campaign"], row["log"], *sizes, rate, interval, f"{row['smallest']:.2g}"]


def _bandit(row: Row) -> list[str]:
    ess = "" if row["ess"] is None else f"{row['ess']:,.0f}"
    who = [row["campaign"], row["policy"], NAMES[row["estimator"]]]
    interval = _interval(row["low"], row["high"])
    found = [_percent(row["value"]), interval, row["method"], ess, _percent(row["truth"])]
    return [*who, *found, _yes(row["inside"]), _yes(row["agrees"])]


def _logger(row: Row) -> list[str]:
    weights = f"{row['mean_weight']:.3f} ± {row['mean_weight_stderr']:.3f}", f"{row['ess']:,.0f}"
    ips = f"{_percent(row['value'])} ± {_percent(row['stderr'])}"
    return [
        row["campaign"],
        row["policy"],
        row["logger"],
        f"{row['rows']:,}",
        *weights,
        f"{row['max_weight']:.3g}",
        ips,
    ]


def _balanced_row(row: Row) -> list[str]:
    value = f"{_percent(row['value'])} ± {_percent(row['stderr'])}"
    name = "balanced IPS" if row["estimator"] != "ips" else "IPS"
    who = [row["campaign"], row["propensities"], row["policy"], name]
    return [*who, value, f"{row['mean_weight']:.3f}", row["level"]]


def _balanced_gain(rows: Sequence[Row]) -> list[float]:
    """The standard error of balanced IPS as a part of that of IPS, with shares as propensities."""
    errors = [row["stderr"] for row in rows if row["propensities"] == OF_SHARES]
    return [balanced / plain for plain, balanced in zip(errors[::2], errors[1::2], strict=True)]


def _method(row: Row) -> list[str]:
    who = [row["campaign"], row["policy"], row["method"]]
    found = [_percent(row["value"]), _interval(row["low"], row["high"]), _percent(row["truth"])]
    return [*who, *found, _yes(row["inside"]), _yes(row["agrees"])]


def _arm(row: Row) -> list[str]:
    interval = f"[{row['low']:.5f}, {row['high']:.5f}]"
    who = [row["reward"], row["policy"], NAMES[row["estimator"]]]
    return [*who, f"{row['value']:.5f}", interval, f"{row['truth']:.5f}", _yes(row["inside"])]


def _segment(row: Row) -> list[str]:
    gain = f"{100 * row['difference']:+.2f} {_interval(row['difference_low'], row['difference_high'])}"
    interval = _interval(row["low"], row["high"])
    found = [_percent(row["value"]), interval, _percent(row["truth"]), _yes(row["inside"])]
    q = f"{row['q_value']:.3f}" if row["q_value"] >= 0.001 else "< 0.001"
    return [_segment_name(row), row["policy"], f"{row['n']:,}", *found, gain, q]


def _segment_name(row: Row) -> str:
    return SEGMENT_NAMES[row["mens"], row["womens"]]


def _voter(row: Row) -> list[str]:
    who = [row["unit"], row["policy"], NAMES[row["estimator"]]]
    found = [_percent(row["value"]), _interval(row["low"], row["high"]), _percent(row["truth"])]
    return [*who, *found, _yes(row["inside"])]


def _agreement(name: str, halves: Sequence[Row], column: str, found: Found) -> None:
    """The share of cases that agree: a row for each value of a column, and a column for each estimator."""
    share = {(row[column], row["estimator"]): f"{100 * row['agree'] / row['cases']:.1f}" for row in halves}
    estimators = _estimators(halves)
    rows = [[value, *(share[value, e] for e in estimators)] for value in dict.fromkeys(row[column] for row in halves)]
    title = f"{name}: intervals that agree with the other half, %"
    found.table(title, [column, *(NAMES[e] for e in estimators)], rows)


def _estimators(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["estimator"] for row in rows))


# Words and numbers


def _findings(name: str, rows: Sequence[Row], found: Found) -> None:
    about = [column for column in ABOUT if rows and column in rows[0]]
    cells = [[*(str(row[column] or "") for column in [*about, *FINDING]), _value(row["value"])] for row in rows]
    found.table(f"{name}: findings", [*about, *FINDING, "value"], cells)


def _value(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _percent(value: float) -> str:
    return f"{100 * value:.2f}"


def _interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"[{100 * low:.2f}, {100 * high:.2f}]"


def _yes(value: bool | None) -> str:
    return "" if value is None else "yes" if value else "no"


def _ratios(rows: Sequence[Row], others: Sequence[Row]) -> list[float]:
    """Widths of intervals over those of others."""
    return [(a["high"] - a["low"]) / (b["high"] - b["low"]) for a, b in zip(rows, others, strict=True)]


def _count(rows: Sequence[Row], column: str) -> str:
    return f"{sum(bool(row[column]) for row in rows)} of {len(rows)}"


def _range(values: Sequence[float], form: str = "") -> str:
    low, high = f"{min(values):{form}}", f"{max(values):{form}}"
    return low if low == high else f"{low} to {high}"


def _least_and_most(halves: Sequence[Row]) -> str:
    return _range([100 * row["agree"] / row["cases"] for row in halves], ".1f")
