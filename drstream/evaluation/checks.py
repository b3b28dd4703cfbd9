"""The checks of a result: the findings that follow from facts about each policy. Each check is one entry of `ALL`.

A finding says what is seen, what it means, and what to do. Thresholds are constants of this module; docs/coverage.md
shows what intervals do on both sides of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

from drstream.findings import LOOK, OK, STOP, Finding
from drstream.intervals import t_score

FAR, VERY_WRONG = 4.0, 0.1  # standard errors of the mean weight from 1; distance from 1
HARMLESS = 1e-3  # distance of a mean weight from 1: rounded propensities, no more
FAR_LEVEL = 2 * NormalDist().cdf(FAR) - 1
FEW, VERY_FEW = 200.0, 20.0  # effective sample size
LARGE_SHARE, HUGE_SHARE = 0.05, 0.3  # share of the largest weight in all weights
UNLOGGED, MOSTLY_UNLOGGED = 1e-6, 0.01  # mass on actions that were never logged
BAD_MODEL = -0.02  # R² of a reward model
THIN = 0.05  # mass on events with a small propensity
FEW_CARRIERS, VERY_FEW_CARRIERS = 10.0, 3.0  # number of events, or clusters, that carry an estimate
LARGE_CLUSTER, HUGE_CLUSTER = 0.1, 0.5  # share of a cluster in all weights
FEW_CLUSTERS, VERY_FEW_CLUSTERS = 20.0, 5.0  # effective number of clusters
SKIPPED, MANY_SKIPPED = 0.01, 0.1  # share of the rows that were left out as bad
SERIOUS = 2.0  # standard errors of an estimate: a larger bias leads out of its interval


@dataclass(frozen=True)
class Direct:
    """What actions do to an estimate beside their category, whose weights assume that it is 0."""

    bias: float
    stderr: float
    of_estimate: float  # standard error of the estimate
    given_the_model: bool  # whether it is about rewards minus predictions


@dataclass(frozen=True)
class Gap:
    """How far a doubly robust estimate is from IPS, beyond what the mean weight explains. It should be 0."""

    estimator: str
    value: float
    stderr: float
    of_estimate: float  # standard error of the estimate
    far: float  # how many standard errors are more than chance


@dataclass(frozen=True)
class PolicyFacts:
    """What is known about one policy on a log. Unknown numbers are NaN."""

    policy: str
    n: int
    mean_weight: float = math.nan
    stderr: float = math.nan  # of the mean weight
    ess: float = math.nan
    largest_share: float = math.nan  # of the largest weight in the sum of all weights
    unlogged: float = math.nan  # share of the policy's mass on actions that were never logged
    unlogged_actions: Sequence[Any] = ()
    thin: float = math.nan  # share of the policy's mass on events with a small propensity
    least: float = 0.01  # what counts as a small propensity
    carriers: Mapping[str, float] = field(default_factory=dict)  # by estimator, how many events, or clusters, carry it
    clicks: bool = False  # whether all rewards are 0 or 1
    clusters: float = math.nan  # effective number of clusters
    largest_cluster: float = math.nan  # share of the largest cluster in the sum of all weights
    no_overlap: bool = False  # whether it never takes a logged action
    estimated_propensities: bool = False
    propensity_error: float = 0.0  # how wrong propensities may be, as the caller said
    propensity_bias: Mapping[str, float] = field(default_factory=dict)  # what this can do to each estimate
    weight: str = "weight"  # what the weights are called
    by: str = ""  # the estimators that use them, in a log of rankings
    of: str = "actions"  # what has weight, and what `unlogged` is about
    direct: Mapping[str, Direct] = field(default_factory=dict)  # by estimator with weights of categories
    gap: Gap | None = None

    @property
    def who(self) -> str:
        """The policy, for messages; in a log of rankings, with the estimators whose weights these are."""
        return f"{self.policy} by {self.by}" if self.by else self.policy

    @property
    def z(self) -> float:
        """Distance of the mean weight from 1, in standard errors."""
        distance = self.mean_weight - 1
        if self.stderr > 0 or math.isnan(self.stderr):
            return distance / self.stderr
        return 0.0 if abs(distance) < HARMLESS else math.copysign(math.inf, distance)

    @property
    def wrong_weights(self) -> bool:
        """Whether the mean weight is so far from 1 that propensities, or the policy, must be wrong."""
        return abs(self.z) > self.far and abs(self.mean_weight - 1) > VERY_WRONG

    @property
    def without_weight(self) -> bool:
        """Whether no event of the log has weight for it."""
        return self.no_overlap or self.mean_weight == 0

    @property
    def covered(self) -> bool:
        """Whether the mean weight is what the policy's mass on logged actions lets expect."""
        return abs(self.mean_weight - 1 + self.unlogged) <= max(HARMLESS, self.far * self.stderr)

    @property
    def far(self) -> float:
        """How many standard errors are far. With few clusters, standard errors are uncertain themselves."""
        return FAR if math.isnan(self.clusters) else t_score(FAR_LEVEL, max(1.0, self.clusters - 1))


