"""Rankings: every estimator against its naive form and by law, and what meets a log of rankings."""

import pickle
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import drstream as drs
from tests.helpers import naive_rankings as naive
from tests.helpers.cut import cut_log
from tests.helpers.passes import PLAIN, not_plain
from tests.helpers.rankings import NAMES, NEW, PREDICTED, ROLES, WHOLE, log_of, rankings, table_of

pytestmark = pytest.mark.covers

ALL = (*NAMES, *WHOLE)


def close(found, wanted, scale=1.0):
    return found == pytest.approx(wanted, rel=1e-9, abs=1e-9 * max(scale, 1.0), nan_ok=True)


@given(lists=rankings(), chunks=st.lists(st.integers(0, 20), max_size=2))
def test_every_estimator_is_its_naive_form(lists, chunks):
    table = table_of(lists)
    cuts = [0, *sorted(min(cut, len(lists)) for cut in chunks), len(lists)]
    table = pa.concat_tables(table.slice(a, b - a) for a, b in pairwise(cuts))
    result = drs.evaluate(drs.Log(table, **ROLES), NEW, PREDICTED, list(ALL))
    for name in ALL:
        found, (value, stderr, ess) = result[name], naive.estimate(name, lists)
        scale = max(abs(x) for x in naive.influence(name, lists)) if value == value else 1.0
        assert close(found.value, value, scale), name
        assert close(found.stderr, stderr, scale * 1e3), name
        assert close(found.ess, ess), name
    assert close(result.baseline.value, naive.mean([sum(one["r"]) for one in lists]))
    assert (result.lists.shortest, result.lists.longest) == (
        min(len(one["r"]) for one in lists),
        max(len(one["r"]) for one in lists),
    )


def many(n, seed=0, longest=3 if PLAIN else 6):
    rng = np.random.default_rng(seed)
    found = []
    for length in rng.integers(1, longest + 1, n):
        numbers = {"p": rng.uniform(0.2, 1, length), "pi": rng.uniform(0.1, 1, length)}
        numbers |= {"r": rng.integers(0, 2, length).astype(float), "q": rng.random(length), "e": rng.random(length)}
        found.append({"items": rng.permutation(9)[:length], **numbers})
    return found


ROWS = 70 if PLAIN else 20_000


@pytest.fixture(scope="module")
def table():
    lists = many(ROWS)
    rng = np.random.default_rng(1)
    old = pa.array([one["pi"][::-1] for one in lists])
    more = {
        "user": rng.integers(0, 99, ROWS),
        "country": rng.choice(["DE", "FR"], ROWS),
        "rate": rng.uniform(0.5, 1, ROWS),
    }
    return table_of(lists, old=old, **more)


