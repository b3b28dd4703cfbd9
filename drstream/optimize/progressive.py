"""From a replay of a policy that learns to a policy that does not: a mixture of all that it was on its way."""

from __future__ import annotations

import inspect
import math
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from numbers import Real
from typing import Any, Self

import numpy as np

from drstream.buffers import PIECE, check_shape
from drstream.errors import PolicyError, suggest
from drstream.execution import Workers
from drstream.kernels import mixture
from drstream.kernels.replay import Rows
from drstream.log import as_log
from drstream.models.binding import ModelInputs
from drstream.optimize.base import Learned
from drstream.optimize.losses import FOLDS, Losses, origins_of
from drstream.parameters import whole
from drstream.policies import learners
from drstream.policies.online import Compiled, Fixed, as_online
from drstream.replaying.options import ReplayOptions
from drstream.replaying.replay import record
from drstream.types import Floats

DELTA = 0.05  # of `low` and `high`
FOUND = (
    "value_",
    "weight_",
    "steps_",
    "events_",
    "least_propensity_",
    "sparse_",
    "notes_",
)  # numbers beside the arrays
_one_at_a_time = threading.Lock()  # a Python policy may use its arrays again, and need not know of threads


class ProgressivePolicy(Learned):
    """The progressive validation policy of a policy that learns (the paper's last appendix).

    π_PV(a|x) = Σ_t c_t |B(t)| / C π(a|x, h_{t-1}): DR-ns replays the learner, and this policy draws a step t of that
    replay, by the weight that its block of events B(t) had, and acts as the learner would have then. It does not change
    any more, and its value is known from the same replay: it lies within bound() of `value`, V / C of DR-ns.

    policy     one that learns: compiled, of `drs.policies`, or a Python object, as `drs.replay` takes them.
    horizon    T, the steps to replay; None: all that the log's events simulate.
    q, c_max   of DR-ns, as in `drs.replay`; seed is that of its random numbers and of those for snapshots.
    snapshots  states of the learner that are kept. If it has had more, neighbouring steps form groups, and each group
               is represented by one of its states, drawn with probability proportional to the weight of its block;
               over that draw, π_PV is the mean of the policies that are got. Memory: so many states. Each step costs
               a copy of a state, and each event at which the policy is asked as many calls as there are snapshots.

    After `fit`:

    value, low, high        V / C, and value -/+ bound() at δ = 0.05
    steps_, events_         T, and N, the events of its T blocks; what comes after the last acceptance is left out
    weight_                 C
    states_, weights_       the snapshots (M, S), or of a Python policy copies of it, and their shares, which sum to 1

    >>> import drstream as drs
    >>> log = drs.Log(drs.synth.World(n_actions=3, n_features=2).table(3000))
    >>> pv = ProgressivePolicy(drs.policies.EpsilonGreedy(0.1), q=0.05).fit(log)
    >>> pv.steps_ > 100, len(pv.weights_) <= 256, pv.low < pv.value < pv.high
    (True, True, True)
    """

    kept = ("states_", "weights_")
    states_: Any  # (M, S), or a list of Python policies
    weights_: Floats
    value_: float
    weight_: float
    steps_: int
    events_: int
    least_propensity_: float
    sparse_: bool  # the contexts that it was learned from
    notes_: list[str]  # of the replay

    def __init__(
        self,
        policy: Any,
        *,
        horizon: int | None = None,
        q: float = 0.01,
        c_max: float = 1.0,
        seed: int = 0,
        snapshots: int = 256,
    ) -> None:
        self.snapshots = whole("snapshots", snapshots)
        ReplayOptions.once(horizon, q, c_max, seed, snapshots)
        self.policy = as_online(policy, "policy")
        if isinstance(self.policy, Fixed):
            raise PolicyError(
                f"{type(policy).__name__} does not learn, so a replay of it has nothing to mix: evaluate it as it is, "
                "with drs.evaluate, or pass a policy that learns, e.g. drs.policies.EpsilonGreedy()"
            )
        self.horizon = None if horizon is None else int(horizon)
        self.q, self.c_max, self.seed = float(q), float(c_max), int(seed)

    def fit(
        self,
        log: Any,
        model: Any = None,
        *,
        propensity: Any = None,
        crossfit: int | None = FOLDS,
        cluster: str | None = None,
        fold_seed: int = 0,
        clamp: Any = None,
        threads: int | None = None,
        executor: Any = None,
        progress: Any = False,
    ) -> Self:
        """Replay the learner once by DR-ns, in the order of the log.

        model      a reward model, fitted on other events, or not yet fitted: then it is fitted in `crossfit` folds.
                   Without one, r̂ is 0.
        executor   for the fit of that model; a replay is one step after the other.

        The other parameters are those of `evaluate`.
        """
        if isinstance(log, Losses):
            raise PolicyError("ProgressivePolicy replays the events of a log, not completed losses: pass the log")
        inputs = ModelInputs(model, propensity, crossfit, cluster, fold_seed, clamp)
        inputs = inputs if inputs.waits else replace(inputs, crossfit=None, cluster=None)
        most = getattr(self.policy, "n_actions", None) or 0
        log = as_log(log, propensities=propensity is None).with_actions_up_to(max(inputs.n_actions, most))
        options = ReplayOptions.once(self.horizon, self.q, self.c_max, self.seed, self.snapshots)
        workers = Workers.of(threads, executor, progress)
        run, found = record(log, self.policy, options, inputs, workers, to_the_end=self.horizon is None)
        self.states_ = np.array(found.snapshots) if self._compiled else found.snapshots
        self.weights_ = found.weights / math.fsum(found.weights)
        self.value_, self.weight_ = found.value, found.weight
        self.steps_, self.events_ = found.steps, found.events
        self.least_propensity_ = found.least_propensity
        self.sparse_ = log.roles.sparse is not None
        complete = self.horizon is not None
        self.notes_ = [str(note) for note in run.notes if complete or note.kind != "incomplete"]
        self.remember(log, found.events, found.rewards, run.skipped, origins_of(inputs))
        return self

    # What is known of its value

    @property
    def value(self) -> float:
        """V / C of the replay, an estimate of this policy's reward per event."""
        self.require_fit()
        return self.value_

    @property
    def low(self) -> float:
        return self.value - self.bound()

    @property
    def high(self) -> float:
        return self.value + self.bound()

    def bound(
        self, delta: float = DELTA, weight: float | None = None, error: float = 1.0, variance: float = 0.25
    ) -> float:
        """What |value - this policy's true value| does not exceed, with probability at least 1 - delta.

        The appendix's theorem, by Freedman's inequality: with N = events_ and C = weight_,

            N c_max / C · 2 max{(1 + M) ln(2/δ) / N, sqrt((v_r + M e_r̂) ln(2/δ) / N)}.

        weight    M, no less than any π(a_k|x_k) / p_k; by default 1 / the smallest propensity of the N events.
        error     e_r̂, no less than the mean of (r̂ - r)² under any π(·|·, h_t); 1 if rewards and predictions lie in
                  [0, 1].
        variance  v_r, no less than the variance over contexts of the mean reward under any π(·|·, h_t); 1/4 if rewards
                  lie in [0, 1].

        Where the log's rewards do not lie in [0, 1], error and variance are in units of the square of their range,
        that of the rewards and 0, and the bound is multiplied by that range.

        It is about the mixture of all T steps, from a reward model of other events, if any: a draw of snapshots, which
        has no bias, comes on top. As the bound goes with c_max over the multipliers that the replay had, on average, it
        is narrow where c_max is not much more than these: see the column c of `drs.replay(...).curve`.
        """
        self.require_fit()
        if not isinstance(delta, Real) or not 0 < delta < 1:
            raise PolicyError(f"delta={delta!r}: the probability that the bound fails must be in (0, 1)")
        weight = 1 / self.least_propensity_ if weight is None else weight
        for name, value in (("weight", weight), ("error", error), ("variance", variance)):
            if not isinstance(value, Real) or not 0 <= value < math.inf:
                raise PolicyError(f"{name}={value!r}: it must be a number of at least 0")
        log_term, n = math.log(2 / delta), self.events_
        slow = math.sqrt((variance + weight * error) * log_term / n)
        return self._range * n * self.c_max / self.weight_ * 2 * max((1 + weight) * log_term / n, slow)

    @property
    def _range(self) -> float:
        """Of rewards: 1 for those in [0, 1], where that is what the log shows."""
        low, high = self.reward_range_
        return 1.0 if low >= 0 and high <= 1 else max(high, 0.0) - min(low, 0.0)

    # The policy

    @property
    def uses_context(self) -> bool:  # type: ignore[override]
        return bool(getattr(self.policy, "uses_context", True))

    @property
    def _compiled(self) -> bool:
        return isinstance(self.policy, Compiled)

    def probabilities(self, X: Any) -> Floats:
        """π_PV(a|x) as (n, K), for contexts (n, d): an array, or a sparse one of SciPy's."""
        self.require_fit()
        if self.uses_context:
            self.require_width(X)
        shape = getattr(X, "shape", None) or np.shape(X)
        out = np.empty((shape[0], len(self.labels_)))
        if not self._compiled:
            for first, X_ in self._pieces(X, shape[0]):
                out[first : first + PIECE] = self._ask(X_)
        elif not self.uses_context:
            out[:] = self._mix(np.empty((1, 0)), 1)
        else:
            for first, X_ in self._pieces(X, shape[0]):
                out[first : first + PIECE] = self._mix(X_, X_.shape[0])
        return out

    def _pieces(self, X: Any, rows: int) -> Iterator[tuple[int, Any]]:
        """Of contexts, in the form of those that the policy was learned from."""
        from scipy.sparse import csr_array, issparse

        X = X.tocsr() if issparse(X) else np.asarray(X)
        for first in range(0, rows, PIECE):
            piece = X[first : first + PIECE]
            if self.sparse_:
                piece = csr_array(piece)
                if not piece.has_canonical_format:  # an index may stand twice
                    piece = piece.copy()
                    piece.sum_duplicates()
            yield first, piece.toarray() if issparse(piece) and not self.sparse_ else piece

    def _ask(self, X: Any) -> Floats:
        """The mixture of Python policies."""
        wanted = X.shape[0], len(self.labels_)
        out = np.zeros(wanted)
        for policy, weight in zip(self.states_, self.weights_, strict=True):
            with _one_at_a_time:
                values = np.asarray(policy.probabilities(X))
                check_shape(values, wanted, f"policy {self.name!r}: a copy of {type(policy).__name__}", PolicyError)
                out += weight * values
        return out

    def _mix(self, X: Any, rows: int) -> Floats:
        """The mixture of a compiled policy's states."""
        sparse = self.sparse_ and self.uses_context
        probabilities, _ = self.policy.functions(self.name, sparse)
        out = np.empty((rows, len(self.labels_)))
        states, weights = self._checked_states(), self.weights_
        if sparse:
            parts = X.indptr.astype(np.int64), X.indices.astype(np.int32), X.data.astype(np.float64)
            for part in parts:
                part.flags.writeable = False  # Numba tells tuples of writable arrays from those of read-only ones
            mixture.mix_sparse(states, weights, Rows(*parts), probabilities, out)
        else:
            mixture.mix(states, weights, np.ascontiguousarray(X, np.float64), probabilities, out)
        return out

    def _checked_states(self) -> Floats:
        """They may come from a file, and compiled code does not ask whether an index is within an array."""
        features = self.n_features_ if self.uses_context else 0
        size = len(self.policy.checked_state(self.name, len(self.labels_), features))
        states, weights = self.states_, self.weights_
        wanted = len(weights), size
        if states.shape != wanted or states.dtype != np.float64 or weights.dtype != np.float64 or weights.ndim != 1:
            raise PolicyError(
                f"policy {self.name!r} has states of shape {states.shape} where {type(self.policy).__name__} with "
                f"{len(self.labels_)} actions and {features} features has {wanted}: its file is damaged. Learn it again"
            )
        return np.ascontiguousarray(states)

    # Files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file, for `drs.optimize.load`; it must be a mixture of a compiled policy of `drs.policies`."""
        self.require_fit()
        kind = type(self.policy)
        if kind not in _savable().values():
            raise PolicyError(
                f"a ProgressivePolicy of {kind.__name__} cannot be saved: a file holds arrays and no code, and where "
                f"it is read only the code of {', '.join(_savable())} is known. Use one of these, or keep the policy "
                "itself, e.g. with pickle, which runs any code when it is read"
            )
        super().save(path)

    def kept_parameters(self) -> dict[str, Any]:
        names = inspect.signature(type(self.policy)).parameters
        about = {"kind": type(self.policy).__name__, "parameters": {n: getattr(self.policy, n) for n in names}}
        return {**self.parameters(), "policy": about, **{name: getattr(self, name) for name in FOUND}}

    @classmethod
    def from_parameters(cls, parameters: dict[str, Any]) -> Self:
        known, about = _savable(), parameters["policy"]
        if about["kind"] not in known:
            raise PolicyError(
                f"the file holds a ProgressivePolicy of {about['kind']!r}, which is not a policy that could be saved: "
                f"{suggest(str(about['kind']), known)}"
            )
        made: Self = super().from_parameters({name: parameters[name] for name in inspect.signature(cls).parameters})
        for name in FOUND:
            setattr(made, name, parameters[name])
        made.policy = known[about["kind"]](**about["parameters"])
        return made

    def __repr__(self) -> str:
        if not self.fitted:
            return super().__repr__()
        lines = [
            f"ProgressivePolicy of {self.policy!r}: T = {self.steps_:,} steps, N = {self.events_:,} events, "
            f"{len(self.weights_):,} snapshots",
            f"  value {self.value:.6g} ± {self.bound():.3g} (δ = {DELTA:g})",
        ]
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes_)])


def _savable() -> dict[str, type[Compiled]]:
    """The compiled policies of `drs.policies`, by name."""
    return {name: getattr(learners, name) for name in learners.__all__}
