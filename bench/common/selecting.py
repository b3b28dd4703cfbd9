"""Marks the main rows: those at the top of the page, of its plot over commits, and of a quick run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def params(cases: Iterable[Any]) -> list[Any]:
    """Cases for pytest. Those with a main name are marked, so that `-m main` selects them."""
    return [pytest.param(case, id=str(case), marks=[pytest.mark.main] if case.main else []) for case in cases]


def main_names(cases: Iterable[Any]) -> dict[str, str]:
    """Short names of main rows, by the names of the rows."""
    return {str(case): case.main for case in cases if case.main}
