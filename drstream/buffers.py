"""Fills and checks the (K, n) arrays of a block, or flat ones: products with weights, results of a user's functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drstream.errors import DrstreamError, ModelError, PolicyError, parameter
from drstream.kernels import sparse, tiles
from drstream.kernels.checks import first_not_finite
from drstream.log import Csr, Events
from drstream.log.columns import floats_or_nan, has_nulls, lengths, nulls
from drstream.log.kinds.eligible.reading import Sets
from drstream.log.ragged import flat_lists
from drstream.log.schema import is_list
from drstream.types import Floats

PIECE = 2048  # events to fill in at a time, so that their numbers stay in cache
SMALL = 1_000_000  # OpenBLAS multiplies at up to twice the speed if its three sizes have no larger product
FEWEST = 64  # columns that a product of a few of them must have to be worth its call


@dataclass(frozen=True)
class Rule:
    """How a fixed policy takes an action by its scores weights @ x + intercept.

    kind     `SOFTMAX` or `ARGMAX` of `kernels.observe`.
    epsilon  With this probability, it takes a uniformly random action instead.
    """

    kind: int
    weights: Floats
    intercept: Floats
    epsilon: float = 0.0


class Weights:
    """A matrix (K, d) that multiplies contexts. Products of dense contexts have its type, float32 or float64."""

    def __init__(self, matrix: NDArray[Any], kind: Any = np.float64) -> None:
        self.matrix = np.ascontiguousarray(matrix, dtype=kind)

    def __reduce__(self) -> tuple[type[Weights], tuple[NDArray[Any], Any]]:
        return Weights, (self.matrix, self.matrix.dtype)

    @cached_property
    def by_feature(self) -> Floats:
        """The transpose (d, K), for sparse rows."""
        return np.ascontiguousarray(self.matrix.T)

    @cached_property
    def single(self) -> NDArray[np.float32]:
        """The matrix in float32, flat."""
        return self.matrix.reshape(-1).astype(np.float32)

    def fill(self, block: Events, out: NDArray[Any]) -> None:
        """out (K, n) <- matrix @ x."""
        sparse_rows = block.sparse
        if sparse_rows is not None:
            out[:] = self._of_sparse(sparse_rows, np.zeros(len(self.matrix))).T
            return
        columns, step = block.features_as(self.matrix.dtype), self._step(len(block))
        with np.errstate(all="ignore"):  # who uses the products checks them, and names the event
            for first in range(0, len(block), step):
                np.matmul(self.matrix, columns[:, first : first + step], out=out[:, first : first + step])

    def _step(self, n: int) -> int:
        """How many events to multiply at a time: few enough that the product is a small one, or all."""
        most = SMALL // max(1, self.matrix.size)
        return max(1, n) if most >= n or most < FEWEST else 1 << (most.bit_length() - 1)

    def fill_tiles(self, contexts: NDArray[Any] | Csr, intercept: Floats, out: Floats, single: bool) -> None:
        """out, in tiles <- matrix @ x + intercept; with `single`, dense contexts in float32 make a product in it."""
        if isinstance(contexts, Csr):
            copy_to_tiles(self._of_sparse(contexts, intercept).T, out)
        elif single and contexts.dtype == np.float32:
            tiles.affine(self.single, intercept.astype(np.float32), contexts, out)
        else:
            tiles.affine(self.matrix.reshape(-1), intercept, contexts, out)

    def _of_sparse(self, rows: Csr, intercept: Floats) -> Floats:
        out = np.empty((len(rows), len(self.matrix)))
        sparse.affine(self.by_feature, intercept, rows.indptr, rows.indices, rows.values, out)
        return out

    def of(self, X: Any) -> Floats:
        """Return X @ matrix.T (n, K) for a user's contexts (n, d): an array, or a sparse array of SciPy."""
        if hasattr(X, "tocsr"):
            return np.asarray(X @ self.matrix.T)
        return np.asarray(X, dtype=np.float64) @ self.matrix.T


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """A read-only view. For Numba, tuples of writable and of read-only arrays have different types."""
    view = array.view()
    view.flags.writeable = False
    return view


# A user's functions


def answer(function: Callable[[Any], Any], given: Any, who: str, block: Events) -> Any:
    """Call a user's function for a block. If it raises an error, a note says for which events."""
    try:
        return function(given)
    except Exception as problem:
        problem.add_note(f"raised by {who} for {len(block)} events from {block.where(0)} on")
        raise


