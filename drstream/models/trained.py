"""The base of all models that are fitted to a log: parameters, labels, features, and a record of the events."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Self

import numpy as np

from drstream.errors import DrstreamError, ModelError, NoEventsError, parameter, printable
from drstream.findings import LOOK, doubt
from drstream.log import Log, as_log
from drstream.log.encoding import Encoding
from drstream.log.kinds.candidates.columns import Numbered, describe_features
from drstream.log.kinds.candidates.pairs import Pairs
from drstream.log.labels import describe_labels
from drstream.log.rows import Blocks, Folds, Origin
from drstream.running.execution import Workers
from drstream.states.arrays import check_array
from drstream.states.checkpoint import EVERY, open_checkpoint
from drstream.states.identity import Digest, about_columns, about_labels
from drstream.types import Floats
from drstream.views import Described

FIT = "checkpoint of a fit"


class Trained(Described):
    """A model or policy that is fitted. `fit` sets the attributes that end in an underscore, as in scikit-learn."""

    role = "reward model"
    error: type[DrstreamError] = ModelError
    estimators = False  # whether `kept` holds estimators of scikit-learn
    keeps_passes = False  # whether `_fit` adds up its passes by `sum_parts`, so that a file can hold them
    kept: tuple[str, ...] = ("coef_", "intercept_")  # attributes that a file must hold beside the parameters
    coef_: Floats
    intercept_: Floats
    labels_: Sequence[Any]
    features_: tuple[str, ...] | None  # columns of the context; None for one column of lists, or `Sparse`
    encoding_: Encoding | None = None  # how these columns become features
    n_features_: int
    pairs_: Pairs | None = None  # of a model that was fitted on pairs of a context and a candidate
    interactions = False  # whether such a model has a weight for each product of a context's feature with a candidate's
    reward_: str  # name of the column, with a minus if it is negated
    n_events_: int
    reward_range_: tuple[float, float]
    skipped_: dict[str, int]  # bad rows that were left out, by reason
    fitted_on: Origin | None = None
    models_of: tuple[Origin, ...] = ()  # of a policy: events that its models were fitted on
    n_actions: int | None = None
    columns: tuple[str, ...] = ()  # of the log, if it is fed columns by name instead of contexts

    def parameters(self) -> dict[str, Any]:
        """Return the parameters as they were given to the constructor."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def kept_parameters(self) -> dict[str, Any]:
        """Return the parameters for a file, without a policy, which can be any object and which only `fit` needs."""
        parameters = self.parameters()
        return {**parameters, "policy": None} if "policy" in parameters else parameters

    @classmethod
    def from_parameters(cls, parameters: dict[str, Any]) -> Self:
        """Make one from the parameters in a file. Older files lack some: a class may say what these were."""
        names = inspect.signature(cls).parameters
        older = {name: getattr(cls, name) for name in names if hasattr(cls, name)}
        return cls(**{**older, **parameters})

    def fresh(self) -> Self:
        """Return an unfitted copy, with the same parameters."""
        return type(self)(**self.parameters())

    @property
    def fitted(self) -> bool:
        return hasattr(self, "labels_")

    @property
    def known_labels(self) -> Sequence[Any] | None:
        """Labels of the actions that it was fitted on; None before the fit."""
        return self.labels_ if self.fitted else None

    def fit(
        self,
        log: Any,
        *,
        threads: int | None = None,
        executor: Any = None,
        progress: Any = False,
        checkpoint: Any = None,
        checkpoint_every: float = EVERY,
    ) -> Self:
        """Fit to a log, or to anything that a log can be read from. The other parameters are those of `evaluate`."""
        workers = Workers.of(threads, executor, progress)
        with self.kept_in(checkpoint, checkpoint_every, log, workers) as (log, workers):
            self._fit(log, workers)
        return self

    @contextmanager
    def kept_in(
        self, path: Any, every: float, log: Any, workers: Workers, **given: Any
    ) -> Iterator[tuple[Any, Workers]]:
        """Yield the log, and workers that keep all passes in a checkpoint, if there is a path for one.

        given  What the fit depends on beside the log and the parameters.
        """
        if path is None:
            yield log, workers
            return
        self.check_keeps_passes()
        who = type(self).__name__
        log = as_log(log)

        def identity() -> dict[str, Any]:
            made = {**Digest.of([who, self.parameters()]), "is": repr(self.fresh())}
            about = {**about_columns(log, None), **about_labels(log)}
            return {self.role: made, **{name: Digest.of(value) for name, value in given.items()}, "log": about}

        with open_checkpoint(path, every, log, FIT, identity) as kept:
            yield log, replace(workers, checkpoint=kept)
            assert kept is not None
            kept.remove()

    def check_keeps_passes(self) -> None:
        """Raise an error if a checkpoint cannot hold the state of a fit."""
        if not self.keeps_passes:
            raise self.error(
                f"{parameter('checkpoint')}: a fit of {type(self).__name__} is made in one go, by code that has no "
                "state for a file: leave it out"
            )

    def _fit(self, log: Any, workers: Workers) -> None:
        raise NotImplementedError

    def fit_log(self, log: Log) -> Log:
        """Return the log that the model is fitted on: if events have candidates, one of pairs."""
        if log.has_candidates:
            return log.pairs(self.interactions)
        if self.interactions and log.roles.candidates is None:
            raise self.error(
                f"{type(self).__name__}: interactions=True is about contexts and candidates, and this log has no "
                f"{parameter('candidates')}"
            )
        return log

    def fit_folds(self, log: Log, folds: Folds, workers: Workers) -> list[Self]:
        """Return one model for each fold, fitted on all other folds."""
        models = [self.fresh() for _ in range(folds.count)]
        for fold, model in enumerate(models):
            model._fit(log.part_of(folds.all_but(fold)), workers)
        return models

    def fit_forward(self, log: Log, blocks: Blocks, workers: Workers) -> list[Self | None]:
        """Return one model for each block, fitted on all earlier rows; None where there are no earlier events."""
        models: list[Self | None] = []
        for start in blocks.starts.tolist():
            model = self.fresh()
            try:
                model._fit(log.rows_before(start), workers)
            except NoEventsError:
                models.append(None)
            else:
                models.append(model)
        return models

    @property
    def feature_names_(self) -> list[str]:
        """Names of the features, in the order of the columns of coef_: age, country=DE, country=FR."""
        self.require_fit()
        names = [f"feature {j}" for j in range(self.n_features_)]
        if self.encoding_ is not None:
            names = self.encoding_.feature_names
        elif self.columns:
            names = list(self.columns)
        return names if self.pairs_ is None else self.pairs_.names(names)

    @property
    def row_width(self) -> int:
        """Number of features of a row that `predict` takes."""
        return self.n_features_ if self.pairs_ is None else self.pairs_.width

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save to a file. `drs.models.load` reads models, `drs.optimize.load` policies. scikit-learn's need skops."""
        self._save(path)

    def _save(self, path: str | os.PathLike[str], policy: dict[str, Any] | None = None) -> None:
        """Save to a file, perhaps with the parameters of a policy that is made of the model."""
        from drstream.models.saved import save

        self.check_savable()
        save(self, path, policy)

    def check_savable(self) -> None:
        """Raise an error if the model cannot be written to a file."""

    def check_arrays(self) -> None:
        """Check the arrays from a file, which may be crafted: compiled code does not check array bounds."""
        if not self.estimators:
            actions = len(self.labels_)
            self.coef_ = check_array("coef_", self.coef_, (actions, self.row_width))
            self.intercept_ = check_array("intercept_", self.intercept_, (actions,))

    def check_loaded(self, name: str, types: Sequence[str]) -> None:
        """Raise an error if the objects of these types, read from the file `name`, could do harm."""

    def require_fit(self) -> None:
        if not self.fitted:
            or_by_fold = f", or pass {parameter('crossfit', 5)} to have it fitted on the folds that an event is not in"
            raise self.error(
                f"the {self.role} {self!r} is not fitted: call .fit(log) on other events first"
                f"{or_by_fold if self.role.endswith('model') else ''}"
            )

    def remember(
        self,
        log: Log,
        events: int,
        rewards: tuple[float, float],
        skipped: Mapping[str, int] | None = None,
        models_of: tuple[Origin, ...] = (),
    ) -> None:
        """Store what the model was fitted on."""
        if not events:
            raise NoEventsError(f"there is no event to fit the {self.role} on: the log, or the part of it, is empty")
        self.n_actions, self.labels_ = log.n_actions, log.labels
        self.pairs_ = log.spec.pairs
        self.n_features_ = 0 if self.columns else log.n_features if self.pairs_ is None else self.pairs_.context
        roles = log.roles
        self.reward_ = _reward_of(log)
        self.features_ = None if roles.listed or roles.sparse else roles.context
        self.encoding_ = None if self.columns else log.encoding
        if self.columns:
            self.features_, self.n_features_ = self.columns, len(self.columns)
        self.n_events_, self.reward_range_ = int(events), (float(rewards[0]), float(rewards[1]))
        self.skipped_ = dict(skipped or {})
        self.fitted_on, self.models_of = log.origin, models_of

    def check_fits(self, log: Log) -> None:
        """Raise an error unless the log has the features and labels that the model was fitted on."""
        self.require_fit()
        if (self.pairs_ is None) == log.has_candidates:
            one, other = "a log with one set of actions for all events", f"a log with {parameter('candidates')}"
            raise self.error(
                f"the {self.role} was fitted on {one if self.pairs_ is None else other}, and this is "
                f"{other if self.pairs_ is None else one}: fit it on a log like this one"
            )
        if not self.columns:  # else they are found by name
            self._check_contexts(log)
        if self.role == "reward model" and self.reward_ != _reward_of(log):
            text = (
                f"the reward model was fitted on the reward {self.reward_!r}; the log's is {_reward_of(log)!r}: is "
                "it the same quantity?"
            )
            doubt(LOOK, "reward", None, text)
        if self.pairs_ is not None:
            self._check_items(self.pairs_, log)
        elif len(self.labels_) == log.n_actions and list(self.labels_) != list(log.labels):
            raise self.error(
                f"the {self.role} was fitted on {describe_labels(self.labels_)}; the log has "
                f"{describe_labels(log.labels)}: open both with the same {parameter('actions')}"
            )

    def _check_items(self, pairs: Pairs, log: Log) -> None:
        """Raise an error unless candidates have the features that the model was fitted on."""
        mine, theirs = pairs.items, log.candidate_features
        if isinstance(mine, Numbered) or isinstance(theirs, Numbered):
            if mine != theirs:
                raise self.error(
                    f"the {self.role} was fitted on candidates with {describe_features(mine)}; those of the log have "
                    f"{describe_features(theirs)}: open it with the same features of candidates"
                )
            return
        named = not any("[" in name for name in (*mine, *theirs))  # else they are numbered, in columns of any name
        if len(mine) != len(theirs) or (named and list(map(_last, mine)) != list(map(_last, theirs))):
            raise self.error(
                f"the {self.role} was fitted on candidates with the features {', '.join(mine[:8])}; those of the log "
                f"have {', '.join(theirs[:8])}: open it with the same features of candidates, in the same order"
            )

    def _check_contexts(self, log: Log) -> None:
        if log.n_features != self.n_features_:
            raise self.error(f"the {self.role} was fitted on {self.n_features_} features; the log has {log.n_features}")
        roles = log.roles
        if self.features_ is not None and not (roles.listed or roles.sparse) and self.features_ != roles.context:
            raise self.error(
                f"the {self.role} was fitted on the context {', '.join(self.features_)}; the log's is "
                f"{', '.join(roles.context)}: open it with the same {parameter('context')}"
            )

    @printable
    def __repr__(self) -> str:
        usual = inspect.signature(type(self)).parameters
        plain = bool, int, float, str  # a value that equals the default may be another object, e.g. from a file
        given = ", ".join(
            f"{n}={v!r}"
            for n, v in self.parameters().items()
            if v is not usual[n].default and not (isinstance(v, plain) and v == usual[n].default)
        )
        about = f", fitted on {self.n_events_:,} events of {self.fitted_on}" if self.fitted and self.fitted_on else ""
        return f"{type(self).__name__}({given}){about}"

    def _more_to_show(self) -> list[tuple[str, Any]]:
        if not self.fitted:
            return [("fitted", "not yet")]
        low, high = self.reward_range_
        found: list[tuple[str, Any]] = [("events", f"{self.n_events_:,}"), ("features", f"{self.n_features_:,}")]
        found += [("actions", f"{len(self.labels_):,}"), (self.reward_, f"from {low:g} to {high:g}")]
        return found + [("rows left out", f"{count:,} ({why})") for why, count in self.skipped_.items()]


def _reward_of(log: Log) -> str:
    return f"-{log.roles.reward}" if log.roles.negated else log.roles.reward


def _last(name: str) -> str:
    """Return the name of a feature without that of its column: price of items.price."""
    return name.rpartition(".")[2]


def for_matrices(n_actions: int, n_features: int) -> dict[str, str]:
    """Return the words about memory that matrices of all actions need, for `execution.check_memory`."""
    return {
        "what": f"{n_actions:,} actions and {n_features:,} features",
        "advice": "fit on fewer features, or put rare actions together",
    }


def check_width(X: Any, features: int, role: str = "model", error: type[DrstreamError] = ModelError) -> None:
    shape = getattr(X, "shape", None) or np.shape(X)
    if len(shape) != 2 or shape[1] != features:
        raise error(f"contexts of shape {shape}: the {role} was fitted on {features} features: pass (n, {features})")
