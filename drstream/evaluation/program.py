"""From terms to instructions: which rows are observed, and how `kernels/account.py` makes variables from them.

Observed rows have names. `reward` and `p` are always there; then, as far as they are needed, `scale` (1 / sample rate),
`mixture` (propensities of all loggers), `joint` (those of whole lists), `p.category`, `rhat` and `second` (predictions
for the logged action), and for each policy j: `j.pi`, `j.b` (r̂(x, ν)), `j.pi.category`, `j.pi.covered`, `j.share.P` (of
its stretch of time, to the power P), `j.NAME` for a weight that Python fills in, and `j.NAME.TERM` for its terms.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from drstream.evaluation.job import Job
from drstream.evaluation.rankings import ListWeight
from drstream.evaluation.terms import WeightTerms
from drstream.kernels import account as kernels
from drstream.moments import Layout

OPS = {
    "importance": kernels.IMPORTANCE,
    "capped": kernels.CAPPED,
    "shrunk": kernels.SHRUNK,
    "switched": kernels.SWITCHED,
}  # what makes a weight of ν and p
VARIABLE, BETWEEN, OBSERVED = range(3)  # where a row is
Row = tuple[int, int]
NONE: Row = (VARIABLE, 0)  # instead of a row that is not read


@dataclass(frozen=True)
class Program:
    """The rows that a pass observes, and what it makes of them. It can be pickled."""

    rows: dict[str, int]  # observed rows: their places
    height: int  # rows of a tile
    code: kernels.Code
    rare: bool  # whether some instructions are rare ones

    @property
    def watched(self) -> list[str]:
        """The rows whose extremes are known."""
        before = self.height - len(self.rows)
        return [name for place in self.code.watched for name, row in self.rows.items() if before + row == place]


@dataclass
class _Writer:
    """Writes instructions."""

    job: Job
    observed: dict[str, int] = field(default_factory=dict)
    between: int = 0
    lines: list[tuple[Row, int, tuple[Row, ...], tuple[float, ...], tuple[Row, ...]]] = field(default_factory=list)
    known: dict[Any, Row] = field(default_factory=dict)  # rows between, by what is in them

    def row(self, name: str) -> Row:
        """An observed row."""
        return OBSERVED, self.observed.setdefault(name, len(self.observed))

    def write(
        self,
        out: Row,
        op: int,
        reads: tuple[Row, ...] = (),
        numbers: tuple[float, ...] = (),
        scales: tuple[Row, ...] = (),
    ) -> None:
        self.lines.append((out, op, reads, numbers, scales))

    def make(self, op: int, reads: tuple[Row, ...] = (), numbers: tuple[float, ...] = ()) -> Row:
        """A row between observed rows and variables."""
        key = op, reads, numbers
        if key not in self.known:
            self.known[key] = BETWEEN, self.between
            self.between += 1
            self.write(self.known[key], op, reads, numbers)
        return self.known[key]

    @property
    def zero(self) -> Row:
        return self.make(kernels.CONSTANT, (), (0.0,))

    def scales(self, *more: Row) -> tuple[Row, ...]:
        """The rows that variables are multiplied with."""
        return (*more, *([self.row("scale")] if self.job.down_sampled else []))


def make_program(job: Job, layout: Layout, watched: list[str]) -> Program:
    """Write the program of a pass. The extremes of the `watched` rows are taken down."""
    writer = _Writer(job)
    writer.write((VARIABLE, 0), kernels.COPY, (writer.row("reward"),), (), writer.scales())
    writer.row("p")
    seen = () if job.ranking else ("pi",) if job.models.model is None else ("pi", "b")
    for name in (f"{j}.{what}" for j in range(len(job.policies)) for what in seen):
        writer.row(name)  # whatever the estimators need: observers fill it in
    for name, model in (("rhat", job.models.model), ("second", job.models.second)):
        if model is not None and not job.ranking:
            writer.row(name)
    if job.down_sampled:
        writer.write((VARIABLE, 1), kernels.CONSTANT, (), (1.0,), writer.scales())
    weights: list[tuple[Row, Row | None]] = []
    for j in range(len(job.policies)):
        place = job.first + j * len(job.terms)
        if job.terms.predicted:
            writer.write((VARIABLE, place), kernels.COPY, (writer.row(f"{j}.b"),), (), writer.scales())
            place += 1
        for group in job.terms.weighted:
            reduced = _write_weight(writer, j, group, (VARIABLE, place))
            weights.append(((VARIABLE, place), reduced))
            for t, term in enumerate(group.terms[1:], 1):
                _write_term(writer, j, group, term, (VARIABLE, place), (VARIABLE, place + t))
            place += len(group.terms)
    return _finished(writer, layout, weights, [writer.row(name) for name in watched])


def _of_policy(writer: _Writer, j: int, group: WeightTerms) -> tuple[Row, Row]:
    """ν and p of the logged action, or of its category or list."""
    weight, job = group.weight, writer.job
    if weight.marginal:
        return writer.row(f"{j}.pi.category"), writer.row("p.category")
    p = "mixture" if weight.balanced else "joint" if job.ranking else "p"
    return writer.row(f"{j}.pi"), writer.row(p)


def _scales(writer: _Writer, j: int, group: WeightTerms) -> tuple[Row, ...]:
    power = group.weight.power
    return writer.scales(*([writer.row(f"{j}.share.{power:g}")] if power else []))


def _write_weight(writer: _Writer, j: int, group: WeightTerms, out: Row) -> Row | None:
    """Write how the weight is made. Returns the row that says whether it was reduced, if there is one."""
    weight, scales = group.weight, _scales(writer, j, group)
    if isinstance(weight, ListWeight):
        name = f"{j}.{weight.name}.weight" if weight.by_position else f"{j}.{weight.name}"
        writer.write(out, kernels.COPY, (writer.row(name),), (), scales)
        return None
    pi, p = _of_policy(writer, j, group)
    if callable(weight.kernel):
        writer.write(out, kernels.COPY, (writer.row(f"{j}.{weight.name}"),), (), scales)
    else:
        writer.write(out, OPS[weight.kernel], (pi, p), tuple(group.parameters), scales)
    return writer.make(kernels.REDUCED, (pi, p, out)) if group.reduced else None


def _write_term(writer: _Writer, j: int, group: WeightTerms, term: str, w: Row, out: Row) -> None:
    """Write how a term of the weight w is made."""
    weight, row, scales = group.weight, writer.row, _scales(writer, j, group)

    def write(op: int, *reads: Row, shift: float = 0.0) -> None:
        writer.write(out, op, reads, (shift,), scales)

    if isinstance(weight, ListWeight) and weight.by_position:
        write(kernels.COPY, row(f"{j}.{weight.name}.{term}"))
    elif term == "share":
        write(kernels.CONSTANT, shift=1.0)
    elif term in ("reward", "centred"):
        write(kernels.PRODUCT, w, row("reward"), shift=writer.job.pivot if term == "centred" else 0.0)
    elif term == "residual":
        write(kernels.RESIDUAL, w, row("reward"), row("rhat"))
    elif term == "robust":
        write(kernels.ROBUST, w, row("reward"), row("rhat"), row(f"{j}.b"))
    elif term == "disagreement":
        write(kernels.RESIDUAL, w, row("second"), row("rhat"))
    elif term == "second":
        write(kernels.PRODUCT, w, row("second"))
    elif term in ("cut", "cut_reward"):
        plain = writer.make(kernels.IMPORTANCE, _of_policy(writer, j, group))
        write(kernels.DIFFERENCE, w, plain, row("reward"), row("rhat") if term == "cut" else writer.zero)
    elif term in ("smooth_gain", "smooth_loss"):
        end, scale = writer.job.bounds.smoothed(term)
        writer.write(out, kernels.LOGARITHM, (w, row("reward")), (end, scale), scales)
    elif term in ("explored", "explored_reward"):
        explored = writer.make(kernels.EXPLORING, _of_policy(writer, j, group), (writer.job.bounds.smoothing / 2,))
        write(kernels.COPY, explored) if term == "explored" else write(kernels.PRODUCT, explored, row("reward"))
    elif term in ("absolute", "squared"):
        write(getattr(kernels, term.upper()), w, row("reward"), row("rhat"))
    elif term in ("absolute_reward", "squared_reward"):
        write(getattr(kernels, term.partition("_")[0].upper()), w, row("reward"), writer.zero)
    else:  # direct effects: w - w', whose mean is 0 in each category, by itself or times r or r - r̂
        whole, covered = row(f"{j}.pi.category"), row(f"{j}.pi.covered")
        other = writer.make(kernels.OTHER, (row(f"{j}.pi"), row("p"), whole, covered), (float(w[1]),))
        if term == "direct_weight":
            write(kernels.DIFFERENCE, w, other, writer.zero, writer.zero, shift=-1.0)
        else:
            rhat = row("rhat") if term == "direct_residual" else writer.zero
            write(kernels.DIFFERENCE, w, other, row("reward"), rhat)


def _finished(writer: _Writer, layout: Layout, weights: list[tuple[Row, Row | None]], watched: list[Row]) -> Program:
    variables = layout.variables
    first = {VARIABLE: 0, BETWEEN: variables, OBSERVED: variables + writer.between}

    def at(row: Row) -> int:
        return first[row[0]] + row[1]

    size = len(writer.lines)
    code, number, scales = np.zeros((size, 6), np.int64), np.zeros((size, 3)), np.full((size, 2), -1, np.int64)
    for t, (out, op, reads, numbers, scaled) in enumerate(writer.lines):
        code[t, : 2 + len(reads)] = [at(out), op, *map(at, reads)]
        number[t, : len(numbers)] = numbers
        scales[t, : len(scaled)] = list(map(at, scaled))
    of_weights = [(at(w), -1 if reduced is None else at(reduced)) for w, reduced in weights]
    found = kernels.Code(
        code,
        number,
        scales,
        layout.members,
        layout.starts,
        np.array(of_weights, np.int64).reshape(-1, 2),
        np.array([at(row) for row in watched], np.int64),
        at(writer.row("p")),
        variables,
    )
    height = first[OBSERVED] + len(writer.observed)
    return Program(writer.observed, height, found, any(op >= kernels.RARE for _, op, *_ in writer.lines))
