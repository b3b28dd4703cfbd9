"""Open Bandit: the CSV files of the data set, and the dictionaries of Open Bandit Pipeline."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc_csv
from numpy.typing import NDArray

from drstream.errors import LogError, suggest
from drstream.log import Log
from drstream.sources.names import arrow_says

ITEM_CONTEXT = "item_context.csv"
HEADER = {"item_id", "position", "click", "propensity_score"}
LOGGERS = ("random", "bts")  # the folders of the data set: {logger}/{campaign}/{campaign}.csv
AFFINITY, USER = "user-item_affinity_", "user_feature_"  # how columns of contexts begin
ALONE = pc_csv.ReadOptions(use_threads=False)  # a process that ends while threads of Arrow start may abort


def check_names(name: str, schema: pa.Schema) -> None:
    missing = sorted(HEADER - set(schema.names))
    if missing:
        raise LogError(
            f"{name} has no column {missing[0]!r}: the files of Open Bandit have {', '.join(sorted(HEADER))}. Read "
            "other files as CSV"
        )


def is_open_bandit(data: bytes) -> bool:
    """Whether a file begins with the names of Open Bandit's columns."""
    names = data.partition(b"\n")[0].decode(errors="replace").strip().split(",")
    return set(names) >= HEADER and names[0] == ""


def logger_of(path: str) -> dict[str, str]:
    """Return the column `policy`, if the folders of the data set tell it."""
    folders = Path(os.path.abspath(path)).parts
    return {"policy": folders[-3]} if len(folders) > 2 and folders[-3] in LOGGERS else {}


def read_items(paths: Sequence[str], given: Any = None) -> pa.Table | None:
    """Return the features of all items: of the file given, or of those beside the log, which must be the same."""
    names = (
        [os.fspath(given)]
        if given is not None
        else sorted({os.path.join(os.path.dirname(p), ITEM_CONTEXT) for p in paths})
    )
    tables = {name: _item_table(name) for name in names if given is not None or os.path.exists(name)}
    if not tables:
        return None
    first, *others = tables
    for other in others:
        if not tables[other].equals(tables[first]):
            raise LogError(f"{first} and {other} describe other items: read the files of one campaign")
    return tables[first]


def _item_table(path: str) -> pa.Table:
    try:
        table = pc_csv.read_csv(path, ALONE)
    except (pa.ArrowException, OSError) as error:
        raise LogError(f"cannot read the items in {path}: {arrow_says(error)}") from None
    if "item_id" not in table.column_names:
        raise LogError(f"{path} has no column 'item_id': {suggest('item_id', table.column_names)}")
    return table.drop_columns([name for name in table.column_names if name == ""])


def describe_items(items: pa.Table) -> dict[bytes, bytes]:
    """Return the items as metadata of a schema."""
    return {b"item_context": json.dumps(items.to_pydict()).encode()}


# Open Bandit Pipeline


def from_obp(bandit_feedback: Mapping[str, Any], **options: Any) -> Log:
    """Open the logged bandit feedback of Open Bandit Pipeline, as its data sets return it.

    bandit_feedback  A dictionary with action, reward and pscore, and perhaps n_rounds, n_actions, context, position,
                     pi_b and expected_reward. Arrays are not copied where their types allow it.
    options          Parameters of `Log`.

    The columns of the log are context, action, reward, propensity (pscore), position, propensities (of all actions,
    from pi_b, at the position of the event) and expected_reward (of all actions, for simulated data).

    >>> import numpy as np
    >>> feedback = {"n_rounds": 2, "n_actions": 3, "action": np.array([0, 2]), "reward": np.array([1, 0]),
    ...             "pscore": np.array([0.5, 0.25]), "context": np.eye(2), "position": None}
    >>> from_obp(feedback)
    Log of bandit feedback: 2 rows
      context     context: fixed_size_list<item: double>[2]
      action      action: 3 actions 0, 1, 2
      reward      reward
      propensity  propensity
    """
    from drstream.sources.base import SameObject
    from drstream.sources.memory import TableSource

    if not isinstance(bandit_feedback, Mapping):
        raise LogError(f"from_obp takes a dictionary of Open Bandit Pipeline, not {type(bandit_feedback).__name__}")
    for name in ("action", "reward"):
        if bandit_feedback.get(name) is None:
            raise LogError(f"the bandit feedback has no {name!r}: {suggest(name, map(str, bandit_feedback))}")
    columns = _columns(bandit_feedback)
    defaults: dict[str, Any] = {"action": "action", "reward": "reward", "propensity": None}
    if "propensity" in columns:
        defaults["propensity"] = "propensity"
    if "context" in columns:
        defaults["context"] = "context"
    if "propensities" in columns:
        defaults["propensities"] = "propensities"
    if bandit_feedback.get("n_actions") is not None:
        defaults["actions"] = int(bandit_feedback["n_actions"])
    source = TableSource(pa.table(columns), "bandit feedback", (SameObject(bandit_feedback["action"]),))
    return Log(source, **{**defaults, **options})


def _columns(feedback: Mapping[str, Any]) -> dict[str, pa.Array]:
    action = _array(feedback, "action", 1)
    rows, found = len(action), {"action": pa.array(action)}
    for name, column in (("reward", "reward"), ("pscore", "propensity"), ("position", "position")):
        if feedback.get(name) is not None:
            found[column] = pa.array(_array(feedback, name, 1, rows))
    if feedback.get("context") is not None:
        found["context"] = _lists(_array(feedback, "context", 2, rows))
    if feedback.get("expected_reward") is not None:
        found["expected_reward"] = _lists(_array(feedback, "expected_reward", 2, rows))
    if feedback.get("pi_b") is not None:
        of_all = _array(feedback, "pi_b", 3, rows)
        place = 0 if feedback.get("position") is None else np.asarray(feedback["position"])
        found["propensities"] = _lists(of_all[np.arange(rows), :, place])
    stated = feedback.get("n_rounds")
    if stated is not None and int(stated) != rows:
        raise LogError(f"the bandit feedback has n_rounds={stated}, but {rows} actions")
    return found


def _array(feedback: Mapping[str, Any], name: str, dimensions: int, rows: int | None = None) -> NDArray[Any]:
    values = np.asarray(feedback[name])
    if values.ndim != dimensions or (rows is not None and len(values) != rows):
        wanted = f"{dimensions} dimension{'s' * (dimensions > 1)}" + ("" if rows is None else f" and {rows} rows")
        raise LogError(f"{name!r} of the bandit feedback has shape {values.shape}: it must have {wanted}")
    return values


def _lists(matrix: NDArray[Any]) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(matrix).reshape(-1)), matrix.shape[1])
