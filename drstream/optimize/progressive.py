"""Turns a replay of an online policy into a fixed policy: the mixture of the states that the replay went through."""

from __future__ import annotations

import inspect
import math
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Self

import numpy as np

from drstream.buffers import PIECE, check_shape
from drstream.errors import PolicyError, suggest
from drstream.kernels import mixture
from drstream.kernels.replay import Rows
from drstream.log import Log, as_log
from drstream.models.binding import ModelInputs
from drstream.models.meeting import by_name
from drstream.optimize.base import Learned
from drstream.optimize.bound import Bound, Replayed, bound
from drstream.optimize.losses import FOLDS, Losses, origins_of, refuse_forward
from drstream.parameters import whole
from drstream.policies import learners
from drstream.policies.online import Compiled, Fixed, as_online
from drstream.policies.sets import given_mask, sets_for, wants_sets
from drstream.replaying.options import ReplayOptions
from drstream.replaying.replay import record
from drstream.running.execution import Workers
from drstream.states.arrays import check_array
from drstream.states.checkpoint import EVERY
from drstream.types import Bools, Floats

DELTA = 0.05  # of `low` and `high`
FOUND = (
    "value_",
    "weight_",
    "steps_",
    "events_",
    "least_propensity_",
    "length_",
    "prediction_range_",
    "sparse_",
    "notes_",
)  # numbers beside the arrays
UNKNOWN = {"length_": math.nan, "prediction_range_": (math.nan, math.nan)}  # in files from before they were kept
_one_at_a_time = threading.Lock()  # a Python policy may reuse its arrays, and need not be thread-safe


