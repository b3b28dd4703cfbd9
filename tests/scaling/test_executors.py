"""Executors: worker processes and what travels to them; workers that are killed; Dask, if it is installed."""

import os
import pickle
import signal
import tempfile
import time
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import drstream as drs
from drstream.running.execution import Workers
from drstream.running.executors import Processes
from tests.helpers.logs import world

WORLD = world(kinds=None)
ROWS, GROUP = 1_000, 50


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    found = tmp_path_factory.mktemp("scaling") / "log.parquet"
    pq.write_table(WORLD.table(ROWS), found, row_group_size=GROUP)
    return str(found)


POLICIES = {"taste": drs.policies.Softmax(WORLD.taste), "one": drs.policies.Constant(1)}


def run(path, **options):
    policies = options.pop("policies", POLICIES)
    return drs.evaluate(drs.Log(path, context="x?"), policies, estimators=["ips", "snips"], **options)


def numbers(result):
    return result.to_json()


@pytest.fixture(scope="module")
def processes():
    with Processes(2) as found:
        yield found


class Killer:
    """Kills the process that asks for the probabilities of a block, as often as there are files that say so."""

    def __init__(self, folder):
        self.folder = str(folder)

    def probabilities(self, X):
        for name in sorted(os.listdir(self.folder)):
            try:
                os.unlink(os.path.join(self.folder, name))  # one process wins
            except FileNotFoundError:
                continue
            os.kill(os.getpid(), signal.SIGKILL)
        return np.full((len(X), 4), 0.25)


def kills(folder, count):
    folder.mkdir()
    for i in range(count):
        (folder / str(i)).touch()
    return {"killer": Killer(folder)}


def test_worker_processes_give_the_same_bits(path, processes):
    assert numbers(run(path, executor=processes)) == numbers(run(path, threads=1))


def test_fits_and_replays_on_worker_processes_give_the_same_bits(path, processes):
    log = drs.Log(path, context="x?")
    here, there = drs.models.Ridge().fit(log, threads=1), drs.models.Ridge().fit(log, executor=processes)
    assert np.array_equal(here.coef_, there.coef_)
    assert np.array_equal(here.intercept_, there.intercept_)
    policies = {"e": drs.policies.EpsilonGreedy()}
    one, other = (
        drs.replay(log, policies, 20, shards=2, seed=1, **how) for how in ({"threads": 1}, {"executor": processes})
    )
    assert one.to_json() == other.to_json()


def test_a_killed_worker_process_ends_the_run_and_the_checkpoint_goes_on_to_the_same_bits(path, tmp_path):
    policies = {"q": drs.policies.named("quarter", Killer(tmp_path / "kills"))}
    (tmp_path / "kills").mkdir()
    wanted = numbers(run(path, policies=policies, threads=1))  # nobody says kill
    (tmp_path / "kills" / "now").touch()
    options = {"policies": policies, "checkpoint": tmp_path / "run.ckpt"}
    with (
        Processes(2) as processes,
        pytest.raises(drs.WorkerError, match=r"a worker of the executor ended.*checkpoint="),
    ):
        run(path, executor=processes, **options)
    with Processes(2) as processes:
        assert numbers(run(path, executor=processes, **options)) == wanted


def test_a_killed_worker_process_ends_a_replay_with_a_sentence(path, tmp_path):
    killer = kills(tmp_path / "kills", 1)
    with Processes(1) as pool, pytest.raises(drs.WorkerError, match=r"a worker of the executor ended .* before shard"):
        drs.replay(drs.Log(path, context="x?"), killer, 20, shards=2, executor=pool)


def test_a_broken_pool_of_the_users_is_a_clear_error(path, tmp_path):
    with (
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool,
        pytest.raises(drs.WorkerError, match=r"a worker of the executor ended \(BrokenProcessPool\).*checkpoint="),
    ):
        run(path, policies=kills(tmp_path / "kills", 1), executor=pool)


class Inline:
    """An executor that breaks after some tasks."""

    def __init__(self, tasks):
        self.left = tasks

    def submit(self, task, *args):
        future = Future()
        self.left -= 1
        if self.left < 0:
            future.set_exception(BrokenProcessPool("gone"))
        else:
            future.set_result(task(*args))
        return future


def test_the_error_says_what_was_lost(path):
    with pytest.raises(
        drs.WorkerError, match=r"before row group 7 of .*log.parquet was complete.* 7 parts before it .*checkpoint="
    ):
        run(path, executor=Inline(7))


def test_an_executor_that_is_broken_already_is_a_clear_error(path):
    class Broken:
        def submit(self, *_):
            raise BrokenExecutor

    with pytest.raises(drs.WorkerError, match="a worker of the executor ended"):
        run(path, executor=Broken())


def test_what_cannot_be_pickled_is_a_clear_error(path, processes):
    with pytest.raises(drs.WorkerError, match="cannot be pickled"):
        run(path, policies={"f": lambda X: np.full((len(X), 4), 0.25)}, executor=processes)


