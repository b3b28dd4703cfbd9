"""Which columns are written, and contexts packed into one column of lists of the same length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from drstream.errors import LogError, parameter, suggest
from drstream.log import Events, Log
from drstream.log.columns import number_type
from drstream.log.schema import is_list


@dataclass(frozen=True)
class OutputColumns:
    """The columns of the file to write."""

    kept: tuple[str, ...]  # columns that are written as they are
    packed: str | None  # name of the column of packed contexts
    schema: pa.Schema

    def table(self, batch: Events) -> pa.Table:
        """Return the events of a batch in this layout."""
        table = pa.Table.from_batches([batch.columns])
        if self.packed is not None:
            kind = self.schema.field(self.packed).type
            table = table.append_column(self.packed, _lists(batch.context, len(batch), kind))
        return table.cast(self.schema)


def plan_layout(log: Log, columns: Sequence[str] | str | None, pack: str | None) -> OutputColumns:
    """Choose the columns: those of the roles, and those in `columns`, by default all, in the order of the log."""
    schema, roles = log.source.schema, log.roles
    wanted = _names(columns, schema)
    if pack is None:
        chosen = {*roles.others, *roles.context, *(schema.names if wanted is None else wanted)}
    else:
        others = set(schema.names) - set(roles.context) if wanted is None else set(wanted)
        chosen = {*roles.others, *others}
    kept = tuple(name for name in schema.names if name in chosen)
    fields = [schema.field(name) for name in kept]
    if pack is not None:
        fields.append(pa.field(pack, _packed_type(log, pack, kept), nullable=False))
    metadata = dict(schema.metadata or {})
    if len(fields) != len(schema) or pack is not None:
        metadata.pop(b"pandas", None)  # it describes columns that are no longer there
    return OutputColumns(kept, pack, pa.schema(fields, metadata or None))


def _names(columns: Sequence[str] | str | None, schema: pa.Schema) -> list[str] | None:
    if columns is None:
        return None
    names = [columns] if isinstance(columns, str) else list(columns)
    for name in names:
        if name not in schema.names:
            raise LogError(
                f"{parameter('columns')} names {name!r}, which is not a column of the log: "
                f"{suggest(str(name), schema.names)}"
            )
    return names


def _packed_type(log: Log, pack: str, kept: Sequence[str]) -> pa.DataType:
    """Return lists of float32 if all contexts are float32 or smaller, else of float64."""
    roles, schema = log.roles, log.source.schema
    if roles.sparse is not None:
        raise LogError(f"{parameter('pack', pack)}: sparse contexts cannot be packed. Leave {parameter('pack')} out")
    if not roles.context:
        raise LogError(
            f"{parameter('pack', pack)}: the log has no context. Name its columns with {parameter('context')}, or "
            f"leave {parameter('pack')} out"
        )
    if not pack or pack in kept:
        what = f"the log has another column {pack!r}" if pack else "the packed column needs a name"
        raise LogError(f"{parameter('pack', pack)}: {what}. Choose another name, e.g. {_free_name(kept)}")
    if roles.coded:
        raise LogError(
            f"{parameter('pack', pack)}: {roles.coded[0]!r} holds categories, and lists hold numbers. Leave it out of "
            f"{parameter('context')}, or leave {parameter('pack')} out"
        )
    kinds = [schema.field(name).type for name in roles.context]
    values = [kind.value_type if is_list(kind) else kind for kind in kinds]
    return pa.list_(pa.field("element", pa.from_numpy_dtype(number_type(values)), nullable=False), log.n_features)


def _free_name(kept: Sequence[str]) -> str:
    """Return a name under which a log finds its context by itself."""
    return next((name for name in ("context", "x", "features") if name not in kept), "packed_context")


def _lists(context: Any, rows: int, kind: pa.DataType) -> pa.Array:
    """Return contexts, d columns or one (n, d) array, as a column of lists of length d."""
    width, dtype = kind.list_size, kind.value_type.to_pandas_dtype()
    if isinstance(context, np.ndarray):
        matrix = np.ascontiguousarray(context, dtype)
    else:
        matrix = np.empty((rows, width), dtype)
        for place, column in enumerate(context):
            matrix[:, place] = column
    return pa.FixedSizeListArray.from_arrays(pa.array(matrix.reshape(-1)), type=kind)