Check = Callable[[PolicyFacts], Finding | None]


def _finding(level: str, check: str, facts: PolicyFacts, value: float, *sentences: str) -> Finding:
    return Finding(level, check, facts.policy, value, " ".join(sentences))


def unlogged_mass(facts: PolicyFacts) -> Finding | None:
    """Mass on actions, or categories, that were never logged: nothing is known about their rewards."""
    if math.isnan(facts.unlogged):
        return None
    check = "unlogged" if facts.of == "actions" else "unlogged categories"
    if facts.unlogged <= UNLOGGED:
        return _finding(
            OK, check, facts, facts.unlogged, f"{facts.policy} puts its mass on {facts.of} that the log has."
        )
    shown = ", ".join(map(repr, facts.unlogged_actions[:5])) + (", ..." if len(facts.unlogged_actions) > 5 else "")
    return _finding(
        STOP if facts.unlogged > MOSTLY_UNLOGGED else LOOK,
        check,
        facts,
        facts.unlogged,
        f"{facts.policy} puts {facts.unlogged:.2%} of its mass on {facts.of} that were never logged ({shown}).",
        "The log says nothing about their rewards.",
        "Evaluate a policy that leaves them out, or log them first.",
    )


def mean_weight(facts: PolicyFacts) -> Finding | None:
    """The mean weight must be 1, up to chance, if propensities are right and the log covers the policy."""
    if math.isnan(facts.mean_weight):
        return None
    harmless = not abs(facts.z) > facts.far or abs(facts.mean_weight - 1) < HARMLESS
    if harmless and facts.mean_weight > 0:
        text = (
            f"The mean {facts.weight} of {facts.who} is {facts.mean_weight:.4g} ± {facts.stderr:.2g}, which agrees "
            "with 1."
        )
        return _finding(OK, f"mean {facts.weight}", facts, facts.mean_weight, text)
    whose = "the propensity model is" if facts.estimated_propensities else "the logged propensities are"
    return _finding(
        STOP if facts.wrong_weights else LOOK,
        f"mean {facts.weight}",
        facts,
        facts.mean_weight,
        f"The mean {facts.weight} of {facts.who} is {facts.mean_weight:.4g} ± {facts.stderr:.2g}, but it should be 1.",
        f"Either {whose} wrong, or the policy's probabilities are, or the policy takes {facts.of} that the log lacks, "
        "or rare events with large weights are missing.",
        "Use logged propensities, or a better model of them."
        if facts.estimated_propensities
        else "Check the propensities, and that the policy's probabilities of all items sum to 1 at each position."
        if facts.by
        else "Check the propensities with an audit of the log, and that the policy's probabilities sum to 1.",
    )


def _what_it_does(facts: PolicyFacts) -> str:
    """What a policy never does if no event has weight for it."""
    if facts.by:
        return "shows the items that were shown"
    return "takes the logged action" if facts.of == "actions" else "takes an action of the logged one's category"


