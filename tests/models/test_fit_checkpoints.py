"""Checkpoints of fits: one that was stopped goes on to the same bits, and reads no part twice for one pass."""

import json
import os
import subprocess
import sys
from collections import Counter

import numpy as np
import pyarrow.parquet as pq
import pytest

import drstream as drs
from drstream.models import logistic_fit
from drstream.states import checkpoint
from drstream.states.checkpoint import Checkpoint
from drstream.states.tree import Free, Varying, pack, restore, unpack
from tests.helpers.days import CONTEXT, KINDS, TWO, contents, day, write
from tests.helpers.places import ROOT
from tests.helpers.sparse import both_logs

M, EACH = drs.models, {"checkpoint_every": 0, "threads": 1}


class Stop(Exception):  # noqa: N818  # it stands for Ctrl-C
    pass


@pytest.fixture
def steps(monkeypatch):
    """Counts how often a checkpoint is written, and stops a fit at such a moment: after a part, or after a pass."""
    seen = {"count": 0, "last": None, "error": Stop}
    usual = Checkpoint.note

    def note(self):
        usual(self)
        seen["count"] += 1
        if seen["count"] == seen["last"]:
            raise seen["error"]

    monkeypatch.setattr(Checkpoint, "note", note)
    return seen


def dense(folder):
    return drs.Log(write(folder, [day(seed) for seed in range(2)]), **CONTEXT, actions=4)


def sparse(folder):
    table = both_logs(rows=150, rewards=(0.0, 1.0))[0].source.table
    pq.write_table(table, folder / "sparse.parquet", row_group_size=60)
    return drs.Log(folder / "sparse.parquet", drs.Sparse("at", "value", 40), on_bad_row="skip")


def candidates(folder):
    kind = KINDS["candidates"]
    return kind.open(write(folder, [kind.make(seed) for seed in range(2)]))


FITS = {
    "logistic": (dense, lambda log, **how: M.Logistic().fit(log, **how)),
    "sparse logistic": (sparse, lambda log, **how: M.Logistic(C=0.1).fit(log, **how)),
    "ridge": (dense, lambda log, **how: M.Ridge().fit(log, **how)),
    "sparse ridge": (sparse, lambda log, **how: M.Ridge().fit(log, **how)),
    "propensity": (dense, lambda log, **how: M.Propensity().fit(log, **how)),
    "choices": (candidates, lambda log, **how: M.Propensity().fit(log, **how)),
}
NAMES = ("coef_", "intercept_", "n_passes_", "n_events_", "reward_range_", "skipped_")


def bits(model):
    found = {name: getattr(model, name) for name in NAMES if hasattr(model, name)}
    return {name: value.tobytes() if isinstance(value, np.ndarray) else value for name, value in found.items()}


