"""The same bits however a replay is run: threads, batches, lanes, shards and processes."""

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import drstream as drs
from tests.helpers import naive_replay
from tests.helpers.cut import cut_log
from tests.helpers.logs import world
from tests.helpers.passes import PLAIN, not_plain
from tests.helpers.replays import bits, run_or_none

HORIZON = 30


@pytest.fixture(scope="module")
def big(tmp_path_factory):
    path = tmp_path_factory.mktemp("replay") / "log.parquet"
    rows = 1500 if PLAIN else 200_000
    w = world(kinds=None)
    pq.write_table(w.table(rows, seed=3), path, row_group_size=rows // 7 + 1)
    return path


@pytest.fixture(scope="module")
def model():
    return drs.models.Ridge().fit(drs.Log(world(kinds=None).table(400, seed=4)))


def test_python_lanes_alone_do_not_see_unfinished_contexts():
    """Contexts in columns are put together once for all lanes, which run on threads."""

    class Looks(naive_replay.UCB1):
        def probabilities(self, X):
            assert (X != 0).all()
            return np.full((len(X), 4), 0.25)

    w = drs.synth.World(n_actions=4, n_features=40, kinds=None)
    log = drs.Log(w.table(20_000, seed=1))
    runs = drs.replay(log, Looks(4, 40), 150, q=[0.0, 0.01, 0.05, 0.1], threads=4)
    alone = drs.replay(log, Looks(4, 40), 150, q=[0.0, 0.01, 0.05, 0.1], threads=1)
    assert [bits(run) for run in runs] == [bits(run) for run in alone]


def test_threads_batches_and_layouts_do_not_change_a_bit(big, model):
    def run(log, **options):
        return bits(drs.replay(log, drs.policies.EpsilonGreedy(), HORIZON, model, q=0.05, **options))

    wanted = run(drs.Log(big), threads=1)
    for threads in (2, 5):
        assert run(drs.Log(big), threads=threads) == wanted
    for size in (77, 5000):
        assert run(cut_log(big, batch_size=size), threads=2) == wanted


@not_plain
def test_lanes_give_what_each_gives_alone(big, model):
    policies = {
        "greedy": drs.policies.EpsilonGreedy(),
        "soft": drs.policies.Boltzmann(),
        "fixed": drs.policies.Uniform(),
    }
    policies["python"] = naive_replay.UCB1(4, 3)
    big = drs.Log(big, filter=pa.compute.field("x0") > 1.5)  # a Python policy is slow
    runs = drs.replay(big, policies, HORIZON, model, q=[0.0, 0.1], seed=[0, 7], threads=3)
    assert len(runs) == 16
    for name, policy in policies.items():
        for q in (0.0, 0.1):
            alone = run_or_none(big, {name: policy}, HORIZON, model, q=q, seed=7, threads=1)
            if alone is None:
                assert not runs[name, q, 7].complete
            else:
                assert bits(alone[name]) == bits(runs[name, q, 7])


def test_shards_are_replayed_independently_and_workers_do_not_matter(big, model):
    def run(**options):
        return drs.replay(big, drs.policies.EpsilonGreedy(), HORIZON, model, q=0.05, shards=3, **options)

    wanted = run(threads=1)
    assert wanted.replicates["shard"].unique().to_pylist() == [0, 1, 2]
    for threads in (2, 4):
        assert bits(run(threads=threads)) == bits(wanted)
    with ThreadPoolExecutor(2) as pool:
        assert bits(run(executor=pool)) == bits(wanted)
    groups = pq.ParquetFile(big)
    first = groups.read_row_groups([0, 1, 2])  # 7 row groups in shards of 3, 2 and 2
    alone = drs.replay(first, drs.policies.EpsilonGreedy(), HORIZON, model, q=0.05)
    got = wanted.replicates.filter(pa.compute.equal(wanted.replicates["shard"], 0))
    for column in ("steps", "events", "first_row", "last_row"):
        assert got[column].to_pylist() == alone.replicates[column].to_pylist()
    np.testing.assert_allclose(got["cumulative"].to_numpy(), alone.replicates["cumulative"].to_numpy(), rtol=1e-12)
    capped = run(replicates=5)
    assert capped.replicates["shard"].to_pylist() == [0, 0, 1, 1, 2]
    curve = wanted.curve
    assert curve["cumulative"][-1].as_py() == pytest.approx(wanted.cumulative, rel=1e-9)
    assert curve["average_low"][-1].as_py() == pytest.approx(wanted.low, rel=1e-9)


def test_shards_in_processes(big, model, processes):
    options = {"q": 0.05, "shards": 2}
    wanted = drs.replay(big, drs.policies.EpsilonGreedy(), HORIZON, model, **options)
    got = drs.replay(big, drs.policies.EpsilonGreedy(), HORIZON, model, executor=processes, **options)
    assert bits(got) == bits(wanted)


def test_a_split_log_and_replay_of_the_same_seed_do_not_share_random_numbers(big):
    """Were they the same, a split's first part would accept far too much: E[c w] is the acceptance rate without
    violations, here 0.05."""
    part, _ = drs.Log(big).split(0.2, seed=0)
    run = drs.replay(part, drs.policies.Uniform(), 5, q=0.0, c_max=0.05, seed=0)
    error = math.sqrt(0.05 * 0.95 / run.events)
    assert abs(run.acceptance - 0.05) < 4.5 * error + run.violations
