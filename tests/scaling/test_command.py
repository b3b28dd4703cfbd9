"""--workers and --dask of the command line."""

import json
import os

import pyarrow.parquet as pq
import pytest

from tests.helpers.command import drstream, fails
from tests.helpers.logs import world


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    found = tmp_path_factory.mktemp("command") / "log.parquet"
    pq.write_table(world(kinds=None).table(1_000), found, row_group_size=100)
    return found


def estimates(*words, **options):
    done = drstream(*words, "--json", **options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["estimates"]


EVALUATE = ("--policy", "uniform", "--model", "ridge", "--estimator", "ips,dr")


def test_workers_give_the_same_numbers(path):
    wanted = estimates("evaluate", path, *EVALUATE)
    assert estimates("evaluate", path, *EVALUATE, "--workers", 2, env=dict(os.environ)) == wanted


def test_models_are_fitted_and_policies_replayed_by_workers(path, tmp_path):
    env = dict(os.environ)
    done = drstream("fit", path, "--model", "ridge", "-o", tmp_path / "model.npz", "--workers", 1, env=env)
    assert done.returncode == 0, done.stderr
    words = ("replay", path, "--policy", "epsilon-greedy", "--horizon", 20, "--shards", 2, "--json")
    here, there = drstream(*words), drstream(*words, "--workers", 2, env=env)
    assert there.returncode == 0, there.stderr
    assert json.loads(here.stdout)["runs"] == json.loads(there.stdout)["runs"]


def test_one_kind_of_workers_is_given(path):
    fails("give one of them", "evaluate", path, *EVALUATE, "--workers", 2, "--dask", "tcp://localhost:1")


def test_dask_that_is_not_installed_is_a_clear_error(path, tmp_path):
    (tmp_path / "distributed.py").write_text("raise ImportError('no module named distributed')\n")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    done = drstream("evaluate", path, *EVALUATE, "--dask", "tcp://127.0.0.1:1", env=env)
    assert done.returncode == 2
    assert done.stderr.strip() == "error: --dask needs Dask: pip install 'drstream[dask]'"


@pytest.mark.slow
def test_workers_of_a_dask_cluster_give_the_same_numbers(path):
    distributed = pytest.importorskip("distributed", reason="Dask is not installed: pip install 'drstream[dask]'")
    wanted = estimates("evaluate", path, *EVALUATE)
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster:
        found = estimates("evaluate", path, *EVALUATE, "--dask", cluster.scheduler_address, env=dict(os.environ))
    assert found == wanted
