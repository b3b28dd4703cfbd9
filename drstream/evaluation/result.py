"""What an evaluation returns."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from drstream import intervals
from drstream.errors import DrstreamError, phrase, printable, suggest
from drstream.evaluation import grids, words
from drstream.evaluation.checks import (
    ALL,
    BESIDE,
    PolicyFacts,
    findings_of,
    mean_weight,
    reward_model,
    sampled_model,
    sampled_propensities,
    skipped_rows,
    unknown_categories,
    unlogged_mass,
)
from drstream.evaluation.choosing import Choosing
from drstream.evaluation.estimators import IMPORTANCE, MARGINAL, Estimator, Weight
from drstream.evaluation.explanation import Explain, Explained, Explanation, explain, has_parts
from drstream.evaluation.facts import Basis, balanced_facts, facts_of, list_weights, weight_of
from drstream.evaluation.header import Header
from drstream.evaluation.loggers import OfLogger, findings_about, rows_of, table_of
from drstream.evaluation.rankings import ListFacts, assumption
from drstream.evaluation.statistics import Statistics
from drstream.evaluation.tables import segment_table, weight_table
from drstream.findings import STOP, Finding, to_show, worst
from drstream.intervals import methods
from drstream.intervals.freedman import measured_constants
from drstream.intervals.methods import Method
from drstream.intervals.resampling import jackknife_stderr
from drstream.intervals.statistic import Limits, Statistic
from drstream.results import Estimate, ModelSummary, WithModels, as_frame, plain, schema_name, stamped
from drstream.views import Reported

if TYPE_CHECKING:
    import pandas as pd

GIVEN_THE_MODEL = "given the model"
DIFFERENCE = ("difference", "difference_stderr", "difference_low", "difference_high")  # to the logging policy


@dataclass(frozen=True)
class About:
    """What a result is about: the header of its pass, and what the pass found beside statistics."""

    header: Header
    models: ModelSummary
    skipped: dict[str, int]
    provenance: dict[str, Any] = field(default_factory=dict)
    lists: ListFacts | None = None  # of a log of rankings
    findings: tuple[Finding, ...] = ()  # beside those that the sums tell


@dataclass(frozen=True)
class Comparison:
    """How a policy compares with the logging policy.

    gain   The difference of their values, with a paired interval.
    band   The bounds of this difference that hold for all policies at once; those of the interval for one policy.
    stops  Findings that say not to use the estimate.
    """

    policy: str
    estimator: str
    gain: Estimate
    band: tuple[float, float]
    stops: Sequence[Finding]


class Evaluation(WithModels, Choosing, Reported):
    """Estimates of every policy by every estimator: `result["new", "dr"].value`.

    policies, estimators  Names of the policies and of the estimators.
    n                     Number of events.
    labels                Labels of the actions.
    baseline              Mean reward of the logging policy, with an interval.
    findings              What the result found out about itself.
    statistics            Means, covariances and counts, of which all estimates are made.
    segments              The same estimates for each segment.
    loggers               Weights and an estimate from the events of each logger.
    rewards               The evaluation of each reward, by its column.
    lists                 Lengths of the lists in a log of rankings, whose values are sums over a list; else None.
    assumptions           What each estimator assumes about users, in a log of rankings.
    skipped               Number of rows that were left out, by reason.
    confidence            Confidence level of the intervals.
    precision             "float32" or "float64": the type of linear scores, and of what is computed for an action.
    r2, calibration       Quality of the reward model on the logged events.
    provenance            What the result was made from: version, log, filter, seed, models, parameters.
    """

    def __init__(
        self,
        about: About,
        sums: Statistics,
        by: Sequence[str] = (),
        segments: dict[tuple[Any, ...], Statistics] | None = None,
        chosen_limits: dict[str, int] | None = None,
        loggers: dict[Any, Statistics] | None = None,
    ) -> None:
        header, request = about.header, about.header.request
        self.policies = list(header.policies)
        self.labels = list(header.labels)  # empty if only probabilities of logged actions were needed
        self.chosen = list(request.chosen)
        self.estimators = [e.name for e in self.chosen]
        self.n = sums.n
        self.skipped = about.skipped  # bad rows that were left out, by reason
        self.confidence = request.settings.confidence
        self.precision = header.precision
        self.models = about.models
        self.by = tuple(by)
        self.reward = header.reward
        self.rewards: dict[str, Evaluation] = {header.reward: self}
        self.provenance = about.provenance
        self.lists = about.lists
        self.statistics = sums
        self._about, self._header, self._request, self._settings = about, header, request, request.settings
        self._segments = segments or {}
        self._loggers = loggers or {}
        auto = request.auto
        self._grids = {e.name: grids.grid_of(e, auto) for e in self.chosen if auto and e not in header.estimators}
        self._chosen_limits = self._choose_limits() if chosen_limits is None else chosen_limits

    # Estimates

    def __getitem__(self, key: tuple[str, str] | str) -> Estimate:
        """The estimate of (policy, estimator). With a single policy, the estimator is enough."""
        if isinstance(key, str) and len(self.policies) == 1:
            key = (self.policies[0], key)
        if not isinstance(key, tuple) or len(key) != 2:
            raise KeyError(f"result[{key!r}]: give a policy and an estimator, e.g. result[{self.policies[0]!r}, 'dr']")
        j, estimator = self._find(*key)
        found = self._estimate(self.statistics.value(j, estimator), j, estimator)
        if key[1] in self._grids:
            first = self._grids[key[1]].forms[0]
            found = grids.extended(found, self._estimate(self.statistics.value(j, first), j, first))
        return replace(found, warning=self._warning(j, estimator), **self._weights(j, estimator))

    @property
    def baseline(self) -> Estimate:
        """The logging policy's own mean reward."""
        found = self._estimate(self.statistics.baseline(), None, None)
        return replace(found, ess=float(self.n), max_weight=1.0)

    def difference(
        self, policy: str, other: str | None = None, estimator: str | None = None, *, times: float = 1.0
    ) -> Estimate:
        """The value of a policy minus that of another policy, or of the logging policy, with a paired interval.

        times  Multiplies what is subtracted.

        The terms of each event are paired. Without an estimator, the doubly robust one is used if the evaluation has
        it, else the first.
        """
        j, chosen = self._find(policy, estimator or self.headline)
        name = estimator or self.headline
        k = None if other is None else self._find(other, name)[0]

        def by(form: Estimator) -> Estimate:
            return self._estimate(self.statistics.difference(j, k, form, times), j, form, k, times)

        return grids.extended(by(chosen), by(self._grids[name].forms[0])) if name in self._grids else by(chosen)

    def comparisons(self, estimator: str | None = None) -> list[Comparison]:
        """How each policy compares with the logging policy, by one estimator; without a name, by the headline's."""
        name, many = estimator or self.headline, len(self.policies) > 1
        gains = [self.difference(policy, estimator=name) for policy in self.policies]
        bands = self.bands(name).to_pylist()[len(gains) :] if many else [vars(gain) for gain in gains]
        return [
            Comparison(policy, name, gain, (band["low"], band["high"]), self.stops(policy, name))
            for policy, gain, band in zip(self.policies, gains, bands, strict=True)
        ]

    def stops(self, policy: str, estimator: str) -> list[Finding]:
        """Findings that say not to use an estimate, without those about weights that its estimator does not use."""
        j, form = self._find(policy, estimator)
        own = self._facts_of(j, form)
        about_own = {finding.message for finding in findings_of(own)}
        others = {f.message for facts in self._facts[j].values() if facts is not own for f in findings_of(facts)}
        found = [f for f in self.findings if f.level == STOP and f.policy in (None, policy)]
        return [finding for finding in found if finding.message not in others - about_own]

    def scaled(self, ratio: float) -> Evaluation:
        """The evaluation of so many times as many events like these: its intervals are a forecast."""
        return Evaluation(self._about, self.statistics.scaled(ratio))

    def at_confidence(self, confidence: float) -> Evaluation:
        """The same estimates with intervals of another level, without segments."""
        request = replace(self._request, settings=replace(self._settings, confidence=confidence))
        about = replace(self._about, header=replace(self._header, request=request))
        return Evaluation(about, self.statistics, chosen_limits=self._chosen_limits)

    @property
    def headline(self) -> str:
        """The estimator that policies are compared by: the doubly robust one if there is one, else the first."""
        return next((e.name for e in self.chosen if e.headline), self.estimators[0])

    def _find(self, policy: str, estimator: str) -> tuple[int, Estimator]:
        if policy not in self.policies:
            raise KeyError(f"no policy {policy!r} was evaluated: {suggest(str(policy), self.policies)}")
        if estimator not in self.estimators:
            raise KeyError(f"no estimator {estimator!r} was asked for: {suggest(str(estimator), self.estimators)}")
        return self.policies.index(policy), self._form(estimator)

    def _form(self, name: str) -> Estimator:
        """The estimator of this name; if its limit comes from a grid, with the chosen limit."""
        if name in self._grids:
            return self._grids[name].forms[self._chosen_limits[name]]
        return next(e for e in self.chosen if e.name == name)

    def _weights(self, j: int, estimator: Estimator) -> dict[str, Any]:
        if estimator.weight is None:
            return {}
        kind = self.statistics.kind(estimator)
        reduced = int(self.statistics.reduced[j, kind])
        return {
            "ess": self.statistics.ess(j, kind),
            "max_weight": float(self.statistics.inspected.largest[j, kind]),
            "capped": reduced / self.n if reduced >= 0 else math.nan,
        }

    # Intervals

    def _estimate(
        self,
        statistic: Statistic,
        j: int | None,
        estimator: Estimator | None,
        other: int | None = None,
        times: float = 1.0,
    ) -> Estimate:
        chosen, limits = self._methods(estimator), self._limits
        bias = self._propensity_bias(j, estimator, other, times)
        found = {method.name: methods.interval(method, statistic, limits, bias) for method in chosen}
        shown = chosen[0].name if chosen else ""
        low, high = found.get(shown, (math.nan, math.nan))
        says = chosen[0].says if chosen and not math.isnan(low) else None
        said = [shown, says(statistic, limits) if says else ""]
        if chosen and estimator is not None and estimator.given_the_model:
            said.append(GIVEN_THE_MODEL)
        if bias > 0 and chosen and "spread" not in chosen[0].needs:
            said.append(f"propensities off by up to {self._settings.propensity_error:.3g}")
        name = ", ".join(filter(None, said))
        return Estimate(statistic.value, self._stderr(statistic), low, high, self.n, intervals=found, method=name)

    def _propensity_bias(
        self, j: int | None, estimator: Estimator | None, other: int | None, times: float = 1.0
    ) -> float:
        """How far an estimate or a difference may be off by wrong propensities; 0 if these are exact."""
        error = self._settings.propensity_error
        if not error or estimator is None:
            return 0.0
        both = (j, 1.0), (other, abs(times))
        return sum(size * self.statistics.propensity_bias(k, estimator, error) for k, size in both if k is not None)

    def _stderr(self, statistic: Statistic) -> float:
        if math.isnan(statistic.value):
            return math.nan
        if self._settings.cluster is not None:
            return jackknife_stderr(statistic)
        return intervals.standard_error(statistic.gradient, statistic.comoment, statistic.n)

    def _methods(self, estimator: Estimator | None) -> list[Method]:
        """The methods of an estimate's intervals: those that were named, else the one that covers."""
        if not self._settings.names and estimator is not None and estimator.given_the_model:
            return []
        return self._settings.methods()

    @cached_property
    def _limits(self) -> Limits:
        return self._settings.limits(clicks=self.statistics.overlap.clicks and not self.statistics.down_sampled)

    # Findings

    @cached_property
    def _facts(self) -> list[dict[Weight | None, PolicyFacts]]:
        """The facts about each policy, and those about weights of categories beside others.

        In a log of rankings, facts for each kind of weights that estimators use.
        """
        weights: list[Weight | None] = [None] if self.lists is None else [*list_weights(self._forms())]
        if f"{MARGINAL.name}.weight" in self.statistics.weights and not weight_of(self._forms()).marginal:
            weights.append(MARGINAL)
        return [{w: facts_of(self._seen, j, name, w) for w in weights} for j, name in enumerate(self.policies)]

    def facts(self, policy: str, estimator: str | None = None) -> PolicyFacts:
        """The facts behind the findings about an estimate."""
        return self._facts_of(*self._find(policy, estimator or self.headline))

    def _facts_of(self, j: int, estimator: Estimator) -> PolicyFacts:
        """The facts that are about an estimator of policy j."""
        found = self._facts[j]
        return found.get(estimator.weight) or found.get(IMPORTANCE) or found[None]

    @cached_property
    def _seen(self) -> Basis:
        clustered = self._settings.cluster is not None
        about = clustered, self.estimated_propensities, self._settings.propensity_error or 0.0, self._forms()
        return Basis(self.statistics, self.labels, self._stderr, *about, self.lists is not None, self._header.embedding)

    @cached_property
    def findings(self) -> list[Finding]:
        """What the result found out about itself: for each policy, findings with a level, "ok", "look" or "stop"."""
        found = [
            finding
            for by_weight in self._facts
            for weight, facts in by_weight.items()
            for finding in findings_of(facts, BESIDE if weight == MARGINAL else ALL)
        ]
        if self.lists is not None and (about := self.lists.about_propensities(self._forms())):
            found.append(about)
        found += [*self._about_loggers(), *self._about_intervals(), *self._about_constants(), *self._about_segments()]
        found += [*unknown_categories(self._header.others, self.n), *skipped_rows(self.skipped, self.n)]
        found += self._about.findings
        if self.statistics.down_sampled and self.models.crossfitted[1]:
            about_model: Finding | None = sampled_propensities()
        elif self.statistics.down_sampled:
            about_model = sampled_model() if self.models.crossfitted[0] else None
        else:
            about_model = reward_model(self.r2)
        return [*found, about_model] if about_model else found

    def _about_loggers(self) -> list[Finding]:
        """Say so if loggers lack overlap or disagree, or if balanced weights are wrong."""
        balanced = [balanced_facts(self._seen, j, name) for j, name in enumerate(self.policies)]
        found = [finding for facts in balanced if facts is not None and (finding := mean_weight(facts)) is not None]
        plain = not weight_of(self._forms()).balanced
        for policy in self.policies if self._loggers else ():
            found += findings_about([row for row in self._of_loggers if row.policy == policy], plain=plain)
        return found

    @cached_property
    def _of_loggers(self) -> list[OfLogger]:
        return rows_of(self._loggers, self.policies, self._stderr)

    @property
    def loggers(self) -> pa.Table | None:
        """One row for each policy and logger; None unless the log has several loggers (`logger=`).

        It has the logger's number of rows, its share of all rows, its mean reward, the mean weight ν / p of its events,
        which should be 1, their effective sample size and largest weight, and the IPS estimate from them alone.
        """
        return stamped(table_of(self._of_loggers), self.provenance) if self._loggers else None

    def _about_segments(self) -> list[Finding]:
        """Say so if segments have findings of their own. The table of segments has the level of each."""
        worse = {key: to_show(self._evaluation_of(key).findings) for key in self._segments}
        worse = {key: found for key, found in worse.items() if found and found[0].level == STOP}
        return [words.stopped_segments(self.by, worse, len(self._segments))] if worse else []

    def _about_intervals(self) -> list[Finding]:
        """Say so if estimates have no interval, or if it is not about what is asked for."""
        unknown = [e.name for e in self.chosen if e.name not in self._grids and not e.has_score]
        found = words.no_intervals(unknown, self._settings.named())
        if self._settings.cluster is not None:
            found += words.by_event([method.name for method in self._settings.named() if method.by_event])
        whole = not self._settings.named() or "reward_range" not in self._settings.named()[0].needs
        for j, policy in enumerate(self.policies):
            weighted = [e for e in self._forms() if not e.given_the_model]
            estimates = {e.of or e.name: self._estimate(self.statistics.value(j, e), j, e) for e in weighted}
            found += words.without_interval(policy, estimates, self._limits.reward_range) if whole else []
            limited = [e for e in weighted if e.weight is not None and e.weight.reduced]
            found += words.cut_weights(policy, {e.of or e.name: self._kept(j, e) for e in limited})
        return found

    def _kept(self, j: int, estimator: Estimator) -> tuple[float, bool]:
        """The share of the weight that an estimator with a limit keeps, and whether a model stands in for the rest."""
        limited = self.statistics.mean_weight(j, self.statistics.kind(estimator)).value
        plain = self._facts_of(j, estimator).mean_weight
        return limited / plain if plain > 0 else limited, estimator.score == "robust"

    def _about_constants(self) -> list[Finding]:
        """Say so if an interval that can be guaranteed rests on constants that were measured."""
        found = []
        for method in (m for m in self._settings.named() if m.says is not None):
            for j, policy in enumerate(self.policies):
                statistics = [self.statistics.value(j, form) for form in self._forms()]
                if measured := measured_constants(statistics, self._limits):
                    found.append(words.measured_constants(policy, method.name, measured))
        return found

    def _forms(self) -> list[Estimator]:
        return [self._form(name) for name in self.estimators]

    def _warning(self, j: int, estimator: Estimator) -> str:
        """What stands beside the number of a policy whose mass lies on actions, or categories, never logged."""
        facts = self._facts_of(j, estimator)
        found = unlogged_mass(facts)
        if found is not None and found.level == STOP:
            return f"{facts.unlogged:.0%} of its mass on {facts.of} that were never logged"
        return ""

    # Grids of limits

    def _choose_limits(self) -> dict[str, int]:
        """The choice for each estimator with a grid: the most careful one of all policies."""
        score, policies = intervals.z_score(self.confidence), range(len(self.policies))
        return {
            name: min(grids.choose(grid, self.statistics, j, self._stderr, score) for j in policies)
            for name, grid in self._grids.items()
        }

    @property
    def limits(self) -> dict[str, float]:
        """The limit that was chosen for each estimator, with lambda_="auto", cap="auto" or floor="auto"."""
        return {name: grid.limits[self._chosen_limits[name]] for name, grid in self._grids.items()}

    @property
    def grid(self) -> pa.Table | None:
        """All limits that were tried with lambda_, cap or floor "auto", with their estimates; or None."""
        if not self._grids:
            return None
        rows = []
        for name, grid in self._grids.items():
            for j, policy in enumerate(self.policies):
                estimates = [self._estimate(self.statistics.value(j, form), j, form) for form in grid.forms]
                found = grids.rows(grid, estimates, self._chosen_limits[name])
                rows += [{"policy": policy, "estimator": name, **row} for row in found]
        return stamped(pa.Table.from_pylist(rows), self.provenance)

    # Segments

    @cached_property
    def segments(self) -> pa.Table | None:
        """One row for each segment, policy and estimator; None without by=.

        The p-value is that of the difference to the logging policy in the segment: the smallest one at which its
        interval excludes 0. The q-value is that of Benjamini and Hochberg, over all segments, for each policy and
        estimator. The level is that of the segment's worst finding about the policy.
        """
        if not self.by:
            return None
        rows = [(key, row) for key in self._segments for row in self._evaluation_of(key)._segment_rows()]
        return stamped(segment_table(self.by, rows), self.provenance)

    def _segment_rows(self) -> list[dict[str, Any]]:
        """Rows for the table of segments, if this is a segment."""
        wanted = ("policy", "estimator", "value", "low", "high", *DIFFERENCE, "n", "ess", "method")
        found = []
        for row in self.rows():
            about = [finding for finding in self.findings if finding.policy == row["policy"]]
            p = self._p_value(row["policy"], row["estimator"])
            found.append({**{name: row[name] for name in wanted}, "p_value": p, "level": worst(about)})
        return found

    def _p_value(self, policy: str, estimator: str) -> float:
        """The p-value of the difference to the logging policy, by the method of its interval."""
        j, chosen = self._find(policy, estimator)
        found = self._methods(chosen)
        if not found:
            return math.nan  # DM has no interval unless asked for
        bias = self._propensity_bias(j, chosen, None)
        return methods.p_value(found[0], self.statistics.difference(j, None, chosen), self._limits, bias)

    def segment(self, **values: Any) -> Evaluation:
        """The evaluation of one segment, e.g. result.segment(country="DE")."""
        if not self.by:
            raise DrstreamError("this evaluation has no segments: pass by= to evaluate")
        unknown = [name for name in values if name not in self.by]
        if unknown or len(values) < len(self.by):
            raise DrstreamError(f"segment(...): give a value for each of {', '.join(self.by)}")
        key = tuple(values[name] for name in self.by)
        if key not in self._segments:
            known = [", ".join(map(str, k)) for k in self._segments]
            raise KeyError(f"there is no segment {key}: {suggest(', '.join(map(str, key)), known)}")
        return self._evaluation_of(key)

    def _evaluation_of(self, key: tuple[Any, ...]) -> Evaluation:
        about = replace(self._about, header=replace(self._header, others={}), skipped={}, findings=())
        return Evaluation(about, self._segments[key], chosen_limits=self._chosen_limits)

    # Sizes of the weights

    def weights(self, policy: str | None = None, estimator: str | None = None) -> pa.Table:
        """How many events have which weight: counts from one power of two to the next, and of weights that are 0.

        With a single policy, it need not be named. Without an estimator, it is the one that policies are compared by.
        They are counted with explain= of `evaluate`.
        """
        j, form = self._find(self.policies[0] if policy is None else policy, estimator or self.headline)
        if form.weight is None:
            raise DrstreamError(f"weights: {estimator or self.headline!r} does not weigh events")
        if self.statistics.octaves is None:
            told = phrase("explain=True", "--explain")
            raise DrstreamError(f"weights: this evaluation did not count weights by size: pass {told} to evaluate")
        counts = self.statistics.octaves[j, self.statistics.kind(form)]
        return stamped(weight_table(counts), self.provenance)

    # Explanations

    def explain(
        self,
        policy: str | None = None,
        estimator: str | None = None,
        *,
        deterministic_rewards: bool | None = None,
    ) -> Explanation:
        """Where the variance of an estimate comes from, and what a limit of the weights costs.

        With a single policy, it need not be named. Without an estimator, it is the one that policies are compared by.
        DR needs what `evaluate` gathers with explain=True; IPS and DM need nothing. `deterministic_rewards` is that of
        `drs.Explain`, and replaces what was given there.
        """
        if self.lists is not None:
            raise DrstreamError("explain: it is about events with one action, and this is a log of rankings")
        if policy is None and len(self.policies) > 1:
            raise KeyError(f"explain(): name a policy: {', '.join(map(repr, self.policies))}")
        policy = self.policies[0] if policy is None else policy
        name = estimator or self.headline
        j, form = self._find(policy, name)
        told = self._request.told or Explain()
        if deterministic_rewards is not None:
            told = replace(told, deterministic_rewards=deterministic_rewards)
        found = self[policy, name]
        about = self.estimated_propensities, self._settings.cluster is not None, name in self._grids
        facts = Explained(policy, name, found.high - found.low, *about, told, self.models.blind_second)
        return explain(self.statistics, j, form, facts)

    @property
    def explanations(self) -> list[Explanation]:
        """Explanations of all estimates whose parts are known; empty without explain= of `evaluate`."""
        known = [] if self._request.told is None else [e for e in self.estimators if e not in self.unexplained]
        return [self.explain(policy, name) for policy in self.policies for name in known]

    @property
    def unexplained(self) -> list[str]:
        """The estimators whose parts are not known."""
        return [name for name in self.estimators if not has_parts(self.statistics, self._form(name))]

    # Forms of the result

    def rows(self) -> list[dict[str, Any]]:
        """One row for each policy and estimator, with the paired difference to the logging policy."""
        rows = []
        for policy in self.policies:
            for estimator in self.estimators:
                gain = self.difference(policy, estimator=estimator)
                found = self[policy, estimator]
                row = {"policy": policy, "estimator": estimator, **vars(found)}
                of_methods = row.pop("intervals")
                row |= dict(zip(DIFFERENCE, (gain.value, gain.stderr, gain.low, gain.high), strict=True))
                if len(of_methods) > 1:
                    for name, (low, high) in of_methods.items():
                        row |= {f"{name}_low": low, f"{name}_high": high}
                rows.append(row)
        return rows

    def to_arrow(self) -> pa.Table:
        """One row for each policy and estimator; baseline, findings and the like are in the schema's metadata."""
        return stamped(pa.Table.from_pylist(self.rows()), self.provenance, **self._described())

    def to_pandas(self) -> pd.DataFrame:
        """The table of `to_arrow` as a pandas frame."""
        return as_frame(self.to_arrow())

    def to_dict(self) -> dict[str, Any]:
        """The result as a dictionary, as in JSON."""
        found = {"schema": schema_name("evaluate"), **self._described(), "provenance": self.provenance}
        found["estimates"] = self.rows()
        if len(self.policies) > 1:
            found |= {"best": self.best().to_dict(), "bands": self.bands().to_pylist()}
        if self.by:
            assert self.segments is not None
            found["segments"] = self.segments.to_pylist()
        if self.loggers is not None:
            found["loggers"] = self.loggers.to_pylist()
        if self.grid is not None:
            found["grid"] = self.grid.to_pylist()
        if self._request.told is not None:
            found["explanations"] = [explanation.to_dict() for explanation in self.explanations]
        if len(self.rewards) > 1 and next(iter(self.rewards)) == self.reward:
            found["rewards"] = {name: other.to_dict() for name, other in self.rewards.items() if other is not self}
        return plain(found)

    def to_json(self, indent: int | None = 2) -> str:
        """The result as JSON. Undefined values are null."""
        return json.dumps(self.to_dict(), indent=indent, default=str)

    def _described(self) -> dict[str, Any]:
        baseline = self.baseline
        return plain(
            {
                "events": self.n,
                "reward": self.reward,
                "actions": self.labels,
                "confidence": self.confidence,
                "precision": self.precision,
                "baseline": {k: getattr(baseline, k) for k in ("value", "stderr", "low", "high", "n")},
                "skipped": self.skipped,
                **({} if self.lists is None else {"rankings": {**vars(self.lists), "assumptions": self.assumptions}}),
                "findings": [finding.to_dict() for finding in self.findings],
                **self.about_models(),
            }
        )

    @property
    def assumptions(self) -> dict[str, str]:
        """What each estimator assumes about users, in a log of rankings; empty in other logs."""
        return {} if self.lists is None else {e.name: assumption(e) for e in self.chosen}

    @printable
    def __repr__(self) -> str:
        what, of_a_list = words.events(self.n, self.labels, self.lists), " of a list" if self.lists else ""
        lines = [f"Evaluation of {what}; logging policy's mean reward{of_a_list} {self.baseline}"]
        if self.skipped:
            lines.append(
                "  skipped: " + ", ".join(f"{count:,} rows ({reason})" for reason, count in self.skipped.items())
            )
        if how := self.how():
            lines.append(f"  {how}")
        lines += words.table(self.rows(), GIVEN_THE_MODEL)
        lines += [f"  {self.best().sentence}"] if len(self.policies) > 1 else []
        lines += [f"  {line}" for line in words.assumptions(self.assumptions)]
        lines += [f"  {finding}" for finding in to_show(self.findings)]
        if self.by:
            lines.append(f"  for {len(self._segments):,} segments by {', '.join(self.by)}, see segments")
        if len(self.rewards) > 1:
            lines.append(f"  reward {self.reward}; for others, see rewards[...]: {', '.join(self.rewards)}")
        return "\n".join(lines)
