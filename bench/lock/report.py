"""Writes the page's section about the interpreter's lock."""

from __future__ import annotations

from bench.common.markdown import Info, millions, table, verdict
from bench.lock import cases
from bench.profile.steps import CALL, DECODING, EVENTS

LOCK = (
    "While `evaluate` holds the interpreter's lock, no other Python thread of the program runs. `evaluate` has one "
    "worker here. A second thread, in compiled code that never takes the lock, reads about a hundred million times a "
    "second whether any thread holds it. The share of these samples times the wall time is the time in which it is "
    "held. The same is measured on a log with a fifth of the rows. The difference of the two, divided by that of the "
    "numbers of events, is the time for each event. What is left is the cost of each call, however many events there "
    "are: opening the log, the plan, and the result. Figures are medians of 15 pairs of runs. Before each case, the "
    "same samples must find a loop in Python above 98% and a sleep below 1%. The last columns are 15 more runs, in "
    "which samples are counted by step; the rest has the cost of the call in it. For each batch of rows, Python makes "
    "arrays of its columns and one compiled call. Files with few rows in a row group have more batches. Runs without a "
    "figure for each call counted its cost as one of events."
)
STEPS = {DECODING: "files and pages", CALL: CALL, EVENTS: "around it", cases.REST: cases.REST}


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
            f"{info['call_ms']:.1f} ms" if "call_ms" in info else "",
            f"{info['ns_with_call']:.3g} ns" if "ns_with_call" in info else "",
            *(f"{info['steps'][step]:.2f}" if step in info.get("steps", {}) else "" for step in STEPS),
        )
        for info in found
    )
    head = ("what", "log", "events/s", "share of the time", "for each event", "required", "met")
    head += ("for each call", "both", *STEPS.values())
    return ["## The interpreter's lock", LOCK, table(head, rows)]


def main_cells(info: Info) -> tuple[str, str]:
    """The figure and the requirement, for the main table."""
    figure = f"{info['ns']:.3g} ns ({min(info['all_ns']):.3g} to {max(info['all_ns']):.3g})"
    return figure, "" if info["required"] is None else f"at most {info['required']:g} ns"
