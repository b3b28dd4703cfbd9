"""What a result says about its intervals, as findings, and its estimates as text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from drstream.evaluation.rankings import ListFacts
from drstream.findings import LOOK, STOP, Finding
from drstream.intervals import methods
from drstream.intervals.methods import Method
from drstream.results import Estimate

MUCH_KEPT, LITTLE_KEPT = 0.95, 0.8  # share of the weight that an estimator without a model keeps
MOSTLY_MODELLED = 0.5  # the same with a model


def without_interval(
    policy: str, estimates: Mapping[str, Estimate], reward_range: tuple[float, float] | None
) -> list[Finding]:
    """Say why estimates have no interval, although they have values."""
    without = {name: one for name, one in estimates.items() if math.isnan(one.low) and math.isfinite(one.value)}
    low, high = reward_range or (-math.inf, math.inf)
    outside = [name for name, one in without.items() if not low <= one.value <= high]
    found = []
    if outside:
        text = (
            f"The estimates of {policy} by {', '.join(outside)} lie outside of the range of rewards, {low:g} to "
            f"{high:g}, by more than chance explains. Check the propensities with an audit, and the range."
        )
        found.append(Finding(STOP, "interval", policy, math.nan, text))
    flat = [name for name, one in without.items() if name not in outside and one.n > 1]
    if flat:
        known = "Use more events." if reward_range else "Give the range of rewards (reward_range), or use more events."
        text = (
            f"All events say the same about {policy} by {', '.join(flat)}. So nothing tells how far the estimate may "
            f"be off, and it has no interval. {known}"
        )
        found.append(Finding(STOP, "interval", policy, math.nan, text))
    return found


def by_event(names: Sequence[str]) -> list[Finding]:
    """Methods that were named, and that take the events of a cluster for independent."""
    if not names:
        return []
    text = (
        f"The intervals {', '.join(map(repr, names))} take events for independent, whatever clusters they are in, and "
        "may be too narrow. Leave out interval=, or name 'cluster', 'bootstrap', 'likelihood' or 'gamma'."
    )
    return [Finding(STOP, "interval", None, math.nan, text)]


def cut_weights(policy: str, kept: Mapping[str, tuple[float, bool]]) -> list[Finding]:
    """Say so if a limit of weights takes much of the policy's weight away, and nothing stands in for it."""
    found = []
    for name, (share, modelled) in kept.items():
        if share < (MOSTLY_MODELLED if modelled else MUCH_KEPT):
            text = f"The limit of the weights leaves {name} {share:.0%} of the weight of {policy}. "
            text += (
                "The reward model decides on most of the estimate. The interval leaves out its error. Compare with DR."
                if modelled
                else "The estimate lacks about as much, and the interval leaves that out. Use a larger limit, or DR."
            )
            level = STOP if not modelled and share < LITTLE_KEPT else LOOK
            found.append(Finding(level, "limited weights", policy, share, text))
    return found


def no_intervals(estimators: Sequence[str], chosen: Sequence[Method]) -> list[Finding]:
    """Methods that were named, and are not known for some estimators."""
    of_scores = [method.name for method in chosen if "reward_range" in method.needs]
    if not estimators or not of_scores:
        return []
    others = ", ".join(method.name for method in methods.ALL.values() if "reward_range" not in method.needs)
    text = (
        f"There are no {' or '.join(of_scores)} intervals of {', '.join(estimators)}: such intervals are about a mean "
        f"of scores with the weights ν / p. For these estimators, choose another method: {others}."
    )
    return [Finding(LOOK, "interval", None, math.nan, text)]


def stopped_segments(by: Sequence[str], stopped: dict[tuple[Any, ...], list[Finding]], segments: int) -> Finding:
    """Some segments have findings of level stop of their own."""
    key, first = next(iter(stopped.items()))
    name = ", ".join(f"{column}={value}" for column, value in zip(by, key, strict=True))
    text = f"{len(stopped)} of {segments} segments have a finding of level stop, e.g. {name}: {first[0].message}"
    return Finding(LOOK, "segments", None, float(len(stopped)), text)


def measured_constants(policy: str, method: str, constants: Mapping[str, float]) -> Finding:
    """An interval that could be guaranteed is not."""
    shown = ", ".join(f"{name} {value:.4g}" for name, value in constants.items())
    text = (
        f"The {method} intervals of {policy} rest on constants that were measured from the log ({shown}), so their "
        "coverage is not guaranteed. Give these constants, or let them be the largest possible ones."
    )
    return Finding(LOOK, "constants", policy, math.nan, text)


def events(n: int, labels: Sequence[Any], lists: ListFacts | None) -> str:
    """Return what was evaluated: so many events, or rankings."""
    if lists is not None:
        return f"{n:,} rankings of {lists}"
    return f"{n:,} events{f', {len(labels)} actions' if labels else ''}"


def assumptions(found: Mapping[str, str]) -> list[str]:
    """Return lines that say what estimators of rankings assume, those of the same assumption together."""
    by_text: dict[str, list[str]] = {}
    for name, text in found.items():
        by_text.setdefault(text, []).append(name)
    return [f"assumed by {', '.join(names)}: {text}" for text, names in by_text.items()]


def table(rows: Sequence[dict[str, Any]], given_the_model: str) -> list[str]:
    """Return the lines of a table of estimates."""
    width = max(len("policy"), *(len(row["policy"]) for row in rows))
    wide = max(10, *(len(row["estimator"]) for row in rows))
    lines = [f"  {'policy':<{width}}  {'estimator':<{wide}} {'value':>10}  {'interval':<25} {'ess':>12}"]
    for row in rows:
        interval = "" if math.isnan(row["low"]) else f"[{row['low']:.6g}, {row['high']:.6g}]"
        ess = "" if math.isnan(row["ess"]) else f"{row['ess']:,.0f}"
        who = f"  {row['policy']:<{width}}  {row['estimator']:<{wide}}"
        beside = "; ".join(filter(None, [given_the_model * (given_the_model in row["method"]), row["warning"]]))
        lines.append(f"{who} {row['value']:>10.6g}  {interval:<25} {ess:>12}  {beside}".rstrip())
    return lines
