"""Spark: each partition of a data frame becomes a state, and the driver merges them in the order of the partitions.

Needs pyspark, on the driver, and drstream on the workers. Nothing here imports pyspark before it is called.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from drstream import errors
from drstream.errors import DrstreamError, LogError, parameter
from drstream.evaluation.result import Evaluation
from drstream.evaluation.states.merging import merge_shares, partial
from drstream.evaluation.states.state import State
from drstream.log import Log

__all__ = ["evaluate"]

HEAD = 100  # rows that the driver looks at before a job
NOT_HERE = ("state", "checkpoint", "executor", "threads", "progress")  # Spark decides, or no file is there
MADE = pa.schema({"number": pa.int32(), "data": pa.binary(), "kind": pa.string(), "message": pa.string()})
Batches = Iterable[pa.RecordBatch]


def evaluate(
    dataframe: Any,
    policies: Any,
    model: Any = None,
    estimators: Any = None,
    *,
    log: Mapping[str, Any] | None = None,
    **options: Any,
) -> Evaluation:
    """Estimate how good policies would have been, from the rows of a Spark data frame.

    dataframe  A pyspark.sql.DataFrame. Select the columns that are needed, as Spark sends all of them to Python.
    log        Options of `drs.Log`, e.g. {"reward": "click", "actions": 4}. If the actions are not given, a job of
               Spark's finds them first.
    options    Those of `drs.evaluate`, if they work with states that are merged.

    Each partition makes a state with `drs.partial`, and nothing else travels to the driver. The result depends on the
    partitions only by the order of sums. Spark does failed tasks again.
    """
    for name in NOT_HERE:
        if options.get(name) is not None:
            raise DrstreamError(f"spark.evaluate: leave out {parameter(name)}")
    first = _first_rows(dataframe)
    how = {"log": _with_actions(dataframe, first, log), **options}
    partial(first.to_batches(), policies, model, estimators, **how, threads=1)  # wrong options are found here
    work = functools.partial(_state, policies=policies, model=model, estimators=estimators, how=how)
    return merge_shares([State.of(data) for data in _map(dataframe, work)])


def _state(batches: Batches, policies: Any, model: Any, estimators: Any, how: dict[str, Any]) -> bytes:
    return partial(batches, policies, model, estimators, **how, threads=1).to_bytes()


def _map(dataframe: Any, work: Callable[[Batches], bytes | None]) -> list[bytes]:
    """Return what `work` makes of each partition, in the order of the partitions.

    An error of drstream's comes back as its message. Spark does not try again, because it would be the same.
    """

    def mapped(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        from drstream.kernels import _notice

        _notice.silent = True  # the user does not see what workers say
        data, kind, message = None, "", ""
        try:
            data = work(batches)
        except DrstreamError as error:
            kind, message = type(error).__name__, str(error)
        number = TaskContext.get().partitionId()
        row = {"number": number, "data": data, "kind": kind, "message": message}
        yield pa.RecordBatch.from_pylist([row], MADE)

    rows = dataframe.mapInArrow(mapped, "number int, data binary, kind string, message string").collect()
    rows = sorted(rows, key=operator.itemgetter(0))
    for number, _, kind, message in rows:
        if kind:
            raise getattr(errors, kind, DrstreamError)(f"partition {number} of the data frame: {message}")
    return [bytes(data) for _, data, _, _ in rows if data is not None]


def _first_rows(dataframe: Any) -> pa.Table:
    """Return a few rows of a data frame."""
    if not hasattr(dataframe, "mapInArrow"):
        raise LogError(
            f"a {type(dataframe).__name__} is not a Spark data frame: pass a pyspark.sql.DataFrame (pip install "
            "'drstream[spark]'), or call drs.evaluate"
        )
    found = [pa.ipc.open_stream(data).read_all() for data in _map(dataframe.limit(HEAD), _table)]
    if not found:
        raise LogError("the data frame has no rows")
    return pa.concat_tables(found)


def _table(batches: Batches) -> bytes | None:
    rows = [batch for batch in batches if batch.num_rows]
    if not rows:
        return None
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows[0].schema) as writer:
        writer.write_table(pa.Table.from_batches(rows))
    return bytes(sink.getvalue())


def _with_actions(dataframe: Any, first: pa.Table, log: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the options of the log with all actions, which a partition alone might not know."""
    options = dict(log or {})
    opened = Log(first, **options)
    action = opened.roles.action
    if options.get("actions") is not None or action is None or opened.has_candidates or opened.roles.ranking:
        return options
    distinct = _map(dataframe.select(action).distinct(), _table)
    values = pa.concat_tables([pa.ipc.open_stream(data).read_all() for data in distinct]).column(action).drop_null()
    columns = {
        field.name: values if field.name == action else pa.nulls(len(values), field.type) for field in first.schema
    }
    readable = {name: value for name, value in options.items() if name not in ("on_bad_row", "filter")}
    labels = Log(pa.table(columns), **readable).labels
    return {**options, "actions": len(labels) if isinstance(labels, range) else list(labels)}
