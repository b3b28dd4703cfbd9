"""What a study found, in short: its figures and tables as they are shown. results/NAME.json has that of the last run.

Pages take their figures from there; tests/project/test_studies.py looks up each of them. Raw rows are not kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from drstream.states.files import atomic_path

FOLDER = Path(__file__).parent / "results"
Rows = Sequence[Sequence[str]]


@dataclass
class Found:
    """The results of a study, or of some of its parts.

    made     How each part was made: commit, date, machine, versions.
    figures  Single figures, by what they are.
    tables   Tables by title: the head, then the rows.
    """

    made: dict[str, str] = field(default_factory=dict)
    figures: dict[str, str] = field(default_factory=dict)
    tables: dict[str, list[list[str]]] = field(default_factory=dict)

    def table(self, title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        self.tables[title] = [list(head), *map(list, rows)]

    def update(self, later: Found) -> None:
        """Replace what a later run has found again; the rest stays."""
        self.made |= later.made
        self.figures |= later.figures
        self.tables |= later.tables

    def write(self, path: Path) -> None:
        """Write a line for each figure and each row, so that a change can be read."""
        parts = [
            f'"made": {_lines(self.made)}',
            f'"figures": {_lines(self.figures)}',
            '"tables": {\n' + ",\n".join(f"{_line(t)}: [\n{_rows(rows)}\n]" for t, rows in self.tables.items()) + "\n}",
        ]
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path) as unfinished:
            unfinished.write_text("{\n" + ",\n".join(parts) + "\n}\n")

    def shown(self) -> str:
        """All of it in Markdown."""
        blocks = ["\n".join(f"- {name}: {text}" for name, text in found.items()) for found in (self.figures, self.made)]
        blocks[1:1] = [f"{title}\n\n{markdown(head, rows)}" for title, (head, *rows) in self.tables.items()]
        return "\n\n".join(block for block in blocks if block)


def read(path: Path) -> Found:
    return Found(**json.loads(path.read_text())) if path.is_file() else Found()


def markdown(head: Sequence[str], rows: Rows) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def _line(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _lines(found: dict[str, str]) -> str:
    return "{\n" + ",\n".join(f"{_line(name)}: {_line(text)}" for name, text in found.items()) + "\n}"


def _rows(rows: Rows) -> str:
    return ",\n".join(map(_line, rows))