def fill_from(function: Callable[[Any], Any], who: str, error: type[DrstreamError], block: Events, out: Floats) -> None:
    """Call a user's function of contexts, which returns (n, K), and store the result as (K, n)."""
    store(answer(lambda X: by_position(function(X), who, error), block.matrix, who, block), who, error, block, out)


def by_position(values: Any, who: str, error: type[DrstreamError]) -> NDArray[Any]:
    """Return values as an array. A frame whose columns have names of their own could mean another order of actions."""
    names = list(values.columns) if hasattr(values, "columns") and hasattr(values, "shape") else []
    if names != list(range(len(names))):
        raise error(
            f"{who} returned a frame with the columns {', '.join(map(repr, names[:6]))}: actions are in the order of "
            "log.labels. Return frame[log.labels].to_numpy(), or use from_arrow, which finds columns by their labels"
        )
    return np.asarray(values)


def store(values: Any, who: str, error: type[DrstreamError], block: Events, out: Floats) -> None:
    """Check what a user's function returned for a block, (n, K), and store it as (K, n)."""
    try:
        found = as_matrix(values)
    except (pa.ArrowException, ValueError, TypeError):  # text, or lists of different lengths
        raise error(f"{who} returned {_type_of(values)}, where numbers are needed") from None
    check_shape(found, (len(block), len(out)), who, error)
    out[:] = found.T


def _type_of(values: Any) -> str:
    if isinstance(values, pa.RecordBatch | pa.Table):
        return ", ".join(str(field.type) for field in values.schema)
    return str(getattr(values, "type", type(values).__name__))


def as_matrix(values: Any) -> NDArray[Any]:
    """Return a user's values as an array. Lists of one length in Arrow become (n, K), nulls NaN."""
    values = _whole(values)
    if isinstance(values, pa.Array) and is_list(values.type):
        sizes = lengths(values)
        if len(values) and not values.null_count and (sizes == sizes[0]).all():
            return floats_or_nan(values.flatten()).reshape(len(values), -1)
    if isinstance(values, pa.RecordBatch | pa.Table):
        return np.column_stack([floats_or_nan(_whole(column)) for column in values.columns])
    return np.asarray(values)


