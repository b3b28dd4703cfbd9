"""Writes the page's section about states."""

from __future__ import annotations

from bench.common.markdown import Info, table, verdict

STATES = (
    "Each of 30 days has a state, in memory. `drs.merge` reads all of them, checks that they fit together, and makes "
    "the result with its intervals. The time is the median of five runs, with the smallest and the largest. It does "
    "not depend on the number of events."
)


def sections(kinds: dict[str, list[Info]], full: bool) -> list[str]:
    found = kinds["states"]
    if not found:
        return []
    rows = ((info["what"], f"{info['bytes'] / 1000:,.0f} kB", *main_cells(info), verdict(info, full)) for info in found)
    return ["## States of 30 days", STATES, table(("what", "a state", "merged in", "required", "met"), rows)]


def main_cells(info: Info) -> tuple[str, str]:
    """The figure and the requirement, for the main table."""
    figure = f"{info['seconds']:.3g} s ({min(info['all_seconds']):.3g} to {max(info['all_seconds']):.3g})"
    return figure, "" if info["required"] is None else f"at most {info['required']:g} s"
