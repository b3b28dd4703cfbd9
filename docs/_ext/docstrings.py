"""Docstrings in the house's style become reStructuredText: what `help()` shows as a table is one in the site, too.

    name        What it is, perhaps
                on several lines.
    long_name_or_several, names
                What they are.

Such lines become definitions, and `names` in backticks links. What is special to reStructuredText is escaped,
as docstrings are plain text. Examples (>>>) and indented formulas stay as they are.
"""

import re

TERM = r"[\w*]+(?:\([\w, ]*\))?(?:, [\w*]+)*"
ENTRY = re.compile(rf"({TERM}) {{2,}}(\S.*)")  # name    text
ALONE = re.compile(TERM)  # a name that is too long for the column of names
CALL = re.compile(r"\w+\([\w, ]+\)")  # a line that shows how something is called
CODE = re.compile(r"`([^`]+)`")
NAME = re.compile(r"[A-Za-z_][\w.]*")
PAGE = re.compile(r"\bdocs/([\w-]+)\.md\b")


def restructured(lines):
    """Return the lines of a docstring as lines of reStructuredText."""
    found, column, k = [], None, 0
    while k < len(lines):
        line = lines[k]
        entry = _entry(lines, k, column)
        if line.startswith(">>>"):
            rest = _until_blank(lines, k)
            found += ["", *rest, ""]
            k += len(rest)
        elif line.startswith("    "):
            rest = _indented(lines, k)
            found += ["", "::", "", *rest, ""]
            k += len(rest)
        elif entry:
            term, text, column = entry
            rest = _indented(lines, k + 1, blank=False)
            terms = ", ".join(f"``{name}``" for name in re.split(r", (?![^(]*\))", term))
            found += [terms, *(f"    {_escaped(part.strip())}" for part in [text, *rest] if part.strip())]
            k += 1 + len(rest)
        elif CALL.fullmatch(line):
            found += ["", f"``{line}``", ""]
            k += 1
        else:
            column = None if line.strip() else column
            found.append(_escaped(line))
            k += 1
    return found


def _entry(lines, k, column):
    """The name, the text beside it and the column of texts, if the line begins a definition."""
    line = lines[k]
    if match := ENTRY.fullmatch(line):
        return match[1], match[2], match.start(2)
    if column and ALONE.fullmatch(line[: column - 1]) and line[column - 1 : column] == " ":  # it fills the column
        return line[: column - 1], line[column:], column
    below = lines[k + 1] if k + 1 < len(lines) else ""
    if ALONE.fullmatch(line) and below.startswith(" " * 8):
        return line, "", len(below) - len(below.lstrip())
    return None


def _until_blank(lines, k):
    end = next((j for j in range(k, len(lines)) if not lines[j].strip()), len(lines))
    return lines[k:end]


def _indented(lines, k, blank=True):
    """The lines from k on that are indented; blank lines between them, too."""
    end = j = k
    while j < len(lines) and (lines[j].startswith("  ") or (blank and not lines[j].strip())):
        j += 1
        if lines[j - 1].strip():
            end = j
    return lines[k:end]


def _escaped(text):
    pieces = CODE.split(text)  # plain, code, plain, ...
    plain = (PAGE.sub(r":doc:`/\1`", _plain(piece)) for piece in pieces[::2])
    code = [_code(piece) for piece in pieces[1::2]] + [""]
    return "".join(a + b for a, b in zip(plain, code, strict=True))


def _plain(text):
    return re.sub(r"_(?!\w)", r"\\_", re.sub(r"([\\*|])", r"\\\1", text))


def _code(text):
    if not NAME.fullmatch(text):
        return f"``{text}``"
    return f":py:obj:`{text} <drstream{text[3:]}>`" if text.startswith("drs.") else f":py:obj:`{text}`"


def process(app, what, name, obj, options, lines):
    lines[:] = [*restructured(lines), ""]


def setup(app):
    app.connect("autodoc-process-docstring", process)
    return {"parallel_read_safe": True}
