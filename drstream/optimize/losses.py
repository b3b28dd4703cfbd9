"""Completes the losses of logged actions to losses of all actions, from which cost-sensitive learners learn."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from drstream.buffers import check_predictions
from drstream.errors import DrstreamError, LogError, because, parameter, phrase, suggest
from drstream.kernels.dlm import exclude
from drstream.log import Events, Log, Reader, Sparse, as_log
from drstream.log.rows import Origin
from drstream.models.base import Column
from drstream.models.binding import BoundModels, ModelInputs, bind_models, no_propensities
from drstream.models.calibration import Calibration
from drstream.models.crossfit import is_forward
from drstream.provenance import provenance
from drstream.results import stamped
from drstream.running import execution
from drstream.running.execution import Workers
from drstream.sources.base import Part
from drstream.states.checkpoint import EVERY, Checkpoint, open_checkpoint
from drstream.states.files import atomic_path
from drstream.states.identity import about_fits
from drstream.types import Floats, Ints

ESTIMATORS = ("ips", "dm", "dr")
SIGNS = {"costs": -1.0, "rewards": 1.0}
FOLDS = 5  # for models that are not yet fitted
FITS = ".fits"  # ending of the checkpoint of models: the learner has the file itself
AHEAD = 2  # batches of a part that may wait until they are taken


@dataclass(frozen=True)
class Completion:
    """The formula of section 4.1.3, with its models bound to a log. It can be pickled if the models can.

    r_a' = r̂(x, a') + 1[a' = a] (r - r̂(x, a')) / p; DM leaves the second term out, and IPS has r̂ = 0.
    """

    models: BoundModels
    estimator: str
    sign: float  # -1: costs
    n_actions: int

    def fill(self, block: Events, out: Floats) -> None:
        """out[a, i] <- the loss of action a in event i, and 0 if the action is not eligible."""
        if self.models.model is None:
            out[:] = 0
        else:
            self.models.model.fill(block, out)
            self.models.clamp_predictions(out, Calibration(0.0))
            self.exclude(block, out, 0.0)
            check_predictions(out, block)
        if self.estimator != "dm":
            logged = block.action, np.arange(len(block))
            out[logged] += (block.reward - out[logged]) / self.models.propensities_of_many(block, self.n_actions)
        if self.sign < 0:
            np.negative(out, out=out)

    def exclude(self, block: Events, values: Floats, other: float) -> None:
        """Replace the numbers (K, n), or (R K, n), of actions that are not eligible."""
        if block.eligible_bits is not None:
            exclude(values, self.n_actions, block.eligible_bits, other)

    def of(self, block: Events) -> Floats:
        """The losses as (n, K). Actions that are not eligible cost infinity, or earn minus infinity."""
        out = np.empty((self.n_actions, len(block)))
        self.fill(block, out)
        self.exclude(block, out, -self.sign * np.inf)
        return np.ascontiguousarray(out.T)


class Completed(NamedTuple):
    """Some events, with estimates of what every action costs or earns."""

    X: Any  # contexts (n, d), as the log has them; sparse ones as a csr_array
    losses: Floats  # (n, K); of actions that are not eligible, costs are inf and rewards -inf
    rows: Ints  # numbers in the log


class Losses:
    """Estimated losses of all actions in all events of a log. `impute` makes them.

    Iterating gives batches (X, losses, rows). Nothing is kept: each iteration reads the log.
    """

    def __init__(self, log: Log, reader: Reader, completion: Completion, models_of: tuple[Origin, ...] = ()) -> None:
        self.log, self.reader, self.completion = log, reader, completion
        self.models_of = models_of  # events that the models were fitted on
        self.provenance: dict[str, Any] = {}  # version, log, filter, seed, models, parameters
        self.skipped_: dict[str, int] = {}  # bad rows that were left out in the last pass, by reason
        self.fits: Checkpoint | None = None  # of models that were fitted by fold

    @property
    def costs(self) -> bool:
        """Whether the losses are costs, so that small is good."""
        return self.completion.sign < 0

    def as_costs(self) -> Losses:
        """The losses as costs."""
        found = Losses(self.log, self.reader, replace(self.completion, sign=SIGNS["costs"]), self.models_of)
        found.provenance, found.fits = self.provenance, self.fits
        return found

    @classmethod
    def known(cls, X: Any, costs: Any) -> Losses:
        """Make losses from data in memory, if the cost of every action is known, as in cost-sensitive classification.

        X      Contexts (n, d), an array or a sparse array of SciPy.
        costs  Costs (n, K) of all actions.
        """
        X = X if hasattr(X, "tocsr") else np.asarray(X)
        costs = np.ascontiguousarray(costs, dtype=np.float64)
        if costs.ndim != 2 or X.ndim != 2 or X.shape[0] != len(costs) or not X.shape[1] or not costs.size:
            raise LogError(f"contexts of shape {X.shape}, costs of shape {costs.shape}: they must be (n, d) and (n, K)")
        if not np.isfinite(costs).all():
            row, action = np.argwhere(~np.isfinite(costs))[0]
            raise LogError(f"the cost of action {action} in row {row} is {costs[row, action]}: it must be finite")
        n, actions = costs.shape
        columns: dict[str, Any] = {"action": np.zeros(n, np.int32), "reward": np.zeros(n)}
        columns["rewards"] = pa.FixedSizeListArray.from_arrays(pa.array(-costs.reshape(-1)), actions)
        context: Any = "x"
        if hasattr(X, "tocsr"):
            rows = X.tocsr()
            bounds = pa.array(rows.indptr.astype(np.int64))
            columns["indices"] = pa.LargeListArray.from_arrays(bounds, pa.array(rows.indices.astype(np.int32)))
            columns["values"] = pa.LargeListArray.from_arrays(bounds, pa.array(rows.data))
            context = Sparse("indices", "values", X.shape[1])
        else:
            X = np.ascontiguousarray(X)
            columns["x"] = pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), X.shape[1])
        log = Log(pa.table(columns), context, propensity=None, actions=actions)
        return impute(log, Column("rewards"), estimator="dm")

    def __iter__(self) -> Iterator[Completed]:
        return self.batches()

    def batches(self, threads: int | None = None) -> Iterator[Completed]:
        """Yield the losses of some events after the other, in the order of the log."""
        parts = self.log.parts(self.reader.columns)
        produce = partial(_complete, self.reader, self.completion)
        skipped: Counter[str] = Counter()
        stream = execution.stream(produce, parts, Workers.of(threads).threads, AHEAD)
        with execution.one_blas_thread(), closing(stream):
            for item in stream:
                if isinstance(item, Counter):
                    skipped += item
                else:
                    yield item
        self.skipped_ = dict(skipped)

    def collect(self) -> Completed:
        """Read all batches into memory and join them."""
        from scipy import sparse

        found = list(self)
        if not found:
            raise LogError("the log is empty: there is no event to complete")
        X, losses, rows = zip(*found, strict=True)
        joined = sparse.vstack(X, format="csr") if sparse.issparse(X[0]) else np.concatenate(X)
        return Completed(joined, np.concatenate(losses), np.concatenate(rows))

    def to_arrow(self) -> pa.Table:
        """A table with the columns `row` and `losses`, a list of K numbers."""
        return pa.Table.from_batches(map(self._record_batch, self), self._schema)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the table of `to_arrow` to a Parquet file. The file appears when it is complete."""
        if os.path.realpath(path) in {os.path.realpath(key) for key in self.log.source.keys if isinstance(key, str)}:
            raise LogError(f"{os.fspath(path)} is a file of the log itself: choose another name")
        if not Path(path).parent.is_dir():
            raise LogError(f"cannot write {os.fspath(path)}: there is no folder {str(Path(path).parent)!r}")
        try:
            with (
                atomic_path(path) as unfinished,
                pq.ParquetWriter(unfinished, self._schema, write_page_checksum=True) as writer,
            ):
                for batch in self:
                    writer.write_batch(self._record_batch(batch))
        except OSError as error:
            if isinstance(error, DrstreamError):
                raise
            raise LogError(f"cannot write {os.fspath(path)}: {because(error)}. Nothing was written") from None

    @property
    def _schema(self) -> pa.Schema:
        columns = {"row": pa.int64(), "losses": pa.list_(pa.float64(), self.completion.n_actions)}
        return stamped(pa.schema(columns).empty_table(), self.provenance).schema

    def _record_batch(self, batch: Completed) -> pa.RecordBatch:
        losses = pa.FixedSizeListArray.from_arrays(pa.array(batch.losses.reshape(-1)), self.completion.n_actions)
        return pa.record_batch([pa.array(batch.rows), losses], schema=self._schema)

    def __repr__(self) -> str:
        what = "costs" if self.costs else "rewards"
        return (
            f"Losses, {what} of {self.completion.n_actions} actions by {self.completion.estimator}: {self.log.origin}"
        )


