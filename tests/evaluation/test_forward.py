"""Models that are fitted on earlier rows only: as done by hand, block by block."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.linear_model import Ridge as SklearnRidge

import drstream as drs
from drstream.log.rows import Blocks
from drstream.running.execution import Workers
from tests.helpers import naive_replay, reference
from tests.helpers.evaluations import POLICY, ROWS, WORLD, D, K, M, agree, evaluate, open_log, values
from tests.helpers.logs import arrays, log_of
from tests.helpers.own_models import ByHand
from tests.helpers.passes import not_plain

FIRST = ROWS // 8
FORWARD = f"forward:{FIRST}"
SCORED = ("ips", "snips", "dr")  # not DM, which has no value for the first block


@pytest.fixture(scope="module")
def table():
    return WORLD.table(ROWS, seed=1).append_column("user", pa.array(np.arange(ROWS) // 9))


def forward(fit, table, first=FIRST):
    """(n, K): the predictions of fit(all rows before an event's block), and 0 in the first block."""
    X = arrays(table, D)[0]
    out = np.zeros((table.num_rows, K))
    block = np.array(reference.blocks(table.num_rows, first))
    for b in range(1, block.max() + 1):
        rows = block == b
        out[rows] = fit(table.filter(pa.array(block < b))).predict(X[rows])
    return out


def test_blocks_by_hand():
    """Each block is half as long as all before it."""
    for first, rows in ((1, 50), (7, 7), (7, 8), (100, 5_000)):
        blocks = Blocks(first, rows)
        wanted = reference.blocks(rows, first)
        assert blocks.of(np.arange(rows)).tolist() == wanted
        assert blocks.of(np.arange(rows, dtype=np.uint64)).tolist() == wanted
        assert blocks.count == wanted[-1] + 1


MODELS = {
    "ridge": (M.Ridge(2.0), 1e-10),
    "shared": (M.Ridge(shared=True), 1e-10),
    "1/p": (M.Ridge(weights="1/p"), 1e-10),
    "logistic": (M.Logistic(), 1e-8),
    "sklearn": (M.from_sklearn(SklearnRidge()), 1e-7),
}


@pytest.mark.parametrize("name", MODELS)
def test_reward_models_by_hand(table, name):
    model, relative = MODELS[name]
    rhat = forward(lambda rows: model.fresh().fit(open_log(rows, actions=K)), table)
    result = evaluate(open_log(table), POLICY, model, crossfit=FORWARD)
    agree(result, values(table, rhat, names=SCORED), relative)
    assert result.estimators == list(SCORED)
    a, r = arrays(table, D)[1:3]
    predicted = rhat[np.arange(ROWS), a][FIRST:]
    assert result.r2 == pytest.approx(reference.r_squared(predicted, r[FIRST:]), rel=1e-6)  # of events with a model
    assert (result.n, result.crossfit, result.unpredicted) == (ROWS, "forward", FIRST)
    assert f"none for the first {FIRST:,} events" in repr(result)
    assert result.to_dict()["unpredicted"] == FIRST
    assert not model.fitted


@pytest.mark.parametrize(
    "model", [M.Propensity(2.0, floor=0.01), M.Propensity.from_sklearn(LogisticRegression())], ids=["own", "sklearn"]
)
def test_propensities_by_hand(table, model):
    """The first block cannot be evaluated: it is left out, and the result says so."""
    mu = forward(lambda rows: model.fresh().fit(open_log(rows, actions=K)), table)
    rhat = forward(lambda rows: M.Ridge().fit(open_log(rows, actions=K)), table)
    X, a, r, _ = arrays(table, D)
    p = np.maximum(model.floor, mu[np.arange(ROWS), a])
    result = evaluate(open_log(table), POLICY, M.Ridge(), propensity=model, crossfit=FORWARD)
    left = slice(FIRST, None)
    for name in SCORED:
        wanted = reference.estimate(name, r[left], p[left], a[left], POLICY.probabilities(X[left]), rhat[left])[0]
        assert result[name].value == pytest.approx(wanted, rel=1e-6)
    assert result.n == ROWS - FIRST
    assert result.skipped == {"before the first propensity model": FIRST}
    assert result.unpredicted == 0
    assert f"{FIRST:,} rows (before the first propensity model)" in repr(result)
    assert "propensities estimated, fitted on earlier events" in result.how()


@pytest.mark.parametrize("method", ["dr-ns", "rs"])
def test_replay_by_hand(table, method):
    rhat = forward(lambda rows: M.Ridge().fit(open_log(rows, actions=K)), table)
    X, a, r, p = arrays(table, D)
    got = drs.replay(
        open_log(table), drs.policies.UCB1(0.3), 10, M.Ridge(), method=method, q=0.1, crossfit=FORWARD,
    )  # fmt: skip
    events = list(zip(X, a.tolist(), r.tolist(), p.tolist(), strict=True))
    c_max = 1.0 if method == "dr-ns" else p.min()
    policy, u = naive_replay.UCB1(K, D, scale=0.3), drs.uniforms(0, 0, ROWS)
    done, _, counts = naive_replay.replay(events, rhat, u, policy, 10, 0.1, c_max, method)
    assert got.complete == len(done) > 0
    assert got.value == pytest.approx(np.mean([d["average"] for d in done]), rel=1e-6)
    assert got.events == counts["events"]
    if method == "dr-ns":
        assert (got.crossfit, got.unpredicted) == ("forward", FIRST)


def test_a_replay_with_estimated_propensities_begins_after_the_first_block(table):
    model = M.Propensity(floor=0.01)
    got = drs.replay(open_log(table), POLICY, 20, propensity=model, crossfit=FORWARD)
    mu = forward(lambda rows: M.Propensity().fit(open_log(rows, actions=K)), table)
    a = arrays(table, D)[1]
    columns = table.set_column(2, "propensity", pa.array(np.maximum(0.01, mu[np.arange(ROWS), a])))
    numbered = columns.append_column("row", pa.array(np.arange(ROWS)))
    wanted = drs.replay(open_log(numbered, filter=pc.field("row") >= FIRST), POLICY, 20)
    assert got.value == pytest.approx(wanted.value, rel=1e-6)
    assert got.skipped == {"before the first propensity model": FIRST}
    assert any("before the first propensity model" in note for note in got.notes)


def test_sparse_contexts(table):
    """Fitted block by block, with conjugate gradients."""
    X, a, r, p = arrays(table, D)
    result = [evaluate(log_of(X, a, r, p, sparse=s), POLICY, M.Ridge(), "dr", crossfit=FORWARD) for s in (0, 1)]
    assert result[0]["dr"].value == pytest.approx(result[1]["dr"].value, rel=1e-7)


def test_a_model_of_the_users_own(table):
    result = evaluate(open_log(table), POLICY, ByHand(), "dr", crossfit=FORWARD)
    rhat = forward(lambda rows: ByHand().fit(open_log(rows, actions=K)), table)
    agree(result, values(table, rhat, names=("dr",)), 1e-10)


def test_later_events_change_no_earlier_score(table):
    """What happens after an event has no say in its r̂: other rewards in the last block change no other block."""
    start = int(Blocks(FIRST, ROWS).starts[-1])
    row = pa.array(np.arange(ROWS))
    a, r = arrays(table, D)[1:3]
    other = table.set_column(1, "reward", pa.array(np.where(np.arange(ROWS) < start, r, 1 - r)))
    other = other.set_column(0, "action", pa.array(np.where(np.arange(ROWS) < start, a, (a + 1) % K).astype(np.int32)))

    def early(rows, **models):
        log = open_log(rows.append_column("row", row))
        result = evaluate(log.rows_before(start), POLICY, estimators="dr", crossfit=FORWARD, **models)
        whole = evaluate(log, POLICY, estimators="dr", crossfit=FORWARD, by="late", **models)
        return result["dr"].value, whole.segment(late=False)["dr"].value

    flag = pa.array(np.arange(ROWS) >= start)
    models = {"model": M.Ridge(), "propensity": M.Propensity(floor=0.01)}
    found = [early(rows.append_column("late", flag), **models) for rows in (table, other)]
    assert found[0] == found[1]
    assert found[0][0] == pytest.approx(found[0][1], rel=1e-12)


# Rows that are not there


def test_a_log_whose_first_rows_are_filtered_out(table):
    """Blocks before which there is no event have no model."""
    numbered = table.append_column("row", pa.array(np.arange(ROWS)))
    start = int(Blocks(FIRST, ROWS).starts[2])
    log = open_log(numbered, filter=pc.field("row") >= start, actions=K)
    rows = numbered.slice(start)
    block = np.array(reference.blocks(ROWS, FIRST))[start:]
    X, a, r, p = arrays(rows, D)
    for make in (M.Ridge, lambda: M.from_sklearn(SklearnRidge()), ByHand):
        rhat = np.zeros((ROWS - start, K))
        for b in range(3, block.max() + 1):
            model = make().fit(open_log(rows.filter(pa.array(block < b)), actions=K))
            rhat[block == b] = model.predict(X[block == b])
        result = evaluate(log, POLICY, make(), "dr", crossfit=FORWARD)
        wanted = reference.estimate("dr", r, p, a, POLICY.probabilities(X), rhat)[0]
        assert result["dr"].value == pytest.approx(wanted, rel=1e-7)
        assert result.unpredicted == (block == 2).sum()


def test_bad_rows(table):
    """The same rows are left out of fits and of the pass."""
    X, _, r, p = arrays(table, D)
    r, p, x0 = r.copy(), p.copy(), X[:, 0].copy()
    r[0], p[1], x0[FIRST + 2] = np.nan, 0.0, np.inf
    broken = table.set_column(1, "reward", pa.array(r)).set_column(2, "propensity", pa.array(p))
    broken = broken.set_column(3, "x0", pa.array(x0))
    log = open_log(broken, on_bad_row="skip", actions=K)
    result = evaluate(log, POLICY, M.Ridge(), crossfit=FORWARD)
    assert (result.n, sum(result.skipped.values()), result.unpredicted) == (ROWS - 3, 3, FIRST - 2)
    other = evaluate(log, POLICY, M.Ridge(), crossfit=FORWARD, propensity=M.Propensity(floor=0.01))
    assert other.skipped["before the first propensity model"] == FIRST  # whatever else is wrong with them
    assert other.n == ROWS - FIRST - 1


# The same bits


@not_plain
@pytest.mark.parametrize("model", [M.Ridge(), M.Logistic()], ids=["ridge", "logistic"])
def test_batches_and_threads_change_no_bit(table, tmp_path, model):
    path = tmp_path / "log.parquet"
    pq.write_table(table, path, row_group_size=ROWS // 7)
    models = {"model": model, "propensity": M.Propensity(floor=0.01), "crossfit": FORWARD}

    def evaluated(threads, **options):
        result = evaluate(open_log(path, **options), POLICY, threads=threads, **models)
        return [row["value"] for row in result.rows()], result.r2, result.calibration, result.skipped

    def replayed(threads, **options):
        run = drs.replay(open_log(path, **options), drs.policies.UCB1(), 10, q=0.1, threads=threads, **models)
        return run.value, run.r2, run.calibration, run.skipped

    for pass_over in (evaluated, replayed):
        wanted = pass_over(1)
        for threads, size in ((2, 50), (3, ROWS)):
            assert pass_over(threads, batch_size=size) == wanted


def test_ridge_takes_one_pass(table):
    log = open_log(table)
    models = M.Ridge().fit_forward(log, Blocks(FIRST, ROWS), Workers(1))
    assert models[0] is None
    starts = Blocks(FIRST, ROWS).starts.tolist()
    assert [model.n_events_ for model in models[1:]] == starts[1:]
    assert f"rows before {starts[1]:,}" in repr(models[1])
    by_fit = M.Ridge().fit(log.rows_before(starts[2]))
    np.testing.assert_allclose(models[2].coef_, by_fit.coef_, rtol=1e-9)


def test_a_stream(table):
    """One that can be read again has no number of rows; one that can be read once cannot be cross-fitted."""
    batches = table.to_batches(max_chunksize=100)

    class Stream:
        def __arrow_c_stream__(self, requested_schema=None):
            return pa.RecordBatchReader.from_batches(table.schema, batches).__arrow_c_stream__(requested_schema)

    log = open_log(Stream(), actions=K)
    got = evaluate(log, POLICY, M.Ridge(), "dr", crossfit=FORWARD)
    assert got["dr"].value == evaluate(open_log(table), POLICY, M.Ridge(), "dr", crossfit=FORWARD)["dr"].value
    with pytest.raises(drs.LogError, match="can be read only once"):
        evaluate(open_log(table.to_reader(100), actions=K), POLICY, M.Ridge(), crossfit=FORWARD)


# Errors


@pytest.mark.parametrize("crossfit", ["forward:", "forward:0", "forward:-1", "forward:1.5", "forward:x", "forward:²"])
def test_first_blocks_that_are_none(table, crossfit):
    with pytest.raises(drs.DrstreamError, match="write the number of rows in the first block"):
        evaluate(table, POLICY, M.Ridge(), crossfit=crossfit)


@pytest.mark.parametrize("crossfit", ["forwards", "backward", "FORWARD"])
def test_words_that_are_none(table, crossfit):
    with pytest.raises(drs.DrstreamError, match=f"crossfit='{crossfit}': it must be a whole .* or 'forward'"):
        evaluate(table, POLICY, M.Ridge(), crossfit=crossfit)


def test_a_log_that_ends_in_the_first_block(table):
    for use in (M.Ridge(), M.Logistic(), ByHand()):
        with pytest.raises(drs.LogError, match=rf"has {ROWS:,} rows, and the first block {ROWS:,}. Make it shorter"):
            evaluate(open_log(table), POLICY, use, crossfit=f"forward:{ROWS}")


def test_dm_needs_a_prediction_of_every_event(table):
    log = open_log(table)
    with pytest.raises(drs.DrstreamError, match=r"estimator 'dm' is r̂ alone, and with crossfit='forward' the first"):
        evaluate(log, POLICY, M.Ridge(), ["dr", "dm"], crossfit=FORWARD)
    with pytest.raises(drs.ModelError, match=r"method='dm' is r̂ alone"):
        drs.replay(log, POLICY, 10, M.Ridge(), method="dm", crossfit=FORWARD)
    train, test = log.split(0.5)  # with a model that is fitted already, every event has a prediction
    result = evaluate(test, POLICY, M.Ridge().fit(train), propensity=M.Propensity(floor=0.01), crossfit=FORWARD)
    assert "dm" in result.estimators


def test_clusters_and_seeds(table):
    """Blocks have neither. Clusters are for the intervals of evaluate; replay has no use for them."""
    log = open_log(table)
    result = evaluate(log, POLICY, M.Ridge(), crossfit=FORWARD, cluster="user")
    plain = evaluate(log, POLICY, M.Ridge(), crossfit=FORWARD)
    assert result["dr"].value == plain["dr"].value
    assert (result["dr"].method, plain["dr"].method) == ("cluster", "tails")
    with pytest.raises(drs.DrstreamError, match="cluster='user' is about folds, and crossfit='forward:"):
        drs.replay(log, POLICY, 10, M.Ridge(), crossfit=FORWARD, cluster="user")
    with pytest.raises(drs.DrstreamError, match="fold_seed=3 is about folds"):
        evaluate(log, POLICY, M.Ridge(), crossfit=FORWARD, fold_seed=3)


def test_a_clamp_must_not_know_later_rewards(table):
    log = open_log(table)
    with pytest.raises(drs.ModelError, match="and it knows none: give"):
        evaluate(log, POLICY, M.Ridge(), crossfit=FORWARD, clamp=True)
    assert evaluate(log, POLICY, M.Ridge(), crossfit=FORWARD, clamp=(0, 1)).clamped > 0


def test_learners_refuse_it(table):
    log = open_log(table)
    with pytest.raises(drs.DrstreamError, match="crossfit='forward' is for evaluate and replay"):
        drs.optimize.impute(log, M.Ridge(), crossfit="forward")
    learner = drs.optimize.ProgressivePolicy(drs.policies.EpsilonGreedy(), horizon=20)
    with pytest.raises(drs.DrstreamError, match="crossfit='forward' is for evaluate and replay"):
        learner.fit(log, M.Ridge(), crossfit="forward")


def test_too_few_rows_for_a_model(table):
    """The error is the model's own. A note says that the first block can be longer."""
    log = open_log(table.sort_by("action"))
    with pytest.raises(drs.ModelError, match="is the only action that was logged") as caught:
        evaluate(log, POLICY, propensity=M.Propensity.from_sklearn(LogisticRegression()), crossfit="forward:5")
    assert "crossfit='forward:15'" in caught.value.__notes__[0]
