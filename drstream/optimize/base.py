"""What all policies that are learned from a log have in common."""

from __future__ import annotations

from typing import Any, Self

from drstream.errors import PolicyError
from drstream.log import Log
from drstream.log.rows import Origin
from drstream.models.meeting import by_name
from drstream.models.trained import Trained, check_width
from drstream.optimize.losses import Losses
from drstream.policies.base import FixedPolicy
from drstream.running.execution import Workers
from drstream.states.checkpoint import EVERY


class Learned(Trained, FixedPolicy):
    """A learner before `fit`, a fixed policy after it.

    It remembers the events that it was learned from, and those that its models were fitted on. An evaluation on any of
    them gives a warning.
    """

    role = "policy"
    error = PolicyError

    def fit(
        self,
        log: Any,
        model: Any = None,
        *,
        threads: int | None = None,
        executor: Any = None,
        progress: Any = False,
        checkpoint: Any = None,
        checkpoint_every: float = EVERY,
    ) -> Self:
        """Learn from a log or from `Losses`. With a reward model, DR completes the losses of a log, else IPS.

        The other parameters are those of `evaluate`.
        """
        losses, workers = log if isinstance(log, Losses) else None, Workers.of(threads, executor, progress)
        source, given = (log, model) if losses is None else (losses.log, losses.completion)
        with self.kept_in(checkpoint, checkpoint_every, source, workers, given=given) as (opened, workers):
            self._learn(opened if losses is None else losses, model, workers)
        if losses is not None and losses.fits is not None:
            losses.fits.remove()
        return self

    def _learn(self, log: Any, model: Any, workers: Workers) -> None:
        raise NotImplementedError

    @property
    def learned_on(self) -> tuple[Origin, ...]:  # type: ignore[override]
        return () if self.fitted_on is None else (self.fitted_on, *self.models_of)

    def require_width(self, X: Any) -> None:
        self.require_fit()
        check_width(X, self.n_features_, "policy", PolicyError)

    @by_name
    def bind(self, log: Log, name: str) -> Self:
        self.check_fits(log)
        bound: Self = super().bind(log, name)  # type: ignore[assignment]
        bound.fitted_on, bound.models_of = None, ()  # no longer needed, and perhaps impossible to pickle
        return bound
