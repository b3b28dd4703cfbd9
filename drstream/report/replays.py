"""What is told about replays: their pictures, and the sections of their report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from drstream.findings import Finding, sentence
from drstream.replaying.comparison import Replays
from drstream.replaying.result import Replay
from drstream.report.answer import BETTER, TOLD, UNKNOWN, UNSURE, Answer, cannot_tell, first_sentence, named, start
from drstream.report.contents import LackingError, Pictures, Report, Section, existing
from drstream.report.evaluations import calibration
from drstream.report.numbers import count, estimate, level, number, share
from drstream.report.origin import made_of
from drstream.report.pictures import Column, Line, Lines, Picture, Row, Spans
from drstream.results import Note

POINTS = 60  # of a curve
MOST_CURVES = 6  # in one picture


def report(result: Replay | Replays) -> Report:
    """Return all that is told about one replay, or several."""
    runs, first = _runs(result), _runs(result)[0]
    sections = []
    for name, title in SECTIONS.items():
        if shown := existing(PICTURES, name, result):
            sections.append(Section(name, title, shown))
    made = [("Method", first.method), ("Horizon", f"{first.horizon:,} steps"), ("Multiplier", first.level)]
    made += [("Models", how)] if (how := first.how()) else []
    about = made_of(result.provenance)
    subject = str(result.provenance.get("log", "")) or "log"
    findings = [_finding(note) for note in result.notes]
    return Report("Replay", subject, _figures(runs), {"": answer(result)}, findings, sections, [*made, *about])


def _runs(result: Replay | Replays) -> list[Replay]:
    return result.runs if isinstance(result, Replays) else [result]


def _finding(note: Note) -> Finding:
    return Finding(note.level, note.kind, None, math.nan, sentence(note))


def _figures(runs: Sequence[Replay]) -> list[tuple[str, str]]:
    first = runs[0]
    found = [("Events replayed", count(max(run.events for run in runs))), ("Steps", count(first.horizon))]
    if len(runs) == 1:
        found.append(("Replicates", count(first.complete)))
        found.append(("Events accepted", share(first.acceptance)))
        if first.complete and first.method != "dm":
            found.append(("Bias mass", number(first.bias_mass, 3)))
    else:
        found.append(("Simulations", count(len(runs))))
    return found


def answer(result: Replay | Replays) -> Answer:
    """The answer: what a policy would earn, and, with several, which earns the most."""
    runs = _runs(result)
    said = [(run, *_of_run(run)) for run in runs]
    if len(runs) == 1:
        return Answer(said[0][1], said[0][2], _beside(runs))
    known = [run for run, kind, _ in said if kind == TOLD]
    unknown = [sentence for _, kind, sentence in said if kind == UNKNOWN]
    if len(known) < 2:
        first, others = (UNKNOWN, unknown[0]), unknown[1:]
        if known:
            first, others = _of_run(known[0]), unknown
        return Answer(*first, [*others, *_beside(runs)])
    assert isinstance(result, Replays)
    best, second = sorted(known, key=lambda run: -run.value)[:2]
    gain = result.difference(_key(result, best), _key(result, second))
    told = f"({level(best.confidence)} interval, first {best.horizon:,} steps, {count(best.events)} events)"
    most = f"Of {len(runs)} simulations, {_name(best, result)} earns the most: {_said(best)} a step {told}"
    name = f"{_name(second, result)}, the next best"
    if gain.low > 0:
        sentence = f"{most}; it beats {name}, by {estimate(gain.value, gain.low, gain.high)}."
        return Answer(BETTER, sentence, [*unknown, *_beside(runs)])
    return Answer(UNSURE, f"{most}; no difference to {name}, can be told.", [*unknown, *_beside(runs)])


def _of_run(run: Replay) -> tuple[str, str]:
    what = f"what {named(run.policy)} would earn in {run.horizon:,} steps"
    if not run.complete:
        return UNKNOWN, cannot_tell(what, first_sentence(str(run.failure).partition(" (policy ")[0]))
    if not (math.isfinite(run.low) and math.isfinite(run.high)):
        return UNKNOWN, cannot_tell(
            what, f"{run.complete} replicate gives no interval" if run.complete == 1 else "no interval"
        )
    told = f"{level(run.confidence)} interval, {run.complete:,} replicates, {count(run.events)} events"
    first = "in its first step" if run.horizon == 1 else f"over its first {run.horizon:,} steps"
    trusted = " if the reward model is right" if run.method == "dm" else ""
    return TOLD, start(f"{named(run.policy)} would earn {_said(run)} a step {first}{trusted} ({told}).")


def _said(run: Replay) -> str:
    return estimate(run.value, run.low, run.high)


def _beside(runs: Sequence[Replay]) -> list[str]:
    table = runs[0].calibration
    if table is None:
        return []
    events, reward = table["events"].to_numpy(), table["reward"].to_numpy()
    return [f"The mean reward of the log is {number(float(events @ reward / events.sum()))} an event."]


def _name(run: Replay, result: Replay | Replays) -> str:
    """Return what tells a run from the others."""
    parts = [named(run.policy)]
    if isinstance(result, Replays):
        parts += [run.level] if len(result.levels) > 1 else []
        parts += [f"seed {run.seed}"] if len(result.seeds) > 1 else []
    return ", ".join(parts)


def _key(runs: Replays, run: Replay) -> tuple[Any, ...]:
    """Return the key of a run in `runs`."""
    level = (run.level_value,) if len(runs.levels) > 1 else ()
    return (run.policy, *level, *((run.seed,) if len(runs.seeds) > 1 else ()))


# Pictures


def _complete(result: Replay | Replays, what: str) -> list[Replay]:
    found = [run for run in _runs(result) if run.complete]
    if not found:
        raise LackingError(f"plot({what!r}): {_runs(result)[0].failure}")
    return found


def _some(runs: Sequence[Replay]) -> list[Replay]:
    """Return as many runs as a picture can hold, of as many policies as there are."""
    by_policy: dict[str, list[Replay]] = {}
    for run in runs:
        by_policy.setdefault(run.policy, []).append(run)
    in_turn = [run for turn in zip_longest(*by_policy.values()) for run in turn if run is not None]
    return in_turn[:MOST_CURVES]


def _steps(run: Replay) -> list[Row]:
    """The curve of a run in at most POINTS points, each of several steps."""
    curve, table = run._outcome.curve, run.curve
    starts = np.unique(np.arange(min(POINTS, len(curve))) * len(curve) // min(POINTS, len(curve)))
    last = np.append(starts[1:], len(curve)) - 1
    sums = {name: np.add.reduceat(curve[name], starts) for name in ("mean_reward", "mean_weight", "all_mass")}
    sums["all_importance"] = np.add.reduceat(curve["all_importance"], starts)
    columns = {name: table[name].to_numpy()[last] for name in ("t", "average", "average_low", "average_high")}
    multiplier = np.add.reduceat(table["c"].to_numpy(), starts) / np.diff(np.append(starts, len(curve)))
    with np.errstate(all="ignore"):
        columns |= {"reward": sums["mean_reward"] / sums["mean_weight"], "c": multiplier}
        columns["bias_mass"] = sums["all_mass"] / sums["all_importance"]
    return [dict(zip(columns, map(float, row), strict=True)) for row in zip(*columns.values(), strict=True)]


def curve(result: Replay | Replays) -> list[Picture]:
    """The mean reward up to each step, with its band, and the reward of single steps."""
    known = _complete(result, "curve")
    runs = _some(known)
    rows, lines = [], []
    for run in runs:
        name = _name(run, result)
        found = _steps(run)
        rows += [{**row, "series": name, "policy": name} for row in found]
        lines.append(Line(name, "average", "average_low", "average_high"))
    if len(runs) == 1:
        rows += [{**row, "series": "reward around step t"} for row in rows]
        lines = [
            Line(lines[0].name, *("average", "average_low", "average_high")),
            Line("reward around step t", "reward", dots=True),
        ]
    ends = "; ".join(f"{_name(run, result)}: {_said(run)}" for run in runs)
    return [
        Lines(
            "Learning curve",
            "The line is the mean reward a step so far, with its interval as a band. It rises while the policy learns. "
            + ("Dots are the reward of the steps around t alone." if len(runs) == 1 else "")
            + (f"{len(runs)} of {len(known)} simulations are shown." if len(runs) < len(known) else ""),
            f"Mean reward over all {runs[0].horizon:,} steps: {ends}.",
            rows,
            (
                Column("policy", "policy", "text"),
                Column("t", "step", "count"),
                Column("average", "mean reward so far"),
                Column("average_low", "low"),
                Column("average_high", "high"),
                Column("reward", "reward around this step"),
            ),
            lines=lines,
            x_label="simulated step t",
            y_label="reward a step",
        )
    ]


def _over_steps(result: Replay | Replays, what: str, key: str, title: str, caption: str) -> list[Picture]:
    runs = _some(_complete(result, what))
    rows = [{**row, "series": _name(run, result)} for run in runs for row in _steps(run)]
    values = [row[key] for row in rows if math.isfinite(row[key])]
    if not values:
        raise LackingError(f"plot({what!r}): it is not known for this method")
    return [
        Lines(
            title,
            caption,
            f"From {number(min(values), 3)} to {number(max(values), 3)} over {runs[0].horizon:,} steps.",
            rows,
            (Column("series", "policy", "text"), Column("t", "step", "count"), Column(key, title)),
            lines=[Line(_name(run, result), key) for run in runs],
            x_label="simulated step t",
            y_label=title.lower(),
            from_zero=True,
        )
    ]


def multiplier(result: Replay | Replays) -> list[Picture]:
    """The multiplier c over the steps."""
    caption = (
        "The multiplier decides how many events are accepted into the simulated history. A larger one accepts more, "
        "and adds bias."
    )
    return _over_steps(result, "multiplier", "c", "Multiplier c", caption)


def bias_mass(result: Replay | Replays) -> list[Picture]:
    """The bias mass over the steps."""
    if _runs(result)[0].method == "dm":
        raise LackingError("plot('bias_mass'): the bias of dm is that of its model")
    caption = "The share of the policy's probability that the simulation loses. The smaller, the less bias."
    return _over_steps(result, "bias_mass", "bias_mass", "Bias mass", caption)


def grid(result: Replay | Replays) -> list[Picture]:
    """Every target of the bias mass that was tried."""
    found: list[Picture] = []
    for run in _complete(result, "grid"):
        rows = [row for row in run.grid.to_pylist() if not math.isnan(row["bias"])]
        if len(rows) < 2:
            continue
        spans = [
            {
                **row,
                "label": f"target {row['bias']:g}",
                "group": None,
                "main": row["pooled"],
                "tone": "" if row["pooled"] else "faint",
            }
            for row in rows
        ]
        used = ", ".join(f"{row['bias']:g}" for row in rows if row["pooled"])
        found.append(
            Spans(
                f"{_name(run, result)}: targets of the bias mass",
                "A larger target accepts more events: more replicates, less spread, more bias. Large dots are pooled "
                "in the result.",
                f"{len(rows)} targets were tried, and {used} are pooled.",
                spans,
                (
                    Column("bias", "target"),
                    Column("bias_mass", "bias mass"),
                    Column("c", "c"),
                    Column("value", "reward a step"),
                    Column("low", "low"),
                    Column("high", "high"),
                    Column("replicates", "replicates", "count"),
                    Column("acceptance", "accepted", "share"),
                    Column("pooled", "in the result", "flag"),
                ),
                axis="reward a step",
                reference=run.value,
                reference_label=f"result: {number(run.value)}",
            )
        )
    if not found:
        raise LackingError("plot('grid'): only one target of the bias mass was tried: leave bias at auto")
    return found


def runs(result: Replay | Replays) -> list[Picture]:
    """The average reward a step of each run."""
    if len(_runs(result)) == 1:
        raise LackingError("plot('runs'): this is one simulation: replay several policies to compare them")
    known = _complete(result, "runs")
    rows = []
    for run in known:
        row = run.row()
        taken = {
            name: row[name] for name in ("policy", "value", "low", "high", "replicates", "acceptance", "bias_mass")
        }
        rows.append({**taken, "label": _name(run, result), "group": None, "main": True, "tone": ""})
    each = "; ".join(f"{row['label']}: {estimate(row['value'], row['low'], row['high'])}" for row in rows[:10])
    return [
        Spans(
            "Reward a step",
            "A dot is what a policy would earn a step, on average. Its line is the interval, which holds "
            "the true value as often as its confidence says.",
            f"{each}.",
            rows,
            (
                Column("label", "simulation", "text"),
                Column("value", "reward a step"),
                Column("low", "low"),
                Column("high", "high"),
                Column("replicates", "replicates", "count"),
                Column("acceptance", "accepted", "share"),
                Column("bias_mass", "bias mass"),
            ),
            axis="reward a step",
        )
    ]


def model(result: Replay | Replays) -> list[Picture]:
    """The calibration of the reward model, which all runs share."""
    return calibration(_runs(result)[0])


PICTURES: Pictures = {
    "curve": curve,
    "runs": runs,
    "multiplier": multiplier,
    "bias_mass": bias_mass,
    "grid": grid,
    "calibration": model,
}
SECTIONS = {
    "runs": "Results",
    "curve": "Learning curve",
    "grid": "Targets that were tried",
    "multiplier": "Multiplier c",
    "bias_mass": "Bias mass",
    "calibration": "Reward model",
}
FIRST = "curve"  # the picture that a notebook shows
