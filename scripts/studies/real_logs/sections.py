"""Writes the section of each log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scripts.studies.paper.rows import table
from scripts.studies.real_logs.open_bandit import MISTAKEN, OF_SHARES, RANDOM
from scripts.studies.trials import Row

NAMES = {"ips": "IPS", "snips": "SNIPS", "dr": "DR", "dm": "DM"}
ABOUT = ("campaign", "reward", "unit")  # what a finding can be about
FINDING = ("policy", "level", "check")
SEGMENT_NAMES = {(0, 1): "women's only", (1, 0): "men's only", (1, 1): "both"}


def open_bandit(found: dict[str, Any]) -> str:
    estimates, methods = found["estimates"], found["intervals"]
    mistaken = [row for row in estimates if row["policy"] == MISTAKEN]
    judged = [row for row in estimates if row["policy"] != MISTAKEN and row["low"] is not None]
    normal, default, free = (
        [row for row in methods if row["method"] == name] for name in ("normal", "gamma", "likelihood")
    )
    bounded = [row for row in methods if row["method"].startswith("likelihood,")]
    wider = [_width(d) / _width(n) for d, n in zip(default, normal, strict=True)]
    widest = [_width(d) / _width(n) for d, n in zip(free, normal, strict=True)]
    held = [_width(b) / _width(n) for b, n in zip(bounded, (n for n in normal if n["log"] == RANDOM), strict=True)]
    weights = [f["value"] for f in found["findings"] if f["policy"] == MISTAKEN and f["check"] == "mean weight"]
    uncertain = [50 * (row["baseline_high"] - row["baseline_low"]) / row["baseline_value"] for row in found["logs"]]
    errors = {e: [row["stderr"] for row in judged if row["estimator"] == e] for e in ("ips", "dr")}
    gains = [dr / ips for dr, ips in zip(errors["dr"], errors["ips"], strict=True)]
    return f"""## Open Bandit

Two policies chose fashion items for the same shop, at three positions: one uniformly at random, one by Bernoulli
Thompson sampling. We use the small samples of two campaigns. The log of each policy evaluates the other policy. The
truth is the click rate in the other policy's own log.

{table(LOG_HEAD, [_log(row) for row in found["logs"]])}

The probabilities of the uniform policy are 1/K. Those of the Thompson sampler changed with time, and the log has them
only for the items that were logged. It does not look at the user, so the policy that we evaluate takes each item as
often as the sampler did at that position: its probabilities are the shares of the items. Intervals leave out the error
of these shares. DR and DM use a ridge
regression of clicks on the position for each item, cross-fitted in 5 folds. All rates are in percent.

{table(BANDIT_HEAD, [_bandit(row) for row in estimates])}

SNIPS with other intervals. On the uniform log, p is 1/K, so no weight can be larger than K, and the likelihood interval
may be told so (`max_weight_bound=`). On the other log, there is no such bound.

{table(METHOD_HEAD, [_method(row) for row in methods])}

**Both logs as one.** `drs.Log(..., logger="policy")` says which policy logged a row. The result then has the weights of
each logger's events, and an estimate from them alone. Their mean weights agree with 1, and their estimates with each
other, but the Thompson sampler's events are worth little for the uniform policy.

{table(LOGGER_HEAD, [_logger(row) for row in found["loggers"]])}

The balanced estimators divide by the propensities of both policies together. They need the Thompson sampler's
probability of each item that the uniform policy logged, and the log does not have it. Its share of the item at that
position stands in. If the sampler's own events keep their logged propensities, two different policies are mixed up, and
the check of the balanced weight says so. If shares are taken everywhere, it does not.

{table(BALANCED_HEAD, [_balanced_row(row) for row in found["balanced"]])}

**Findings**

{_findings(found["findings"])}

**What to learn**