def effective_sample(facts: PolicyFacts) -> Finding | None:
    """A small effective sample size: few events decide on the estimate."""
    if facts.without_weight:
        return _finding(
            STOP,
            "ess",
            facts,
            0.0,
            f"No event of the log has weight for {facts.who}: it never {_what_it_does(facts)}.",
            "The log says nothing about this policy, and estimates that weigh events are undefined.",
            f"Evaluate a policy that takes the logged {facts.of} at least sometimes.",
        )
    if math.isnan(facts.ess):
        return None
    share = facts.ess / facts.n
    seen = f"The effective sample size of {facts.who} is {facts.ess:,.0f} of {facts.n:,} events ({share:.2%})."
    if facts.ess >= FEW:
        return _finding(OK, "ess", facts, facts.ess, seen)
    return _finding(
        STOP if facts.ess < VERY_FEW else LOOK,
        "ess",
        facts,
        facts.ess,
        seen,
        "A few events decide on the estimate, and its interval may be wrong.",
        "Use more events, a policy closer to the logging policy, or an estimator that "
        f"{'assumes more about users' if facts.by else 'limits weights (cap)'}.",
    )


def largest_weight(facts: PolicyFacts) -> Finding | None:
    """One event that carries much of the weight."""
    if math.isnan(facts.largest_share):
        return None
    seen = f"The largest weight of {facts.who} is {facts.largest_share:.2%} of the sum of all weights."
    if facts.largest_share <= LARGE_SHARE:
        return _finding(OK, "largest weight", facts, facts.largest_share, seen)
    return _finding(
        STOP if facts.largest_share > HUGE_SHARE else LOOK,
        "largest weight",
        facts,
        facts.largest_share,
        seen,
        "One event decides on the estimate.",
        f"{'Assume more about users' if facts.by else 'Limit the weights (cap)'}, or use more events.",
    )


def thin_mass(facts: PolicyFacts) -> Finding | None:
    """Mass where the logging policy hardly ever explored."""
    if math.isnan(facts.thin):
        return None
    seen = f"{facts.who} has {facts.thin:.2%} of its mass where the propensity is below {facts.least:g}."
    if facts.thin <= THIN:
        return _finding(OK, "small propensities", facts, facts.thin, seen)
    return _finding(
        LOOK,
        "small propensities",
        facts,
        facts.thin,
        seen,
        "There the log has few events with large weights.",
        "Expect wide intervals." if facts.by else "Expect wide intervals, and compare DR with IPS.",
    )


def carriers(facts: PolicyFacts) -> Finding | None:
    """Few events, or clusters, that carry an estimate: they say little about what rare events would add."""
    if not facts.carriers:
        return None
    fewest = min(facts.carriers.values())
    if fewest == 0:  # with no range of rewards, the finding "interval" says so
        return _same_rewards(facts) if facts.clicks else None
    units = "events" if math.isnan(facts.clusters) else "clusters"
    if fewest >= FEW_CARRIERS:
        seen = f"Each estimate of {facts.policy} is carried by {fewest:,.0f} {units} or more."
        return _finding(OK, "carriers", facts, fewest, seen)
    names = ", ".join(name for name, number in facts.carriers.items() if number < FEW_CARRIERS)
    return _finding(
        STOP if fewest < VERY_FEW_CARRIERS else LOOK,
        "carriers",
        facts,
        fewest,
        f"The estimate of {facts.policy} by {names} is carried by about {fewest:,.2g} {units}.",
        "So few clicks say little about the weights of others, and intervals are wide."
        if facts.clicks
        else "So few say little about rare large amounts or weights, and an interval may miss what these would add.",
        "Use more events, or a policy closer to the logging policy.",
    )


def _same_rewards(facts: PolicyFacts) -> Finding:
    return _finding(
        STOP,
        "carriers",
        facts,
        0.0,
        f"All events that count for {facts.policy} have the same reward, so the log does not tell how rare others are.",
        "Check that no rows are missing, or use more events.",
    )


