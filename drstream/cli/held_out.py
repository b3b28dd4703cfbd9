"""Which rows a command leaves out of its result, because models or policies were fitted on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from drstream.cli.specs import Fitting
    from drstream.log import Log


@dataclass(frozen=True)
class HeldOut:
    """Which rows of the log a result leaves out, because models or policies were fitted on them."""

    left: float  # share of the rows that the result is about
    fit: Fitting | None  # how models were fitted here; None if all came from elsewhere

    def to_dict(self) -> dict[str, Any]:
        """Return what provenance says about it."""
        if self.fit is None:
            return {"held_out": 1 - self.left} if self.left < 1 else {}
        about = {"share": self.fit.share, "seed": self.fit.seed, "cluster": self.fit.cluster}
        return {"held_out": 1 - self.left, "fit": about}

    def __str__(self) -> str:
        about = f"the result is about the other {100 * self.left:.6g} %"
        if self.fit is None:
            why = "models or policies from files were fitted on them"
            return f"{100 * (1 - self.left):.6g} % of the rows are held out, as {why}: {about}" if self.left < 1 else ""
        by = "" if self.fit.cluster is None else f" by {self.fit.cluster}"
        others = ", and rows that files were fitted on are held out, too" if self.left < 1 - self.fit.share else ""
        on = f"models were fitted on {100 * self.fit.share:.6g} % of the rows (split{by} with seed {self.fit.seed})"
        return f"{on}{others}: {about}"


def held_out(whole: Log, used: Log, fit: Fitting | None) -> HeldOut:
    """Return which share of a log is left for a result."""
    return HeldOut(used.share / whole.share if whole.share else 0.0, fit)