class ProgressivePolicy(Learned):
    """The progressive validation policy of an online policy (the paper's last appendix).

    π_PV(a|x) = Σ_t c_t |B(t)| / C π(a|x, h_{t-1}). DR-ns replays the online policy, the learner. This policy draws a
    step t of that replay, with probability proportional to c_t |B(t)|, and acts as the learner did in step t. It is a
    fixed policy. The same replay estimates its value: with high probability, the true value lies within bound() of
    `value`, which is V / C of DR-ns.

    policy     The online policy to replay: a compiled one of `drs.policies`, or a Python object as for `drs.replay`.
    horizon    T, the number of steps to replay. None replays as many as the log allows.
    q, c_max   Quantile level and upper limit of the multiplier, as in `drs.replay`.
    seed       Random seed of the replay and of the draw of snapshots.
    snapshots  Maximum number of states of the learner that are kept. If there are more, neighbouring steps form groups,
               and one state represents its group. It is drawn with probability proportional to the weight of its step,
               so the mean over that draw is π_PV. Memory holds this many states. Each step of the replay copies a
               state. The probabilities of an event take one call of the learner for each snapshot.

    After `fit`:

    value, low, high   V / C, and value -/+ bound() at δ = 0.05; NaN if there is no bound.
    steps_, events_    T, and N, the number of events in these T steps. Events after the last acceptance are left out.
    weight_            C.
    states_, weights_  The snapshots (M, S), or copies of a Python policy, and their shares, which sum to 1.

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
    length_: float  # number of events of the log; NaN if it is not known
    prediction_range_: tuple[float, float]  # of r̂, over all actions
    sparse_: bool  # whether it was learned from sparse contexts
    notes_: list[str]  # of the replay

    keeps_passes = True  # those of its models; what it learns itself is in the checkpoint of its replay

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
        checkpoint: Any = None,
        checkpoint_every: float = EVERY,
    ) -> Self:
        """Replay the learner once by DR-ns, in the order of the log.

        model      A reward model. Either it was fitted on other events, or it is unfitted and is fitted in `crossfit`
                   folds. Without one, r̂ is 0.
        executor   Fits that model. The replay itself cannot use it, because its steps follow one another.

        The other parameters are those of `evaluate`.
        """
        if isinstance(log, Losses):
            raise PolicyError("ProgressivePolicy replays the events of a log, not completed losses: pass the log")
        inputs = ModelInputs(model, propensity, crossfit, cluster, fold_seed, clamp)
        refuse_forward(inputs)
        inputs = inputs if inputs.waits else replace(inputs, crossfit=None, cluster=None)
        log = as_log(log, propensities=propensity is None)
        log.refuse_candidates("ProgressivePolicy", "Replay the learner itself, with drs.replay")
        log = log.with_actions_of(*inputs.users, self.policy)
        options = ReplayOptions.once(self.horizon, self.q, self.c_max, self.seed, self.snapshots)
        workers = Workers.of(threads, executor, progress)
        kept = checkpoint, checkpoint_every
        to_the_end = self.horizon is None
        run, found, file = record(log, self.policy, options, inputs, workers, to_the_end=to_the_end, checkpoint=kept)
        self.states_ = np.array(found.snapshots) if self._compiled else found.snapshots
        self.weights_ = found.weights / math.fsum(found.weights)
        self.value_, self.weight_ = found.value, found.weight
        self.steps_, self.events_ = found.steps, found.events
        self.least_propensity_, self.prediction_range_ = found.least_propensity, found.predictions
        length = run.events if self.horizon is None else log.source_rows  # with a horizon, the replay stops early
        self.length_ = math.nan if length is None else float(length)
        self.sparse_ = log.is_sparse
        complete = self.horizon is not None
        self.notes_ = [str(note) for note in run.notes if complete or note.kind != "incomplete"]
        self.remember(log, found.events, found.rewards, run.skipped, origins_of(inputs))
        if file is not None:
            file.remove()
        return self

    # Its value

    @property
    def value(self) -> float:
        """V / C of the replay, an estimate of this policy's reward per event."""
        self.require_fit()
        return self.value_

    @property
    def low(self) -> float:
        """`value` minus the bound."""
        return self.value - self.bound()

    @property
    def high(self) -> float:
        """`value` plus the bound."""
        return self.value + self.bound()

    def bound(
        self,
        delta: float = DELTA,
        weight: float | None = None,
        error: float = 1.0,
        variance: float = 0.25,
        *,
        length: int | None = None,
        reward_range: tuple[float, float] | None = None,
    ) -> Bound:
        """An upper bound on |value - true value of this policy|. It holds with probability at least 1 - delta.

        It is the theorem of the appendix, by Freedman's inequality. With C = weight_ and n = length_, it is

            c_max / C · 2 max{(1 + M) ln(2/δ), sqrt(n (v_r + M e_r̂) ln(2/δ))}.

        The paper has N, the number of events that were replayed, for n. But N is random, and Freedman's inequality
        needs a number that was fixed beforehand.

        delta         Probability that the bound fails.
        weight        M, an upper bound on π(a|x) / p for all contexts and actions. Without it, M is 1 / the smallest
                      propensity of the events. That is only observed: the bound says so in its `notes`, and is no
                      guarantee.
        error         e_r̂, an upper bound on the mean of (r̂ - r)² under any π(·|·, h_t). The default 1 is right if
                      rewards and predictions lie in [0, 1].
        variance      v_r, an upper bound on the variance over contexts of the mean reward under any π(·|·, h_t). The
                      default 1/4 is right if rewards lie in [0, 1].
        length        n. The default is the number of events of the log. With a horizon, it is the number of rows of the
                      log's source.
        reward_range  Range of possible rewards, (low, high). The default is (0, 1) if all rewards of the log lie in it,
                      else the range of the rewards, which is only observed.

        Unless the range is [0, 1], the bound is multiplied by the width of the range and 0. Then error and variance are
        in units of the square of that width. If r̂ is outside of the range and 0 for some action of some event, the
        theorem does not hold: the bound is NaN, and its `notes` say why. `clamp=` of `fit` keeps r̂ inside.

        The bound holds for the mixture of all T steps, and for a reward model (if any) that was fitted on other events.
        If snapshots were drawn, the error of that draw, which has no bias, comes on top. The bound is proportional to
        c_max divided by the average multiplier of the replay. So it is narrow if c_max is not much larger than the
        multipliers: see the column c of `drs.replay(...).curve`.
        """
        self.require_fit()
        run = Replayed(
            self.events_,
            self.length_,
            self.weight_,
            self.c_max,
            self.least_propensity_,
            self.reward_range_,
            self.prediction_range_,
        )
        return bound(run, delta, weight, error, variance, length, reward_range)

    # The policy

    @property
    def uses_context(self) -> bool:  # type: ignore[override]
        return bool(getattr(self.policy, "uses_context", True))

    @property
    def _compiled(self) -> bool:
        return isinstance(self.policy, Compiled)

    @by_name
    def bind(self, log: Log, name: str) -> Self:
        if self._compiled and log.roles.eligible is not None:
            self.policy.functions_within(
                name, self.sparse_ and self.uses_context
            )  # raises an error if it knows no sets
        return super().bind(log, name)

    def probabilities(self, X: Any, eligible: Any = None) -> Floats:
        """π_PV(a|x) as (n, K), for contexts (n, d), an array or a sparse array of SciPy.

        eligible  Booleans (n, K): whether an event could choose an action. None: all could choose any.
        """
        self.require_fit()
        if self.uses_context:
            self.require_width(X)
        shape = getattr(X, "shape", None) or np.shape(X)
        out = np.empty((shape[0], len(self.labels_)))
        mask = given_mask(eligible, shape[0], len(self.labels_), type(self).__name__)
        if self._compiled and not self.uses_context and mask is None:
            out[:] = self._mix(np.empty((1, 0)), 1, None)
            return out
        none = np.empty((shape[0], 0))
        for first, X_ in self._pieces(X if self.uses_context or not self._compiled else none, shape[0]):
            sets = None if mask is None else mask[first : first + PIECE]
            out[first : first + PIECE] = self._mix(X_, X_.shape[0], sets) if self._compiled else self._ask(X_, sets)
        return out

    def _pieces(self, X: Any, rows: int) -> Iterator[tuple[int, Any]]:
        """Yield pieces of the contexts, dense or sparse as those that the policy was learned from."""
        from scipy.sparse import csr_array, issparse

        X = X.tocsr() if issparse(X) else np.asarray(X)
        for first in range(0, rows, PIECE):
            piece = X[first : first + PIECE]
            if self.sparse_ and self.uses_context:
                piece = csr_array(piece)
                if not piece.has_canonical_format:  # an index may occur twice
                    piece = piece.copy()
                    piece.sum_duplicates()
            yield first, piece.toarray() if issparse(piece) and not self.sparse_ else piece

    def _ask(self, X: Any, eligible: Bools | None) -> Floats:
        """The probabilities of a mixture of Python policies."""
        wanted = X.shape[0], len(self.labels_)
        out = np.zeros(wanted)
        more, named = sets_for(wants_sets(self.states_[0].probabilities), eligible, wanted)
        for policy, weight in zip(self.states_, self.weights_, strict=True):
            with _one_at_a_time:
                values = np.asarray(policy.probabilities(X, *more, **named))
                check_shape(values, wanted, f"policy {self.name!r}: a copy of {type(policy).__name__}", PolicyError)
                out += weight * values
        return out

    def _mix(self, X: Any, rows: int, eligible: Bools | None) -> Floats:
        """The probabilities of a mixture of a compiled policy's states."""
        sparse = self.sparse_ and self.uses_context
        out = np.empty((rows, len(self.labels_)))
        if eligible is None and self.policy.only_within(sparse):
            eligible = np.ones(out.shape, bool)
        find = self.policy.functions if eligible is None else self.policy.functions_within
        probabilities, *_ = find(self.name, sparse)
        sets = () if eligible is None else (np.ascontiguousarray(eligible).view(np.uint8),)
        states, weights = self._checked_states(), self.weights_
        if sparse:
            parts = X.indptr.astype(np.int64), X.indices.astype(np.int32), X.data.astype(np.float64)
            for part in parts:
                part.flags.writeable = False  # the kernel takes tuples of read-only arrays only
            mix: Any = mixture.mix_sparse_eligible if sets else mixture.mix_sparse
            mix(states, weights, Rows(*parts), *sets, probabilities, out)
        else:
            mix = mixture.mix_eligible if sets else mixture.mix
            mix(states, weights, np.ascontiguousarray(X, np.float64), *sets, probabilities, out)
        return out

    def _checked_states(self) -> Floats:
        """The states, after a check: they may come from a file, and compiled code does not check array bounds."""
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
        """Write the policy to a file for `drs.optimize.load`. Its learner must be a compiled one of `drs.policies`."""
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
        policy = known[about["kind"]](**about["parameters"])
        given = {name: parameters[name] for name in inspect.signature(cls).parameters}
        made: Self = super().from_parameters({**given, "policy": policy})
        for name in FOUND:
            setattr(made, name, parameters.get(name, UNKNOWN[name]) if name in UNKNOWN else parameters[name])
        numbers = [getattr(made, name) for name in FOUND if name not in ("prediction_range_", "notes_")]
        low, high = made.prediction_range_
        if not all(type(n) in (int, float, bool) for n in (*numbers, low, high)):
            raise TypeError(f"{', '.join(FOUND[:-2])} must be numbers")
        return made

    def check_arrays(self) -> None:
        self.weights_ = check_array("weights_", self.weights_, (None,))
        self.states_ = check_array("states_", self.states_, (len(self.weights_), None))
        if not len(self.weights_) or self.weights_.min() < 0 or not math.isclose(self.weights_.sum(), 1, abs_tol=1e-6):
            raise ValueError("weights_ are not shares that sum to 1")
        if self.uses_context:  # a state of the declared width may be too large to make: extrapolate from narrow ones
            none, one, two = (len(self.policy.initial_state(len(self.labels_), d)) for d in range(3))
            curve, d = (two - 2 * one + none) // 2, self.n_features_
            if none + (one - none - curve) * d + curve * d * d != self.states_.shape[1]:
                raise ValueError(f"states of shape {self.states_.shape} for {d} features")
        self._checked_states()

    def __repr__(self) -> str:
        if not self.fitted:
            return super().__repr__()
        bound = self.bound()
        error = f", without a bound (δ = {DELTA:g})" if math.isnan(bound) else f" ± {bound:.3g} (δ = {DELTA:g})"
        lines = [
            f"ProgressivePolicy of {self.policy!r}: T = {self.steps_:,} steps, N = {self.events_:,} events, "
            f"{len(self.weights_):,} snapshots",
            f"  value {self.value:.6g}{error}",
        ]
        return "\n".join([*lines, *(f"  note: {note}" for note in (*bound.notes, *self.notes_))])


def _savable() -> dict[str, type[Compiled]]:
    """The compiled policies of `drs.policies`, by name."""
    return {name: getattr(learners, name) for name in learners.__all__}