def impute(
    log: Any,
    model: Any = None,
    *,
    losses: str = "costs",
    estimator: str | None = None,
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
) -> Losses:
    """Estimate what every action would have cost in every event of a log (section 4.1.3). The result is streamed.

    model       A reward model. Either it was fitted on other events, or it is unfitted and is fitted in `crossfit`
                folds. Without one, r̂ is 0.
    losses      "costs" (minus the rewards, or the log's own costs if it has a cost column) or "rewards".
    estimator   "dr" (the default with a model), "ips" (the default without one), or "dm" (the model's predictions
                alone).
    checkpoint  As for `evaluate`, about models that are fitted by fold. A learner that is given these losses and the
                same checkpoint deletes the file when it has learned.

    The other parameters are those of `evaluate`. In a log with eligible sets, actions outside of the set cost infinity,
    so that they are never the best.

    >>> table = pa.table({"action": [0, 1], "cost": [1.0, 0.5], "propensity": [0.25, 0.5]})
    >>> impute(Log(table)).collect().losses + 0.0
    array([[4., 0.],
           [0., 1.]])
    """
    given = dict(locals())
    if losses not in SIGNS:
        raise DrstreamError(f"losses={losses!r}: {suggest(str(losses), SIGNS)}")
    inputs = ModelInputs(model, propensity, crossfit, cluster, fold_seed, clamp)
    refuse_forward(inputs)
    workers = Workers.of(threads, executor, progress)
    log = as_log(log, propensities=propensity is None and estimator != "dm")
    path = f"{os.fspath(checkpoint)}{FITS}" if inputs.waits and checkpoint is not None else None
    with open_checkpoint(
        path, checkpoint_every, log, "checkpoint of models", lambda: about_fits(log, [inputs])
    ) as kept:
        made = _make(log, inputs, SIGNS[losses], estimator, replace(workers, checkpoint=kept))
    made.fits = kept
    made.provenance = provenance(impute, given, made.log, None)
    return made


