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


def with_state(policy, place, value):
    """The policy, and one with the loop of all policies, whose states begin with this value at these places."""

    class Own(policy):
        loop = policy.loop

        def initial_state(self, n_actions, n_features):
            state = super().initial_state(n_actions, n_features)
            state[place] = value
            return state

    class ByEvent(Own):
        probabilities = staticmethod(getattr(learners, policy.probabilities.__name__))

    assert Own().own_loop() is policy.loop
    assert ByEvent().own_loop() is None
    return Own, ByEvent


def test_the_loop_for_greedy_policies_refuses_scores_that_are_nan():
    first = slice(learners.HEADER, learners.HEADER + 6)  # weights of the first of three actions, for five features
    for policy in with_state(drs.policies.EpsilonGreedy, first, np.nan):
        with pytest.raises(DrstreamError, match=r"probabilities that sum to 0\.1, .* at t = 1, row 0"):
            run(TABLE, policy())


@pytest.mark.parametrize("modelled", [False, True])
def test_uniform_probabilities_need_no_scores(modelled):
    own, by_event = with_state(drs.policies.EpsilonGreedy, slice(learners.HEADER, None), np.nan)
    r = model() if modelled else None
    got, ref = run(TABLE, own(1.0), r), run(TABLE, by_event(1.0), r)
    assert got.complete > 1
    for column in ("events", "average", "cumulative"):
        assert got.replicates[column] == ref.replicates[column]


@pytest.mark.parametrize("actions", [1, 2, 4, 9])
@pytest.mark.parametrize("options", [{"q": 0.1}, {"bias": 0.05}, {"q": 0.1, "method": "dm"}, {"c": 0.05}], ids=str)
def test_any_number_of_actions_and_events_in_the_loop_for_greedy_policies(actions, options):
    """Ties: until an action has learned, its score is that of all others that have not."""
    world = drs.synth.World(actions, 3, kinds=None)
    r = drs.models.Ridge().fit(drs.Log(world.table(500, seed=2), actions=actions))
    own, by_event = with_state(drs.policies.EpsilonGreedy, slice(0, 0), 0.0)
    log = drs.Log(world.table(1501, seed=1), actions=actions)
    options = {"method": "dr-ns-wc"} | options if "c" in options else options
    got, ref = (drs.replay(log, policy(0.2), 20, r, **options) for policy in (own, by_event))
    assert got.complete > 1
    assert got.replicates["events"] == ref.replicates["events"]
    np.testing.assert_allclose(got.replicates["average"], ref.replicates["average"], rtol=1e-9, atol=1e-12)
    assert got.violations == ref.violations


class Warm(drs.policies.Boltzmann):
    def initial_state(self, n_actions, n_features):
        state = super().initial_state(n_actions, n_features)
        state[KIND] = 0.0  # a user's own state says nothing of kinds
        return state


def test_a_state_of_ones_own_has_the_loop_of_all_policies():
    log = drs.Log(drs.synth.World(3, 2, kinds=None).table(3_000))
    assert drs.replay(log, Warm(), 50, q=0.05).value == drs.replay(log, drs.policies.Boltzmann(), 50, q=0.05).value
