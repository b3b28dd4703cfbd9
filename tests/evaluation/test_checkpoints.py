"""Checkpoints: a pass that was stopped goes on to the same bits. Those of other runs, and damaged ones, are refused."""

import os

import numpy as np
import pyarrow as pa
import pytest

import drstream as drs
from drstream.states import arrays, checkpoint
from drstream.states.checkpoint import EVALUATION, Checkpoint
from tests.helpers.days import CONTEXT, KINDS, TWO, contents, day, halves, write

P = drs.policies
EACH = {"checkpoint_every": 0, "threads": 1}  # written after each part


class Stop(Exception):  # noqa: N818  # it stands for Ctrl-C
    pass


class Stopping:
    """Uniform, until it has been called so often."""

    def __init__(self, calls):
        self.left = calls

    def probabilities(self, X):
        self.left -= 1
        if self.left < 0:
            raise Stop
        return np.full((len(X), 4), 0.25)


def stopping(calls):
    return {"own": P.named("v1", Stopping(calls)), **TWO}


@pytest.fixture
def paths(tmp_path):
    return write(tmp_path, [day(seed) for seed in range(3)])  # three row groups each


@pytest.mark.parametrize(
    ("options", "points"),
    [
        ({"by": "country", "cluster": "user"}, (1, 4)),
        ({"interval": ["anytime", "bootstrap"], "reward_range": (0, 1), "estimators": ["ips"]}, (3, 7)),
    ],
)
def test_a_stopped_pass_goes_on_to_the_same_bits(paths, tmp_path, options, points):
    log, path = drs.Log(paths, **CONTEXT, actions=4), tmp_path / "run.ckpt"
    wanted = contents(drs.evaluate(log, stopping(99), **options))
    for calls in points:
        with pytest.raises(Stop):
            drs.evaluate(log, stopping(calls), **options, **EACH, checkpoint=path)
        assert parts_in(path) == calls
        with pytest.raises(Stop):  # and once more
            drs.evaluate(log, stopping(1), **options, **EACH, checkpoint=path)
        left = stopping(8 - calls)
        assert contents(drs.evaluate(log, left, **options, **EACH, checkpoint=path)) == wanted
        assert left["own"].function.__self__.left == 0  # nothing was computed twice
        assert not path.exists()


@pytest.mark.parametrize("name", ["fused", "grid", "rewards", "rankings", "candidates", "eligible", "propensities"])
def test_all_kinds_of_passes(name, tmp_path, monkeypatch):
    kind = KINDS[name]
    paths, path = write(tmp_path, [kind.make(seed) for seed in range(2)]), tmp_path / "run.ckpt"
    model = kind.fitted
    log = kind.open(paths)

    def run(**more):
        return drs.evaluate(log, kind.policies, **{**model, **kind.options, **more})

    wanted = contents(run())
    monkeypatch.setattr(Checkpoint, "remove", lambda self: None)
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "note", stop_after(2))
        with pytest.raises(Stop):
            run(checkpoint=path)
    assert contents(run(checkpoint=path)) == wanted


def parts_in(path):
    """The number of parts that a checkpoint has the sums of."""
    words, _ = arrays.load(path, "checkpoint of an evaluation")
    return words["named"][EVALUATION]["parts"]


def stop_after(parts):
    """A `note` of checkpoints that stops the pass."""
    seen = []

    def note(self):
        seen.append(self.now is not None and self.now.key == EVALUATION)
        if sum(seen) == parts:
            raise Stop

    return note


def test_cross_fitting_and_threads(paths, tmp_path, monkeypatch):
    log, path = drs.Log(paths, **CONTEXT), tmp_path / "run.ckpt"
    options = {"model": drs.models.Ridge(), "crossfit": 2}
    wanted = contents(drs.evaluate(log, TWO, **options))
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "note", stop_after(4))
        with pytest.raises(Stop):
            drs.evaluate(log, TWO, **options, checkpoint=path, threads=2)
    assert contents(drs.evaluate(log, TWO, **options, checkpoint=path, threads=1)) == wanted
    monkeypatch.setattr(Checkpoint, "note", stop_after(2))
    with pytest.raises(Stop):
        drs.evaluate(drs.Log(paths[:2], **CONTEXT), TWO, **options, checkpoint=path)
    with pytest.raises(drs.StateError, match="a checkpoint of another log: it has no part"):
        drs.evaluate(log, TWO, **options, checkpoint=path)


def stopped(log, path, calls=4, **options):
    """A checkpoint of a run that was stopped."""
    with pytest.raises(Stop):
        drs.evaluate(log, stopping(calls), **options, **EACH, checkpoint=path)
    return path


def test_other_logs_are_refused(paths, tmp_path):
    path = stopped(drs.Log(paths, **CONTEXT, actions=4), tmp_path / "run.ckpt")

    def refused(log, wanted):
        with pytest.raises(drs.StateError, match=wanted):
            drs.evaluate(log, stopping(99), checkpoint=path)
        assert path.exists()

    refused(
        drs.Log(paths[1:], **CONTEXT, actions=4), r"another log: it has row group 0 of .*00.parquet \(25 rows, .*01"
    )
    refused(
        drs.Log(paths[0], **CONTEXT, actions=4), r"it has row group 0 of .*01.parquet .* now this part is not there"
    )
    refused(drs.Log(paths, **CONTEXT, actions=4, filter="x0 > 0"), "the log's filter is none there, and .x0 > 0. now")
    os.utime(paths[0], ns=(1, 1))
    refused(drs.Log(paths, **CONTEXT, actions=4), "written 1970-01-01")
    drs.evaluate(drs.Log(paths, **CONTEXT, actions=4), stopping(99), checkpoint=tmp_path / "new.ckpt")


