"""What a report is made of: an answer, figures, sections with pictures, and how the result was made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from drstream.errors import DrstreamError, suggest
from drstream.findings import Finding
from drstream.report.answer import Answer
from drstream.report.pictures import Column, Picture, Row


@dataclass(frozen=True)
class Table:
    """A table without a picture."""

    title: str
    rows: Sequence[Row]
    columns: Sequence[Column]


@dataclass(frozen=True)
class Section:
    """A part of a report: a heading, and pictures or tables."""

    name: str  # for links
    title: str
    shown: Sequence[Picture | Table]


@dataclass(frozen=True)
class Report:
    """All that a report tells.

    kind      What was done, e.g. "Evaluation".
    subject   What it was done to: the log.
    figures   Short facts: a label and a value.
    answers   The answer; with several rewards, one for each, by its name.
    findings  What the result found out about itself.
    made      How it was made: a label and what it was.
    """

    kind: str
    subject: str
    figures: Sequence[tuple[str, str]]
    answers: Mapping[str, Answer]
    findings: Sequence[Finding]
    sections: Sequence[Section]
    made: Sequence[tuple[str, Any]]


class LackingError(DrstreamError):
    """A result lacks what a picture needs. The message says what to do."""


Pictures = Mapping[str, Callable[[Any], Sequence[Picture]]]  # by name; the first is drawn by default


def picture(pictures: Pictures, result: Any, what: str | None) -> Picture:
    """Return the first picture of a name; by default, of the first one."""
    name = next(iter(pictures)) if what is None else what
    if name not in pictures:
        raise DrstreamError(f"plot({what!r}): there is no such picture of this result: {suggest(str(what), pictures)}")
    return pictures[name](result)[0]


def existing(pictures: Pictures, name: str, result: Any) -> Sequence[Picture]:
    """Return the pictures of a name, or none if the result lacks what they need."""
    try:
        return pictures[name](result)
    except LackingError:
        return ()
