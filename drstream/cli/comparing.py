"""Differences between two policies of one evaluation, for --compare."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from drstream.errors import DrstreamError, suggest

if TYPE_CHECKING:
    from drstream.evaluation.result import Evaluation

Pair = tuple[str, str]


def parse_pairs(texts: Iterable[str] | None, policies: Collection[str]) -> list[Pair]:
    """Parse --compare, e.g. `new,old`. Names may have commas: one of them must part two names.

    >>> parse_pairs(["new,old", "column:a,b,old"], ["new", "old", "column:a,b"])
    [('new', 'old'), ('column:a,b', 'old')]
    """
    return list(dict.fromkeys(_pair(text, policies) for text in texts or ()))


def _pair(text: str, policies: Collection[str]) -> Pair:
    words = text.split(",")
    ways = [(",".join(words[:i]).strip(), ",".join(words[i:]).strip()) for i in range(1, len(words))]
    if not ways:
        raise DrstreamError(f"--compare {text!r}: write two policies, as NEW,OLD")
    known = [way for way in ways if set(way) <= set(policies)]
    if not known:
        wrong = next(name for name in ways[0] if name not in policies)
        raise DrstreamError(f"--compare {text!r}: no policy is called {wrong!r}: {suggest(wrong, policies)}")
    if known[0][0] == known[0][1]:
        raise DrstreamError(f"--compare {text!r} names the same policy twice")
    return known[0]


def differences(result: Evaluation, pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    """One row for each pair and estimator: the first policy's value minus the second one's, with a paired interval."""
    rows = []
    for policy, other in pairs:
        for estimator in result.estimators:
            found = result.difference(policy, other, estimator)
            rows.append(
                {
                    "policy": policy,
                    "other": other,
                    "estimator": estimator,
                    "value": found.value,
                    "stderr": found.stderr,
                    "low": found.low,
                    "high": found.high,
                    "method": found.method,
                }
            )
    return rows


def with_differences(result: Evaluation, pairs: Sequence[Pair]) -> dict[str, Any]:
    """Return the result for JSON, with the differences of each reward."""
    from drstream.results import plain

    found = result.to_dict()
    if pairs:
        found["differences"] = plain(differences(result, pairs))
        for name, other in found.get("rewards", {}).items():
            other["differences"] = plain(differences(result.rewards[name], pairs))
    return found
