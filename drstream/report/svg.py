"""Pictures as SVG text, for wide and for narrow screens. Colours and fonts come from the style sheet."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from drstream.report.html import Html, join, tag
from drstream.report.numbers import estimate
from drstream.report.pictures import Bars, Line, Lines, Picture, Row, Spans, tick_label, ticks

WIDE, NARROW = 760, 350  # pixels
LETTER = 6.7  # width of a letter, about
ROW, TALL = 26, 40  # heights of a row; of one whose label stands above it
SERIES = 6  # colours and dashes of lines


def draw(picture: Picture, width: int) -> Html:
    """Return the picture as an SVG element of this width."""
    if isinstance(picture, Spans):
        height, inside = _spans(picture, width)
    elif isinstance(picture, Lines):
        height, inside = _lines(picture, width)
    else:
        assert isinstance(picture, Bars)
        height, inside = _bars(picture, width)
    words = tag("title", picture.title), tag("desc", picture.alt)
    size = {"width": width, "height": _r(height), "viewBox": f"0 0 {width} {_r(height)}"}
    return tag("svg", *words, inside, role="img", aria_label=f"{picture.title}. {picture.alt}", **size)


def _r(value: float) -> str:
    """Return a coordinate."""
    return f"{value:.1f}".removesuffix(".0")


def _text(x: float, y: float, said: object, kind: str = "", anchor: str = "") -> Html:
    return tag("text", said, x=_r(x), y=_r(y), class_=kind or None, text_anchor=anchor or None)


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Html:
    return tag("line", x1=_r(x1), y1=_r(y1), x2=_r(x2), y2=_r(y2), class_=kind)


def _fitting(label: str, width: float) -> str:
    """Return a label, shortened to a width."""
    letters = max(3, int(width / LETTER))
    return label if len(label) <= letters else f"{label[: letters - 1]}…"


def _scale(limits: tuple[float, float], start: float, end: float) -> Callable[[float], float]:
    low, high = limits
    return lambda value: start + (value - low) / (high - low) * (end - start)


# Estimates with their intervals


def _spans(picture: Spans, width: int) -> tuple[float, Html]:
    rows, narrow = picture.drawn, width < 500
    longest = max((len(str(row["label"])) for row in rows), default=0)
    said = {id(row): estimate(row["value"], row["low"], row["high"], signed=picture.signed) for row in rows}
    left = 12.0 if narrow else min(max(longest * LETTER + 24, 90.0), 250.0)
    right = 12.0 if narrow else min(max(map(len, said.values()), default=0) * LETTER + 16, 230.0)
    x = _scale(picture.limits(), left + 4, width - right - 4)
    top = 24.0 if picture.reference_label else 8.0
    y, parts, group = top, [], None
    for row in rows:
        if row.get("group") and row["group"] != group:
            group = row["group"]
            parts.append(_text(2, y + 17, _fitting(str(group), width - 10), "group"))
            y += ROW
        if narrow:
            room = width - len(said[id(row)]) * LETTER - 20
            parts.append(_text(10, y + 14, _fitting(str(row["label"]), room)))
            parts.append(_text(width - 2, y + 14, said[id(row)], "value", "end"))
            parts.append(_span(row, x, y + 27, left, width - right))
            y += TALL
        else:
            parts.append(_text(12 if group else 2, y + 17, _fitting(str(row["label"]), left - 16)))
            parts.append(_text(width - 2, y + 17, said[id(row)], "value", "end"))
            parts.append(_span(row, x, y + 13, left, width - right))
            y += ROW
    frame = [_axis(picture.limits(), x, top, y, picture.axis, (left + width - right) / 2, 4 if narrow else 6)]
    if math.isfinite(picture.reference):
        at = x(picture.reference)
        frame.append(_line(at, top - 2, at, y + 2, "reference"))
        frame.append(_label_at(at, 14, picture.reference_label, width))
    return y + 44, join(*frame, *parts)


def _label_at(at: float, y: float, label: str, width: int) -> Html:
    """Return a text around a place, that stays inside the picture."""
    half = len(label) * LETTER / 2
    place = min(max(at, half + 2), width - half - 2)
    return _text(place, y, label, "reference-label", "middle")


def _span(row: Row, x: Callable[[float], float], y: float, left: float, right: float) -> Html:
    if not math.isfinite(row["value"]):
        return join(None)
    low, high = (x(row[end]) if math.isfinite(row[end]) else math.nan for end in ("low", "high"))
    at, parts = x(row["value"]), []
    if not math.isnan(low) and not math.isnan(high):
        start, end = max(low, left), min(high, right)
        if start <= end:
            parts.append(_line(start, y, end, y, "span"))
        parts += [_line(cap, y - 4, cap, y + 4, "span") for cap in (low, high) if left <= cap <= right]
        if low < left:
            parts.append(_arrow(left, y, 1))
        if high > right:
            parts.append(_arrow(right, y, -1))
    if left <= at <= right:
        parts.append(tag("circle", cx=_r(at), cy=_r(y), r="5" if row.get("main") else "4"))
    return tag("g", *parts, class_=f"mark {row.get('tone') or ''}{' main' if row.get('main') else ''}".strip())


def _arrow(x: float, y: float, way: int) -> Html:
    return tag("polygon", points=f"{_r(x)},{_r(y)} {_r(x + 7 * way)},{_r(y - 4)} {_r(x + 7 * way)},{_r(y + 4)}")


def _axis(
    limits: tuple[float, float],
    x: Callable[[float], float],
    top: float,
    bottom: float,
    label: str,
    centre: float,
    count: int,
) -> Html:
    found = ticks(*limits, count)
    step = found[1] - found[0] if len(found) > 1 else 1.0
    parts = [_line(x(at), top, x(at), bottom + 4, "grid") for at in found]
    parts += [_text(x(at), bottom + 18, tick_label(at, step), "tick", "middle") for at in found]
    return join(*parts, _text(centre, bottom + 36, label, "axis", "middle"))


# Lines


def _lines(picture: Lines, width: int) -> tuple[float, Html]:
    height = 300.0 if width > 500 else 240.0
    limits_x, limits_y = picture.limits()
    legend, top = _legend(picture.lines, width) if len(picture.lines) > 1 else (join(None), 10.0)
    left, right, bottom = 64.0, width - 14.0, top + height
    x, y = _scale(limits_x, left, right), _scale(limits_y, bottom, top)
    parts = [legend, _axis(limits_x, x, top, bottom, picture.x_label, (left + right) / 2, 4 if width < 500 else 6)]
    found = ticks(*limits_y, 5)
    step = found[1] - found[0] if len(found) > 1 else 1.0
    parts += [_line(left, y(at), right, y(at), "grid") for at in found]
    parts += [_text(left - 6, y(at) + 4, tick_label(at, step), "tick", "end") for at in found]
    turned = {"transform": f"translate(12 {_r((top + bottom) / 2)}) rotate(-90)"}
    parts.append(tag("text", picture.y_label, class_="axis", text_anchor="middle", **turned))
    if picture.diagonal:
        low, high = limits_x
        parts.append(_line(x(low), y(low), x(high), y(high), "reference"))
    for i, line in enumerate(picture.lines):
        parts.append(tag("g", *_of_line(picture, line, x, y), class_=f"line s{i % SERIES}"))
    return bottom + 44, join(*parts)


def _of_line(picture: Lines, line: Line, x: Callable[[float], float], y: Callable[[float], float]) -> list[Html]:
    rows, parts = picture.points(line), []
    if line.low:
        banded = [row for row in rows if math.isfinite(row[line.low]) and math.isfinite(row[line.high])]
        ends = [(row[picture.x], row[line.high]) for row in banded]
        ends += [(row[picture.x], row[line.low]) for row in reversed(banded)]
        if line.dots:
            parts += [_line(x(r[picture.x]), y(r[line.low]), x(r[picture.x]), y(r[line.high]), "error") for r in banded]
        elif len(banded) > 1:
            parts.append(tag("polygon", points=_points(ends, x, y), class_="band"))
    places = [(row[picture.x], row[line.y]) for row in rows]
    if line.dots or len(places) == 1:
        return parts + [tag("circle", cx=_r(x(a)), cy=_r(y(b)), r="3.5") for a, b in places]
    return [*parts, tag("polyline", points=_points(places, x, y))]


def _points(places: Sequence[tuple[float, float]], x: Callable[[float], float], y: Callable[[float], float]) -> str:
    return " ".join(f"{_r(x(a))},{_r(y(b))}" for a, b in places)


def _legend(lines: Sequence[Line], width: int) -> tuple[Html, float]:
    """Return the names of lines with their marks, and the height that they take."""
    parts, left, y = [], 4.0, 14.0
    for i, line in enumerate(lines):
        name = _fitting(line.name, width - 50)
        wide = 34 + len(name) * LETTER + 14
        if left + wide > width and left > 4:
            left, y = 4.0, y + 20
        mark = (
            tag("circle", cx=_r(left + 12), cy=_r(y - 4), r="3.5")
            if line.dots
            else tag("polyline", points=f"{_r(left)},{_r(y - 4)} {_r(left + 26)},{_r(y - 4)}")
        )
        parts.append(tag("g", mark, class_=f"line s{i % SERIES}"))
        parts.append(_text(left + 32, y, name))
        left += wide
    return join(*parts), y + 14


# Bars


def _bars(picture: Bars, width: int) -> tuple[float, Html]:
    rows, narrow = picture.drawn, width < 500
    longest = max((len(str(row["label"])) for row in rows), default=0)
    widest = max((len(str(row["said"])) for row in rows), default=0) * LETTER + 12
    left = 10.0 if narrow else min(max(longest * LETTER + 24, 80.0), 230.0)
    right = width - (12.0 if narrow else min(widest, 260.0))
    limits = picture.limits()
    x = _scale(limits, left, right)
    y, parts, group = 4.0, [], None
    for row in rows:
        if row.get("group") and row["group"] != group:
            group = row["group"]
            parts.append(_text(2, y + 17, _fitting(str(group), width - 10), "group"))
            y += ROW
        said = str(row["said"])
        bar_y = y + 20 if narrow else y + 6
        parts.append(
            _text(10 if group or narrow else 2, y + (14 if narrow else 18), _fitting(str(row["label"]), left - 16))
            if not narrow
            else _text(10, y + 14, _fitting(str(row["label"]), width - len(said) * LETTER - 24))
        )
        if math.isfinite(row["value"]):
            start, end = sorted((x(0.0), x(min(max(row["value"], limits[0]), limits[1]))))
            tone = row.get("tone") or ""
            length = max(end - start, 1.0 if row["value"] else 0.0)
            size = {"x": _r(start), "y": _r(bar_y), "width": _r(length), "height": "14" if not narrow else "12"}
            parts.append(tag("rect", rx="2", class_=f"bar {tone}".strip(), **size))
        parts.append(_text(width - 2, y + (14 if narrow else 18), said, "value", "end"))
        y += TALL if narrow else ROW
    parts.insert(0, _line(x(0.0), 2, x(0.0), y, "zero"))
    return y + 6, join(*parts)
