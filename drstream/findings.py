"""What a result or an audit found out about itself: findings, each with a level, and how they are shown.

What is doubtful before the first row is read, e.g. that a policy was learned from the events of the log, is a warning
and a finding of the result: `doubt` makes both, and a run takes the findings with `gathered`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from typing import Any

from drstream.errors import in_python, shown, warn_user, without_secrets

OK, LOOK, STOP = LEVELS = ("ok", "look", "stop")
CATEGORIES = "categories"  # the check for categories that a policy or model does not know
SAME = "identity"  # the check whether policies and models were the same


@dataclass(frozen=True)
class Finding:
    """One thing that was checked.

    level    "ok"; "look": read the message before you use the number; "stop": do not use the number.
    check    The name of the check, for code.
    policy   The policy that the finding is about; None if it is about the log.
    value    The number that was checked; NaN if there is none.
    message  What is seen, what it means, and what to do.
    """

    level: str
    check: str
    policy: str | None
    value: float
    message: str

    def __str__(self) -> str:
        return f"{self.level}: {self.message}"

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON, with null for an undefined value."""
        return {**asdict(self), "value": self.value if math.isfinite(self.value) else None}

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Finding:
        """Return the finding of a dictionary. A ValueError, KeyError or TypeError says that it is none."""
        level, check, policy, value, message = (found[one] for one in ("level", "check", "policy", "value", "message"))
        words = [level, check, message, *([] if policy is None else [policy])]
        if level not in LEVELS or not all(isinstance(word, str) for word in words):
            raise ValueError(f"finding {found!r}")
        return cls(level, check, policy, math.nan if value is None else float(value), message)


def worst(findings: Iterable[Finding]) -> str:
    """Return the worst level of some findings; "ok" if there are none."""
    return max((f.level for f in findings), key=LEVELS.index, default=OK)


def to_show(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings that a reader must see, the worst first."""
    return sorted((f for f in findings if f.level != OK), key=lambda f: -LEVELS.index(f.level))


def distinct(findings: Iterable[Finding]) -> list[Finding]:
    """Return each finding once."""
    return list({(one.level, one.check, one.policy, one.message): one for one in findings}.values())


def worst_of_each(lists: Iterable[Sequence[Finding]]) -> list[Finding]:
    """Return, for each check and policy, the findings of that list where they are worst, the first one in a tie."""
    kept: dict[tuple[str, str | None], list[Finding]] = {}
    for findings in lists:
        here: dict[tuple[str, str | None], list[Finding]] = {}
        for one in findings:
            here.setdefault((one.check, one.policy), []).append(one)
        for key, found in here.items():
            if key not in kept or LEVELS.index(worst(found)) > LEVELS.index(worst(kept[key])):
                kept[key] = found
    return [one for found in kept.values() for one in found]


def sentence(text: str) -> str:
    """Return a text that begins with a capital letter and ends with a full stop.

    >>> sentence("the log is short: take a longer one")
    'The log is short: take a longer one.'
    """
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '?')) else '.'}"


_GATHERED: ContextVar[list[Finding] | None] = ContextVar("_GATHERED", default=None)


@contextmanager
def gathered() -> Iterator[list[Finding]]:
    """Return a list that takes each finding that `doubt` makes within the block, in this thread.

    Blocks may stand within others, as a plan evaluates a sample: the outer one takes the findings, too.
    """
    found: list[Finding] = []
    outer = _GATHERED.get()
    before = _GATHERED.set(found)
    try:
        yield found
    finally:
        _GATHERED.reset(before)
        if outer is not None:
            outer += found


def doubt(level: str, check: str, policy: str | None, message: str) -> None:
    """Warn the user, and make a finding of the run that is under way."""
    warn_user(message)
    found = _GATHERED.get()
    if found is not None:
        text = shown(without_secrets(in_python(message)))
        found.append(Finding(level, check, policy, math.nan, sentence(text)))
