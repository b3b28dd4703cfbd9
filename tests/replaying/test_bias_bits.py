"""The same bits however a replay with a target of the bias mass is run; lanes of a grid beside the naive algorithm."""

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import drstream as drs
from drstream import sampling
from drstream.replaying import options
from drstream.replaying import plan as planning
from tests.helpers import naive_replay
from tests.helpers.cut import cut_log
from tests.helpers.logs import world
from tests.helpers.passes import PLAIN, not_plain
from tests.helpers.replays import agree, as_events, bits, small_log

HORIZON = 30
LEVELS = [{"bias": 0.05}, {}]


@pytest.fixture(scope="module")
def big(tmp_path_factory):
    path = tmp_path_factory.mktemp("bias") / "log.parquet"
    rows = 2100 if PLAIN else 60_000
    pq.write_table(world(kinds=None).table(rows, seed=3), path, row_group_size=rows // 7 + 1)
    return path


@pytest.fixture(scope="module")
def model():
    return drs.models.Ridge().fit(drs.Log(world(kinds=None).table(400, seed=4)))


def everything(run):
    """All but its provenance, which names the other policies and seeds of a call."""
    told = {name: value for name, value in json.loads(run.to_json()).items() if name != "provenance"}
    return bits(run), repr(run.grid.to_pydict()), repr(vars(run.pooled)), run.by_step, repr(told)


@pytest.mark.parametrize("levels", LEVELS)
def test_threads_batches_and_chunks_do_not_change_a_bit(big, model, monkeypatch, levels):
    def run(log, **options):
        return everything(drs.replay(log, drs.policies.EpsilonGreedy(), HORIZON, model, **levels, **options))

    wanted = run(drs.Log(big), threads=1)
    for threads in (2, 5):
        assert run(drs.Log(big), threads=threads) == wanted
    for size in (77, 5000):
        assert run(cut_log(big, batch_size=size), threads=2) == wanted
    monkeypatch.setattr(planning.Plan, "chunk_rows", 999)
    got, expected = (found[0] for found in (run(drs.Log(big), threads=1), wanted))
    assert got == expected  # the sums that models keep are merged chunk by chunk


@pytest.mark.parametrize("levels", LEVELS)
def test_shards_do_not_depend_on_workers(big, model, levels):
    def run(**options):
        found = drs.replay(big, drs.policies.EpsilonGreedy(), HORIZON, model, shards=3, **levels, **options)
        return everything(found)

    wanted = run(threads=1)
    assert run(threads=4) == wanted
    with ThreadPoolExecutor(2) as pool:
        assert run(executor=pool) == wanted


def test_shards_in_processes(big, model, processes):
    for levels in LEVELS:
        options = {**levels, "shards": 2}
        wanted = drs.replay(big, drs.policies.EpsilonGreedy(), HORIZON, model, **options)
        got = drs.replay(big, drs.policies.EpsilonGreedy(), HORIZON, model, executor=processes, **options)
        assert everything(got) == everything(wanted)


@pytest.mark.parametrize("policy", [drs.policies.Exp3(0.3), naive_replay.Exp3(3, 1, gamma=0.3)])
@pytest.mark.parametrize("horizon", [20, 70])
def test_each_lane_of_a_grid_equals_the_naive_algorithm(policy, horizon):
    """With its target, its random numbers, and its pilot, which is shorter from lane to lane, or cut off earlier."""
    table = small_log(0, 1500, 3, 1)
    p = pa.array(np.random.default_rng(1).uniform(0.05, 1, 1500))  # no few values, for which rounding decides on c
    table = table.set_column(table.column_names.index("propensity"), "propensity", p)
    log = drs.Log(table, actions=3, context=["x0"])
    events, rhat = as_events(table, 1)
    run = drs.replay(log, policy, horizon, drs.models.Column("rhat"), seed=5, threads=2)
    grid = run.grid.to_pylist()
    assert [row["bias"] for row in grid] == list(options.GRID)
    assert [row["seed"] for row in grid] == [sampling.stream(5, i) for i in range(len(grid))]
    assert grid[0]["seed"] == 5
    pooled, size = [], len(grid)
    for i, (row, lane) in enumerate(zip(grid, run._tried, strict=True)):
        steps = horizon - i * horizon // size
        pilot = {"pilot": int(150 * steps / horizon), "pilot_steps": steps}
        u = drs.uniforms(row["seed"], 0, len(events))
        learner = naive_replay.Exp3(3, 1, gamma=0.3)
        ref, _, counts = naive_replay.replay(
            events, rhat, u, learner, horizon, None, 1.0, "dr-ns", bias=row["bias"], **pilot
        )
        agree(lane, ref, counts, horizon)
        assert lane.pilot_events == row["pilot_events"] == counts["pilot"]
        pooled += lane.replicates.to_pylist() if row["pooled"] else []
    assert len({row["pilot_events"] for row in grid}) == size
    assert run.replicates.to_pylist() == pooled


def test_streams_of_random_numbers_do_not_meet():
    """Those of a few seeds, and of the lanes of their grids."""
    seeds = [sampling.stream(seed, number) for seed in range(-50, 50) for number in range(len(options.GRID))]
    assert len(set(seeds)) == len(seeds)
    assert sampling.stream(7, 0) == 7


@not_plain
def test_grids_beside_each_other_give_what_each_gives_alone(big, model):
    policies = {"greedy": drs.policies.EpsilonGreedy(), "fixed": drs.policies.Uniform()}
    runs = drs.replay(big, policies, HORIZON, model, seed=[0, 7], threads=3)
    assert len(runs) == 4
    for name, policy in policies.items():
        alone = drs.replay(big, {name: policy}, HORIZON, model, seed=7, threads=1)
        assert everything(alone[name]) == everything(runs[name, 7])
    several = drs.replay(big, policies, HORIZON, model, bias=[0.02, 0.1], threads=3)
    for name, policy in policies.items():
        assert everything(several[name, 0.1]) == everything(
            drs.replay(big, {name: policy}, HORIZON, model, bias=0.1)[name]
        )