@pytest.fixture(scope="module")
def parquet(table, tmp_path_factory):
    path = tmp_path_factory.mktemp("rankings") / "log.parquet"
    pq.write_table(table, path, row_group_size=ROWS // 7)
    return path


POLICIES = {"new": NEW, "old": drs.policies.Column("old")}
MODEL = drs.models.Positions("q", {"new": "q_new", "old": "q"})


def run(source, log_options=None, estimators=ALL, **options):
    log = cut_log(source, **{**ROLES, **(log_options or {})})
    return drs.evaluate(log, POLICIES, MODEL, list(estimators), **options)


def bits(result):
    rows = [{k: v for k, v in row.items() if not isinstance(v, str)} for row in result.rows()]
    return [[float(v).hex() for v in row.values()] for row in rows], float(result.baseline.stderr).hex()


def test_threads_batch_sizes_and_sources_give_the_same_bits(parquet, table):
    wanted = bits(run(parquet))
    for options in ({"threads": 1}, {"threads": 3}):
        assert bits(run(parquet, **options)) == wanted
    for size in (7, ROWS) if PLAIN else (77, 4096, ROWS):
        assert bits(run(parquet, {"batch_size": size})) == wanted
    whole = bits(run(table))
    cuts = [0, ROWS // 3, ROWS // 2, ROWS]
    pieces = [table.slice(a, b - a) for a, b in pairwise(cuts)]
    assert bits(run(pa.concat_tables(pieces))) == whole
    stream = pa.RecordBatchReader.from_batches(table.schema, [b for piece in pieces for b in piece.to_batches()])
    one_pass = [name for name in ALL if name not in ("sniips", "snrips")]
    assert bits(run(stream, estimators=one_pass)) == bits(run(table, estimators=one_pass))


def test_forms_of_lists_give_the_same_bits(table):
    """Lists of fixed size, large lists, float32 and integers hold the same numbers."""
    lists = [{name: list(values)[:1] for name, values in one.items()} for one in many(30 if PLAIN else 300)]
    wanted = bits(evaluated(table_of(lists)))
    assert bits(evaluated(table_of(lists, pa.large_list))) == wanted
    assert bits(evaluated(table_of(lists, lambda kind: pa.list_(kind, 1)))) == wanted
    rewards = pa.array([list(map(int, one["r"])) for one in lists], pa.list_(pa.int8()))
    assert bits(evaluated(table_of(lists).drop(["r"]).append_column("r", rewards))) == wanted
    words = pa.array([[f"item {x}" for x in one["items"]] for one in lists])
    texts = table_of(lists).drop(["items"])
    assert bits(evaluated(texts.append_column("items", words))) == wanted
    coded = pa.array([one["items"][0] for one in lists]).dictionary_encode()
    coded = pa.ListArray.from_arrays(pa.array(range(len(lists) + 1), pa.int32()), coded)
    assert bits(evaluated(texts.append_column("items", coded))) == wanted
    assert bits(evaluated(texts, action=None)) == wanted


def evaluated(table, estimators=ALL, model=PREDICTED, **options):
    return drs.evaluate(drs.Log(table, **{**ROLES, **options}), NEW, model, list(estimators))


@not_plain
def test_processes_give_the_same_bits(parquet, processes):
    assert bits(run(parquet, executor=processes)) == bits(run(parquet))


def test_a_result_pickles(parquet):
    result = run(parquet)
    copy = pickle.loads(pickle.dumps(result))
    assert bits(copy) == bits(result)
    assert repr(copy) == repr(result)
    assert repr(copy.findings) == repr(result.findings)  # values may be NaN


def test_asking_for_more_does_not_change_what_was_asked_for(parquet):
    everything = run(parquet)
    for name in ALL:
        alone = run(parquet, estimators=[name])
        assert alone["new", name] == everything["new", name]


def test_what_comes_with_other_logs_comes_with_rankings(parquet, table):
    """Segments, clusters, filters, splits, sample rates, several rewards and loggers."""
    result = run(parquet, by="country")
    german = run(parquet, {"filter": "country == 'DE'"})
    for name in ALL:
        assert result.segment(country="DE")["new", name].value == pytest.approx(german["new", name].value, rel=1e-12)
    clustered = run(parquet, cluster="user")
    assert clustered["new", "rips"].method == "cluster"
    assert clustered["new", "rips"].value == pytest.approx(result["new", "rips"].value, rel=1e-12)
    first, second = drs.Log(parquet, **ROLES).split(0.3)
    values = [drs.evaluate(half, NEW, estimators=["iips"]) for half in (first, second)]
    together = sum(half.n * half["iips"].value for half in values) / ROWS
    assert together == pytest.approx(result["new", "iips"].value, rel=1e-12)
    assert result.difference("new", "old", "iips").value == pytest.approx(
        result["new", "iips"].value - result["old", "iips"].value
    )
    both = drs.evaluate(drs.Log(parquet, **{**ROLES, "reward": ["r", "q"]}), NEW, estimators=["iips", "rips", "pi"])
    for column in ("r", "q"):
        alone = drs.evaluate(drs.Log(parquet, **{**ROLES, "reward": column}), NEW, estimators=["iips", "rips", "pi"])
        for name in both.estimators:
            assert both.rewards[column][name] == alone[name]
    loggers = run(parquet, {"logger": "country"}, estimators=["rips"])
    assert loggers.loggers.num_rows == 4
    assert loggers["new", "rips"].value == result["new", "rips"].value


def test_rows_of_a_down_sampled_log_count_several_times(parquet, table):
    result = run(parquet, {"sample_rate": "rate"})
    rate = table["rate"].to_numpy()
    lists = many(ROWS)
    weight = 1 / rate
    for name in ("iips", "rips", "pi", "ips", "cascade-dr"):
        scores = np.array([naive.score(name, one) for one in lists])
        assert result["new", name].value == pytest.approx((weight * scores).sum() / weight.sum(), rel=1e-10), name
    some = np.array([len(one["r"]) for one in lists])
    wanted = 0.0
    for place in range(some.max()):
        has = np.flatnonzero(some > place)
        v = np.array([naive.position_weights("snrips", lists[i])[place] for i in has]) * weight[has]
        ratio = (v * np.array([lists[i]["r"][place] for i in has])).sum() / v.sum()
        wanted += weight[has].sum() / weight.sum() * ratio
    assert result["new", "snrips"].value == pytest.approx(wanted, rel=1e-10)


def test_one_number_for_the_whole_list():
    """As a reward, it is enough for estimators of whole lists; as a propensity, for these alone."""
    lists = many(200)
    total = [sum(one["r"]) for one in lists]
    by_position = evaluated(table_of(lists), ["ips", "snips", "pi", "snpi", "ips-cv"], None)
    table = table_of(lists).append_column("total", pa.array(total))
    one_reward = evaluated(table, ["ips", "snips", "pi", "snpi", "ips-cv"], None, reward="total")
    assert bits(one_reward) == bits(by_position)
    joint = pa.array([float(np.prod(one["p"])) for one in lists])
    policy = pa.array([float(np.prod(one["pi"])) for one in lists])
    numbers = table.drop(["p", "new"]).append_column("p", joint).append_column("new", policy)
    for reward in ("r", "total"):
        result = evaluated(numbers, ["ips", "snips"], None, reward=reward)
        for name in ("ips", "snips"):
            assert result[name].value == pytest.approx(by_position[name].value, rel=1e-12)
    log = drs.Log(numbers, action="items", propensity=0.25, reward="r")
    wanted = np.mean(policy.to_numpy() / 0.25 * np.array(total))
    assert drs.evaluate(log, NEW).estimators == ["ips", "snips"]
    assert drs.evaluate(log, NEW)["ips"].value == pytest.approx(wanted, rel=1e-12)


def test_limits_of_weights_are_those_of_whole_lists():
    lists = many(300)
    w = np.array([naive.list_weight("ips", one) for one in lists])
    p = np.array([np.prod(one["p"]) for one in lists])
    total = np.array([sum(one["r"]) for one in lists])
    found = drs.evaluate(log_of(lists), NEW, estimators=["ips-capped"], cap=1.5)["ips-capped"]
    assert found.value == pytest.approx(np.mean(np.minimum(w, 1.5) * total), rel=1e-12)
    assert found.capped == np.mean(w > 1.5)
    found = drs.evaluate(log_of(lists), NEW, estimators=["ips-capped"], floor=0.1)["ips-capped"]
    assert found.value == pytest.approx(np.mean(w * p / np.maximum(p, 0.1) * total), rel=1e-12)
    chosen = drs.evaluate(log_of(lists), NEW, estimators=["ips-capped"], cap="auto")
    assert chosen.grid.num_rows == 12
    assert chosen["ips-capped"].value in chosen.grid["value"].to_pylist()


def test_weights_of_ones_own_are_those_of_whole_lists():
    def tempered(pi, p, out):
        out[:] = pi / p**0.5

    weight = drs.estimators.Weight("tempered", tempered)
    about = ("reward",), weight, lambda sample: sample.mean[0]
    lists = many(200)
    found = drs.evaluate(log_of(lists), NEW, estimators=[drs.estimators.Estimator("own", *about)])["own"]
    scores = [np.prod(one["pi"]) / np.prod(one["p"]) ** 0.5 * sum(one["r"]) for one in lists]
    assert found.value == pytest.approx(np.mean(scores), rel=1e-12)


def test_long_lists_neither_become_0_nor_infinite():
    """The propensity of 200 items at 1e-3 is no number of float64, but its ratio to the policy's is."""
    lists = [{"items": list(range(200)), "p": [1e-3] * 200, "pi": [1e-3] * 200, "r": [1.0] * 200}] * 3
    result = drs.evaluate(log_of(lists), NEW, estimators=["ips", "rips", "iips", "pi"])
    for name in result.estimators:
        assert result[name].value == pytest.approx(200, rel=1e-9)


def test_intervals_of_whole_lists_need_the_range_of_their_rewards():
    lists = many(300, longest=3)
    options = {"reward_range": (0, 3), "max_weight_bound": 200.0, "interval": ["bernstein", "gamma", "normal"]}
    result = drs.evaluate(log_of(lists), NEW, estimators=["ips", "rips"], **options)
    assert set(result["ips"].intervals) == {"bernstein", "gamma", "normal"}
    low, high = result["ips"].intervals["bernstein"]
    assert 0 <= low < result["ips"].value < high <= 3
    assert np.isnan(result["rips"].intervals["bernstein"][0])
    assert not np.isnan(result["rips"].intervals["normal"][0])
    assert any("no bernstein or gamma intervals of rips" in str(finding) for finding in result.findings)
    for method in ("bootstrap", "normal"):
        found = drs.evaluate(log_of(lists), NEW, estimators=["snrips", "rips"], interval=method)
        for name in ("snrips", "rips"):
            assert found[name].low < found[name].value < found[name].high
    with pytest.raises(drs.DrstreamError, match=r"a reward is 3 at row \d+, outside of reward_range=\(0.0, 2.5\)"):
        drs.evaluate(log_of(lists), NEW, estimators=["ips"], reward_range=(0, 2.5))


def test_a_position_that_a_segment_lacks_counts_as_nothing():
    lists = [{"items": [0, 1][:k], "p": [0.5] * k, "pi": [0.5] * k, "r": [1.0] * k} for k in (1, 1, 2, 2)]
    log = drs.Log(table_of(lists, short=pa.array([True, True, False, False])), **ROLES)
    result = drs.evaluate(log, NEW, estimators=["sniips", "iips"], by="short")
    assert result["sniips"].value == result["iips"].value == 1.5
    for short, value in ((True, 1.0), (False, 2.0)):
        found = result.segment(short=short)["sniips"]
        assert (found.value, found.stderr) == (value, 0.0)
