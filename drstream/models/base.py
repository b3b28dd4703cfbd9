"""Reward models as `evaluate` uses them: a model fills in the predicted rewards of a block, action by action."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drstream.buffers import PIECE, answer, call_flat, copy_to_tiles, fill_from, flat_numbers, hint_of_more, store
from drstream.errors import ModelError, closest, parameter
from drstream.frames import by_label, named_columns, record_batch, refuse_reward, stored
from drstream.kernels.tiles import TILE
from drstream.log import Events, Log
from drstream.log.columns import has_nulls, lengths, nulls
from drstream.log.labels import describe_labels
from drstream.log.rows import Origin
from drstream.log.schema import is_list, is_number, require_column
from drstream.policies.base import FixedPolicy, older
from drstream.types import Bools, Floats

WORDS = {  # the names of models on the command line
    "ridge": "drs.models.Ridge()",
    "logistic": "drs.models.Logistic()",
    "constant": "drs.models.Constant(0.5)",
    "column": 'drs.models.Column("rhat")',
}


class RewardModel:
    """A reward model r̂(x, a). A subclass defines `predict(X)`, which takes contexts (n, d) and returns (n, K).

    A subclass can be cross-fitted if it also defines `fit(log)`, and `fitted`, which is False before the fit.
    """

    n_actions: int | None = None
    uses_context = True
    uses_candidates = True  # whether it looks at features of candidates, on a log that has them
    columns: tuple[str, ...] = ()
    crossfitted = False  # whether it is made of models for folds, or blocks of rows
    first = 0  # then: the first block with a model
    single = False  # whether `fill_tiles` can multiply in float32
    spoilt_by_contexts = False  # whether predictions are not finite wherever a number of the context is not
    ranking: tuple[Floats, Floats] | None = None  # weights and intercepts of linear scores in the order of predictions
    fitted_on: Origin | None = None

    def fit(self, log: Log) -> Self:
        """Fit the model to the log. Without a definition in a subclass, this does nothing."""
        return self

    def predict(self, X: NDArray[Any]) -> NDArray[Any]:
        """Return r̂(x, a) as (n, K), for contexts (n, d)."""
        raise NotImplementedError(f"{type(self).__name__} has no predict(X)")

    def bind(self, log: Log) -> RewardModel:
        """Check that the model fits the log, and return a copy of the model for it."""
        if self.n_actions not in (None, log.n_actions):
            raise ModelError(
                f"the reward model knows {self.n_actions} actions, the log and the policies have "
                f"{describe_labels(log.labels)}: "
                f"open the logs that it is fitted on and used on with the same {parameter('actions')}"
            )
        bound = copy.copy(self)
        bound.fitted_on = None  # no longer needed, and not always picklable
        bound.n_actions = log.n_actions
        return bound

    def for_candidates(self, log: Log) -> CandidateModel:
        """Return what the model is on a log of candidates."""
        raise ModelError(
            f"the reward model, a {type(self).__name__}, predicts rewards of actions that all events share, and this "
            f"log has {parameter('candidates')}, a set for each event: use Ridge, Logistic, Column, Constant, "
            "from_sklearn or from_function"
        )

    def bind_to(self, log: Log) -> RewardModel:
        """Bind the model to a log of either kind."""
        if not log.has_candidates:
            return self.bind(log)
        if older(type(self), "for_candidates", "fill", "predict"):
            return RewardModel.for_candidates(self, log)
        return self.for_candidates(log)

    def fill(self, block: Events, out: Floats) -> None:
        """out[a, i] <- r̂(x_i, a)."""
        fill_from(self.predict, "the reward model", ModelError, block, out)

    def fill_tiles(self, block: Events, contexts: Any, out: Floats, single: bool) -> None:
        """The same in tiles (see `kernels/tiles.py`).

        contexts  Those of the block, in tiles or sparse.
        single    Whether float32 contexts may be multiplied in float32.
        """
        for piece in block.blocks(PIECE):
            values = np.empty((out.shape[1], len(piece)))
            self.fill(piece, values)
            first = (piece.start - block.start) // TILE
            copy_to_tiles(values, out[first : first + -(-len(piece) // TILE)])


class CandidateModel(RewardModel):
    """A model that is bound to a log of candidates."""

    def fill_flat(self, block: Events, out: Floats) -> None:
        """out[c] <- r̂(x, c) for all candidates of the block's events, one event's after the other's."""
        raise NotImplementedError

    def unpredicted(self, block: Events) -> int:
        """Return how many of the block's events, its first ones, come before the first model."""
        return 0


