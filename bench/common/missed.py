"""Says by how much main rows miss their requirements, and what the profile shows about them."""

from __future__ import annotations

from collections.abc import Callable

from bench.common.logs import LIST, MAPPED_LIST, WIDE, LogFile
from bench.common.markdown import Info
from bench.eligible import cases as eligible
from bench.evaluation import cases as evaluation
from bench.lock import cases as lock
from bench.models import cases as models
from bench.others import cases as others
from bench.profile import cases as profile
from bench.profile.steps import CHUNKS, DECODING, LOOP, VIEWS
from bench.replaying import cases as replaying

Found = dict[str, Info]  # by name of the row
Reason = Callable[[Info, Found], str]


def of(label: str, info: Info, found: Found) -> str:
    """A line about a main row that misses its requirement."""
    if "ratio" in info:
        line = f"{info['ratio']:.3g} of {info['required']:.3g}, {1 - info['ratio'] / info['required']:.0%} too little."
    elif "ns" in info:
        line = f"{info['ns']:.3g} ns, {info['ns'] / info['required']:.3g} times what is allowed."
    elif info["kind"] == "compiling":
        line = f"{info['growth']:.3g} plain kernels, {info['growth'] / info['required']:.3g} times what is allowed."
    else:
        line = "see its section."
    reason = REASONS.get(info["name"])
    try:
        return f"- **{label}**: {line} {reason(info, found) if reason else ''}".rstrip()
    except KeyError:  # the profile was not measured in this run
        return f"- **{label}**: {line}"


def steps(found: Found, task: object, log: LogFile) -> tuple[float, dict[str, float]]:
    """Nanoseconds for each event on one thread: of all, and of each step."""
    info = found[str(profile.Case(task, log))]
    return info["whole"], info["steps"]


def beside_a_scan(info: Info, found: Found) -> str:
    whole, reading = (1e9 / info[name] for name in ("events_per_second", "baseline_events_per_second"))
    return (
        f"On two threads, the scan takes {reading:.1f} ns an event, and drstream {whole:.1f}. The difference is ten "
        "scores and ten predictions, exponentials, weights, terms, and sums with their buckets."
    )


def beside_others(info: Info, found: Found) -> str:
    whole, other = (1e9 / info[name] for name in ("events_per_second", "baseline_events_per_second"))
    return f"It takes {whole:.1f} ns an event, and the other side {other:.1f}."


def policies(info: Info, found: Found) -> str:
    whole, parts = steps(found, evaluation.FOUR, LIST)
    return (
        f"What all policies share is mostly decoding, {parts[DECODING]:.0f} of {whole:.0f} ns for one softmax policy "
        "on one thread. The faster it is, the lower is this ratio. Each further policy takes ten scores, its terms, "
        "and their covariances with the terms of all others, for differences between policies."
    )


def against_vowpal(info: Info, found: Found) -> str:
    _, parts = steps(found, replaying.GREEDY, MAPPED_LIST)
    needed = 1e9 / (info["required"] * info["baseline_events_per_second"])
    return (
        f"It would take {needed:.0f} ns an event. The loop of Algorithm 1 takes {parts[LOOP]:.0f}, one event after the "
        f"other; another thread reads ({parts[VIEWS]:.0f}) and prepares chunks ({parts[CHUNKS]:.0f})."
    )


def against_a_loop(info: Info, found: Found) -> str:
    _, parts = steps(found, replaying.GREEDY, MAPPED_LIST)
    return (
        f"The loop of Algorithm 1 takes {parts[LOOP]:.0f} ns an event. Another thread reads ({parts[VIEWS]:.0f}) and "
        f"prepares chunks ({parts[CHUNKS]:.0f}) meanwhile."
    )


def with_sets(info: Info, found: Found) -> str:
    return (
        "Without sets, rows go from the file to the kernel as they are. Sets are lists of many lengths, so their log "
        "goes by batches, as all logs did when this was required."
    )


def in_folds(info: Info, found: Found) -> str:
    whole, parts = steps(found, evaluation.FOUR, WIDE)
    return (
        f"One evaluation has become faster than the fit that it follows: {whole:.0f} ns an event on one thread, "
        f"{parts[DECODING]:.0f} of them for decoding. With folds, rows are put in the order of their folds, and the "
        "fit sums up products for each fold and action."
    )


def held(info: Info, found: Found) -> str:
    parts = ", ".join(f"{step} {ns:.1f}" for step, ns in info["steps"].items() if ns > 0)
    return (
        f"By step, with the fixed cost of a call: {parts} ns. Each batch of a row group has a compiled call, with "
        "Python code before and after it."
    )


def _names(where: list[str], reason: Reason) -> dict[str, Reason]:
    return dict.fromkeys(where, reason)


REASONS: dict[str, Reason] = {
    **_names([*others.SUMMARIES], beside_a_scan),
    **_names([str(c) for c in others.CASES], beside_others),
    **_names([str(c) for c in evaluation.CASES if c.task is not evaluation.MANY], beside_others),
    **_names([str(c) for c in evaluation.CASES if c.task is evaluation.MANY], policies),
    **_names([str(c) for c in replaying.CASES if c.baseline == replaying.VOWPAL], against_vowpal),
    **_names([str(c) for c in replaying.CASES if c.baseline == replaying.HAND], against_a_loop),
    **_names([str(c) for c in eligible.CASES], with_sets),
    **_names([str(c) for c in models.CROSSFITS], in_folds),
    **_names([str(c) for c in lock.CASES], held),
}
