"""drs.spark on a real session in local mode, if pyspark and Java are there."""

import os
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import drstream as drs
from tests.helpers.logs import world
from tests.helpers.places import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # those of packages that drstream does not use itself
]
WORLD = world(kinds=None)
POLICIES = {"taste": drs.policies.Softmax(WORLD.taste), "one": drs.policies.Constant(1)}
FILES, EACH = 4, 500


@pytest.fixture(scope="module")
def session():
    pyspark = pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'drstream[spark]'")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    del pyspark
    from pyspark.sql import SparkSession

    found = (
        SparkSession.builder.master("local[2,4]")  # a task may fail three times
        .config("spark.ui.enabled", "false")
        .config("spark.sql.files.openCostInBytes", str(1 << 30))  # a partition is a file
        .getOrCreate()
    )
    found.sparkContext.setLogLevel("OFF")
    yield found
    found.stop()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("spark")
    for i, table in enumerate(parts()):
        pq.write_table(table, found / f"{i}.parquet")
    return found


def parts():
    return [WORLD.table(EACH, seed=seed) for seed in range(FILES)]


def frame(session, tables):
    """A data frame whose partitions are these tables, in order."""
    batches = [table.combine_chunks().to_batches()[0].to_pylist() for table in tables]
    rdd = session.sparkContext.parallelize(range(len(tables)), len(tables)).flatMap(lambda i: map(tuple_of, batches[i]))
    return session.createDataFrame(rdd, ", ".join(f"{f.name} {SQL[f.type]}" for f in tables[0].schema))


def tuple_of(row):
    return tuple(row.values())


SQL = {pa.float64(): "double", pa.float32(): "float", pa.int64(): "bigint", pa.int32(): "int", pa.int8(): "tinyint"}
LOG = {"context": "x?"}


def in_one(tables, **options):
    """The same parts by one thread."""
    return drs.merge(
        [drs.partial(table.to_batches(), POLICIES, log={**LOG, "actions": 4}, **options) for table in tables]
    )


def numbers(result):
    return [result.to_arrow().column(name).to_pylist() for name in ("value", "stderr", "low", "high", "ess")]


def test_spark_gives_the_bits_of_one_thread(session, folder):
    """Also those of a pass over files, if each partition is a file."""
    tables = parts()
    found = drs.spark.evaluate(frame(session, tables), POLICIES, log=LOG)
    assert found.n == FILES * EACH
    assert numbers(found) == numbers(in_one(tables))
    assert numbers(found) == numbers(drs.evaluate(drs.Log(str(folder), **LOG), POLICIES, threads=1))


def test_buckets_of_rows_merge_in_spark(session):
    """Bootstrap intervals need no clusters: the bucket of an event comes from its row within its partition."""
    tables, options = parts(), {"interval": "bootstrap"}
    found = drs.spark.evaluate(frame(session, tables), POLICIES, log=LOG, **options)
    assert numbers(found) == numbers(in_one(tables, **options))
    assert found["taste", "ips"].method == "bootstrap"


def test_partitions_may_be_empty_or_equal(session):
    table = parts()[0]
    tables = [table.slice(0, 1), table.slice(0, 1), table]
    data = frame(session, tables).repartition(1).union(frame(session, tables).filter("reward > 1e9"))
    assert drs.spark.evaluate(data, POLICIES, log={**LOG, "actions": 4}).n == EACH + 2
    assert drs.spark.evaluate(frame(session, tables), POLICIES, log={**LOG, "actions": 4}).n == EACH + 2


class FailsOnce:
    """Fails in the first attempt at one partition."""

    def probabilities(self, X):
        from pyspark import TaskContext

        task = TaskContext.get()
        if task is not None and task.partitionId() == 1 and task.attemptNumber() == 0:
            raise OSError("this task fails on purpose")
        return np.full((len(X), 4), 0.25)


def test_a_model_that_was_fitted_elsewhere_travels_to_the_partitions(session):
    tables = parts()
    model = drs.models.Ridge().fit(drs.Log(pa.concat_tables(tables), **LOG))
    found = drs.spark.evaluate(frame(session, tables), POLICIES, model, estimators=["dr"], log=LOG)
    assert numbers(found) == numbers(in_one(tables, model=model, estimators=["dr"]))


def test_spark_does_a_failed_task_again(session):
    tables = parts()
    policies = {"q": drs.policies.named("quarter", FailsOnce())}
    found = drs.spark.evaluate(frame(session, tables), policies, log={**LOG, "actions": 4})
    wanted = drs.evaluate(drs.Log(pa.concat_tables(tables), **LOG), {"q": drs.policies.Uniform()})
    assert found["ips"].value == pytest.approx(wanted["ips"].value, rel=1e-12)


def test_errors_come_back_in_plain_words(session):
    table = parts()[0]
    bad = table.set_column(
        table.schema.get_field_index("propensity"), "propensity", pa.array([0.0] * EACH, table["propensity"].type)
    )
    with pytest.raises(drs.LogError, match=r"partition 1 of the data frame: .*propensity"):
        drs.spark.evaluate(frame(session, [table, bad]), POLICIES, log=LOG)
    with pytest.raises(drs.DrstreamError, match="leave out threads="):
        drs.spark.evaluate(frame(session, [table]), POLICIES, threads=2)
    with pytest.raises(drs.LogError, match="has no rows"):
        drs.spark.evaluate(frame(session, [table]).filter("reward > 1e9"), POLICIES, log=LOG)


def test_only_a_data_frame_of_spark_is_taken():
    with pytest.raises(drs.LogError, match="a Table is not a Spark data frame"):
        drs.spark.evaluate(parts()[0], POLICIES)


def test_drstream_imports_neither_spark_nor_dask():
    import subprocess

    code = (
        "import sys, drstream as drs; drs.spark, drs.evaluate, drs.Processes; "
        "print({'pyspark', 'dask', 'distributed', 'fsspec'} & set(sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "set()\n"
