"""What is told about an audit: its pictures, and the sections of its report."""

from __future__ import annotations

import math

from drstream.auditing.result import Audit
from drstream.findings import OK, STOP
from drstream.report.answer import TOLD, UNKNOWN, UNSURE, Answer, first_sentence
from drstream.report.contents import LackingError, Pictures, Report, Section, Table, existing
from drstream.report.numbers import count, number, share
from drstream.report.origin import made_of
from drstream.report.pictures import Bars, Column, Line, Lines, Picture, Spans


def report(audit: Audit) -> Report:
    """Return all that is told about an audit."""
    sections = []
    for name, title in SECTIONS.items():
        if shown := existing(PICTURES, name, audit):
            sections.append(Section(name, title, shown))
    if audit.bad:
        rows = [{"reason": reason, **about} for reason, about in audit.bad.items()]
        keys = list(dict.fromkeys(key for row in rows for key in row))
        columns = [Column(key, key.replace("_", " "), "count" if key == "count" else "text") for key in keys]
        sections.append(Section("bad", "Rows that cannot be used", [Table("Reasons", rows, columns)]))
    figures = [("Rows", count(audit.rows)), ("Checks", count(len(audit.findings)))]
    figures += [("Actions", count(audit.actions.num_rows))] if audit.actions.num_rows else []
    made = made_of(audit.provenance)
    return Report("Audit", audit.name, figures, {"": answer(audit)}, audit.findings, sections, made)


def answer(audit: Audit) -> Answer:
    """Whether the log can be trusted."""
    rows = f"({len(audit.findings)} checks, {count(audit.rows)} rows)"
    found = [finding for finding in audit.ordered() if finding.level == audit.level]
    if audit.level == OK:
        return Answer(TOLD, f"No check speaks against this log {rows}.")
    first = first_sentence(found[0].message)
    more = f" {len(found) - 1} more {'check says' if len(found) == 2 else 'checks say'} so." if len(found) > 1 else ""
    if audit.level == STOP:
        return Answer(UNKNOWN, f"Do not use this log as it is: {first} {rows}.{more}")
    many = "one thing" if len(found) == 1 else f"{len(found)} things"
    return Answer(UNSURE, f"Look at {many} before you use this log: {first} {rows}.")


def actions(audit: Audit) -> list[Picture]:
    """How often each action was logged."""
    rows = [row for row in audit.actions.to_pylist() if "share" in row]
    if not rows:
        raise LackingError("plot('actions'): the actions of this log are candidates, of which there may be millions")
    rows = [
        {
            **row,
            "label": str(row["action"]),
            "group": None,
            "value": row["share"],
            "said": f"{count(row['count'])} ({share(row['share'])})",
        }
        for row in rows
    ]
    rows.sort(key=lambda row: -row["count"])
    least = rows[-1]
    columns = [Column("label", "action", "text"), Column("count", "rows", "count"), Column("share", "share", "share")]
    return [
        Bars(
            "How often each action was logged",
            "A policy can be judged only where it takes actions that were logged.",
            f"{len(rows)} actions. The rarest, {least['label']}, was logged {count(least['count'])} times.",
            rows,
            columns,
        )
    ]


def propensities(audit: Audit) -> list[Picture]:
    """The mean of 1/p over the events of each action, which is 1 if propensities are right."""
    rows = []
    for row in audit.actions.to_pylist():
        if math.isfinite(row.get("mean_inverse", math.nan)) and math.isfinite(row["stderr"]):
            wide = 1.96 * row["stderr"]
            far = abs(row["z"]) > 4
            ends = {"value": row["mean_inverse"], "low": row["mean_inverse"] - wide, "high": row["mean_inverse"] + wide}
            rows.append(
                {**row, **ends, "label": str(row["action"]), "group": None, "tone": "stop" if far else "", "main": far}
            )
    if not rows:
        raise LackingError("plot('propensities'): this log has no propensities, or no actions of its own")
    far = [row["label"] for row in rows if row["main"]]
    rows.sort(key=lambda row: -abs(row["z"]))
    return [
        Spans(
            "Do the propensities agree with the actions?",
            "For each action, the mean of 1{a}/p over all events must be 1, up to chance. Lines are 95 % intervals. "
            "Actions that are far off have wrong propensities.",
            f"{len(rows)} actions. {'Far from 1: ' + ', '.join(far[:8]) if far else 'None is far from 1'}.",
            rows,
            (
                Column("label", "action", "text"),
                Column("count", "rows", "count"),
                Column("value", "mean of 1{a}/p"),
                Column("stderr", "standard error"),
                Column("z", "z against 1", "signed"),
            ),
            axis="mean of 1{a}/p",
            reference=1.0,
            reference_label="1: as it should be",
            most=30,
        )
    ]


def drift(audit: Audit) -> list[Picture]:
    """The mean reward by block of time."""
    if audit.blocks is None:
        raise LackingError("plot('drift'): this audit knows no times: give time=")
    rows = [{**row, "t": i + 1, "series": "blocks"} for i, row in enumerate(audit.blocks.to_pylist())]
    if not any(math.isfinite(row["reward"]) for row in rows):
        raise LackingError("plot('drift'): no block of time has a usable row")
    values = [row["reward"] for row in rows if math.isfinite(row["reward"])]
    return [
        Lines(
            "Mean reward over time",
            "Blocks of time in their order. A jump means that the world, or the logging policy, changed.",
            f"{len(rows)} blocks, from {number(min(values))} to {number(max(values))}.",
            rows,
            (
                Column("start", "from", "text"),
                Column("end", "to", "text"),
                Column("rows", "rows", "count"),
                Column("reward", "mean reward"),
                Column("reward_z", "z against the others", "signed"),
                Column("mean_inverse", "mean of 1/p"),
                Column("bad_share", "bad rows", "share"),
            ),
            lines=(Line("blocks", "reward"),),
            x_label="block of time",
            y_label="mean reward",
        )
    ]


PICTURES: Pictures = {"actions": actions, "propensities": propensities, "drift": drift}
SECTIONS = {"propensities": "Propensities", "actions": "Actions", "drift": "Time"}
FIRST = "propensities"  # the picture that a notebook shows
