"""States that merge: each says, field by field, how those of two stretches of rows become one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, Self


def joined_by(join: Callable[[Any, Any], Any]) -> dict[str, Any]:
    """Return metadata of a field whose values this function joins. Others are added, or merge themselves."""
    return {"join": join}


class Merging:
    """A dataclass of sums. A field that is None belongs to what the log has not."""

    def merge(self, other: Self) -> None:
        """Add the rows that come after these."""
        for of_state in fields(self):  # type: ignore[arg-type]
            mine, later = getattr(self, of_state.name), getattr(other, of_state.name)
            if join := of_state.metadata.get("join"):
                setattr(self, of_state.name, join(mine, later))
            elif hasattr(mine, "merge"):
                mine.merge(later)
            elif mine is not None:
                setattr(self, of_state.name, mine + later)
