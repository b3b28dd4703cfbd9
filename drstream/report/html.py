"""HTML from text. This is the only file that makes `Html`: any other string that gets into a page is escaped here."""

from __future__ import annotations

import html
from importlib.resources import files
from typing import Any

from drstream.errors import in_python, shown, without_secrets

VOID = frozenset({"br", "meta", "circle", "line", "path", "rect", "polygon", "polyline"})  # elements without an end tag
URLS = frozenset({"href", "src"})
LONGEST = 2_000  # characters of one text: a name can be of any length


class Html(str):
    """Text that is HTML already. `tag` and `join` make it; a string from data never becomes one."""

    __slots__ = ()


def text(value: Any) -> Html:
    """Return a value as HTML that shows it: escaped, without secrets, with visible control characters.

    >>> text("<b>&\x1b[31m")
    '&lt;b&gt;&amp;\\\\x1b[31m'
    """
    if isinstance(value, Html):
        return value
    plain = without_secrets(in_python(str(value))).encode("utf-8", "replace").decode()  # lone surrogates are no text
    if len(plain) > LONGEST:
        plain = f"{plain[:LONGEST]}…"
    return Html(html.escape(shown(plain)))


def join(*parts: Any) -> Html:
    """Return some parts, one after the other. None is nothing."""
    return Html("".join(text(part) for part in parts if part is not None))


def tag(name: str, /, *children: Any, **attributes: Any) -> Html:
    """Return an element. Names of attributes are written with _ for -, and end in _ where Python has the word.

    >>> tag("p", "1 < 2", class_="note", data_x=None)
    '<p class="note">1 &lt; 2</p>'
    """
    said = []
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        word = key.rstrip("_").replace("_", "-")
        assert word not in URLS or str(value).startswith("#"), "a report links to itself only"
        said.append(f" {word}" if value is True else f' {word}="{text(value)}"')
    start = f"<{name}{''.join(said)}>"
    if name in VOID:
        return Html(start if name in ("br", "meta") else f"{start[:-1]}/>")
    return Html(f"{start}{join(*children)}</{name}>")


def style(name: str) -> Html:
    """Return a style sheet of this package as an element."""
    css = files(__package__).joinpath(name).read_text(encoding="utf-8")
    return Html(f"<style>{css}</style>")


def document(head: Html, body: Html) -> str:
    """Return a whole page."""
    return f'<!DOCTYPE html>\n<html lang="en" dir="ltr">\n<head>{head}</head>\n<body>{body}</body>\n</html>\n'
