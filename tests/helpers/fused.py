"""A log and policies that one compiled call takes from contexts to sums."""

import numpy as np
import pyarrow as pa

import drstream as drs
from tests.helpers.evaluations import WORLD
from tests.helpers.passes import PLAIN

ROWS = 2_100 if PLAIN else 40_000
FEATURES = ["x0", "x1", "x2"]
POLICIES = {
    "soft": drs.policies.Softmax(WORLD.taste, [0.1, -0.2, 0.3, 0.0]),
    "best": drs.policies.Linear(WORLD.taste),
    "mixed": drs.policies.Epsilon(drs.policies.Softmax(WORLD.taste), 0.2),
    "uniform": drs.policies.Uniform(),
    "always": drs.policies.Constant(2),
}
ESTIMATORS = ["dm", "ips", "snips", "dr", "ips-capped", "dr-capped"]


def table_of(kind, listed, rows=ROWS):
    """A log with contexts of a type, as columns or as lists, and what names them."""
    table = WORLD.table(rows, seed=7)
    columns = [table[name].to_numpy().astype(kind) for name in FEATURES]
    table = table.append_column("given", pa.array(np.random.default_rng(1).random(rows)))
    if listed:
        lists = pa.FixedSizeListArray.from_arrays(pa.array(np.column_stack(columns).reshape(-1)), len(FEATURES))
        return table.drop(FEATURES).append_column("x", lists), "x"
    for name, column in zip(FEATURES, columns, strict=True):
        table = table.set_column(table.schema.get_field_index(name), name, pa.array(column))
    return table, FEATURES
