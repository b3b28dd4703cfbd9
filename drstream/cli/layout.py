"""Tables that fit the terminal. What does not fit beside the first columns stands below, so no number is cut."""

from __future__ import annotations

import os
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text as RichText

from drstream.errors import shown

IN_A_PIPE = 160  # columns, if nobody says how wide it is
BETWEEN, EDGES = 3, 2  # spaces between two columns, and around the table
WORDS = 16  # columns that words need at least; they go on in the next line


class Text(RichText):
    """Text from data, without codes that a terminal obeys."""

    def __init__(self, text: str = "", *given: Any, **named: Any) -> None:
        super().__init__(shown(text), *given, **named)


class SafeConsole(Console):
    """A console that prints strings as they are: no markup, no escape codes."""

    def print(self, *objects: Any, **named: Any) -> None:
        super().print(*(Text(thing) if isinstance(thing, str) else thing for thing in objects), **named)


def open_console() -> Console:
    """Return a console. In a pipe, it is wide enough for whole tables, unless COLUMNS says how wide it is."""
    console = SafeConsole()
    return console if console.is_terminal or os.environ.get("COLUMNS", "").isdigit() else SafeConsole(width=IN_A_PIPE)


def new_table() -> Table:
    return Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)


def print_table(console: Console, table: Table, keys: int = 1) -> None:
    """Print a table, or several below each other if it is too wide.

    keys  Number of first columns that say what a row is about. They stand in each of the tables.
    """
    widths = [max(_length(cell) for cell in (column.header, *column.cells)) for column in table.columns]
    numbers = [column.justify == "right" for column in table.columns]
    for chosen in _pieces(widths, keys, numbers, console.width):
        part = new_table()
        narrow = _total(widths, chosen) > console.width
        for place in chosen:
            column = table.columns[place]
            part.add_column(
                column.header,
                justify=column.justify,
                no_wrap=numbers[place] or (column.no_wrap and not narrow),
                overflow="fold",
                min_width=widths[place] if numbers[place] else None,
            )
        cells = [list(table.columns[place].cells) for place in chosen]
        for number, row in enumerate(table.rows):
            part.add_row(*(column[number] for column in cells), end_section=row.end_section)
        console.print(part)


def _length(cell: Any) -> int:
    return cell.cell_len if isinstance(cell, RichText) else RichText(cell).cell_len


def _total(widths: list[int], chosen: list[int]) -> int:
    return sum(widths[place] + BETWEEN for place in chosen) - BETWEEN + EDGES


def _pieces(widths: list[int], keys: int, numbers: list[bool], room: int) -> list[list[int]]:
    """Divide columns into tables that are no wider than the console, each with the key columns before the others.

    >>> _pieces([5, 5, 5, 5], 1, [True] * 4, 23)
    [[0, 1, 2], [0, 3]]
    """
    first = list(range(keys))
    needed = [width if number else min(width, WORDS) for width, number in zip(widths, numbers, strict=True)]
    pieces = [[*first]]
    for place in range(keys, len(widths)):
        if _total(needed, [*pieces[-1], place]) > room and len(pieces[-1]) > keys:
            pieces.append([*first])
        pieces[-1].append(place)
    return pieces
