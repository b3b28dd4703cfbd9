"""What is told about a plan: its pictures, and the sections of its report."""

from __future__ import annotations

import math

from drstream.findings import Finding, sentence
from drstream.planning.result import Forecast
from drstream.report.answer import TOLD, UNKNOWN, Answer, cannot_tell, named
from drstream.report.contents import LackingError, Pictures, Report, Section, existing
from drstream.report.numbers import count, level, number, share
from drstream.report.origin import made_of
from drstream.report.pictures import Bars, Column, Picture


def report(forecast: Forecast) -> Report:
    """Return all that is told about a plan."""
    sections = []
    for name, title in SECTIONS.items():
        if shown := existing(PICTURES, name, forecast):
            sections.append(Section(name, title, shown))
    figures = [("Events", count(forecast.events)), ("Events in the sample", count(forecast.sample_events))]
    findings = [Finding(note.level, note.kind, None, math.nan, sentence(note)) for note in forecast.notes]
    subject = str(forecast.provenance.get("log", "")) or "log"
    made = made_of(forecast.provenance)
    return Report("Plan", subject, figures, {"": answer(forecast)}, findings, sections, made)


def answer(forecast: Forecast) -> Answer:
    """How precise a result will be."""
    known = [one for one in forecast.widths if math.isfinite(one.width)]
    of_all = f"on all {count(forecast.events)} events"
    if known:
        one = min(known, key=lambda width: width.width)
        width = f"an interval {number(one.width, 3)} wide ({level(forecast.confidence)})"
        return Answer(TOLD, f"{of_all.capitalize()}, {named(one.policy)} by {one.estimator} will get {width}.")
    if forecast.replays:
        run = max(forecast.replays, key=lambda one: one.replicates)
        times = f"{number(run.replicates, 3)} replicates of {run.horizon:,} steps"
        return Answer(TOLD, f"{of_all.capitalize()}, a replay of {named(run.policy)} will complete about {times}.")
    return Answer(UNKNOWN, cannot_tell("how precise a result will be", "no width could be forecast from the sample"))


def widths(forecast: Forecast) -> list[Picture]:
    """The width of each interval to come."""
    rows = [
        {
            **vars(one),
            "label": one.estimator,
            "group": one.policy,
            "width": one.width,
            "value": one.width,
            "estimate": one.value,
            "said": number(one.width, 3),
        }
        for one in forecast.widths
        if math.isfinite(one.width)
    ]
    if not rows:
        raise LackingError("plot('widths'): no width was forecast: plan with fixed policies")
    each = "; ".join(f"{row['group']} by {row['label']}: {row['said']}" for row in rows[:10])
    return [
        Bars(
            "Width of the interval to come",
            "The shorter, the more precise. It falls with the square root of the number of events.",
            f"{each}.",
            rows,
            (
                Column("policy", "policy", "text"),
                Column("estimator", "estimator", "text"),
                Column("width", "width"),
                Column("error", "known to", "share"),
                Column("rows_to_halve", "rows to halve it", "count"),
                Column("exploration", "exploration to halve it"),
            ),
        )
    ]


def replays(forecast: Forecast) -> list[Picture]:
    """How many replicates a replay will complete."""
    rows = [
        {
            **vars(one),
            "label": one.level,
            "group": one.policy,
            "value": one.replicates,
            "said": number(one.replicates, 3),
        }
        for one in forecast.replays
    ]
    if not rows:
        raise LackingError("plot('replays'): no replay was forecast: plan with a horizon")
    return [
        Bars(
            "Replicates that a replay will complete",
            "More replicates give a narrower interval. At least two are needed for one.",
            "; ".join(
                f"{row['group']}, {row['label']}: {row['said']} ({share(row['acceptance'])} accepted)"
                for row in rows[:10]
            ),
            rows,
            (
                Column("policy", "policy", "text"),
                Column("label", "level", "text"),
                Column("replicates", "replicates"),
                Column("acceptance", "accepted", "share"),
                Column("events_for_one", "events for one", "count"),
                Column("events_for_ten", "events for ten", "count"),
                Column("width", "width of the interval"),
            ),
        )
    ]


PICTURES: Pictures = {"widths": widths, "replays": replays}
SECTIONS = {"widths": "Precision", "replays": "Replays"}
FIRST = "widths"  # the picture that a notebook shows