- The default intervals have the truth inside in {_count(judged, "inside")} cases, and agree with it in
{_count(judged, "agrees")}. This is a weak test. The logs have {_range([row["clicks"] for row in found["logs"]])}
clicks, so the intervals of the truths reach {_range(uncertain, ".0f")} % to either side.
- The default intervals are gamma intervals here, because the log has few clicks. They are {_range(wider, ".1f")} times
as wide as normal ones, most of it upwards. They are close to normal ones on the uniform log. On the other log one
weight is so large that one more click there would change everything, and the upper bound is of no use. Likelihood
intervals are {_range(widest, ".0f")} times as wide, on both logs: they allow for any weight that the log may have
missed. With a bound on the weights, on the uniform log, they are {_range(held, ".1f")} times as wide.
- {_model_quality(found["logs"])} DR gains nothing from it: its standard error is {_range(gains, ".2f")} times that
of IPS. Look at R² before you prefer DR.
- "{MISTAKEN}" is a mistake that is easily made. It gives each item the mean of its logged propensities. But an item was
logged most when its propensity was large, so these means are too large. They do not sum to 1, and IPS is up to
{max(row["value"] / row["truth"] for row in mistaken if row["estimator"] == "ips"):.1f} times the truth. The mean weight
shows it ({_range(weights, ".2f")} instead of 1), and the finding says stop. Believe it: the interval of such a result
means nothing.
- With shares, the standard error of balanced IPS is {_range(_balanced_gain(found["balanced"]), ".2f")} times that of
IPS. The variance itself is never larger (Agarwal et al. 2017), but with so few clicks it is known roughly. Log the
propensities of all loggers: they cost a column each, and no further event.
"""


def hillstrom(found: dict[str, Any]) -> str:
    estimates, segments, halves = found["estimates"], found["segments"], found["halves"]
    splits = halves[0]["cases"] // len({row["policy"] for row in estimates})
    r2 = ", ".join(f"{value:.4f} for {reward}" for reward, value in found["r2"].items())
    largest = max((row for row in segments if row["difference"] is not None), key=lambda row: row["difference"])
    unsure = [row for row in segments if row["q_value"] > 0.05]
    return f"""## Hillstrom's e-mails

{found["events"]:,} customers got one of two e-mails, or none, each with probability 1/3. One pass evaluates three
rewards, `reward=["visit", "conversion", "spend"]`. Each policy sends the same to all customers, so its truth is the
mean reward of that arm. DR uses ridge regression, cross-fitted in 5 folds.

{table(ARM_HEAD, [_arm(row) for row in estimates])}

The truth comes from the same events here. SNIPS of such a policy is the mean of the arm, so its row shows only that the
sums are right. This table is a fair test: an estimate from a random half of the customers, against the mean of the
arm in the other half, for {splits} random halves and all policies.

{table(["reward", *(NAMES[e] for e in _estimators(halves))], _agreement(halves, "reward"))}

Segments: `by=["mens", "womens"]`, what the customer bought in the past year. Estimates are DR of visits, and the
difference is that to the logging policy in the segment.

{table(SEGMENT_HEAD, [_segment(row) for row in segments])}

**Findings**

{_findings(found["findings"])}

**What to learn**

- The checks raise {len(found["findings"])} alarms. A well-designed experiment should raise none.
- Intervals agree with the other half in {_least_and_most(halves)} of cases. They should in 95 %. This holds for spend,
too, though nearly all customers spent nothing.
- DR is hardly better than SNIPS. The covariates say little about the rewards: R² is {r2}.
- The best policy depends on the segment. The largest gain is that of "{largest["policy"]}" for customers who bought
{_segment_name(largest)} ({100 * largest["difference"]:+.1f} points). The q-value is above 0.05 for
{len(unsure)} of {len(segments)} differences.
"""


def gotv(found: dict[str, Any]) -> str:
    estimates, halves = found["estimates"], found["halves"]
    splits = halves[0]["cases"] // len({row["policy"] for row in estimates})
    widths = {unit: [_width(row) for row in estimates if row["unit"] == unit] for unit in ("rows", "households")}
    ratios = [h / r for h, r in zip(widths["households"], widths["rows"], strict=True)]
    by_rows, by_households = ([row for row in halves if row["unit"] == unit] for unit in widths)
    return f"""## Letters to voters