def _whole(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def check_shape(
    values: NDArray[Any], wanted: tuple[int, int], who: str, error: type[DrstreamError], where: str = ""
) -> None:
    """Raise an error unless a user's array holds numbers and has shape (events, actions)."""
    if values.shape != wanted:
        columns = values.shape[1] if values.ndim == 2 and values.shape[0] == wanted[0] else 0
        raise error(
            f"{who} returned an array of shape {values.shape} for {wanted[0]} events and {wanted[1]} actions{where}: "
            f"it must be {wanted}{hint_of_more(columns, wanted[1])}"
        )
    if values.dtype.kind not in "fiub":
        raise error(f"{who} returned {values.dtype}{where}, where numbers are needed")


def hint_of_more(found: int, actions: int) -> str:
    """Words for who gives numbers of more actions than a log has: some may never have been logged."""
    if found <= actions:
        return ""
    return f". If there are actions that were never logged, open the log with {parameter('actions', found)}, say"


def fill_by_pieces(who: Any, block: Events, out: Floats) -> None:
    """Have a policy or a model fill in the block, piece by piece, and store the result as (n, K)."""
    for piece in block.blocks(PIECE):
        values = np.empty((out.shape[1], len(piece)))
        who.fill(piece, values)
        start = piece.start - block.start
        out[start : start + len(piece)] = values.T


def copy_to_tiles(values: Floats, out: Floats) -> None:
    """Copy values (K, n) to tiles (see `kernels/tiles.py`). Places without an event become 0."""
    actions, events = values.shape
    whole, rest = divmod(events, tiles.TILE)
    out[:whole] = values[:, : events - rest].reshape(actions, whole, tiles.TILE).swapaxes(0, 1)
    out[whole:, :, :rest] = values[:, events - rest :]
    out[whole:, :, rest:] = 0.0


# Flat arrays of candidates


def _takes(function: Callable[..., Any], arguments: int) -> bool:
    """Whether a function can be called with so many arguments, as far as its signature tells."""
    try:
        inspect.signature(function).bind(*range(arguments))
    except TypeError:
        return False
    except ValueError:  # it has no signature
        return True
    return True


def call_flat(function: Callable[..., Any], block: Events, who: str, error: type[DrstreamError], out: Floats) -> None:
    """Call a user's function (X, Z, starts) -> (M,) for a block, and store what it returns."""
    offered = block.candidates
    Z = None if offered.features is None else offered.features.array()
    if not _takes(function, 3):
        raise error(
            f"{who} does not take three arguments: on a log of candidates, a function takes (contexts, features, "
            "starts) and returns a number for each candidate"
        )
    try:
        values = function(block.matrix, Z, offered.starts)
    except Exception as problem:
        problem.add_note(f"raised by {who} for {len(block)} events from {block.where(0)} on")
        raise
    found = np.asarray(values)
    if found.dtype.kind not in "fiub" or found.shape != out.shape:
        what = f"an array of shape {found.shape}" if found.dtype.kind in "fiub" else type(values).__name__
        raise error(
            f"{who} returned {what} for {len(block)} events with {len(out)} candidates: on a log of candidates, a "
            f"function of (contexts, features, starts) returns a number for each candidate, of shape {out.shape}"
        )
    out[:] = found


def flat_numbers(block: Events, name: str, who: str, error: type[DrstreamError], out: Floats) -> None:
    """out <- the numbers in a column of lists that are as long as the candidates."""
    column, sizes = block.column(name), np.diff(block.candidates.starts)
    if has_nulls(column):
        raise error(f"{who}: column {name!r} is null at {block.where(int(np.argmax(nulls(column))))}")
    found = lengths(column)
    if (found != sizes).any():
        i = int(np.argmax(found != sizes))
        raise error(
            f"{who}: column {name!r} holds {found[i]} numbers at {block.where(i)}, where there are {sizes[i]} "
            "candidates"
        )
    values = flat_lists(column)[1]
    if has_nulls(values):
        i = int(np.searchsorted(block.candidates.starts, np.argmax(nulls(values)), side="right")) - 1
        raise error(f"{who}: column {name!r} holds a null at {block.where(i)}")
    out[:] = floats_or_nan(values)


# Checks of probabilities and predictions


def invalid_probabilities(
    who: str, pi: Floats, where: str, eligible: Sets | None = None, event: int = 0
) -> PolicyError:
    """Return an error about the invalid probabilities of one event, and its eligible set, if there are some."""
    if eligible is not None and not np.isnan(pi).any() and (outside := _outside(pi, eligible, event)) is not None:
        return PolicyError(
            f"{who} gives action {eligible.labels[outside]!r} the probability {pi[outside]:.6g} at {where}, where it "
            f"is not eligible: the event could choose from {eligible.shown(event)}. Probabilities outside of the "
            "eligible set must be 0; a function that takes `eligible` as its second argument is given the sets"
        )
    what = f"a probability of {pi.min():g}" if pi.min() < 0 else f"probabilities that sum to {pi.sum():.9g}, not 1,"
    what = "NaN among its probabilities" if np.isnan(pi).any() else what
    values = ", ".join(f"{p:.6g}" for p in pi[:6]) + (", ..." if len(pi) > 6 else "")
    return PolicyError(f"{who} gives {what} at {where}: [{values}]. They must be at least 0 and sum to 1")


def _outside(pi: Floats, eligible: Sets, event: int) -> int | None:
    """The first action that has a probability, and is not eligible."""
    outside = pi != 0
    outside[eligible.lists[event : event + 1].flat] = False
    return int(np.argmax(outside)) if outside.any() else None


def check_predictions(rhat: Floats, block: Events) -> None:
    """Raise an error unless all predictions, (K, n) or in tiles, are finite."""
    first_bad = int(first_not_finite(rhat.reshape(-1)))
    if first_bad >= 0:
        raise invalid_prediction(first_bad, rhat, block)


def invalid_prediction(place: int, rhat: Floats, block: Events) -> ModelError:
    """Return an error about the prediction at this place of the flat array, which is not finite."""
    *tile, action, event = map(int, np.unravel_index(place, rhat.shape))
    event += sum(tile) * tiles.TILE
    return ModelError(f"the reward model predicts {rhat.flat[place]} for action {action} at {block.where(event)}")
