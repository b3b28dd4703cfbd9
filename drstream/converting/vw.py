"""Vowpal Wabbit's text for contextual bandits: `action:cost:probability tag|namespace feature:value ...`."""

from __future__ import annotations

import re

from drstream.converting.events import NO_LABEL, Features, LeftOut, LineEvent, Syntax
from drstream.sources.text import NOT_UTF8

ACTION = re.compile(r"[1-9][0-9]{0,8}")
SPACE = re.compile(r"[ \t\n\v\f\r]+")  # what separates words; a name may hold other spaces of Unicode
EXPECTED = "a label is action:cost:probability, e.g. 2:0.5:0.25, with actions from 1 on"
ADF = "'shared' begins an event of several lines (adf), which is read from dsjson only: write the log as dsjson. Found"


def parse(data: bytes) -> LineEvent | None:
    try:
        line = data.decode()
    except UnicodeDecodeError:
        raise LeftOut(f"{data[:60]!r} is not UTF-8: {NOT_UTF8}") from None
    head, *spaces = line.split("|")
    words = [word for word in SPACE.split(head) if word]
    if not words and not spaces:
        return None
    if not spaces:
        raise LeftOut(f"there is no bar (|) in {line.strip()!r}", skippable=words[0] != "shared")
    tag = None
    if words and (words[-1].startswith("'") or not SPACE.fullmatch(head[-1])):
        tag = words.pop().removeprefix("'")
    if words[:1] == ["shared"] or (not words and tag == "shared"):
        raise LeftOut(f"{ADF} {head.strip()!r}", skippable=False)
    if not words and tag is not None and tag.count(":") == 2:
        raise LeftOut(f"the label {tag!r} touches the bar, which makes it a tag: write a space between")
    if not words:
        raise LeftOut(f"there is no label in {line.strip()[:60]!r}", NO_LABEL)
    if len(words) > 1:
        raise LeftOut(f"there are {len(words)} labels in {head.strip()!r}: a log has one")
    parts = words[0].split(":")
    numbers = [_number(part) for part in parts[1:]]
    if len(parts) != 3 or not ACTION.fullmatch(parts[0]) or None in numbers:
        raise LeftOut(f"{EXPECTED}, but got {words[0]!r}")
    cost, probability = numbers
    assert cost is not None
    assert probability is not None
    features = [feature for space in spaces for feature in _features(space)]
    return LineEvent(int(parts[0]), cost, probability, features, tag or None)


def _number(text: str) -> float | None:
    """Return a number; also nan and inf, which a log reports as bad values. Unlike `float`, it takes no 1_000."""
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def _features(space: str) -> Features:
    """Return the features of a namespace. What has a word as its value, as in city:Bern, is its own name."""
    first, *words = SPACE.split(space)
    name, colon, weight = first.partition(":")
    scale = _number(weight) if colon else 1.0
    if scale is None or (colon and not name):
        raise LeftOut(f"a namespace is name:weight, but got {first!r}")
    found: Features = []
    for word in words:
        if not word:
            continue
        feature, colon, text = word.partition(":")
        if not feature:
            raise LeftOut(f"a feature has no name: {word!r}")
        if colon and (not text or ":" in text):
            raise LeftOut(f"a feature is name:value, but got {word!r}")
        value = _number(text) if colon else 1.0
        found.append((f"{name}^{word}", scale) if value is None else (f"{name}^{feature}", value * scale))
    return found


VW = Syntax("Vowpal Wabbit's text", parse)