@pytest.mark.parametrize("name", FITS)
def test_a_stopped_fit_goes_on_to_the_same_bits(name, tmp_path, steps, monkeypatch):
    monkeypatch.setattr(logistic_fit, "SAMPLE_ROWS", 50)  # the log is longer than its sample
    make, fit = FITS[name]
    log, path = make(tmp_path), tmp_path / "fit.ckpt"
    wanted = bits(fit(log))
    assert bits(fit(log, checkpoint=path, **EACH)) == wanted
    whole = steps["count"]
    for points in ([1, whole // 2], [whole - 1]):
        before = steps["count"]
        for point in points:
            steps["last"] = steps["count"] + point
            with pytest.raises(Stop):
                fit(log, checkpoint=path, **EACH)
            assert path.exists()
        steps["last"] = None
        assert bits(fit(log, checkpoint=path, **EACH)) == wanted
        assert steps["count"] - before == whole  # nothing was computed twice
        assert not path.exists()


def test_a_checkpoint_that_is_full_goes_on_from_what_it_has(tmp_path, steps, monkeypatch):
    log, path = dense(tmp_path), tmp_path / "fit.ckpt"
    wanted = bits(M.Logistic().fit(log))
    monkeypatch.setattr(checkpoint, "LARGEST", 1500)
    steps["last"] = 60
    with pytest.raises(Stop):
        M.Logistic().fit(log, checkpoint=path, **EACH)
    assert path.stat().st_size < 15_000
    assert bits(M.Logistic().fit(log, checkpoint=path, **EACH)) == wanted


@pytest.mark.parametrize("options", [{"crossfit": 2}, {"crossfit": "forward:30"}])
def test_models_that_are_fitted_within_evaluate(tmp_path, steps, options):
    log, path = dense(tmp_path), tmp_path / "run.ckpt"
    given = {"model": M.Logistic(), "propensity": M.Propensity(), **options}
    wanted = contents(drs.evaluate(log, TWO, **given))
    steps["last"] = 30
    with pytest.raises(Stop):
        drs.evaluate(log, TWO, **given, checkpoint=path, **EACH)
    assert [one.name for one in tmp_path.glob("run*")] == ["run.ckpt"]
    steps["last"] = None
    assert contents(drs.evaluate(log, TWO, **given, checkpoint=path, **EACH)) == wanted
    assert not list(tmp_path.glob("run*"))
    steps["last"] = steps["count"] + 30
    with pytest.raises(Stop):
        drs.evaluate(log, TWO, **given, checkpoint=path, **EACH)
    with pytest.raises(drs.StateError, match=r"run.ckpt is a checkpoint of another run: fold_seed= is 0 there"):
        drs.evaluate(log, TWO, **given, fold_seed=1, checkpoint=path)


def test_other_fits_are_refused(tmp_path, steps):
    log, path = dense(tmp_path), tmp_path / "fit.ckpt"
    steps["last"] = 9
    with pytest.raises(Stop):
        M.Logistic().fit(log, checkpoint=path, **EACH)
    data = path.read_bytes()

    def refused(wanted, model=None, log=log):
        with pytest.raises(drs.StateError, match=wanted):
            (model or M.Logistic()).fit(log, checkpoint=path)

    refused(r"reward model is Logistic\(\) there, and Logistic\(C=2.0\) now. Run it as before, or", M.Logistic(C=2))
    refused("reward model is Logistic.* there, and none now", M.Propensity())
    paths = sorted(map(str, tmp_path.glob("*.parquet")))
    refused("the log's filter is none there, and", log=drs.Log(paths, **CONTEXT, actions=4, filter="x0 > 0"))
    refused("the log's number of actions is 4 there, and 5 now", log=drs.Log(paths, **CONTEXT, actions=5))
    refused("it has row group 0 of .*01.parquet .* not there", log=drs.Log(paths[:1], **CONTEXT, actions=4))
    more = write(tmp_path, [day(0), day(1), day(2)])
    refused("another log: it has row group 0 of .*00.parquet", log=drs.Log(more, **CONTEXT, actions=4))
    path.write_bytes(data[: len(data) // 2])
    refused("is damaged")


def test_fits_without_a_state_are_refused_before_they_begin(tmp_path):
    sklearn = pytest.importorskip("sklearn.linear_model")
    log = dense(tmp_path)
    with pytest.raises(drs.ModelError, match="a fit of from_sklearn is made in one go"):
        M.from_sklearn(sklearn.Ridge()).fit(log, checkpoint=tmp_path / "fit.ckpt")
    with pytest.raises(drs.StateError, match="there is no folder"):
        M.Ridge().fit(log, checkpoint=tmp_path / "nowhere" / "fit.ckpt")


def again(value, like):
    """A value, packed and restored into the form of another one."""
    arrays = {}
    words = json.loads(json.dumps(pack(value, arrays)))
    found = restore(like, unpack(words, arrays))
    assert not arrays
    return found


def test_numbers_are_restored_into_the_form_of_others():
    record = np.zeros(2, np.dtype([("a", "f8"), ("b", "i1", (3,))], align=True)).view(np.recarray)
    value = {1: (record, [1.0, np.inf]), (2, None): [np.float64(np.nan), True, "text", None], "c": Counter(x=1)}
    like = {1: (record.copy(), [0.0]), (2, None): [np.float64(0), False, "", None], "c": Counter()}
    record.b[:] = [[1, 2, 3], [4, 5, 6]]
    found = again(value, like)
    np.testing.assert_equal(found, value)
    assert [type(x) for x in found[2, None]] == [type(x) for x in like[2, None]]
    assert isinstance(found[1][0], np.recarray)
    assert again(Varying(np.arange(6).reshape(3, 2)), Varying(np.zeros((0, 2), int))).array.shape == (3, 2)
    numbers = {"a": [(1, 2.5), None], "b": np.float32(3)}
    assert again(Free(numbers), Free(None)).value == numbers
    for one, other in (
        (np.zeros(3), np.zeros(2)),
        (np.zeros(3), np.zeros(3, int)),
        (1, 1.0),
        (None, 1.0),
        ((1, 2), (1,)),
        ({"a": 1}, {"b": 1}),
        (np.float64(1), 1.0),
        (1.0, np.float64(1)),
        ([1], (1,)),
        (Varying(np.zeros((3, 2))), Varying(np.zeros((0, 1)))),
    ):
        with pytest.raises(ValueError):  # noqa: PT011
            again(one, other)
    for wrong in (object(), Free(Counter), np.array([None]), Free(record.view(np.ndarray).astype(object))):
        with pytest.raises(TypeError):
            pack(wrong, {})


LEARN = """
import sys, drstream as drs
from tests.helpers.days import CONTEXT
from drstream.states.checkpoint import Checkpoint
log = drs.Log(sorted(sys.argv[1:]), **CONTEXT, actions=4)
usual = Checkpoint.note
def note(self):
    usual(self)
    sys.stdout.write("x") and sys.stdout.flush()
Checkpoint.note = note
drs.models.Logistic(C=1e9).fit(log, threads=1, checkpoint="fit.ckpt")
"""


def test_ctrl_c_keeps_what_is_complete(tmp_path, steps, monkeypatch):
    """The checkpoint would be written only after 30 seconds."""
    log, path = dense(tmp_path), tmp_path / "fit.ckpt"
    steps |= {"last": 20, "error": KeyboardInterrupt}
    with pytest.raises(KeyboardInterrupt) as stopped:
        M.Logistic().fit(log, checkpoint=path)
    assert stopped.value.__notes__ == [
        f"what is complete is in {path}: the same run, started again, goes on from there"
    ]
    assert bits(M.Logistic().fit(log, checkpoint=path)) == bits(M.Logistic().fit(log))


def test_sigterm_keeps_what_is_complete(tmp_path):
    dense(tmp_path)
    paths = sorted(map(str, tmp_path.glob("*.parquet")))
    how = {"cwd": tmp_path, "env": {**os.environ, "PYTHONPATH": str(ROOT)}, "text": True}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", LEARN, *paths], **how, **pipes) as child:
        child.stdout.read(5)
        child.terminate()
        _, said = child.communicate(timeout=60)
    assert child.returncode == 143
    assert "what is complete is in fit.ckpt: the same run, started again, goes on from there" in said
    log = drs.Log(paths, **CONTEXT, actions=4)
    assert bits(M.Logistic(C=1e9).fit(log, checkpoint=tmp_path / "fit.ckpt")) == bits(M.Logistic(C=1e9).fit(log))


@pytest.mark.parametrize("model", [None, M.Logistic(), "imputed"])
def test_a_policy_that_is_learned(tmp_path, steps, model):
    log, path = dense(tmp_path), tmp_path / "learn.ckpt"

    def learn(seed=0, **how):
        made = drs.optimize.DirectLossMinimizer(restarts=3, epochs=6, seed=seed)
        if model != "imputed":
            return made.fit(log, model, **how)
        return made.fit(drs.optimize.impute(log, M.Logistic(), estimator="dm", **how), **how)

    wanted = bits(learn())
    assert bits(learn(checkpoint=path, **EACH)) == wanted
    whole = steps["count"]
    for point in (whole // 3, whole // 2):
        steps["last"] = steps["count"] + point
        with pytest.raises(Stop):
            learn(checkpoint=path, **EACH)
    with pytest.raises(drs.StateError, match=r"policy is DirectLossMinimizer\(.* there, and"):
        learn(seed=1, checkpoint=path)
    steps["last"] = None
    assert bits(learn(checkpoint=path, **EACH)) == wanted
    assert not list(tmp_path.glob("learn*"))


def test_trees_are_refused_before_they_begin(tmp_path):
    pytest.importorskip("sklearn")
    log = dense(tmp_path)
    for kind in (drs.optimize.FilterTree, drs.optimize.OffsetTree):
        with pytest.raises(drs.PolicyError, match=f"a fit of {kind.__name__} is made in one go"):
            kind().fit(log, checkpoint=tmp_path / "learn.ckpt")
