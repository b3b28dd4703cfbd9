"""Writes the page's section about where the time goes."""

from __future__ import annotations

from bench.common.markdown import Info, table
from bench.profile.steps import CHUNKS, DECODING, EVENTS, LOOP, VIEWS

PROFILE = (
    "Nanoseconds for each event, on one worker thread (a replay has one shard), by clocks around the steps: medians of "
    "five runs. Decoding reads the file, and decodes its columns. Views and checks are Arrow columns as arrays, and "
    "bad rows. "
    "Scores to sums is one compiled call: products, probabilities, weights, terms, moments. A replay prepares chunks "
    "(random numbers, predictions, contexts in tiles) on the thread that reads, beside the loop of Algorithm 1: the "
    "slower of the two counts, and the sum can exceed the whole. The rest is opening the log, the first rows, threads, "
    "freeing memory, and the result. What a missed requirement lacks is in one of these columns."
)
STEPS = (DECODING, VIEWS, EVENTS, CHUNKS, LOOP)


def sections(kinds: dict[str, list[Info]], full: bool) -> list[str]:
    found = kinds["profile"]
    if not found:
        return []
    rows = (
        (
            info["task"],
            info["log"],
            f"{info['whole']:.1f}",
            *(f"{info['steps'][step]:.1f}" if info["steps"].get(step) else "" for step in STEPS),
        )
        for info in found
    )
    return ["## Where the time goes", PROFILE, table(("what", "log", "whole", *STEPS), rows)]
