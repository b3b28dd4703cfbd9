"""Writes the page's section about states."""

from __future__ import annotations

from bench.common.markdown import Info, table, verdict

STATES = (
    "Each of 30 days has a state, in memory. `drs.merge` reads all of them, checks that they fit together, and makes "
    "the result with its intervals. The time is the median of five runs, with the smallest and the largest. It does "
    "not depend on the number of events."
)


CHECKPOINTS = (
    "A run on four copies of a log writes a checkpoint every second. By default, there are 30 seconds between two. The "
    "share is the time that the run spends on them, in the thread that waits for all others: the median of all runs, "
    "with the smallest and the largest. The ratio is that of the throughput to the same run without, of runs in turns. "
    "It is noisy."
)


def sections(kinds: dict[str, list[Info]], full: bool) -> list[str]:
    return [*_states(kinds["states"], full), *_checkpoints(kinds["checkpoints"], full)]


def _checkpoints(found: list[Info], full: bool) -> list[str]:
    if not found:
        return []
    rows = ((i["what"], f"{i['writes']:g}", *main_cells(i), f"{i['ratio']:.2f}", verdict(i, full)) for i in found)
    columns = "of", "checkpoints written", "share of the time", "required", "ratio", "met"
    return ["## Checkpoints", CHECKPOINTS, table(columns, rows)]


def _states(found: list[Info], full: bool) -> list[str]:
    if not found:
        return []
    rows = ((info["what"], f"{info['bytes'] / 1000:,.0f} kB", *main_cells(info), verdict(info, full)) for info in found)
    return ["## States of 30 days", STATES, table(("what", "a state", "merged in", "required", "met"), rows)]


def main_cells(info: Info) -> tuple[str, str]:
    """The figure and the requirement, for the main table."""
    if info["kind"] == "checkpoints":
        low, high = min(info["all_shares"]), max(info["all_shares"])
        return f"{info['share']:.1%} ({low:.1%} to {high:.1%})", f"at most {info['required']:.0%}"
    figure = f"{info['seconds']:.3g} s ({min(info['all_seconds']):.3g} to {max(info['all_seconds']):.3g})"
    return figure, "" if info["required"] is None else f"at most {info['required']:g} s"
