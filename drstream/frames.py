"""Columns of a block for a user's code: an Arrow record batch, or a pandas frame for estimators that know names."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from drstream.errors import DrstreamError, suggest
from drstream.log import Events, Log
from drstream.log.schema import is_number, is_string

BY_CATEGORY = ("lightgbm", "xgboost")  # libraries whose estimators refuse text, and take categories
RECODES = (3, 1)  # the first version of XGBoost that stores the categories it was fitted on


# Columns as they are stored


def named_columns(columns: Any, who: str, error: type[DrstreamError]) -> tuple[str, ...]:
    """Check `columns=`, and return the names."""
    names = (columns,) if isinstance(columns, str) else tuple(columns) if isinstance(columns, list | tuple) else ()
    if not names or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise error(f"{who}: columns={columns!r}: name one or more different columns of the log")
    return names


def stored(schema: pa.Schema, columns: Sequence[str], who: str, error: type[DrstreamError]) -> pa.Schema:
    """Return names and types of these columns of a log."""
    for name in columns:
        if name not in schema.names:
            raise error(f"{who} reads a column {name!r}, and the log has none: {suggest(name, schema.names)}")
    return pa.schema([pa.field(name, schema.field(name).type) for name in columns])


def refuse_reward(log: Log, columns: Sequence[str], who: str, error: type[DrstreamError]) -> None:
    """Raise an error if one of the columns is a reward: nobody knows it before acting."""
    for name in columns:
        if name in log.roles.rewards:
            raise error(f"{who} reads the reward, {name!r}, which is not known before an action is taken: leave it out")


def record_batch(block: Events, schema: pa.Schema) -> pa.RecordBatch:
    """Return these columns of a block, in the log's types. A reader may have decoded text as a dictionary."""
    found = ((block.column(field.name), field.type) for field in schema)
    return pa.RecordBatch.from_arrays([c if c.type == kind else c.cast(kind) for c, kind in found], schema=schema)


def by_label(values: Any, labels: Sequence[Any], who: str, error: type[DrstreamError]) -> Any:
    """Return a frame or record batch with its columns in the order of the labels, if their names are the labels.

    Names that have nothing to do with labels do not count. Some that are labels, beside others, are a mistake.
    """
    arrow = isinstance(values, pa.RecordBatch | pa.Table)
    names = list(values.schema.names if arrow else getattr(values, "columns", ()))
    wanted = list(map(str, labels))
    known = [name for name in map(str, names) if name in wanted]
    if known and sorted(known) != sorted(wanted) and names != list(range(len(names))):
        odd = next((name for name in names if str(name) not in wanted), names[0])
        raise error(
            f"{who} returned columns {', '.join(map(repr, names[:6]))}, some of which are labels of actions: "
            f"{odd!r} is not, or is there twice. The labels are {', '.join(map(repr, list(labels)[:6]))}"
        )
    if [*map(str, names)] == wanted or sorted(map(str, names)) != sorted(wanted):
        return values
    found = {str(name): name for name in names}
    order = [found[label] for label in wanted]
    return values.select(order) if arrow else values[order]


# Frames


@dataclass(frozen=True)
class Feed:
    """What an estimator is given of a block: a frame of these columns. Picklable.

    categories  Columns that become categories.
    missing     What replaces nulls and NaN, by column.
    """

    schema: pa.Schema
    categories: frozenset[str] = frozenset()
    missing: Mapping[str, float] = field(default_factory=dict)

    def of(self, block: Events) -> Any:
        return self.frame(record_batch(block, self.schema))

    def frame(self, columns: pa.RecordBatch | pa.Table) -> Any:
        """Return a pandas frame. Nulls become NaN or None, dictionaries become categories."""
        found = columns.to_pandas(ignore_metadata=True)
        for name, value in self.missing.items():
            if name in found:
                found[name] = found[name].fillna(value)
        for column in columns.schema:
            if pa.types.is_dictionary(column.type):  # of a slice, Arrow keeps the whole dictionary
                found[column.name] = found[column.name].cat.remove_unused_categories()
            elif column.name in self.categories:
                found[column.name] = found[column.name].astype("category")
        return found

    def constant(self, name: str, value: Any, rows: int) -> Any:
        """Return a column with one value in all rows, in the type that it has in a frame."""
        kind = self.schema.field(name).type
        plain = pa.field(name, kind.value_type if pa.types.is_dictionary(kind) else kind)
        column = pa.RecordBatch.from_arrays([pa.repeat(pa.scalar(value, plain.type), rows)], schema=pa.schema([plain]))
        found = self.frame(column)[name]
        return found.astype("category") if plain.type != kind else found