def clusters(facts: PolicyFacts) -> Finding | None:
    """Few clusters with weight: their spread, and so the interval, is uncertain."""
    if math.isnan(facts.clusters):
        return None
    share = facts.largest_cluster
    seen = (
        f"{facts.who} has weight in about {facts.clusters:,.3g} effective clusters; the largest has {share:.1%} of it."
    )
    if facts.clusters >= FEW_CLUSTERS and not share > LARGE_CLUSTER:
        return _finding(OK, "clusters", facts, facts.clusters, seen)
    return _finding(
        STOP if facts.clusters < VERY_FEW_CLUSTERS or share > HUGE_CLUSTER else LOOK,
        "clusters",
        facts,
        facts.clusters,
        seen,
        "So few or so unequal clusters tell little about how much clusters differ, and the interval may be wrong.",
        "Use a log with more clusters.",
    )


def estimated_propensities(facts: PolicyFacts) -> Finding | None:
    """Intervals leave out the error of a propensity model."""
    if not facts.estimated_propensities or facts.propensity_error:
        return None
    return _finding(
        LOOK,
        "estimated propensities",
        facts,
        math.nan,
        f"The propensities that weigh {facts.policy} are estimated.",
        "Intervals leave out the error of the propensity model, which can be larger than the interval.",
        "Use logged propensities if there are any.",
    )


def propensity_error(facts: PolicyFacts) -> Finding | None:
    """Intervals are wider because propensities may be wrong."""
    if not facts.propensity_bias:
        return None
    known = {name: bias for name, bias in facts.propensity_bias.items() if not math.isnan(bias)}
    unknown = [name for name in facts.propensity_bias if name not in known]
    said = [f"Propensities may be off by {facts.propensity_error:.3g} of their value."]
    if known:
        widths = ", ".join(f"{bias:.3g} ({name})" for name, bias in known.items())
        said.append(f"So the intervals of {facts.policy} are wider on each side by {widths}.")
    if unknown:
        said.append(f"What this does to {', '.join(unknown)} is not known, so there is no interval.")
    return _finding(LOOK, "propensity error", facts, max(known.values(), default=math.nan), *said)


def direct_effect(facts: PolicyFacts) -> Finding | None:
    """Weights of categories are right only if actions matter through their category alone."""
    known = {name: one for name, one in facts.direct.items() if one.stderr > 0}
    if not known:
        return None
    name, worst = max(known.items(), key=lambda item: abs(item[1].bias / item[1].stderr))
    what = "rewards, beyond what the model predicts," if worst.given_the_model else "rewards"
    seen = f"{name} of {facts.policy} is off by about {worst.bias:.3g} ± {worst.stderr:.2g}"
    if not abs(worst.bias) > facts.far * worst.stderr:
        return _finding(
            OK,
            "embedding",
            facts,
            worst.bias,
            f"{seen}, which agrees with 0: no sign that {what} depend on more than the category of an action.",
        )
    return _finding(
        STOP if abs(worst.bias) > SERIOUS * worst.of_estimate else LOOK,
        "embedding",
        facts,
        worst.bias,
        f"{seen}, because {what} differ between the actions of a category, or because propensities are wrong.",
        "Weights of categories assume that all actions of a category are alike.",
        "Use finer categories, weights of categories beside a good reward model, or estimators without categories.",
    )


def gap(facts: PolicyFacts) -> Finding | None:
    """DR and IPS estimate the same, if propensities are right and contexts were known before the action."""
    found = facts.gap
    if found is None or not found.stderr > 0:
        return None
    seen = f"{found.estimator} of {facts.policy} differs from IPS by {found.value:.3g} ± {found.stderr:.2g}"
    if not abs(found.value) > found.far * found.stderr:
        return _finding(OK, "gap", facts, found.value, f"{seen}, which agrees with 0.")
    return _finding(
        STOP if abs(found.value) > SERIOUS * found.of_estimate else LOOK,
        "gap",
        facts,
        found.value,
        f"{seen}, but both should be the same up to chance.",
        "Either a context is an outcome, known only after the action, or propensities are wrong.",
        "Leave out contexts that came after the action, and check the propensities with an audit of the log.",
    )


