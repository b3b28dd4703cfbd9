"""How numbers are said to people: few digits, signs, shares, large counts. Undefined is a dash."""

from __future__ import annotations

import math
from typing import Any

DASH = "–"
MINUS = "−"


def number(value: float, digits: int = 4) -> str:
    """Return a number with some significant digits.

    >>> number(0.123456), number(-1234567.0), number(math.nan), number(3)
    ('0.1235', '−1,234,567', '–', '3')
    """
    if not math.isfinite(value):
        return DASH if math.isnan(value) else "∞" if value > 0 else f"{MINUS}∞"
    if value == int(value) and abs(value) < 1e15:
        said = f"{int(value):,}"
    elif abs(value) >= 10 ** (digits - 1) and abs(value) < 1e15:
        said = f"{value:,.0f}"
    else:
        said = f"{value:.{digits}g}"
    return said.replace("-", MINUS)


def signed(value: float, digits: int = 4) -> str:
    """Return a number with its sign.

    >>> signed(0.5), signed(-2)
    ('+0.5', '−2')
    """
    return f"+{number(value, digits)}" if value > 0 else number(value, digits)


def level(confidence: float) -> str:
    """Return a confidence level.

    >>> level(0.95)
    '95 %'
    """
    return f"{100 * confidence:.6g} %"


def percent(value: float, width: float = math.nan) -> str:
    """Return a share in percent without its sign, with as many digits as the width of its interval makes sense of.

    >>> percent(0.0412345), percent(0.0412345, 0.058), percent(0.5), percent(12.345, 3.0)
    ('4.12', '4.1', '50', '1,234')
    """
    if not math.isfinite(value):
        return DASH
    if math.isfinite(width) and width > 0:
        places = min(max(1 - math.floor(math.log10(100 * width / 2)), 0), 6)
        return f"{100 * value:,.{places}f}".replace("-", MINUS)
    return number(100 * value, 3)


def share(value: float) -> str:
    """Return a share in percent, with its sign.

    >>> share(0.0123), share(math.nan)
    ('1.23 %', '–')
    """
    return DASH if math.isnan(value) else f"{percent(value)} %"


def count(value: float) -> str:
    """Return a count, short.

    >>> count(950), count(12_345), count(1_234_567), count(2.5e9)
    ('950', '12,345', '1.23 M', '2.5 G')
    """
    if not math.isfinite(value):
        return number(value)
    for size, word in ((1e9, "G"), (1e6, "M")):
        if value >= size:
            return f"{value / size:.3g} {word}"
    return f"{value:,.0f}"


def interval(low: float, high: float, digits: int = 4) -> str:
    """Return an interval; empty if there is none.

    >>> interval(0.1, 0.2), interval(math.nan, math.nan)
    ('[0.1, 0.2]', '')
    """
    return "" if math.isnan(low) or math.isnan(high) else f"[{number(low, digits)}, {number(high, digits)}]"


def estimate(value: float, low: float, high: float, *, signed: bool = False) -> str:
    """Return an estimate with its interval, all with the decimals that the width makes sense of.

    >>> estimate(0.0369041, 0.033412, 0.0404), estimate(0.5, math.nan, math.nan), estimate(1, 0.9, 1.1, signed=True)
    ('0.0369 [0.0334, 0.0404]', '0.5', '+1.00 [+0.90, +1.10]')
    """
    wide = high - low
    if not (math.isfinite(wide) and wide > 0 and math.isfinite(value)):
        plus = "+" if signed and value > 0 else ""
        return f"{plus}{number(value)} {interval(low, high)}".rstrip()
    places = 1 - math.floor(math.log10(wide / 2))
    if places > 8:
        said = [f"{x:{'+' if signed else ''}.3g}" for x in (value, low, high)]
    else:
        said = [f"{x:{'+' if signed else ''},.{max(places, 0)}f}" for x in (value, low, high)]
    said = [text.replace("-", MINUS) for text in said]
    return f"{said[0]} [{said[1]}, {said[2]}]"


def cell(value: Any, kind: str) -> str:
    """Return a value of a table by the kind of its column: text, number, signed, share, count or flag."""
    if value is None:
        return DASH
    if kind == "flag":
        return "yes" if value else "no"
    if kind == "text" or isinstance(value, str):
        return str(value)
    if kind == "count":
        return f"{value:,.0f}" if math.isfinite(value) else number(value)
    return {"number": number, "signed": signed, "share": share}[kind](value)