def feed_of(schema: pa.Schema, columns: Sequence[str], estimator: Any, who: str, error: type[DrstreamError]) -> Feed:
    """Say how an estimator, fitted or not, is fed these columns of a log."""
    try:
        importlib.import_module("pandas")
    except ImportError:
        raise error(f"{who} is fed columns by name, in a pandas frame: pip install pandas") from None
    schema = stored(schema, columns, who, error)
    feed = Feed(schema, _categories(estimator, schema))
    dictionaries = any(pa.types.is_dictionary(field.type) for field in schema)
    if _library(estimator) == "xgboost" and (feed.categories or dictionaries):
        version = importlib.import_module("xgboost").__version__
        if tuple(map(int, re.findall(r"\d+", version)[:2])) < RECODES:
            raise error(
                f"{who}: XGBoost {version} does not store the categories that it was fitted on, and would take one "
                "for another: use XGBoost 3.1 or later, or encode them in a pipeline, e.g. with OneHotEncoder"
            )
    return feed


def _categories(estimator: Any, schema: pa.Schema) -> frozenset[str]:
    """Return the columns that become categories: for LightGBM and XGBoost text, and what was one in the fit."""
    library, inner = _library(estimator), _inner(estimator)
    if library not in BY_CATEGORY:
        return frozenset()
    text = {field.name for field in schema if is_string(field.type)}
    names = feature_names(estimator) or ()
    if names and library == "lightgbm":
        places = inner.booster_.params.get("categorical_column") or []
        if len(places) == len(inner.booster_.pandas_categorical or ()):  # else integers were named as categories
            text.update(names[place] for place in places)
    if names and library == "xgboost":
        kinds = inner.get_booster().feature_types or []
        text.update(name for name, kind in zip(names, kinds, strict=False) if kind == "c")
    return frozenset(text)


def feed_from(log: Log, columns: Sequence[str], estimator: Any, who: str, error: type[DrstreamError]) -> Feed:
    """Say how an estimator is fed these columns of a log. For contexts, the log says what missing values become."""
    feed = feed_of(log.source.schema, columns, estimator, who, error)
    if not isinstance(log.missing, float):
        return feed
    contexts = [name for name in columns if name in log.roles.context and is_number(feed.schema.field(name).type)]
    return replace(feed, missing=dict.fromkeys(contexts, log.missing))


def uses_context(log: Log, columns: Sequence[str]) -> bool:
    """Whether some column is a context, so that the log's rules for bad contexts apply to its rows."""
    return not set(columns).isdisjoint(log.roles.context)


def feature_names(estimator: Any) -> tuple[str, ...] | None:
    """Return the names of the features that an estimator was fitted on; None if it was fitted on an array."""
    names = getattr(estimator, "feature_names_in_", None)
    if names is None:
        names = getattr(estimator, "feature_names_", None)  # CatBoost's name for it
    if names is None or not all(isinstance(name, str) for name in names):
        return None
    names = tuple(map(str, names))
    invented = [(str(j), f"Column_{j}") for j in range(len(names))]  # by CatBoost and LightGBM, for an array
    return None if all(name in pair for name, pair in zip(names, invented, strict=True)) else names


def _inner(estimator: Any) -> Any:
    """Return the estimator inside another, e.g. inside GridSearchCV, or the estimator itself."""
    inner = getattr(estimator, "best_estimator_", getattr(estimator, "estimator", None))
    return estimator if inner is None or isinstance(inner, str | type) else _inner(inner)


def _library(estimator: Any) -> str:
    return type(_inner(estimator)).__module__.partition(".")[0]
