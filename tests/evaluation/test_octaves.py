"""Weights counted by size: equal to a naive count, for any threads, batches and states."""

import numpy as np
import pytest

import drstream as drs
from drstream.evaluation.tables import edges
from drstream.kernels.account import BINS
from tests.helpers.reports import POLICIES, WORLD, table


def naive(rows):
    """Counts by (from, below), of softmax and uniform weights."""
    X = np.column_stack([rows[f"x{i}"].to_numpy() for i in range(2)]).astype(float)
    action, p = rows["action"].to_numpy(), rows["propensity"].to_numpy()
    found = []
    for pi in (POLICIES["new"].probabilities(X), np.full((len(X), WORLD.n_actions), 1 / WORLD.n_actions)):
        w = pi[np.arange(len(X)), action] / p
        places = [edges(place) for place in range(BINS)]
        found.append({edge: int(((w >= edge[0]) & (w < edge[1])).sum()) for edge in places if edge[1] > 0})
    return found


def counted(result, policy):
    return {(row["from"], row["below"]): row["events"] for row in result.weights(policy).to_pylist() if row["events"]}


def test_counts_are_those_of_a_naive_count():
    rows = table(3_000)
    log = drs.Log(rows, context="x?")
    result = drs.evaluate(log, POLICIES, explain=True, precision="float64")
    for policy, wanted in zip(POLICIES, naive(rows), strict=True):
        assert counted(result, policy) == {edge: count for edge, count in wanted.items() if count}
    again = drs.evaluate(log, POLICIES, explain=True, precision="float64", threads=1)
    assert again.weights("new") == result.weights("new")
    pieces = [drs.partial(part.to_batches(), POLICIES, explain=True, log={"context": "x?", "actions": 3})
              for part in (rows.slice(0, 1_000), rows.slice(1_000))]  # fmt: skip
    merged = drs.merge([drs.State.of(piece.to_bytes()) for piece in pieces])
    assert merged.weights("even") == merged.weights("even", "snips")
    assert counted(merged, "even") == counted(result, "even")


def test_what_is_not_counted():
    log = drs.Log(table(300), context="x?")
    with pytest.raises(drs.DrstreamError, match="explain=True"):
        drs.evaluate(log, POLICIES).weights("new")
    with pytest.raises(drs.DrstreamError, match="does not weigh events"):
        drs.evaluate(log, POLICIES, drs.models.Constant(0.5), ["dm"], explain=True).weights("new", "dm")