def test_a_longer_log_goes_on(paths, tmp_path):
    """What was summed up is the beginning of the longer log, too."""
    path = stopped(drs.Log(paths[:2], **CONTEXT, actions=4), tmp_path / "run.ckpt")
    log = drs.Log(paths, **CONTEXT, actions=4)
    assert contents(drs.evaluate(log, stopping(5), checkpoint=path)) == contents(drs.evaluate(log, stopping(9)))


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"confidence": 0.9}, "settings confidence is 0.95 there, and 0.9 now"),
        ({"policies": {"own": P.named("v2", halves), **TWO}}, "policy 'own' is named 'v1' there, and named 'v2' now"),
        ({"policies": TWO}, "policy 'own' is .* there, and none now"),
        ({"state": "run.state"}, "state is False there, and True now"),
    ],
)
def test_other_runs_are_refused(paths, tmp_path, monkeypatch, options, wanted):
    monkeypatch.chdir(tmp_path)
    log = drs.Log(paths, **CONTEXT, actions=4)
    path = stopped(log, tmp_path / "run.ckpt")
    options = {"policies": stopping(99), **options}
    with pytest.raises(drs.StateError, match=wanted):
        drs.evaluate(log, options.pop("policies"), **options, checkpoint=path)


def test_other_versions_and_damaged_files_are_refused(paths, tmp_path, monkeypatch):
    log = drs.Log(paths, **CONTEXT, actions=4)
    path = stopped(log, tmp_path / "run.ckpt")
    data = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(drs, "__version__", "99")
        with pytest.raises(drs.StateError, match=r"version is .* there, and 99 now"):
            drs.evaluate(log, stopping(99), checkpoint=path)
    for place in range(0, len(data), len(data) // 20):
        path.write_bytes(data[:place])
        with pytest.raises(drs.StateError, match="is damaged"):
            drs.evaluate(log, stopping(99), checkpoint=path)
    with pytest.raises(drs.StateError, match="is a file of the log itself"):
        drs.evaluate(log, stopping(99), checkpoint=paths[0])
    drs.evaluate(log, TWO, state=tmp_path / "x.state")
    with pytest.raises(drs.StateError, match="holds 'evaluation', not 'checkpoint of an evaluation'"):
        drs.evaluate(log, TWO, checkpoint=tmp_path / "x.state")
    path.write_bytes(data)
    with pytest.raises(drs.StateError, match="holds 'checkpoint of an evaluation', not 'evaluation'"):
        drs.merge(path)


def test_a_full_disk_leaves_the_last_checkpoint(paths, tmp_path, monkeypatch):
    log, path = drs.Log(paths, **CONTEXT, actions=4), tmp_path / "run.ckpt"
    wanted, usual, writes = contents(drs.evaluate(log, TWO)), arrays.write, []

    def full(file, *args):
        writes.append(1)
        if len(writes) > 3:
            file.write(b"half")
            raise OSError(28, "No space left on device")
        usual(file, *args)

    with monkeypatch.context() as patch:
        patch.setattr(arrays, "write", full)
        patch.setattr(checkpoint, "COST", np.inf)
        words = (
            r"cannot write .*run.ckpt: No space left on device. An earlier checkpoint is whole: what is complete is in"
        )
        with pytest.raises(drs.StateError, match=words):
            drs.evaluate(log, TWO, **EACH, checkpoint=path)
    assert parts_in(path) == 3
    assert contents(drs.evaluate(log, TWO, **EACH, checkpoint=path)) == wanted
    assert sorted(one.suffix for one in tmp_path.iterdir()) == [".parquet"] * 3


def test_functions_without_a_name_are_warned_about(paths, tmp_path, monkeypatch):
    log, path = drs.Log(paths, **CONTEXT, actions=4), tmp_path / "run.ckpt"
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "note", stop_after(2))
        with pytest.raises(Stop):
            drs.evaluate(log, halves, checkpoint=path)
    with pytest.warns(drs.DrstreamWarning, match=r"nobody can vouch that .*halves.* is still the same"):
        drs.evaluate(log, halves, checkpoint=path)


def test_tables_go_on_and_streams_do_not(tmp_path, monkeypatch):
    monkeypatch.setattr("drstream.sources.memory.PIECE", 20)
    table = day(0)
    log, path = drs.Log(table, **CONTEXT, actions=4), tmp_path / "run.ckpt"
    stopped(log, path, 2)
    with pytest.raises(drs.StateError, match="another log: it has rows 0 to 19 of a table"):
        drs.evaluate(drs.Log(day(1), **CONTEXT, actions=4), stopping(99), checkpoint=path)
    assert contents(drs.evaluate(log, stopping(2), checkpoint=path)) == contents(drs.evaluate(log, stopping(9)))
    stream = pa.RecordBatchReader.from_batches(table.schema, table.to_batches())
    with pytest.raises(drs.StateError, match="a record batch reader can be read only once"):
        drs.evaluate(drs.Log(stream, **CONTEXT, actions=4), TWO, checkpoint=path)
