"""Weights of stretches of time, for logs whose logging policy learned as it went.

Hadad, Hirshberg, Zhan, Wager and Athey (2021) and Zhan, Hadad, Hirshberg and Athey (2021) weigh the scores Γ_k of
events: Σ h_k Γ_k / Σ h_k, where h_k depends only on what happened before event k. The variance of Γ_k grows with
E_x Σ_a ν(a|x)² / μ_k(a|x), and h_k is a power of that. h_k must not depend on x_k: the weighted mean would be about
other contexts than those of the log. So h_k comes from the mean over the stretch of time before that of event k. The
first stretch has none before it. There, K stands for it, as if the logging policy had started at random.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from drstream.buffers import invalid_probabilities
from drstream.errors import PolicyError
from drstream.evaluation.groupings import stretches_of
from drstream.kernels.observe import first_improper, inverse_overlap
from drstream.log import Events, Log, Reader
from drstream.policies.base import FixedPolicy
from drstream.running import execution
from drstream.running.execution import Workers
from drstream.sources.base import Part
from drstream.types import Floats, Ints

Sums = dict[int, tuple[int, Floats]]  # by stretch: number of events, and Σ_a ν²/μ summed over them, by policy


@dataclass(frozen=True)
class Overlaps:
    """The mean of Σ_a ν(a|x)² / μ(a|x) over the stretch before each stretch (policies, stretches)."""

    before: Floats

    def shares(self, policy: int, rows: Ints, power: float) -> Floats:
        """Return h of each event, given ascending row numbers."""
        out = np.empty(len(rows))
        for stretch, first, last in stretches_of(rows):
            out[first:last] = self.before[policy, stretch] ** -power
        return out


def find_overlaps(
    log: Log, reader: Reader, policies: Sequence[FixedPolicy], block_rows: int, workers: Workers
) -> Overlaps:
    """Make a pass over the policies' probabilities and the propensities of all actions."""
    total: Sums = {}
    task = partial(_consume, reader, policies, block_rows)
    for part in execution.run(task, log, reader.columns, workers):
        for stretch, (count, sums) in part.items():
            before = total.get(stretch, (0, np.zeros(len(policies))))
            total[stretch] = before[0] + count, before[1] + sums
    return Overlaps(_before(total, len(policies), len(reader.labels)))


def _before(total: Sums, policies: int, n_actions: int) -> Floats:
    out = np.full((policies, max(total, default=0) + 1), float(n_actions))
    for stretch in range(1, out.shape[1]):
        count, sums = total.get(stretch - 1, (0, np.zeros(policies)))
        out[:, stretch] = np.maximum(sums / count, 1.0) if count else out[:, stretch - 1]  # it cannot be less than 1
    return out


def _consume(reader: Reader, policies: Sequence[FixedPolicy], block_rows: int, part: Part) -> Sums:
    found: Sums = {}
    for batch in reader.batches(part, Counter()):
        for block in batch.blocks(block_rows):
            execution.raise_if_stopped()
            overlap = np.stack([_overlap(policy, block, len(reader.labels)) for policy in policies])
            for stretch, first, last in stretches_of(block.numbers):
                count, sums = found.get(stretch, (0, np.zeros(len(policies))))
                found[stretch] = count + last - first, sums + overlap[:, first:last].sum(axis=1)
    return found


def _overlap(policy: FixedPolicy, block: Events, n_actions: int) -> Floats:
    """Return Σ_a ν(a|x)² / μ(a|x) of each event."""
    pi, out = np.empty((n_actions, len(block))), np.empty(len(block))
    policy.fill(block, pi)
    first_bad = first_improper(pi, block.eligible_bits, np.zeros(n_actions))
    if first_bad >= 0:
        about = pi[:, first_bad], block.where(first_bad), block.eligible, first_bad
        raise invalid_probabilities(f"policy {policy.name!r}", *about)
    mu = np.ascontiguousarray(block.propensities.T)
    first_bad = inverse_overlap(pi, mu, out)
    if first_bad >= 0:
        action = int(np.argmax((pi[:, first_bad] > 0) & (mu[:, first_bad] == 0)))
        raise PolicyError(
            f"policy {policy.name!r} gives action {action} the probability {pi[action, first_bad]:.6g} at "
            f"{block.where(first_bad)}, where its propensity is 0: the log cannot tell the policy's value there. "
            "Evaluate a policy that leaves such actions out"
        )
    return out
