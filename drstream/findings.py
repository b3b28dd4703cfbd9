"""What a result or an audit found out about itself: findings, each with a level, and how they are shown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

OK, LOOK, STOP = LEVELS = ("ok", "look", "stop")


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


def worst(findings: Iterable[Finding]) -> str:
    """Return the worst level of some findings; "ok" if there are none."""
    return max((f.level for f in findings), key=LEVELS.index, default=OK)


def to_show(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings that a reader must see, the worst first."""
    return sorted((f for f in findings if f.level != OK), key=lambda f: -LEVELS.index(f.level))
