"""Whether what a page or a notebook shows is what was printed, but for the last digits of numbers."""

import math
import re
from itertools import groupby

NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?(?!\w)")
TOLERANCE = 1e-3  # relative: other processors may round otherwise


def not_printed(shown, printed):
    """Lines of a ```text block that were not printed, or None; a line `...` stands for any lines left out."""
    pieces = [list(lines) for gap, lines in groupby(shown.splitlines(), lambda line: line == "...") if not gap]
    lines, start = printed.splitlines(), 0
    for piece in pieces:
        places = range(start, len(lines) - len(piece) + 1)
        found = next((i for i in places if all(map(alike, piece, lines[i : i + len(piece)]))), None)
        if found is None:
            return "\n".join(piece)
        start = found + len(piece)
    return None


def alike(shown, printed):
    """Whether two lines are the same but for the last digits of numbers, and the spaces that align them."""
    words = [NUMBER.sub("0", " ".join(line.split())) for line in (shown, printed)]
    numbers = [[float(n.replace(",", "")) for n in NUMBER.findall(line)] for line in (shown, printed)]
    return words[0] == words[1] and all(math.isclose(a, b, rel_tol=TOLERANCE) for a, b in zip(*numbers, strict=True))
