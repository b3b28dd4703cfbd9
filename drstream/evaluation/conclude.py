"""From sums to a result: means, co-moments and sums by group, as statistics of which estimates are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from drstream.evaluation.groupings import Key
from drstream.evaluation.header import Header
from drstream.evaluation.rankings import ListFacts
from drstream.evaluation.result import About, Evaluation
from drstream.evaluation.segments import check_number, pooled
from drstream.evaluation.statistics import Inspected, Moments, Overlap, Statistics, stratified
from drstream.evaluation.sums import Sums
from drstream.findings import Finding
from drstream.intervals.statistic import Groups
from drstream.kernels.account import BINS, FACTS, REDUCTIONS
from drstream.log.doubts import of_extremes
from drstream.models.calibration import summarised
from drstream.moments import Layout
from drstream.types import Floats


def conclude(
    header: Header, sums: Sums, made_from: dict[str, Any] | None = None, findings: Sequence[Finding] = ()
) -> Evaluation:
    """Make the result of a pass."""
    form = header.form
    if not any(finding.check == "sentinels" for finding in findings):
        doubt = of_extremes(header.reward, *sums.extremes_of("reward"))
        findings = [*findings, *([doubt] if doubt else [])]
    overlap = Overlap(sums.mass, sums.logged, not sums.other_than_clicks[0])
    whole = _statistics(header, _OfGroup.of_all(sums), overlap, sums.octaves if form.octaves else None)
    about = About(
        header,
        models=summarised(header.models, sums.calibration, model=header.has_model, logger=header.has_logger),
        skipped=dict(sums.skipped),
        provenance={**(made_from or {}), "path": header.path},
        lists=_lists(header, sums),
        findings=tuple(findings),
    )
    unknown = replace(overlap, mass=np.full_like(sums.mass, np.nan))
    segments, loggers = {}, {}
    if form.by:
        found = _OfGroup.by_key(sums, "segment")
        check_number(len(found), form.by, form.bytes_a_segment, groups=form.stretches)
        segments = {key: _statistics(header, one, unknown) for key, one in pooled(found, form.by).items()}
    if form.logger:
        by_logger = _OfGroup.by_key(sums, "logger")
        loggers = {key[0]: _statistics(header, by_logger[key], unknown) for key in sorted(by_logger)}
        whole = stratified(whole, list(loggers.values()))
    return Evaluation(about, whole, form.by, segments, loggers=loggers)


def _lists(header: Header, sums: Sums) -> ListFacts | None:
    if header.listed is None:
        return None
    shortest, longest = sums.extremes_of("length")
    return ListFacts(int(shortest), int(longest), sums.items, *header.listed)


def _statistics(header: Header, found: _OfGroup, overlap: Overlap, octaves: Floats | None = None) -> Statistics:
    """Read means, co-moments and sums by bucket and stretch off records."""
    form, layout = header.form, header.form.layout
    means, groups = layout.means(found.record), dict[tuple[str, ...], list[Moments]]()
    for terms in form.groups:
        groups[terms] = []
        for part in form.parts(terms):
            place, buckets = list(part), None
            if found.buckets is not None:
                buckets = Groups(found.buckets[:, 0], found.buckets[:, 1:][:, place])
            comoment = layout.comoment(found.record, part)
            groups[terms].append(Moments(means[place], comoment, buckets, found.by_stretch(part)))
    shape = form.policies, len(form.weights)
    facts = np.moveaxis(layout.facts(found.record).reshape(*shape, FACTS), -1, 0)
    inspected, reduced = Inspected(*facts[:REDUCTIONS]), facts[REDUCTIONS].astype(np.int64)
    return Statistics(
        int(found.record[0]),
        groups,
        list(form.weights),
        inspected,
        reduced,
        header.pivot,
        form.down_sampled,
        overlap,
        None if octaves is None else octaves.reshape(*shape, BINS).astype(np.int64),
    )


@dataclass
class _OfGroup:
    """The records of all events, or of a segment or a logger."""

    layout: Layout
    record: Floats
    buckets: Floats | None = None
    stretches: dict[int, Floats] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return int(self.record[0])

    @classmethod
    def of_all(cls, sums: Sums) -> _OfGroup:
        buckets, stretches = sums.tables.get("bucket"), sums.tables.get("stretch")
        found = cls(sums.form.layout, sums.whole, None if buckets is None else buckets.of(()))
        if stretches is not None:
            found.stretches = {stretch: stretches.of(stretch)[0] for stretch in stretches.places}
        return found

    @classmethod
    def by_key(cls, sums: Sums, name: str) -> dict[Key, _OfGroup]:
        """The records of segments or loggers."""
        table, buckets, stretches = (sums.tables.get(one) for one in (name, f"{name} bucket", f"{name} stretch"))
        assert table is not None
        found = {}
        for key in table.places:
            found[key] = cls(sums.form.layout, table.of(key)[0], None if buckets is None else buckets.of(key))
        if stretches is not None:
            for pair in stretches.places:
                key, stretch = pair
                found[key].stretches[stretch] = stretches.of(pair)[0]
        return found

    def merged(self, other: _OfGroup) -> _OfGroup:
        """The records of both."""
        found = replace(self, record=self.record.copy(), stretches=dict(self.stretches))
        self.layout.merge(found.record, other.record)
        if self.buckets is not None and other.buckets is not None:
            found.buckets = self.buckets + other.buckets
        for stretch, record in other.stretches.items():
            if stretch in found.stretches:
                found.stretches[stretch] = found.stretches[stretch].copy()
                self.layout.merge(found.stretches[stretch], record)
            else:
                found.stretches[stretch] = record
        return found

    def by_stretch(self, group: tuple[int, ...]) -> Groups | None:
        """The sums of a group's variables, and of their products, by stretch, in the order of the log."""
        if not self.stretches:
            return None
        records = np.array([self.stretches[stretch] for stretch in sorted(self.stretches)])
        count, sums = records[:, 0], self.layout.sums(records)[:, list(group)]
        gram = self.layout.comoment(records, group) + sums[:, :, None] * sums[:, None, :] / count[:, None, None]
        return Groups(count, sums, gram)
