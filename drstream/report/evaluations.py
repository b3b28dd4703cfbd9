"""What is told about an evaluation: its pictures, and the sections of its report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from drstream.errors import DrstreamError, phrase
from drstream.evaluation.explanation import INNER
from drstream.evaluation.result import Evaluation
from drstream.findings import STOP, Finding
from drstream.report import answer
from drstream.report.contents import LackingError, Pictures, Report, Section, Table, existing
from drstream.report.numbers import cell, count, level, number, share
from drstream.report.origin import made_of
from drstream.report.pictures import Bars, Column, Line, Lines, Picture, Row, Spans

MOST_DRAWN = 60  # estimates in one picture; with more, only those by one estimator
MOST_POLICIES = 12  # policies with pictures of their own
VALUE = (Column("value", "value"), Column("low", "low"), Column("high", "high"))


def report(result: Evaluation) -> Report:
    """Return all that is told about an evaluation. With several rewards, all of them."""
    several = len(result.rewards) > 1 and next(iter(result.rewards)) == result.reward
    about = list(result.rewards.values()) if several else [result]
    sections, findings = [], list[Finding]()
    for place, one in enumerate(about):
        sections += _sections(one, *((f"{one.reward}: ", f"{place}-") if several else ("", "")))
        findings += [finding for finding in one.findings if finding not in findings]
    answers = {one.reward: answer.of_evaluation(one) for one in about}
    name = str(result.provenance.get("log", "")) or "log"
    made = [("Estimators", ", ".join(result.estimators)), ("Interval", level(result.confidence))]
    made += [("Models", how)] if (how := result.how()) else []
    return Report(
        "Evaluation", name, _figures(result), answers, findings, sections, [*made, *made_of(result.provenance)]
    )


def _figures(result: Evaluation) -> list[tuple[str, str]]:
    base = result.baseline
    found = [("Lists" if result.lists else "Events", count(result.n))]
    if result.labels:
        found.append(("Actions", count(len(result.labels))))
    found.append((f"Mean {result.reward} in the log", number(base.value)))
    ess = [result[policy, result.headline].ess for policy in result.policies]
    if known := [x for x in ess if not math.isnan(x)]:
        found.append(("Smallest effective sample", f"{count(min(known))} ({share(min(known) / result.n)})"))
    if result.skipped:
        found.append(("Rows skipped", count(sum(result.skipped.values()))))
    return found


def _sections(result: Evaluation, of: str, prefix: str) -> list[Section]:
    found = []
    for name, title in SECTIONS.items():
        shown: list[Picture | Table] = list(existing(PICTURES, name, result))
        if name == "weights":
            shown += existing(PICTURES, "histogram", result)
            shown += [] if result.loggers is None else [_loggers(result)]
        if name == "estimates":
            shown += _tables(result)
        if shown:
            found.append(Section(f"{prefix}{name}", f"{of}{title}", shown))
    return found


def estimates(result: Evaluation) -> list[Picture]:
    """Every policy by every estimator, with the logging policy as a line."""
    rows = []
    for row in result.rows():
        main = row["estimator"] == result.headline
        tone = "stop" if result.stops(row["policy"], row["estimator"]) else ""
        taken = {name: row[name] for name in ("policy", "estimator", "value", "low", "high", "stderr", "ess", "method")}
        rows.append({**taken, "label": row["estimator"], "group": row["policy"], "main": main, "tone": tone})
    if len(rows) > MOST_DRAWN:
        rows = [{**row, "label": f"{row['policy']} ({row['estimator']})", "group": None} for row in rows]
        rows.sort(key=lambda row: not row["main"])
    base, per = result.baseline, " of a list" if result.lists else ""
    own = {"label": "logging policy", "group": None, "policy": "logging policy", "estimator": "mean of the log"}
    taken = {"value": base.value, "low": base.low, "high": base.high, "stderr": base.stderr, "ess": base.ess}
    rows.insert(0, {**own, **taken, "method": base.method, "main": False, "tone": ""})
    lines = [f"{r['policy']} by {r['estimator']}: {cell(r['value'], 'number')}" for r in rows if r["main"]]
    return [
        Spans(
            f"Estimated mean {result.reward}{per}",
            "A dot is an estimate. Its line is the interval, which holds the true value as often as its confidence "
            f"says. The dashed line is what the logging policy earned. Large dots are {result.headline}, by which "
            "policies are compared.",
            f"The logging policy earned {number(base.value)}. " + "; ".join(lines[:10]) + ".",
            rows,
            (
                Column("policy", "policy", "text"),
                Column("estimator", "estimator", "text"),
                *VALUE,
                Column("stderr", "standard error"),
                Column("ess", "effective sample", "count"),
                Column("method", "interval", "text"),
            ),
            axis=f"mean {result.reward}{per}",
            reference=base.value,
            reference_label=f"logging policy: {number(base.value)}",
        )
    ]


def differences(result: Evaluation) -> list[Picture]:
    """The paired difference of each policy to the logging policy, and of the best one to the others."""
    verdicts = [answer.of_policy(result, compared) for compared in result.comparisons()]
    base = result.baseline
    relative = answer.is_away_from_zero(base)
    rows = [_difference(v.gain, v.policy, "logging policy", v.kind, base.value, relative) for v in verdicts]
    known = [v for v in verdicts if v.kind != answer.UNKNOWN]
    if len(known) > 1:
        best = max(known, key=lambda v: v.gain.value)
        others = [v.policy for v in known[:MOST_DRAWN] if v is not best]
        pairs = [_pair(result, best.policy, other, base.value, relative) for other in others]
        rows += [row for row in pairs if row is not None]
    words = {"better": "better", "worse": "worse", "unsure": "no difference told", "unknown": "the log cannot tell"}
    said = [f"{v.policy}: {words[v.kind]}" for v in verdicts[:10]]
    columns = [
        Column("policy", "policy", "text"),
        Column("other", "against", "text"),
        Column("value", "difference", "signed"),
        Column("low", "low", "signed"),
        Column("high", "high", "signed"),
    ]
    if relative:
        columns.append(Column("relative", "of the log's mean", "share"))
    return [
        Spans(
            f"Difference to the logging policy, by {result.headline}",
            "Right of the dashed line is better than the logging policy, left of it is worse. If the line of a policy "
            "crosses it, no difference can be told. Differences are paired: event by event.",
            "; ".join(said) + ".",
            rows,
            [*columns, Column("verdict", "verdict", "text")],
            axis=f"difference in mean {result.reward}",
            reference=0.0,
            reference_label="no difference",
            signed=True,
        )
    ]


def _difference(gain: Any, policy: str, other: str, kind: str, base: float, relative: bool) -> Row:
    tone = {answer.UNKNOWN: "stop", answer.UNSURE: ""}.get(kind, kind)
    return {
        "policy": policy,
        "other": other,
        "label": policy,
        "group": f"against {other}",
        "value": gain.value,
        "low": gain.low,
        "high": gain.high,
        "relative": gain.value / base if relative else math.nan,
        "verdict": answer.WORDS[kind],
        "tone": tone,
        "main": kind in (answer.BETTER, answer.WORSE),
    }


def _pair(result: Evaluation, best: str, other: str, base: float, relative: bool) -> Row | None:
    """The best policy against another one; None if their covariances were not gathered."""
    try:
        gain = result.difference(best, other)
    except DrstreamError:
        return None
    kind = answer.BETTER if gain.low > 0 else answer.WORSE if gain.high < 0 else answer.UNSURE
    row = _difference(gain, best, other, kind, base, relative)
    return {**row, "label": other, "group": f"{best} against"}


def weights(result: Evaluation) -> list[Picture]:
    """The effective sample size and the largest weight of each policy."""
    rows: list[Row] = []
    for policy in result.policies:
        for estimator in result.estimators:
            found = result[policy, estimator]
            alike = next((r for r in rows if r["policy"] == policy and _same(r, found)), None)
            if alike is not None:
                alike["estimator"] = alike["label"] = f"{alike['estimator']}, {estimator}"
            if alike is not None or math.isnan(found.max_weight):
                continue
            tone = "stop" if found.ess < 20 else "look" if found.ess < 200 else ""
            said = f"{count(found.ess)} ({share(found.ess / found.n)}), largest {number(found.max_weight, 3)}"
            rows.append(
                {
                    "policy": policy,
                    "estimator": estimator,
                    "label": estimator,
                    "group": policy,
                    "value": found.ess / found.n,
                    "ess": found.ess,
                    "max_weight": found.max_weight,
                    "capped": found.capped,
                    "said": said,
                    "tone": tone,
                }
            )
    if not rows:
        raise LackingError("plot('weights'): no estimator of this result weighs events: ask for ips or dr")
    each = "; ".join(f"{r['policy']} by {r['estimator']}: {r['said']}" for r in rows[:10])
    return [
        Bars(
            "Effective sample size",
            "How many events the estimate is really made of, as a share of all. A policy that acts like the logging "
            "policy uses nearly all events. A short bar means that few events count: the policy "
            "often does something else than was logged, or large weights decide.",
            f"{each}.",
            rows,
            (
                Column("policy", "policy", "text"),
                Column("estimator", "estimator", "text"),
                Column("ess", "effective sample", "count"),
                Column("value", "share of the events", "share"),
                Column("max_weight", "largest weight"),
                Column("capped", "weights reduced", "share"),
            ),
            largest=1.0,
        )
    ]


def histogram(result: Evaluation) -> list[Picture]:
    """For each policy, how many events have which weight."""
    found: list[Picture] = []
    for policy in result.policies[:MOST_POLICIES]:
        try:
            table = result.weights(policy)
        except DrstreamError as error:
            raise LackingError(f"plot('histogram'): {error.message}") from None
        rows = []
        for row in table.to_pylist():
            part = row["events"] / result.n
            said = f"{count(row['events'])} ({share(part)})"
            rows.append({**row, "label": _octave(row), "group": None, "value": part, "said": said})
        zero = next((row["value"] for row in rows if not row["below"]), 0.0)
        most = max(rows, key=lambda row: row["value"])
        found.append(
            Bars(
                f"{policy}: weights by size",
                "How much an event counts for the policy, in steps of factor two. Weight 0: the policy would not have "
                "done what was logged. Around 1: it acts like the logging policy. A long tail of large weights means "
                "that few events decide.",
                f"{share(zero)} of the events have weight 0. Most have weight {most['label']}.",
                rows,
                (
                    Column("label", "weight", "text"),
                    Column("events", "events", "count"),
                    Column("value", "share", "share"),
                ),
            )
        )
    return found


def _octave(row: Row) -> str:
    low, high = row["from"], row["below"]
    if not high:
        return "0"
    return f"{number(low)} to {number(high)}" if math.isfinite(high) else f"{number(low)} and more"


def _same(row: Row, found: Any) -> bool:
    """Whether a row is about the same weights, which several estimators share."""
    return bool(row["ess"] == found.ess and row["max_weight"] == found.max_weight and row["capped"] == found.capped)


def calibration(result: Any) -> list[Picture]:
    """Mean reward by mean prediction of the reward model, for each decile of the predictions."""
    table = result.calibration
    if table is None:
        raise LackingError("plot('calibration'): this result was made without a reward model: give model=")
    rows = [{**row, "series": "deciles"} for row in table.to_pylist()]
    off = max(rows, key=lambda row: abs(row["predicted"] - row["reward"]))
    return [
        Lines(
            "Calibration of the reward model",
            "Events are cut into ten groups by what the model predicts. Each dot is a group. Dots on the dashed line "
            "mean that the model is right on average.",
            f"{len(rows)} groups. The largest gap: {number(off['predicted'])} predicted, {number(off['reward'])} seen. "
            f"R² is {number(result.r2, 3)}.",
            rows,
            (
                Column("decile", "decile", "count"),
                Column("events", "events", "count"),
                Column("predicted", "mean prediction"),
                Column("reward", "mean reward"),
            ),
            lines=(Line("deciles", "reward", dots=True),),
            x="predicted",
            x_label="mean prediction",
            y_label="mean reward",
            diagonal=True,
        )
    ]


def variance(result: Evaluation) -> list[Picture]:
    """Where the variance of estimates comes from."""
    try:
        found = result.explanations
    except DrstreamError as error:  # rankings
        raise LackingError(error.message) from None
    if not found:
        told = phrase("explain=True", "--explain")
        raise LackingError(f"plot('variance'): this evaluation did not gather the parts of the variance: pass {told}")
    if any(one.estimator == result.headline for one in found):
        found = [one for one in found if one.estimator == result.headline]
    rows = []
    for one in found:
        for part in one.parts:
            inner = part["part"] in INNER
            if not math.isnan(part["share"]) and (part["variance"] or not inner):
                name = ("of it, " if inner else "") + part["part"].replace("_", " ")
                group = f"{one.policy}, {one.estimator}"
                about = {"policy": one.policy, "estimator": one.estimator, "label": name, "group": group}
                taken = {"value": part["share"], "variance": part["variance"], "width": part["width"]}
                rows.append({**about, **taken, "said": share(part["share"]), "tone": "inner" if inner else ""})
    if not rows:
        raise LackingError("plot('variance'): the parts of the variance are not known for these estimators")
    return [
        Bars(
            "Where the uncertainty comes from",
            "Contexts: events differ in their value; only more events help. Importance: rewards are seen for the "
            "logged actions only; a better model or more exploration helps.",
            "Shares of the variance of each estimate.",
            rows,
            (
                Column("policy", "policy", "text"),
                Column("estimator", "estimator", "text"),
                Column("label", "part", "text"),
                Column("value", "share", "share"),
                Column("variance", "variance of an event"),
                Column("width", "interval of this part alone"),
            ),
        )
    ]


def segments(result: Evaluation) -> list[Picture]:
    """For each policy, the difference to the logging policy in each segment."""
    if result.segments is None:
        raise LackingError(f"plot('segments'): this evaluation has no segments: pass {phrase('by=', '--by')}")
    alpha = 1 - result.confidence
    found: list[Picture] = []
    table = [row for row in result.segments.to_pylist() if row["estimator"] == result.headline]
    for policy in result.policies[:MOST_POLICIES]:
        rows = [_segment(result, row, alpha) for row in table if row["policy"] == policy]
        rows.sort(key=lambda row: -row["n"])
        told = [row["label"] for row in rows if row["tone"] in ("better", "worse")]
        which = f"A difference is told in {', '.join(told[:8])}" if told else "No difference is told in any"
        found.append(
            Spans(
                f"{policy}: difference to the logging policy by {', '.join(result.by)}",
                "Largest segments first. A difference is marked only if its q-value, which allows for the number of "
                f"segments, is at most {number(alpha, 3)}.",
                f"{len(rows)} segments. {which}{' and more' if len(told) > 8 else ''}.",
                rows,
                (
                    Column("label", ", ".join(result.by), "text"),
                    Column("n", "events", "count"),
                    Column("value", "difference", "signed"),
                    Column("low", "low", "signed"),
                    Column("high", "high", "signed"),
                    Column("q_value", "q-value"),
                    Column("level", "level", "text"),
                ),
                axis=f"difference in mean {result.reward}, by {result.headline}",
                reference=0.0,
                reference_label="no difference",
                signed=True,
                most=30,
            )
        )
    return found


def _segment(result: Evaluation, row: Row, alpha: float) -> Row:
    value, low, high = row["difference"], row["difference_low"], row["difference_high"]
    told = row["level"] != STOP and row["q_value"] <= alpha
    tone = ("better" if value > 0 else "worse") if told else "stop" if row["level"] == STOP else ""
    about = {"value": value, "low": low, "high": high, "n": row["n"], "q_value": row["q_value"], "level": row["level"]}
    label = ", ".join("null" if row[name] is None else str(row[name]) for name in result.by)
    return {**about, "label": label, "group": None, "tone": tone, "main": told}


def _loggers(result: Evaluation) -> Table:
    assert result.loggers is not None
    columns = (
        Column("policy", "policy", "text"),
        Column("logger", "logger", "text"),
        Column("rows", "rows", "count"),
        Column("mean_reward", "mean reward"),
        Column("mean_weight", "mean weight"),
        Column("ess", "effective sample", "count"),
        Column("max_weight", "largest weight"),
        Column("value", "estimate"),
        Column("stderr", "standard error"),
    )
    return Table("Each logger alone", result.loggers.to_pylist(), columns)


def _tables(result: Evaluation) -> Sequence[Table]:
    """Tables without a picture: bands, what estimators of rankings assume, and the limits that were tried."""
    found = []
    if len(result.policies) > 1:
        bands = (Column("policy", "policy", "text"), Column("base", "minus", "text"), *VALUE)
        title = f"Bands that hold for all policies at once, by {result.headline}"
        found.append(Table(title, result.bands().to_pylist(), bands))
    if result.assumptions:
        rows = [{"estimator": name, "text": said} for name, said in result.assumptions.items()]
        columns = Column("estimator", "estimator", "text"), Column("text", "assumes about users", "text")
        found.append(Table("What estimators assume", rows, columns))
    if result.grid is not None:
        names = [name for name in result.grid.column_names if name not in ("policy", "estimator", "chosen")]
        texts = [Column("policy", "policy", "text"), Column("estimator", "estimator", "text")]
        limits = (*texts, *(Column(name, name) for name in names), Column("chosen", "chosen", "flag"))
        found.append(Table("Limits of the weights that were tried", result.grid.to_pylist(), limits))
    return found


PICTURES: Pictures = {
    "estimates": estimates,
    "differences": differences,
    "weights": weights,
    "histogram": histogram,
    "calibration": calibration,
    "variance": variance,
    "segments": segments,
}
SECTIONS = {
    "differences": "Against the logging policy",
    "estimates": "Estimates",
    "segments": "Segments",
    "weights": "Weights",
    "calibration": "Reward model",
    "variance": "Uncertainty",
}
FIRST = "estimates"  # the picture that a notebook shows
