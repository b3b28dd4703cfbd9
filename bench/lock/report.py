"""Writes the page's section about the interpreter's lock."""

from __future__ import annotations

from bench.common.markdown import Info, millions, table, verdict

LOCK = (
    "While `evaluate` holds the interpreter's lock, no other Python thread of the program runs. `evaluate` has one "
    "worker here. A second thread, in compiled code that never takes the lock, reads about a hundred million times a "
    "second whether any thread holds it. The share of these samples times the wall time, divided by the number of "
    "events, is the time for each event. It is the median of five runs, with the smallest and the largest. The time "
    "includes what a fixed cost of each call adds: opening the log, and making the result. Before each case, the same "
    "samples must find a loop in Python above 98% and a sleep below 1%."
)


def sections(kinds: dict[str, list[Info]], full: bool) -> list[str]:
    found = kinds["lock"]
    if not found:
        return []
    rows = (
        (
            info["task"],
            f"{info['log']}, {millions(info['rows'])} rows",
            millions(info["events_per_second"]),
            f"{info['share']:.1%}",
            *main_cells(info),
            verdict(info, full),
        )
        for info in found
    )
    head = ("what", "log", "events/s", "share of the time", "for each event", "required", "met")
    return ["## The interpreter's lock", LOCK, table(head, rows)]


def main_cells(info: Info) -> tuple[str, str]:
    """The figure and the requirement, for the main table."""
    figure = f"{info['ns']:.3g} ns ({min(info['all_ns']):.3g} to {max(info['all_ns']):.3g})"
    return figure, "" if info["required"] is None else f"at most {info['required']:g} ns"
