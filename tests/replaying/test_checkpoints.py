"""Checkpoints of replays: one that was stopped goes on to the same bits, and takes no chunk twice."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow.parquet as pq
import pytest

import drstream as drs
from drstream.replaying import lanes
from drstream.replaying import plan as planning
from drstream.replaying.keeping import Keeper
from tests.helpers import candidate_replays
from tests.helpers.replays import bits, small_log, small_log_with_sets
from tests.helpers.sparse import both_logs

P, M = drs.policies, drs.models
EACH = {"checkpoint_every": 0, "threads": 1}
GREEDY = P.EpsilonGreedy(0.2)


class Stop(Exception):  # noqa: N818  # it stands for a kill
    pass


class Greedy:
    """ε-greedy over mean rewards, in Python. Its random numbers are a part of what it has learned."""

    def __init__(self):
        self.version = 0

    def reset(self):
        self.sums, self.counts = np.zeros(3), np.zeros(3, np.int32)
        self.random = np.random.default_rng(7)
        self.best, self.version = 0, 0

    def probabilities(self, X):
        out = np.full((X.shape[0], 3), 0.1)
        out[:, self.best] = 0.8
        return out

    def update(self, x, action, reward):
        self.sums[action] += reward + 0.1 * self.random.random()
        self.counts[action] += 1
        self.version += self.version % 3 != 2 or self.counts.sum() % 2 == 0
        self.best = int(np.argmax(self.sums / np.maximum(self.counts, 1)))

    def get_state(self):
        numbers = {"best": self.best, "version": self.version, "few": [None, True, (1.5, np.inf)]}
        return {"sums": self.sums, "counts": self.counts, "random": self.random.bit_generator.state, **numbers}

    def set_state(self, state):
        assert state["few"] == [None, True, (1.5, np.inf)]
        self.sums, self.counts, self.best, self.version = (state[n] for n in ("sums", "counts", "best", "version"))
        assert self.counts.dtype == np.int32
        self.random.bit_generator.state = state["random"]


def dense(folder, rows=1700):
    pq.write_table(small_log(3, rows, 3, 2), folder / "log.parquet", row_group_size=600)
    return drs.Log(folder / "log.parquet", context=["x0", "x1"], actions=3)


def sparse(folder):
    pq.write_table(both_logs(rows=900)[0].source.table, folder / "log.parquet", row_group_size=600)
    return drs.Log(folder / "log.parquet", drs.Sparse("at", "value", 40), actions=3)


def eligible(folder):
    pq.write_table(small_log_with_sets(3, 900, 3, 2)[0], folder / "log.parquet", row_group_size=600)
    return drs.Log(folder / "log.parquet", context=["x0", "x1"], actions=3, eligible="items")


def candidates(folder):
    pq.write_table(candidate_replays.small_log(3, 900)[0], folder / "log.parquet", row_group_size=600)
    return candidate_replays.open_log(folder / "log.parquet")


class Named(Greedy):
    identity = "v1"


MANY = {"greedy": GREEDY, "ucb": P.LinUCB(0.5), "fixed": P.Uniform(), "python": Named()}
CASES = {
    "grid": (dense, GREEDY, {}),
    "grids on threads": (dense, MANY, {"threads": 2, "model": M.Column("rhat")}),
    "exact": (dense, GREEDY, {"q": [0.0, 0.05], "carry": True, "seed": [0, 1]}),
    "sketch": (dense, MANY, {"q": 0.05, "tracker": "sketch"}),
    "exact, then a sketch": (dense, GREEDY, {"q": 0.05, "carry": True}),
    "rejection": (dense, GREEDY, {"method": "rs"}),
    "some replicates": (dense, MANY, {"bias": 0.05, "replicates": 3}),
    "shards": (dense, MANY, {"bias": 0.05, "shards": 2, "threads": 1}),
    "cross-fitted": (dense, GREEDY, {"bias": 0.05, "model": M.Ridge(), "crossfit": 2}),
    "sparse": (sparse, GREEDY, {"bias": 0.05}),
    "eligible": (eligible, GREEDY, {"bias": 0.05}),
    "candidates": (candidates, {"greedy": GREEDY, "fixed": P.Uniform()}, {"bias": 0.05}),
}


@pytest.fixture
def chunks(monkeypatch):
    """Counts chunks, and stops a replay after one."""
    seen = {"count": 0, "last": None, "error": Stop}
    usual = Keeper.note

    def note(self, shard, make):
        usual(self, shard, make)
        seen["count"] += 1
        if seen["count"] == seen["last"]:
            raise seen["error"]

    monkeypatch.setattr(Keeper, "note", note)
    monkeypatch.setattr(planning, "CHUNK_BYTES", 1)  # chunks of 256 rows
    return seen


def all_bits(found):
    return [bits(run) for run in found] if isinstance(found, drs.Replays) else bits(found)


@pytest.mark.parametrize("name", CASES)
def test_a_stopped_replay_goes_on_to_the_same_bits(name, tmp_path, chunks, monkeypatch):
    if "then" in name:
        monkeypatch.setattr(lanes, "EXACT_VALUES", 700)
    make, policies, options = CASES[name]
    log, path = make(tmp_path), tmp_path / "run.ckpt"

    def run(**more):
        return drs.replay(log, policies, 15, **{**options, **more})

    wanted = all_bits(run())
    kept = {"checkpoint": path, "checkpoint_every": 0}
    assert all_bits(run(**kept)) == wanted
    whole = chunks["count"]
    assert whole >= 2
    for points in ([1, whole // 2], [max(whole - 1, 1)]):
        before = chunks["count"]
        for point in points:
            chunks["last"] = chunks["count"] + point
            with pytest.raises(Stop):
                run(**kept)
            assert path.exists()
        chunks["last"] = None
        assert all_bits(run(**kept)) == wanted
        if not {"shards", "replicates"} & options.keys():  # threads have taken more chunks than were counted
            assert chunks["count"] - before == whole
        assert not list(tmp_path.glob("run*"))


def test_shards_of_an_executor_are_kept_when_they_are_complete(tmp_path, monkeypatch):
    log, path = dense(tmp_path), tmp_path / "run.ckpt"
    wanted = bits(drs.replay(log, GREEDY, 15, shards=3))
    usual, ended = Keeper.end, []

    def end(self, shard, state):
        usual(self, shard, state)
        ended.append(shard)

    monkeypatch.setattr(Keeper, "end", end)

    class Failing(ThreadPoolExecutor):
        def submit(self, function, *args):
            return super().submit(fails if args[-1] == 2 else function, *args)

    def fails(*args):
        raise Stop

    with Failing(1) as pool, pytest.raises(Stop):
        drs.replay(log, GREEDY, 15, shards=3, executor=pool, checkpoint=path)
    assert ended == [0, 1]
    with ThreadPoolExecutor(1) as pool:
        assert bits(drs.replay(log, GREEDY, 15, shards=3, executor=pool, checkpoint=path)) == wanted
    assert ended == [0, 1, 2]
    assert not path.exists()


def test_ctrl_c_returns_what_is_complete_and_says_how_to_go_on(tmp_path, chunks):
    log, path = dense(tmp_path, 6000), tmp_path / "run.ckpt"
    wanted = bits(drs.replay(log, GREEDY, 15, q=0.05))
    chunks |= {"last": 6, "error": KeyboardInterrupt}
    with pytest.warns(drs.DrstreamWarning, match=r"interrupted: what is complete is in .*run.ckpt: the same"):
        run = drs.replay(log, GREEDY, 15, q=0.05, **EACH, checkpoint=path)
    assert run.interrupted
    assert bits(drs.replay(log, GREEDY, 15, q=0.05, checkpoint=path)) == wanted
    chunks["last"] = chunks["count"] + 1
    with pytest.raises(KeyboardInterrupt) as stopped:
        drs.replay(log, GREEDY, 3000, q=0.05, **EACH, checkpoint=path)
    assert "what is complete is in" in "\n".join(stopped.value.__notes__)


def stopped(log, path, chunks, policies=GREEDY, **options):
    chunks["last"] = chunks["count"] + 3
    with pytest.raises(Stop):
        drs.replay(log, policies, 15, q=0.05, **options, **EACH, checkpoint=path)


def test_other_replays_are_refused(tmp_path, chunks):
    log, path = dense(tmp_path), tmp_path / "run.ckpt"
    stopped(log, path, chunks)
    data = path.read_bytes()

    def refused(wanted, policy=GREEDY, log=log, horizon=15, **options):
        with pytest.raises(drs.StateError, match=wanted):
            drs.replay(log, policy, horizon, **{"q": 0.05, **options}, checkpoint=path)
        assert path.exists()

    refused("horizon= is 15 there, and 16 now", horizon=16)
    refused(r"q= is \[0.05\] there, and \[0.1\] now", q=0.1)
    refused("seed= is", seed=3)
    refused("policy 'policy' is EpsilonGreedy.*0.2.* there, and EpsilonGreedy.*0.3.* now", P.EpsilonGreedy(0.3))
    refused("the reward model of 'reward' is none there, and Constant", model=M.Constant(0.5))
    refused("the log's filter is none there", log=drs.Log(log.source.keys[0], ["x0", "x1"], actions=3, filter="x0>0"))
    other = drs.Log(dense(tmp_path, 1701).source.keys[0], ["x0", "x1"], actions=3)
    refused("another log: it has row group 0 of .* and now this part is row group 0 of", log=other)
    path.write_bytes(data[: len(data) // 2])
    refused("is damaged")
    path.write_bytes(data)
    with pytest.raises(drs.StateError, match="holds 'checkpoint of a replay', not 'checkpoint of an evaluation'"):
        drs.evaluate(other, P.Uniform(), checkpoint=path)


def test_which_policies_can_be_kept(tmp_path, chunks):
    log, path = dense(tmp_path), tmp_path / "run.ckpt"

    class Silent(Greedy):
        get_state = None

    with pytest.raises(drs.PolicyError, match=r"policy 'policy' does not say what it has learned: give Silent"):
        drs.replay(log, Silent(), 15, checkpoint=path)

    class Odd(Greedy):
        def get_state(self):
            return {"self": self}

    with pytest.raises(drs.PolicyError, match="must return numbers, text and arrays, in dicts and lists: a Odd is nei"):
        drs.replay(log, Odd(), 15, checkpoint=path)
    assert not path.exists()
    stopped(log, path, chunks, Greedy())
    with pytest.warns(drs.DrstreamWarning, match=r"nobody can vouch that .*Greedy"):
        drs.replay(log, Greedy(), 15, q=0.05, checkpoint=path)

    stopped(log, path, chunks, Named())
    drs.replay(log, Named(), 15, q=0.05, checkpoint=path)


@pytest.mark.parametrize("horizon", [None, 200])
def test_a_progressive_policy(tmp_path, chunks, horizon):
    log, path = dense(tmp_path), tmp_path / "run.ckpt"

    def learn(policy=GREEDY, **how):
        made = drs.optimize.ProgressivePolicy(policy, horizon=horizon, snapshots=8)
        return made.fit(log, M.Ridge(), crossfit=2, **how)

    wanted = learn()
    for point in (2, 3):
        chunks["last"] = chunks["count"] + point
        with pytest.raises(Stop):
            learn(checkpoint=path, **EACH)
    found = learn(checkpoint=path, **EACH)
    assert not list(tmp_path.glob("run*"))
    assert repr(found) == repr(wanted)
    np.testing.assert_array_equal(found.states_, wanted.states_)
    np.testing.assert_array_equal(found.weights_, wanted.weights_)
    with pytest.raises(drs.PolicyError, match="recorded as copies of a Python object"):
        learn(Greedy(), checkpoint=path)
