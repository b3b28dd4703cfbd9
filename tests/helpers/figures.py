"""Figures on pages, and whether the results of a study have them.

What stands between `<!-- figures: NAME -->` and `<!-- end -->` on a page is about scripts/studies/results/NAME.json. A
row of a table must have the cells of a row there, in their order, but may leave some out. A number in the text must be
one of the figures there.
"""

import re

REGION = re.compile(r"<!-- figures: (\w+) -->\n(.*?)<!-- end -->", re.DOTALL)
NUMBER = re.compile(r"(?<![A-Za-z\d])\d+(?:[,.]\d+)*(?:e[-+]?\d+)?")  # not those of names, such as float32
NO_FIGURES = re.compile(  # code, targets of links, headings, and references
    r"```.*?```|`[^`]*`|\]\([^)]*\)|^#[^\n]*"
    r"|(?:[Ss]ections?|[Tt]heorem|[Ff]igures?|[Tt]able|Algorithm|ADR|eq\.) \(?\d[\d.]*(?: and \d[\d.]*)?",
    re.MULTILINE | re.DOTALL,
)


def regions(text):
    """The name of a study and what is about it, for each such part of a page."""
    return REGION.findall(text)


def unknown(text, found):
    """The rows and numbers of a text that the results do not have."""
    lines = text.splitlines()
    body = [i for i, line in enumerate(lines) if line.startswith("|")]
    heads = {i for i in body if i - 1 not in body}
    rows = [lines[i] for i in body if not {i, i - 1} & heads]  # a head, and the line under it, have no figures
    known = [[_plain(cell) for cell in row] for table in found.tables.values() for row in table]
    prose = "\n".join(line for line in lines if not line.startswith("|"))
    figures = {number for value in found.figures.values() for number in NUMBER.findall(value)}
    wrong = [row for row in rows if not any(_within(_cells(row), other) for other in known)]
    return wrong + [number for number in NUMBER.findall(NO_FIGURES.sub(" ", prose)) if number not in figures]


def _cells(row):
    """The cells with figures."""
    return [cell for cell in map(_plain, row.strip().strip("|").split("|")) if NUMBER.search(cell)]


def _plain(cell):
    return cell.replace("*", "").strip()


def _within(cells, row):
    rest = iter(row)
    return all(cell in rest for cell in cells)
