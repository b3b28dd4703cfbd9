"""From the state of a pass to its result. An outline holds all that this takes beside the state, and needs no log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from drstream.errors import DrstreamError, parameter
from drstream.evaluation.embedding import Embedding
from drstream.evaluation.estimators import Estimator
from drstream.evaluation.explanation import Explain
from drstream.evaluation.form import Form
from drstream.evaluation.lists import ListPlan
from drstream.evaluation.plan import Plan
from drstream.evaluation.rankings import Lists
from drstream.evaluation.result import About, Evaluation
from drstream.evaluation.segments import check_number, pooled
from drstream.evaluation.settings import Settings
from drstream.evaluation.sums import Group, Inspected, Overlap, Sums, joined, joined_stretches, stratified
from drstream.evaluation.tally import Tally
from drstream.evaluation.totals import Totals
from drstream.findings import Finding
from drstream.log.rows import Folds
from drstream.models.binding import others_of
from drstream.models.calibration import summarised
from drstream.results import ModelSummary
from drstream.types import Floats, Ints


@dataclass(frozen=True)
class Asked:
    """What the caller of `evaluate` asked for, beside the pass itself."""

    settings: Settings
    chosen: list[Estimator]
    auto: str | None = None  # the parameter whose value is chosen from a grid
    told: Explain | None = None
    forward: bool = False


@dataclass(frozen=True)
class Outline:
    """All that a result is made of, beside the state of the pass. Each reward has one."""

    form: Form
    asked: Asked
    policies: list[str]
    labels: Sequence[Any]
    estimators: list[Estimator]  # with all forms of a grid
    reward: str
    pivot: float
    typical_reward: float
    precision: str
    random: tuple[tuple[int, float], ...]  # linear policies whose actions are at random now and then: place, how often
    models: ModelSummary  # as far as it is known before the pass
    has_model: bool
    has_logger: bool  # whether propensities are computed
    others: dict[str, dict[str, int]] = field(default_factory=dict)
    listed: tuple[bool, str | None] | None = None  # of a log of rankings: whether propensities are by position; which
    embedding: Embedding | None = None
    by_fold: bool = False  # whether events are evaluated in the order of their folds

    @classmethod
    def of(cls, plan: Plan, asked: Asked) -> Outline:
        job = plan.job
        told = asked.told
        if told is not None:
            asked = replace(asked, told=replace(told, second_model=None))  # models need not be picklable
        return cls(
            form=plan.form,
            asked=asked,
            policies=[policy.name for policy in job.policies],
            labels=plan.reader.labels,
            estimators=plan.estimators,
            reward=plan.reward,
            pivot=job.pivot,
            typical_reward=plan.typical_reward,
            precision=job.precision,
            random=job.random,
            models=job.models.about,
            has_model=job.models.model is not None,
            has_logger=job.models.logger is not None,
            others=others_of(job.policies, job.models),
            listed=(plan.listed, plan.kind) if isinstance(plan, ListPlan) else None,
            embedding=job.embedding if isinstance(job.embedding, Embedding) else None,
            by_fold=isinstance(plan.reader.folds, Folds),
        )

    def finish(
        self, tally: Tally, made_from: dict[str, Any] | None = None, findings: Sequence[Finding] = ()
    ) -> Evaluation:
        """Make the result from the final state."""
        asked, form = self.asked, self.form
        _refuse_outside(tally, asked.settings, by_fold=self.by_fold)
        overlap = Overlap(self._mixed(tally), tally.logged, tally.other_than_clicks == 0)
        whole = self._sums(tally.totals, tally.reduced, overlap)
        about = About(
            policies=self.policies,
            labels=list(self.labels),
            estimators=self.estimators,
            chosen=asked.chosen,
            models=summarised(self.models, tally.calibration, model=self.has_model, logger=self.has_logger),
            skipped=dict(tally.skipped),
            settings=asked.settings,
            reward=self.reward,
            auto=asked.auto,
            explain=asked.told,
            forward=asked.forward,
            precision=self.precision,
            others=self.others,
            provenance=made_from or {},
            lists=self._lists(tally),
            embedding=self.embedding,
            findings=tuple(findings),
        )
        no_counts, unknown = np.full(tally.reduced.shape, -1), replace(overlap, mass=np.full_like(tally.mass, np.nan))
        segments, loggers = {}, {}
        if tally.segments is not None:
            number, size = len(tally.segments.totals), tally.totals.nbytes
            check_number(number, form.by, size, groups=form.buckets or form.stretches)
            for key, totals in pooled(tally.segments.totals, form.by).items():
                segments[key] = self._sums(totals, no_counts, unknown)
        if tally.loggers is not None:
            for key in sorted(tally.loggers.totals):
                loggers[key[0]] = self._sums(tally.loggers.totals[key], no_counts, unknown)
            whole = stratified(whole, list(loggers.values()))
        return Evaluation(about, whole, form.by, segments, loggers=loggers)

    def _mixed(self, tally: Tally) -> Floats:
        """The sums of ν(a|x) over events, by policy and action. Kernels leave out the random actions of linear ones."""
        mass = tally.mass.copy()
        for place, epsilon in self.random:
            even = tally.even if self.form.with_sets else tally.totals.count / self.form.actions
            mass[place] = (1 - epsilon) * mass[place] + epsilon * even
        return mass

    def _lists(self, tally: Tally) -> Lists | None:
        if self.listed is None:
            return None
        found = tally.lengths
        assert found is not None
        return Lists(found.shortest, found.longest, found.items, *self.listed)

    def _sums(self, totals: Totals, reduced: Ints, overlap: Overlap) -> Sums:
        """Read means, co-moments and sums by bucket and stretch off a state."""
        form, layout, state = self.form, self.form.layout, totals.moments
        means = layout.means(state)
        groups = {}
        for terms in form.groups:
            place, parts = list(form.group(terms)), form.parts(terms)
            stretches = [totals.by_stretch(part) for part in parts]
            comoment = joined([layout.comoment(state, part) for part in parts], form.first)
            groups[terms] = Group(
                means[place], comoment, totals.buckets(place), joined_stretches(stretches, form.first)
            )
        inspected = Inspected(*np.moveaxis(totals.inspected, -1, 0))
        about = self.pivot, form.down_sampled, overlap, form.paired, totals.octaves if totals.shape.octaves else None
        return Sums(totals.count, groups, list(form.weights), inspected, reduced, *about)


def _refuse_outside(tally: Tally, settings: Settings, *, by_fold: bool) -> None:
    """Raise an error if rewards, weights or predictions lie outside of the bounds that the caller gave.

    If events were evaluated in the order of their folds, the one that is shown need not be the first of the log.
    """
    for (what, policy), found in tally.outside.items():
        many = f"{found.count:,} {what}{'s' * (found.count != 1)}"
        whose = f" of policy {policy!r}" if policy else ""
        bound = parameter("reward_range", settings.reward_range)
        todo = "Give the range that rewards can have, or repair these rows"
        if what == "weight":
            bound = parameter("max_weight_bound", settings.max_weight_bound)
            todo = f"Give a bound that holds, or cap the weights: {parameter('cap')} and the capped estimators"
        elif what == "prediction":
            todo = f"Hold predictions within the range: {parameter('clamp', settings.reward_range)}"
        raise DrstreamError(
            f"{many}{whose} outside of {bound}: {'one of them' if by_fold else 'the first'} is {found.first:.6g}, at "
            f"{found.where}. {todo}"
        )
