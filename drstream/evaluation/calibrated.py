"""Whether fitted propensities agree with the actions that were logged: a score test on the first rows.

If μ̂(k|x) is the probability of action k, then 1{a = k} - μ̂(k|x) has mean 0 for any x, so its mean with any function φ
of x is 0, up to chance (McCullagh and Nelder 1989, section 12.6). A logistic regression has means of 0 for its own
features, also where it is wrong. So φ are contexts, their squares, products and fifths, and the same of log μ̂.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from drstream.evaluation.plan import Plan
from drstream.findings import LOOK, OK, STOP, Finding
from drstream.log import Log
from drstream.running.execution import one_blas_thread
from drstream.types import Floats, Ints

MODEL = "propensity model"  # the check
ROWS = 1 << 15  # that are looked at
MOST_NUMBERS = 1 << 25  # probabilities that are computed
MOST_ACTIONS, MOST_FEATURES, MOST_PRODUCTS = 16, 64, 16
CLIP = 3.0  # standard deviations: one event shall not decide
ALPHA = 1e-4  # probability of a false alarm, over all tests
CLEAR = 0.1  # share of an action's probability by which propensities are off
PIECE = 2048  # events at a time
FIFTHS = 5
TAILS = np.array([0.01, 0.05, 0.2, 0.5, 0.8, 0.95, 0.99])


@dataclass(frozen=True)
class FirstRows:
    """Contexts (n, d), actions, and fitted probabilities of those actions that are tested (n, tested)."""

    X: Floats
    action: Ints
    fitted: Floats
    tested: Sequence[int]


@dataclass(frozen=True)
class Miss:
    """How far the mean of (1{a = k} - μ̂) φ is from 0."""

    action: int
    function: str
    share: float  # of Σ μ̂ |φ|
    z: float


def finding_about(plan: Plan, log: Log) -> list[Finding]:
    """The finding about a propensity model that was fitted; none if there is none, or it cannot be tested."""
    logger = plan.job.models.logger
    if logger is None or not logger.estimated or logger.policy.direct or plan.job.candidates:
        return []
    if log.roles.sample_rate is not None:  # fitted on the rows that were kept: a finding of its own says so
        return []
    with one_blas_thread():
        seen = _first_rows(plan, log)
        if seen is None:
            return []
        found = misses(seen, _names(log, seen.X.shape[1]))
    if not found:
        return []
    far = math.sqrt(2 * math.log(2 * len(found) / ALPHA))
    wrong = [one for one in found if abs(one.z) > far]
    if not wrong:
        worst = max(found, key=lambda one: abs(one.z))
        text = (
            f"Fitted propensities agree with the logged actions: of {len(found):,} tests, the largest z is "
            f"{abs(worst.z):.2g}."
        )
        return [Finding(OK, MODEL, None, abs(worst.z), text)]
    worst, most = max(wrong, key=lambda one: abs(one.z)), max(abs(one.share) for one in wrong)
    label = plan.reader.labels[worst.action]
    text = (
        f"The propensity model is wrong: {worst.function}, action {label!r} was taken {abs(worst.share):,.1%} "
        f"{'more' if worst.share > 0 else 'less'} often than fitted (z = {abs(worst.z):.1f}). Estimates are wrong if "
        "policies depend on it. Use logged propensities, add such features to the context, or fit a more flexible "
        "model, e.g. drs.models.Propensity.from_sklearn(...)."
    )
    return [Finding(STOP if most > CLEAR else LOOK, MODEL, None, most, text)]


def _first_rows(plan: Plan, log: Log) -> FirstRows | None:
    """Contexts and actions of the first rows, and what the model says about them; None if contexts are no numbers."""
    logger, models = plan.job.models.logger, plan.job.models
    assert logger is not None
    actions = len(plan.reader.labels)
    with_context = bool(log.roles.context) and not log.is_sparse
    held = log.copy(source=log.source.peek(ROWS))
    reader = held.reader(
        context=with_context or logger.uses_context,
        action=True,
        columns=logger.columns,
        folds=models.folds,
        start=models.start,
    )
    left = min(ROWS, MOST_NUMBERS // actions)
    contexts, taken, probabilities = [], [], []
    for part in held.parts(reader.columns):
        for batch in reader.batches(part, Counter()):
            batch = batch[:left]
            batch = batch if models.folds is None else batch.by_fold()
            for block in batch.blocks(plan.block_rows):
                pi = np.empty((actions, len(block)))
                logger.fill(block, pi, np.empty(len(block)))
                matrix = block.matrix if with_context else np.empty((len(block), 0))
                if scipy.sparse.issparse(matrix) or np.asarray(matrix).dtype.kind not in "biuf":
                    return None
                contexts.append(np.array(matrix[:, :MOST_FEATURES], np.float64))
                taken.append(np.array(block.action))
                probabilities.append(pi.T.astype(np.float32))
            left -= len(batch)
            if left <= 0:
                break
        if left <= 0:
            break
    if not taken:
        return None
    action = np.concatenate(taken).astype(np.int64)
    counts = np.bincount(action, minlength=actions)
    tested = [int(k) for k in np.argsort(-counts, kind="stable")[:MOST_ACTIONS] if counts[k]]
    fitted = np.concatenate([one[:, tested] for one in probabilities]).astype(np.float64)
    return FirstRows(np.concatenate(contexts), action, fitted, tested)


def _names(log: Log, features: int) -> list[str]:
    known = log.feature_names[:features]
    return [*known, *(f"feature {j}" for j in range(len(known), features))]


def misses(seen: FirstRows, names: Sequence[str]) -> list[Miss]:
    """The mean of (1{a = k} - μ̂) φ for each action and each function φ, which is at most `largest`.

    Bernstein's inequality bounds how probable such a sum is: exp(-z² / 2), z² = S² / (V + |S| largest / 3). So tests of
    few events, where a normal distribution would not do, need no care.
    """
    Z, kept = _standardised(seen.X)
    functions, values = _of_contexts(Z, [names[j] for j in kept])
    logged = seen.action[:, None] == np.array(seen.tested)
    found = _missed(functions, values, logged, seen.fitted, seen.tested)
    for k, action in enumerate(seen.tested):
        of_fitted = _of_fitted(seen.fitted[:, k])
        found += _missed(*of_fitted, logged[:, k : k + 1], seen.fitted[:, k : k + 1], [action])
    return found


def _missed(
    functions: Sequence[str], values: Callable[[slice], Floats], logged: Any, fitted: Floats, actions: Sequence[int]
) -> list[Miss]:
    """What some functions find about some actions."""
    score, variance, whole = np.zeros((3, len(functions), len(actions)))
    largest = np.zeros((len(functions), 1))
    for start in range(0, len(fitted), PIECE):
        rows = slice(start, start + PIECE)
        phi, p = values(rows), fitted[rows]
        score += phi.T @ (logged[rows] - p)
        variance += (phi * phi).T @ (p * (1 - p))
        size = np.abs(phi)
        whole += size.T @ p
        largest = np.maximum(largest, size.max(axis=0)[:, None])
    with np.errstate(all="ignore"):
        z, share = score / np.sqrt(variance + np.abs(score) * largest / 3), score / whole
    places = zip(*np.nonzero(np.isfinite(z)), strict=True)
    return [Miss(actions[k], functions[m], float(share[m, k]), float(z[m, k])) for m, k in places]


Functions = tuple[list[str], Callable[[slice], Floats]]  # their names, and the values (n, functions) of some rows


def _of_contexts(Z: Floats, names: Sequence[str]) -> Functions:
    """1; contexts, their squares and products; and fifths of each context."""
    pairs = list(itertools.combinations(range(len(names)), 2)) if len(names) <= MOST_PRODUCTS else []
    left, right = [i for i, _ in pairs], [j for _, j in pairs]
    found = ["over all events", *(f"with {name}" for name in names), *(f"with the square of {name}" for name in names)]
    found += [f"with the product of {names[i]} and {names[j]}" for i, j in pairs]
    found += [f"in a fifth of the values of {name}" for name in names for _ in range(FIFTHS)]
    squares, edges = (Z**2).mean(axis=0), np.quantile(Z, np.arange(1, FIFTHS) / FIFTHS, axis=0)

    def values(rows: slice) -> Floats:
        z = Z[rows]
        fifth = (z[:, None, :] > edges).sum(axis=1)
        within = (fifth[:, :, None] == np.arange(FIFTHS)).reshape(len(z), -1)
        return np.concatenate([np.ones((len(z), 1)), z, z**2 - squares, z[:, left] * z[:, right], within], axis=1)

    return found, values


def _of_fitted(fitted: Floats) -> Functions:
    """The logarithm of the fitted probability, its square, and its smallest and largest values."""
    logs, edges = _standardised(np.log(np.maximum(fitted, 1e-12))[:, None], keep=True)[0], np.quantile(fitted, TAILS)
    square = (logs**2).mean()
    found = ["with its log propensity", "with the square of its log propensity"]
    found += [f"among the {share:.0%} smallest of its propensities" for share in TAILS]
    found += [f"among the {share:.0%} largest of its propensities" for share in 1 - TAILS]

    def values(rows: slice) -> Floats:
        low = fitted[rows, None] <= edges
        return np.concatenate([logs[rows], logs[rows] ** 2 - square, low, ~low], axis=1)

    return found, values


def _standardised(X: Floats, *, keep: bool = False) -> tuple[Floats, list[int]]:
    """Columns about their mean, over their standard deviation, within a few of these; and which columns vary."""
    X = np.where(np.isfinite(X), X, np.nan)
    with np.errstate(all="ignore"):
        known = np.isfinite(X)
        count = known.sum(axis=0)
        mean = np.where(known, X, 0).sum(axis=0) / count
        spread = np.sqrt((np.where(known, X - mean, 0) ** 2).sum(axis=0) / count)
        Z = np.where(known, (X - mean) / spread, 0.0)
    varies = (spread > 0) & np.isfinite(spread)
    Z = np.clip(np.where(varies, Z, 0.0), -CLIP, CLIP)
    kept = [int(j) for j in np.flatnonzero(varies)]
    return (Z, kept) if keep else (Z[:, kept], kept)
