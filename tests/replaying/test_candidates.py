"""Replay on candidates against a naive Algorithm 1: every count and accepted row exactly, values to 1e-12."""

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

import drstream as drs
from tests.helpers import naive_replay
from tests.helpers.candidate_replays import LEARNERS, ByRow, as_events, learner, open_log, small_log
from tests.helpers.passes import PLAIN
from tests.helpers.replays import agree, run_or_none

METHODS = ["dr-ns", "dr-ns-wc", "rs", "dm"]


@pytest.mark.covers
@settings(max_examples=40 if PLAIN else 120)
@given(
    seed=st.integers(0, 10_000),
    name=st.sampled_from(list(LEARNERS)),
    interactions=st.booleans(),
    method=st.sampled_from(METHODS),
    horizon=st.integers(1, 12),
    q=st.sampled_from([0.0, 0.01, 0.05, 0.3, 1.0]),
    c_max=st.sampled_from([1.0, 0.7, 0.1]),
    carry=st.booleans(),
    most=st.sampled_from([None, 1, 3]),
    with_model=st.booleans(),
    kind=st.sampled_from(["float32", "float64"]),
)
def test_compiled_equals_python_equals_the_naive_algorithm(
    seed, name, interactions, method, horizon, q, c_max, carry, most, with_model, kind
):
    with_model = with_model or method == "dm"
    features, width = seed % 3, 1 + seed % 4
    table, Z = small_log(seed, 120, features, width, 1 + seed % 5, kind)
    events, X, rhat = as_events(table, features)
    compiled, naive = learner(name, interactions)
    model = rhat if with_model and method != "rs" else None
    walker, u = ByRow(naive, X, Z), drs.uniforms(seed, 0, len(events))
    ref, accepted, counts = naive_replay.replay(events, model, u, walker, horizon, q, c_max, method, carry, most)
    options = {
        "horizon": horizon, "method": method, "q": q, "c_max": c_max, "seed": seed, "carry": carry, "replicates": most,
        "model": drs.models.Column("rhat") if with_model else None,
    }  # fmt: skip
    log = open_log(table, features)
    seen, python = [], learner(name, interactions)[1]
    learn = python.update
    python.update = lambda x, z, reward: (seen.append((x.tolist(), z.tolist(), reward)), learn(x, z, reward))
    for policy in (compiled, python):
        run = run_or_none(log, policy, **options)
        if run is None:
            assert not ref
        else:
            agree(run, ref, counts, horizon)
    assert seen == [(X[k].tolist(), Z[k][events[k][1]].tolist(), events[k][2]) for k in accepted]


@pytest.mark.covers
@pytest.mark.parametrize("interactions", [False, True])
@pytest.mark.parametrize("name", list(LEARNERS))
def test_every_learner_equals_its_naive_form(name, interactions):
    """Over enough steps that it learns something, with the default grid's kind of lane, too."""
    table, Z = small_log(7, 400)
    events, X, rhat = as_events(table)
    compiled, naive = learner(name, interactions)
    walker, u = ByRow(naive, X, Z), drs.uniforms(0, 0, 400)
    ref, _, counts = naive_replay.replay(events, rhat, u, walker, 25, 0.1, 1.0, "dr-ns")
    agree(drs.replay(open_log(table), compiled, 25, drs.models.Column("rhat"), q=0.1), ref, counts, 25)
    ref, _, counts = naive_replay.replay(events, rhat, u, walker, 25, 0.1, 1.0, "dr-ns", bias=0.05, pilot=40)
    agree(drs.replay(open_log(table), compiled, 25, drs.models.Column("rhat"), bias=0.05), ref, counts, 25)
