"""Whether a subclass has redefined something that another attribute describes, and so made it untrue."""

from __future__ import annotations


def older(kind: type, name: str, *others: str) -> bool:
    """Whether `name` is inherited from an older class than one of the others, and so does not know of it."""
    homes = {n: next(i for i, c in enumerate(kind.__mro__) if n in vars(c)) for n in (name, *others)}
    return any(homes[name] > homes[other] for other in others)