class Same(CandidateModel):
    """The same prediction for all candidates."""

    uses_context = uses_candidates = False

    def __init__(self, value: float) -> None:
        self.value = value

    def fill_flat(self, block: Events, out: Floats) -> None:
        out[:] = self.value


class Listed(CandidateModel):
    """Predictions that are stored in a column, as lists as long as the candidates."""

    uses_context = uses_candidates = False

    def __init__(self, column: str) -> None:
        self.columns = (column,)

    def fill_flat(self, block: Events, out: Floats) -> None:
        flat_numbers(block, self.columns[0], "the reward model", ModelError, out)


class Called(CandidateModel):
    """A user's function of contexts, features of all candidates, and where each event's begin."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def fill_flat(self, block: Events, out: Floats) -> None:
        call_flat(self.function, block, "the reward model", ModelError, out)


class Constant(RewardModel):
    """Predicts the same for every context: one number for all actions, or one number for each.

    >>> Constant([0.1, 0.2]).predict(np.zeros((1, 3)))
    array([[0.1, 0.2]])
    """

    uses_context = False

    def __init__(self, value: Any) -> None:
        self.value = np.atleast_1d(np.asarray(value, dtype=np.float64))
        if self.value.ndim != 1 or not np.isfinite(self.value).all():
            raise ModelError("Constant: the value must be a finite number, or a list of one for each action")
        self.n_actions = len(self.value) if np.ndim(value) else None

    def for_candidates(self, log: Log) -> CandidateModel:
        if self.n_actions is not None:
            raise ModelError(f"Constant: a log of candidates takes one number for all of them, not {self.n_actions}")
        return Same(float(self.value[0]))

    def predict(self, X: NDArray[Any]) -> Floats:
        return np.tile(np.broadcast_to(self.value, self.n_actions or 1), (X.shape[0], 1))

    def fill(self, block: Events, out: Floats) -> None:
        out[:] = self.value[:, None]


class Column(RewardModel):
    """Predictions that are stored in the log: one column with lists of K numbers, or K columns of numbers.

    On a log of candidates, it is one column with lists that are as long as the candidates.
    In a log with eligible sets, predictions for other actions may be null.
    """

    uses_context = False

    def __init__(self, *columns: str) -> None:
        if not columns:
            raise ModelError("Column: name one column of lists, or one column for each action")
        self.columns = columns
        self.n_actions = len(columns) if len(columns) > 1 else None

    def for_candidates(self, log: Log) -> CandidateModel:
        for name in self.columns:
            require_column(log.source.schema, name, "reward model")
        kind = log.source.schema.field(self.columns[0]).type
        if len(self.columns) > 1 or not (is_list(kind) and is_number(kind.value_type)):
            raise ModelError(
                f"the reward model's {'columns' if len(self.columns) > 1 else 'column'} "
                f"{', '.join(map(repr, self.columns))}: on a log of candidates, predictions are one column of lists of "
                "numbers, as long as the candidates"
            )
        return Listed(self.columns[0])

    def bind(self, log: Log) -> RewardModel:
        for name in self.columns:
            require_column(log.source.schema, name, "reward model")
        for name in self.columns:
            kind = log.source.schema.field(name).type
            if not is_number(kind.value_type if is_list(kind) and len(self.columns) == 1 else kind):
                raise ModelError(f"the reward model's column {name!r} has type {kind}: it must hold numbers")
        if len(self.columns) == 1 and log.n_actions > 1 and not is_list(kind):
            raise ModelError(
                f"column {self.columns[0]!r} is {kind}: {log.n_actions} actions need lists, or as many columns"
            )
        return super().bind(log)

    def fill(self, block: Events, out: Floats) -> None:
        columns = [block.column(name) for name in self.columns]
        if is_list(columns[0].type):
            if has_nulls(columns[0]):
                i = int(np.argmax(nulls(columns[0])))
                raise ModelError(f"the reward model's column {self.columns[0]!r} is null at {block.where(i)}")
            found = lengths(columns[0])
            if (found != len(out)).any():
                i = int(np.argmax(found != len(out)))
                raise ModelError(
                    f"the reward model's column {self.columns[0]!r} holds {found[i]} numbers at {block.where(i)}; "
                    f"there are {len(out)} actions{hint_of_more(int(found[i]), len(out))}"
                )
            values = columns[0].flatten()
            if has_nulls(values):
                self._refuse_nulls(nulls(values).reshape(out.shape[::-1]), block, "holds a null")
            out[:] = values.to_numpy(zero_copy_only=False).reshape(out.shape[::-1]).T
        else:
            if any(map(has_nulls, columns)):
                self._refuse_nulls(np.column_stack(list(map(nulls, columns))), block, "is null")
            for row, column in zip(out, columns, strict=True):
                row[:] = column.to_numpy(zero_copy_only=False)

    def _refuse_nulls(self, missing: Bools, block: Events, what: str) -> None:
        """Raise an error if a prediction (n, K) is null, unless its action is not eligible."""
        if block.eligible_mask is not None:
            missing = missing & block.eligible_mask
        if missing.any():
            i, k = map(int, np.argwhere(missing)[0])
            name = self.columns[k if len(self.columns) > 1 else 0]
            raise ModelError(f"the reward model's column {name!r} {what} at {block.where(i)}")


class from_function(RewardModel):  # noqa: N801  # reads as a function: drs.models.from_function(f)
    """A reward model from a function that takes contexts (n, d) and returns predictions (n, K).

    On a log of candidates, it takes contexts (n, d), the features (M, m) of all candidates, and `starts` (n + 1): those
    of event i are rows starts[i] to starts[i + 1] - 1. It returns M predictions.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def for_candidates(self, log: Log) -> CandidateModel:
        return Called(self.function)

    def predict(self, X: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(self.function(X))


class from_arrow(RewardModel):  # noqa: N801  # reads as a function: drs.models.from_arrow(f, columns=["age"])
    """A reward model from a function of columns of the log.

    function  Takes a `pyarrow.RecordBatch` and returns predictions (n, K) for all actions, in the order of
              `log.labels`: an array, or anything that NumPy can convert. A frame, or a record batch, whose columns
              have the names of the labels may have them in any order.
    columns   Names of columns of the log. They have the types and the nulls that are stored.
    """

    uses_context = False
    schema: pa.Schema  # set by bind, as `labels`
    labels: Sequence[Any]

    def __init__(self, function: Callable[[pa.RecordBatch], Any], columns: str | Sequence[str]) -> None:
        if not callable(function):
            raise ModelError(f"from_arrow: {function!r} is not a function of a record batch")
        self.function = function
        self.columns = named_columns(columns, "from_arrow", ModelError)

    def predict(self, X: Any) -> NDArray[Any]:
        raise ModelError("from_arrow: the model is a function of columns, not of X: call the function itself")

    def bind(self, log: Log) -> Self:
        bound: Self = super().bind(log)  # type: ignore[assignment]
        bound.schema = stored(log.source.schema, self.columns, "the reward model", ModelError)
        refuse_reward(log, self.columns, "the reward model", ModelError)
        bound.labels = log.labels
        return bound

    def fill(self, block: Events, out: Floats) -> None:
        who = "the reward model"
        values = answer(self.function, record_batch(block, self.schema), who, block)
        store(by_label(values, self.labels, who, ModelError), who, ModelError, block, out)


def _is_sklearn(model: Any) -> bool:
    """Whether a model is from scikit-learn. Its predict returns (n,), not (n, K)."""
    return type(model).__module__.partition(".")[0] == "sklearn"


def as_model(model: Any) -> RewardModel:
    if isinstance(model, RewardModel):
        return model
    if isinstance(model, str):
        raise ModelError(f"model={model!r}: {_meant(model)}")
    if isinstance(model, FixedPolicy):
        raise ModelError(f"model={type(model).__name__}(...) gives probabilities, not rewards: it is for propensity=")
    if callable(getattr(model, "predict", None)) and not isinstance(model, type) and not _is_sklearn(model):
        return from_function(model.predict)
    raise ModelError(
        f"model={model!r} is not a reward model: pass one of drstream.models, fitted, or an object with "
        "predict(X) -> (n, K); an estimator of scikit-learn is wrapped: drs.models.from_sklearn(...)"
    )


def _meant(name: str) -> str:
    """Return what a user who wrote a name instead of a model may have meant."""
    near = closest(name.partition(":")[0], WORDS)
    if not near:
        return "pass a model, e.g. drs.models.Ridge(); a saved one is loaded with drs.models.load(path)"
    return f"names are for the command line. Pass a model, {' or '.join(WORDS[word] for word in near)}"