def _make(log: Any, inputs: ModelInputs, sign: float, estimator: str | None, workers: Workers) -> Losses:
    model, propensity = inputs.model, inputs.propensity
    estimator = ("ips" if model is None else "dr") if estimator is None else estimator
    if estimator not in ESTIMATORS:
        raise DrstreamError(f"estimator={estimator!r}: {suggest(str(estimator), ESTIMATORS)}")
    if estimator != "ips" and model is None:
        raise DrstreamError(f'estimator="{estimator}" needs a reward model: pass model=drs.models.Ridge(), say')
    log = as_log(log, propensities=propensity is None and estimator != "dm")
    if estimator != "dm" and not log.roles.with_propensities and propensity is None:
        raise LogError(f"{estimator} needs propensities, {no_propensities()}")
    inputs = inputs.needed(model=estimator != "ips", propensity=estimator != "dm")
    if not inputs.waits:
        inputs = replace(inputs, crossfit=None, cluster=None)
    log = log.with_actions_of(*inputs.users)
    models = bind_models(log, inputs, workers, use="completing the rewards of")
    reader = log.reader(context=True, action=True, columns=models.columns, folds=models.folds)
    return Losses(log, reader, Completion(models, estimator, sign, log.n_actions), origins_of(inputs))


def refuse_forward(inputs: ModelInputs) -> None:
    """Raise an error for crossfit="forward": events without a model would teach a policy that rewards there are 0."""
    if is_forward(inputs.crossfit):
        raise DrstreamError(
            f"{parameter('crossfit', inputs.crossfit)} is for evaluate and replay: to learn a policy, give a number of "
            f"folds, e.g. {parameter('crossfit', FOLDS)}"
        )


def origins_of(inputs: ModelInputs) -> tuple[Origin, ...]:
    """The events on which the given models were fitted beforehand."""
    found = (getattr(user, "fitted_on", None) for user in (inputs.model, inputs.propensity))
    return tuple(origin for origin in found if origin is not None)


def as_losses(log: Any, model: Any, workers: Workers) -> Losses:
    """Make costs from a log and perhaps a model, or from `Losses`."""
    if not isinstance(log, Losses):
        log = as_log(log)
        if not log.roles.with_propensities:
            raise LogError(
                "a policy is learned from completed losses, which need propensities, and the log has none: name their "
                "column with "
                + phrase(
                    "propensity= where you open it, or fit(drs.optimize.impute(log, model, propensity=...)), with a "
                    "model of them, e.g. drs.models.Propensity(), or the logging policy, drs.policies.Uniform()",
                    "--propensity, or give --propensity-model: logistic, or uniform",
                )
            )
        return _make(log, ModelInputs(model, crossfit=FOLDS), SIGNS["costs"], None, workers)
    if model is not None:
        raise DrstreamError("these losses were completed already: give the reward model to impute(), or pass the log")
    return log.as_costs()


def _complete(reader: Reader, completion: Completion, part: Part) -> Iterator[Completed | Counter[str]]:
    skipped: Counter[str] = Counter()
    for batch in reader.batches(part, skipped):
        yield Completed(batch.matrix, completion.of(batch), batch.numbers)
    yield skipped
