"""The precision of predictions in a replay, and the loop for policies with linear scores."""

import json

import numpy as np
import pyarrow as pa
import pytest

import drstream as drs
from drstream.errors import DrstreamError
from drstream.kernels import learners
from drstream.kernels.learners import KIND

WORLD = drs.synth.World(n_actions=3, n_features=5)
TABLE = WORLD.table(6000, seed=1)


def contexts_as(kind, table=TABLE):
    columns = drs.Log(table).roles.context
    kinds = [pa.field(f.name, kind) if f.name in columns else f for f in table.schema]
    return table.cast(pa.schema(kinds))


def model():
    return drs.models.Ridge().fit(drs.Log(WORLD.table(2000, seed=2)))


def run(table, policy=None, r=None, **options):
    policy = policy or drs.policies.EpsilonGreedy()
    return drs.replay(drs.Log(table), policy, 50, r, q=0.05, **options)


@pytest.mark.jit_only
def test_precision_follows_the_contexts_unless_it_is_asked_for():
    single, double = contexts_as(pa.float32()), contexts_as(pa.float64())
    r = model()
    one, exact, two = run(single, r=r), run(single, r=r, precision="float64"), run(double, r=r)
    assert (one.precision, exact.precision, two.precision) == ("float32", "float64", "float64")
    assert json.loads(one.to_json())["precision"] == "float32"
    assert one.value != exact.value
    assert one.value == pytest.approx(exact.value, rel=1e-5)
    assert one.replicates["events"] == exact.replicates["events"]  # acceptances do not depend on predictions
    assert run(single).precision == "float64"  # no predictions
    assert run(single, r=drs.models.Constant(0.5)).precision == "float64"


@pytest.mark.parametrize("value", ["float32", "double", 64, np.float64])
def test_other_precisions_are_refused(value):
    with pytest.raises(DrstreamError, match=r'precision=.*None.*"float64"'):
        run(TABLE, precision=value)


@pytest.mark.jit_only
@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
@pytest.mark.parametrize("name", ["EpsilonGreedy", "Boltzmann", "SquareCB"])
@pytest.mark.parametrize("modelled", [False, True])
def test_the_loop_for_linear_scores_agrees_with_the_loop_for_any_policy(kind, name, modelled):
    policy = getattr(drs.policies, name)

    class ByEvent(policy):
        probabilities = staticmethod(getattr(learners, policy.probabilities.__name__))

    assert policy().own_loop() is not None
    assert ByEvent().own_loop() is None
    r = model() if modelled else None
    got, ref = run(contexts_as(kind), policy(), r), run(contexts_as(kind), ByEvent(), r)
    assert got.replicates["events"] == ref.replicates["events"]
    np.testing.assert_allclose(got.replicates["average"], ref.replicates["average"], rtol=1e-9)


def test_scores_that_are_nan_are_refused():
    class Broken(drs.policies.EpsilonGreedy):
        def initial_state(self, n_actions, n_features):
            state = super().initial_state(n_actions, n_features)
            state[learners.HEADER :] = np.nan
            return state

    with pytest.raises(DrstreamError, match="probabilities that sum to"):
        run(TABLE, Broken())


class Warm(drs.policies.Boltzmann):
    def initial_state(self, n_actions, n_features):
        state = super().initial_state(n_actions, n_features)
        state[KIND] = 0.0  # a user's own state says nothing of kinds
        return state


def test_a_state_of_ones_own_has_the_loop_of_all_policies():
    log = drs.Log(drs.synth.World(3, 2, kinds=None).table(3_000))
    assert drs.replay(log, Warm(), 50, q=0.05).value == drs.replay(log, drs.policies.Boltzmann(), 50, q=0.05).value
