"""Writes the page's section about the interpreter's lock."""

from __future__ import annotations

from bench.common.markdown import Info, millions, table, verdict
from bench.lock import cases
from bench.profile.steps import DECODING, EVENTS, VIEWS

LOCK = (
    "While `evaluate` holds the interpreter's lock, no other Python thread of the program runs. `evaluate` has one "
    "worker here. A second thread, in compiled code that never takes the lock, reads about a hundred million times a "
    "second whether any thread holds it. The share of these samples times the wall time, divided by the number of "
    "events, is the time for each event. It is the median of five runs, with the smallest and the largest. The time "
    "includes what a fixed cost of each call adds: opening the log, and making the result. Before each case, the same "
    "samples must find a loop in Python above 98% and a sleep below 1%. The last columns are five more runs, in which "
    "samples are counted by step, as in the section before. In each row group, Python checks and wraps every column, "
    "makes one compiled call and merges one state. So most of the time is a cost of a row group, and files with fewer "
    "rows in each have more of it. The rest is opening the log, the plan, states, and the result."
)
STEPS = (DECODING, VIEWS, EVENTS, cases.REST)


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
            *(f"{info['steps'][step]:.2f}" if step in info.get("steps", {}) else "" for step in STEPS),
        )
        for info in found
    )
    head = ("what", "log", "events/s", "share of the time", "for each event", "required", "met", *STEPS)
    return ["## The interpreter's lock", LOCK, table(head, rows)]


def main_cells(info: Info) -> tuple[str, str]:
    """The figure and the requirement, for the main table."""
    figure = f"{info['ns']:.3g} ns ({min(info['all_ns']):.3g} to {max(info['all_ns']):.3g})"
    return figure, "" if info["required"] is None else f"at most {info['required']:g} ns"