# What travels


class Spy(Processes):
    """Notes the sizes of what is sent and of what comes back."""

    def __init__(self, workers):
        super().__init__(workers)
        self.sent, self.back = [], []

    def submit(self, task, /, *args, **kwargs):
        self.sent.append(len(pickle.dumps((task, args))))
        future = super().submit(task, *args, **kwargs)
        future.add_done_callback(lambda done: self.back.append(len(pickle.dumps(done.result()))))
        return future


TASK, STATE = 1_500, 8 * 1024 * 5 + 4_000  # bytes: sums of 1,024 buckets, and the rest


class Heavy:
    def __init__(self):
        self.weights = np.zeros(1_000_000, np.int8)

    def probabilities(self, X):
        return np.full((len(X), 4), 0.25)


def test_what_travels_is_small_for_each_part(path):
    """The policy takes 1 MB. Worker processes read it from a file, which is gone afterwards."""
    before = set(os.listdir(tempfile.gettempdir()))
    with Spy(2) as spy:
        run(path, policies={"p": Heavy()}, executor=spy)
    assert len(spy.sent) == ROWS // GROUP
    assert max(spy.sent) < TASK
    assert max(spy.back) < STATE
    left = set(os.listdir(tempfile.gettempdir())) - before
    assert not [name for name in left if name.startswith("drstream-")]


class Counted:
    """Counts in a file how often it was unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __setstate__(self, state):
        self.__dict__.update(state)
        with open(self.path, "a") as file:
            file.write("x")

    def probabilities(self, X):
        return np.full((len(X), 4), 0.25)


def test_each_worker_process_reads_the_task_once(path, tmp_path):
    with Processes(2) as processes:
        run(path, policies={"p": drs.policies.named("p", Counted(tmp_path / "count"))}, executor=processes)
    assert 1 <= len((tmp_path / "count").read_text()) <= 2


def test_as_many_parts_are_under_way_as_the_executor_has_places(path):
    """Not as many as this machine has cores: a cluster may have a hundred workers."""

    class Wide(Inline):
        _max_workers = 9

        def __init__(self):
            super().__init__(10**9)

    assert Workers.of(executor=Wide()).places == 9
    assert Workers.of(threads=3, executor=Wide()).places == 0  # the user decides
    assert numbers(run(path, executor=Wide())) == numbers(run(path, threads=1))


@pytest.mark.slow
def test_no_process_is_left_behind_if_its_parent_is_killed(tmp_path):
    import subprocess
    import sys

    script = tmp_path / "script.py"
    script.write_text(
        "import os, time\n"
        "from drstream.running.executors import Processes\n"
        "if __name__ == '__main__':\n"
        "    pool = Processes(1)\n"
        "    print(pool.submit(os.getpid).result(), flush=True)\n"
        "    time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    for _ in range(600):
        if not os.path.exists(f"/proc/{child}") or Path(f"/proc/{child}/stat").read_text().split()[2] == "Z":
            return
        time.sleep(0.1)
    raise AssertionError("the worker process lives on")


def test_a_script_without_the_usual_guard_is_told_so(path, tmp_path):
    import subprocess
    import sys

    script = tmp_path / "script.py"
    script.write_text(
        f"import drstream as drs\ndrs.evaluate(drs.Log({path!r}), drs.policies.Uniform(), executor=drs.Processes(2))\n"
    )
    found = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, timeout=60)
    assert found.returncode == 1
    assert found.stderr.splitlines()[-1].startswith("drstream.errors.WorkerError: a worker of the executor ended")
    assert found.stderr.splitlines()[-1].count('put what it does under if __name__ == "__main__":') == 1


# Dask


@pytest.fixture(scope="module")
def client():
    distributed = pytest.importorskip("distributed", reason="Dask is not installed: pip install 'drstream[dask]'")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as found,
    ):
        yield found


@pytest.mark.slow
def test_dask_gives_the_same_bits(path, client):
    executor = client.get_executor()
    assert Workers.of(executor=executor).places == 2
    wanted = numbers(run(path, threads=1))
    assert numbers(run(path, executor=executor)) == numbers(run(path, executor=client)) == wanted


@pytest.mark.slow
def test_dask_takes_functions_of_the_session(path, client):
    weights = np.full(4, 0.25)
    policies = {"f": drs.policies.named("quarter", lambda X: np.tile(weights, (len(X), 1)))}
    found = run(path, policies=policies, executor=client.get_executor())
    assert found["ips"].value == run(path, policies=policies, threads=1)["ips"].value


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2])
def test_dask_does_the_work_of_a_killed_worker_again(path, client, tmp_path, count):
    wanted = numbers(run(path, policies={"killer": Killer(tmp_path)}, threads=1))
    found = run(path, policies=kills(tmp_path / "kills", count), executor=client.get_executor())
    assert not os.listdir(tmp_path / "kills")
    assert numbers(found).replace(str(tmp_path / "kills"), str(tmp_path)) == wanted
