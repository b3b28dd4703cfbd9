"""The page of a report: one file without scripts, fonts or links to elsewhere."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from drstream.errors import DrstreamError
from drstream.findings import LOOK, OK, STOP, Finding
from drstream.report import svg
from drstream.report.answer import WORDS, Answer, Verdict, shortened
from drstream.report.contents import Report, Section, Table
from drstream.report.html import Html, document, join, style, tag
from drstream.report.numbers import cell
from drstream.report.pictures import Bars, Column, Picture, Row, Spans
from drstream.states.files import atomic_path

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"  # nothing is loaded or run
)
LEVELS = {STOP: ("Stop", "do not use the number"), LOOK: ("Look", "read before you use the number"), OK: ("Fine", "")}
SIGNS = {STOP: "✕", LOOK: "!", OK: "✓"}
COUNTS = frozenset({"Rows", "Events used"})  # numbers that are not names
MOST_FINE = 100  # findings of level "ok" that are listed
MOST_ROWS = 200  # rows of a table
MOST_VERDICTS = 12  # policies that are listed under the answer
LONG = 40  # characters of a cell from which it may wrap


def write(report: Report, path: str | os.PathLike[str], command: str) -> None:
    """Write a report to a file, which appears only when it is complete."""
    page = render(report, command)
    try:
        with atomic_path(path) as unfinished:
            unfinished.write_text(page, encoding="utf-8")
    except (OSError, ValueError) as error:  # a name with a null character is a ValueError
        reason = getattr(error, "strerror", None) or error
        raise DrstreamError(f"report({os.fspath(path)!r}): cannot write the file: {reason}") from None


def render(report: Report, command: str) -> str:
    """Return the page.

    command  How to make the result again.
    """
    subject = report.subject.rpartition("/")[2] or report.subject  # the whole path stands at the end
    title = f"{report.kind} of {subject}"
    head = join(
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title} · drstream"),
        style("style.css"),
    )
    links = [("answer", "Answer"), *([("findings", "Findings")] if report.findings else [])]
    links += [(section.name, section.title) for section in report.sections] + [("made", "How it was made")]
    body = join(
        tag("a", "Skip to the answer", href="#answer", class_="skip"),
        tag("header", tag("p", tag("strong", report.kind), " of ", tag("span", subject, class_="subject"))),
        tag("nav", tag("ul", *(tag("li", tag("a", name, href=f"#{id}")) for id, name in links)), aria_label="Contents"),
        tag(
            "main",
            answers(report.answers),
            _figures(report.figures),
            _findings(report.findings),
            *map(_section, report.sections),
            _made(report.made, command),
        ),
        tag("footer", tag("p", "Made with drstream. This page is one file and loads nothing.")),
    )
    return document(head, body)


# The answer


def answers(found: Mapping[str, Answer]) -> Html:
    """Return the answers, the first one large."""
    several = len(found) > 1
    blocks = []
    for i, (name, one) in enumerate(found.items()):
        said = join(tag("span", f"{name}: ", class_="reward") if several else None, one.sentence)
        blocks.append(
            tag(
                "div",
                tag("h1" if i == 0 else "h2", said, class_="sentence"),
                tag("p", " ".join(one.beside)) if one.beside else None,
                _verdicts(one) if len(one.verdicts) > 1 else None,
                class_=f"answer {one.kind}",
            )
        )
    return tag("section", *blocks, id="answer", aria_label="Answer")


def _verdicts(one: Answer) -> Html:
    shown = one.verdicts[:MOST_VERDICTS]
    rows = [_verdict(verdict) for verdict in shown]
    more = len(one.verdicts) - len(shown)
    return tag("ul", *rows, tag("li", f"and {more} more, below") if more else None, class_="verdicts")


def _verdict(one: Verdict) -> Html:
    chip = tag("span", WORDS[one.kind], class_=f"chip {one.kind}")
    return tag("li", chip, " ", tag("b", shortened(one.policy)), " ", tag("span", one.brief, class_="brief"))


def _figures(figures: Sequence[tuple[str, str]]) -> Html:
    return tag("dl", *(tag("div", tag("dt", label), tag("dd", value)) for label, value in figures), class_="figures")


def _findings(findings: Sequence[Finding]) -> Html | None:
    if not findings:
        return None
    by_level = {level: [f for f in findings if f.level == level] for level in LEVELS}
    parts: list[Html] = []
    for level in (STOP, LOOK):
        if found := by_level[level]:
            title, means = LEVELS[level]
            parts.append(tag("h3", f"{title}: {means}"))
            parts.append(tag("ul", *(_finding(one) for one in found), class_="findings"))
    if not parts:
        parts.append(tag("p", "No check has anything to say against this result."))
    if fine := by_level[OK]:
        more = len(fine) - MOST_FINE
        rest = tag("li", f"and {more} more, in result.findings") if more > 0 else None
        listed = tag("ul", *(_finding(one) for one in fine[:MOST_FINE]), rest, class_="findings")
        many = f"{len(fine)} check{'s' * (len(fine) > 1)} without objection"
        parts.append(tag("details", tag("summary", many), listed))
    return tag("section", tag("h2", "Findings"), *parts, id="findings")


def _finding(one: Finding) -> Html:
    sign = tag("span", SIGNS[one.level], class_="sign", aria_hidden="true")
    return tag("li", sign, tag("span", f"{LEVELS[one.level][0]}: ", class_="hidden"), one.message, class_=one.level)


# Sections


def _section(section: Section) -> Html:
    shown, said = [], ""
    for one in section.shown:
        shown.append(_shown(one, under=section.title, said=said))
        said = one.caption if isinstance(one, Picture) else ""  # which need not be said again
    return tag("section", tag("h2", section.title), *shown, id=section.name)


def _shown(one: Picture | Table, under: str, said: str) -> Html:
    if isinstance(one, Table):
        return tag("details", tag("summary", one.title), table(one.rows, one.columns, one.title))
    return figure(one, (svg.WIDE, svg.NARROW), titled=one.title != under, captioned=one.caption != said)


def figure(picture: Picture, widths: Sequence[int], *, titled: bool = True, captioned: bool = True) -> Html:
    """Return a picture at these widths, of which the style shows one, with its caption and the table behind it."""
    drawings = [tag("div", svg.draw(picture, width), class_="wide" if width > 500 else "narrow") for width in widths]
    cut = len(picture.rows) - len(picture.drawn) if isinstance(picture, Spans | Bars) else 0
    left_out = f" The picture shows {len(picture.drawn)} of {len(picture.rows)} rows." if cut else ""
    text = f"{picture.caption if captioned else ''}{left_out}"
    head = tag("h3", picture.title) if titled else None
    caption = tag("figcaption", head, tag("p", text) if text else None)
    behind = tag("details", tag("summary", "Table"), table(_distinct(picture), picture.columns, picture.title))
    return tag("figure", caption, *drawings, behind)


def _distinct(picture: Picture) -> list[Row]:
    """Return the rows of a picture for its table: a curve can draw one row twice."""
    keys = [column.key for column in picture.columns]
    found: dict[tuple[Any, ...], Row] = {}
    for row in picture.rows:
        found.setdefault(tuple(str(row.get(key)) for key in keys), row)
    return list(found.values())


def table(rows: Sequence[Row], columns: Sequence[Column], title: str) -> Html:
    """Return a table. It scrolls by itself, also with the keyboard."""
    heads = [tag("th", column.label, scope="col", class_=_side(column)) for column in columns]
    lines = [tag("tr", *(_cell(row.get(column.key), column) for column in columns)) for row in rows[:MOST_ROWS]]
    more = len(rows) - len(lines)
    cut = tag("p", f"{more:,} more rows are in the tables of the result, in Python and JSON.") if more else None
    whole = tag("table", tag("caption", title, class_="hidden"), tag("thead", tag("tr", *heads)), tag("tbody", *lines))
    return tag("div", whole, cut, class_="scroll", tabindex="0", role="region", aria_label=f"Table: {title}")


def _side(column: Column) -> str | None:
    return None if column.kind in ("text", "flag") else "number"


def _cell(value: Any, column: Column) -> Html:
    said = cell(value, column.kind)
    return tag("td", said, class_="long" if len(said) > LONG else _side(column))


# How it was made


def _made(made: Sequence[tuple[str, Any]], command: str) -> Html:
    rows = [
        tag("div", tag("dt", label), tag("dd", _value(f"{value:,}" if label in COUNTS else value)))
        for label, value in made
    ]
    again = join(tag("h3", "To make it again"), tag("pre", tag("code", command), tabindex="0")) if command else None
    return tag("section", tag("h2", "How it was made"), tag("dl", *rows, class_="made"), again, id="made")


def _value(value: Any) -> Html:
    """Return a value of the provenance: dictionaries and lists of them as lists, others as text."""
    if isinstance(value, Mapping):
        items = [tag("li", tag("b", key), ": ", _value(one)) for key, one in value.items() if one is not None]
        return tag("ul", *items)
    if isinstance(value, list) and any(isinstance(one, Mapping) for one in value):
        return tag("ul", *(tag("li", _value(one)) for one in value))
    if isinstance(value, list):
        return join(", ".join(map(str, value)))
    return join(value)