def reward_model(r2: float) -> Finding | None:
    """A model that predicts worse than the mean reward: DR gains nothing from it."""
    if math.isnan(r2):
        return None
    seen = f"The reward model has an R² of {r2:.3g} on the logged events."
    if r2 >= BAD_MODEL:
        return Finding(OK, "reward model", None, r2, seen)
    meaning = "It predicts worse than the mean reward would, so DR is less precise than it could be, and DM is wrong."
    return Finding(LOOK, "reward model", None, r2, f"{seen} {meaning} Use fewer features, or more regularisation.")


def sampled_model() -> Finding:
    """A reward model that was fitted on the rows of a down-sampled log."""
    text = (
        "The reward model was fitted on the rows of a down-sampled log as they are. DM is about these rows, not about "
        "all events; DR is right all the same. Use DR, IPS or SNIPS."
    )
    return Finding(LOOK, "reward model", None, math.nan, text)


def sampled_propensities() -> Finding:
    """A propensity model that was fitted on the rows of a down-sampled log."""
    text = (
        "Propensities were fitted on the rows of a down-sampled log as they are. They are those of the rows that were "
        "kept, and estimates are wrong if what was kept depends on action or reward. Fit the model on a log of all "
        "events, or use logged propensities."
    )
    return Finding(STOP, "propensity model", None, math.nan, text)


def skipped_rows(skipped: Mapping[str, int], n: int) -> list[Finding]:
    """Bad rows that were left out, if they are many."""
    count = sum(skipped.values())
    share = count / (n + count) if count else 0.0
    if share < SKIPPED:
        return []
    text = (
        f"{count:,} of {n + count:,} rows ({share:.2%}) were skipped as bad. Estimates are about the others, and are "
        "wrong for the whole log if bad rows differ from good ones in their rewards. Look at them with an audit, and "
        "repair what writes the log."
    )
    return [Finding(STOP if share >= MANY_SKIPPED else LOOK, "skipped rows", None, share, text)]


def unknown_categories(others: Mapping[str, Mapping[str, int]], n: int) -> list[Finding]:
    """Events with categories that a policy or model does not know, as it was fitted without them."""
    return [
        Finding(
            LOOK,
            "categories",
            None,
            count / n,
            f"{count:,} of {n:,} events ({count / n:.2%}) have a category in {column!r} that {who} does not know. They "
            "count as other, none of the known ones. Fit it again on a log that has them.",
        )
        for who, counts in others.items()
        for column, count in counts.items()
    ]


ALL: tuple[Check, ...] = (
    unlogged_mass,
    mean_weight,
    effective_sample,
    largest_weight,
    thin_mass,
    carriers,
    clusters,
    estimated_propensities,
    propensity_error,
    direct_effect,
    gap,
)
BESIDE: tuple[Check, ...] = (unlogged_mass, mean_weight, direct_effect)  # about marginal weights, beside others


def findings_of(facts: PolicyFacts, checks: Sequence[Check] = ALL) -> list[Finding]:
    """What the checks find. Findings of one cause are one finding: what follows from another one is left out."""
    found = {check: finding for check in checks if (finding := check(facts)) is not None}
    bad = {check for check, finding in found.items() if finding.level != OK}
    follow: set[Check] = set()
    if unlogged_mass in found and found[unlogged_mass].level == STOP:
        follow |= {effective_sample, largest_weight, carriers, clusters}
        follow |= {mean_weight} if facts.covered else set()
    elif facts.without_weight:
        follow |= {mean_weight, carriers, clusters}
    if effective_sample in bad:  # one weight that is a large share of all of them makes the sample small
        follow.add(largest_weight)
        follow |= {carriers} if found[effective_sample].level == STOP else set()
    if mean_weight in bad:
        follow.add(gap)
    return [finding for check, finding in found.items() if check not in follow & bad]
