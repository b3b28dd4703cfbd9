"""Small logs of candidates for tests: the same events in every form that a log can hold them in."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

import drstream as drs

D, DZ = 2, 3
NAMES = [f"z{j}" for j in range(DZ)]


def events(rows=40, catalogue=9, most=5, seed=0, kind=np.float32, text=True):
    """Events as plain lists: contexts, candidates, logged positions, rewards, propensities; and the items."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(catalogue, DZ)).astype(kind)
    ids = [f"item-{i}" for i in range(catalogue)] if text else [1000 - 7 * i for i in range(catalogue)]
    sets = [rng.permutation(catalogue)[: rng.integers(1, most + 1)] for _ in range(rows)]
    position = [int(rng.integers(len(s))) for s in sets]
    return {
        "x": rng.normal(size=(rows, D)).astype(kind),
        "sets": sets,
        "ids": ids,
        "features": features,
        "position": position,
        "reward": rng.integers(0, 2, rows).astype(float),
        "propensity": rng.uniform(0.1, 1, rows),
    }


def items_of(found):
    """The table of items."""
    columns = {name: found["features"][:, j] for j, name in enumerate(NAMES)}
    return pa.table({"item": pa.array(found["ids"]), "name": [f"n{i}" for i in found["ids"]], **columns})


def columns_of(found, form="lists"):
    """The columns of candidates, and Candidates(...), in one form."""
    kind = pa.from_numpy_dtype(found["features"].dtype)
    ids = [[found["ids"][i] for i in s] for s in found["sets"]]
    z = [[found["features"][i].tolist() for i in s] for s in found["sets"]]
    structs = [[dict(zip(NAMES, row, strict=True)) for row in rows] for rows in z]
    if form == "items":
        return {"items": ids}, drs.Candidates("items", drs.Items(items_of(found), features=NAMES))
    if form == "structs":
        fields = pa.list_(pa.struct([(name, kind) for name in NAMES]))
        return {"items": ids, "z": pa.array(structs, fields)}, drs.Candidates("items", "z")
    if form == "one struct":
        whole = [[{"id": i, **s} for i, s in zip(*both, strict=True)] for both in zip(ids, structs, strict=True)]
        fields = pa.list_(pa.struct([("id", pa.array(found["ids"]).type), *((name, kind) for name in NAMES)]))
        return {"items": pa.array(whole, fields)}, drs.Candidates("items.id", "items")
    if form == "columns":
        apart = {name: pa.array([[s[name] for s in row] for row in structs], pa.list_(kind)) for name in NAMES}
        return {"items": ids, **apart}, drs.Candidates("items", NAMES)
    inner = pa.list_(kind, DZ) if form == "fixed" else pa.list_(kind)
    outer = pa.large_list(inner) if form == "large" else pa.list_(inner)
    return {"items": ids, "z": pa.array(z, outer)}, drs.Candidates("items", "z")


FORMS = ["lists", "fixed", "large", "structs", "one struct", "columns", "items"]


def table_of(found, form="lists", position=False):
    """A table, and what to open it with."""
    columns, candidates = columns_of(found, form)
    ids = [found["ids"][s[p]] for s, p in zip(found["sets"], found["position"], strict=True)]
    roles = {
        "action": pa.array(found["position"] if position else ids),
        "reward": found["reward"],
        "propensity": found["propensity"],
        **{f"x{j}": found["x"][:, j] for j in range(D)},
    }
    return pa.table({**roles, **columns}), candidates


def log_of(found, form="lists", position=False, features_only=False, **options):
    table, candidates = table_of(found, form, position)
    if features_only:
        candidates = drs.Candidates(features=candidates.features)
    elif position:
        candidates = drs.Candidates(candidates.ids, candidates.features, "position")
    return drs.Log(table, candidates=candidates, **options)
