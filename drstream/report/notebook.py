"""What notebooks show: a part of the report in a cell. It takes fonts and colours from the notebook."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from drstream.findings import to_show
from drstream.report import svg
from drstream.report.answer import WORDS
from drstream.report.contents import Report
from drstream.report.html import Html, style, tag
from drstream.report.page import SIGNS, figure
from drstream.report.pictures import Picture

MOST = 8  # findings, and policies


def result(report: Report, pictures: Sequence[Picture]) -> Html:
    """Return the answer of a result, its findings and its first picture."""
    parts: list[Html | None] = []
    for name, one in report.answers.items():
        said = f"{name}: {one.sentence}" if len(report.answers) > 1 else one.sentence
        parts.append(tag("p", tag("strong", said), class_=f"answer {one.kind}"))
        if len(one.verdicts) > 1:
            rows = [tag("li", tag("b", v.policy), ": ", WORDS[v.kind], ", ", v.brief) for v in one.verdicts[:MOST]]
            parts.append(tag("ul", *rows))
    shown = to_show(report.findings)
    items = [tag("li", f"{SIGNS[one.level]} {one.level}: {one.message}") for one in shown[:MOST]]
    parts.append(tag("ul", *items) if items else None)
    parts += [figure(picture, (svg.WIDE,)) for picture in pictures[:1]]
    return tag("div", style("notebook.css"), *parts, class_="drstream")


def facts(title: str, rows: Sequence[tuple[str, Any]]) -> Html:
    """Return an object as a heading and a table of two columns."""
    lines = [tag("tr", tag("th", name, scope="row"), tag("td", value)) for name, value in rows]
    return tag("div", style("notebook.css"), tag("p", tag("strong", title)), tag("table", *lines), class_="drstream")


def of_text(text: str, more: Sequence[tuple[str, Any]] = ()) -> Html:
    """Return a `repr` of drstream as a table: a title, and lines of a name and a value. More lines follow."""
    head, *lines = text.splitlines() or [""]
    rows: list[tuple[str, str]] = []
    for line in lines:
        name, _, value = line.strip().partition("  ")
        if value:
            rows.append((name, value.strip()))
        elif rows:
            rows[-1] = rows[-1][0], f"{rows[-1][1]} {name}"
        else:
            rows.append(("", name))
    return facts(head, [*rows, *more])