{found["events"]:,} voters got one of three letters before an election, each with probability 1/8, or none, with
probability 5/8 (Gerber, Green and Larimer 2008; the file lacks the arm of a fourth letter). The reward is 1 for those
who voted. All members of a household got the same letter. The file has no number of the household, but members stand in
neighbouring rows, so runs of rows of the same household size and letter can be cut into {found["households"]:,}
households. Years of birth of neighbouring rows have a correlation of {found["alike"]["same"]:.2f} within these
households, and of {found["alike"]["next"]:.2f} across them. We evaluate twice: as if rows were independent, and with
`cluster="household"`.

{table(VOTER_HEAD, [_voter(row) for row in estimates])}

Random halves as above: {splits} times, whole households are put in either half.

{table(["intervals by", *(NAMES[e] for e in _estimators(halves))], _agreement(halves, "unit"))}

**Findings**

{_findings(found["findings"])}

**What to learn**

- Intervals by rows are too narrow. They agree with the other half in {_least_and_most(by_rows)} of cases, instead of
95 %. With `cluster=`, it is {_least_and_most(by_households)}. Households have two members on average, and yet intervals
must be {_range(ratios, ".2f")} times as wide.
- No finding warns of this. drstream cannot know which rows depend on each other. Name the column with `cluster=`
whenever one user, session or household has several rows.
- "Inside" is yes everywhere, for rows too: the truth comes from the same events here, and moves with the estimate. Do
not judge intervals by such a comparison.
"""


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


def _agreement(halves: Sequence[Row], column: str) -> list[list[str]]:
    """The share of cases that agree: a row for each value of a column, and a column for each estimator."""
    share = {(row[column], row["estimator"]): f"{100 * row['agree'] / row['cases']:.1f} %" for row in halves}
    values = dict.fromkeys(row[column] for row in halves)
    return [[value, *(share[value, estimator] for estimator in _estimators(halves))] for value in values]


def _estimators(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["estimator"] for row in rows))


# Words and numbers


def _findings(rows: Sequence[Row]) -> str:
    """A table of all findings, and each check's message once, as an example."""
    if not rows:
        return "None: all checks are ok."
    first: dict[tuple[str, str], Row] = {}
    for row in rows:
        first.setdefault((row["level"], row["check"]), row)
    about = [name for name in ABOUT if name in rows[0]]
    cells = [
        [*(str(row[name]) for name in about), *(str(row[name] or "") for name in FINDING), _value(row["value"])]
        for row in rows
    ]
    messages = "\n".join(f"- **{level}**, {check}: {row['message']}" for (level, check), row in first.items())
    return f"{table([*about, *FINDING, 'value'], cells)}\n\nThe first message of each kind:\n\n{messages}"


def _value(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _model_quality(logs: Sequence[Row]) -> str:
    worse = sum(row["r2"] < 0 for row in logs)
    return (
        f"The reward model predicts clicks worse than their mean in {worse} of {len(logs)} logs: R² is "
        f"{_range([row['r2'] for row in logs], '.3f')}."
    )


def _percent(value: float) -> str:
    return f"{100 * value:.2f}"


def _interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"[{100 * low:.2f}, {100 * high:.2f}]"


def _yes(value: bool | None) -> str:
    return "" if value is None else "yes" if value else "**no**"


def _width(row: Row) -> float:
    return row["high"] - row["low"]


def _count(rows: Sequence[Row], column: str) -> str:
    return f"{sum(bool(row[column]) for row in rows)} of {len(rows)}"


def _range(values: Sequence[float], form: str = "") -> str:
    low, high = f"{min(values):{form}}", f"{max(values):{form}}"
    return low if low == high else f"{low} to {high}"


def _least_and_most(halves: Sequence[Row]) -> str:
    return _range([100 * row["agree"] / row["cases"] for row in halves], ".1f") + " %"
