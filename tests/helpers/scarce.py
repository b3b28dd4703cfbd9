"""Too little of what a system has: a disk that is full, and no more open files. Also all that drstream writes."""

import os
import resource
from contextlib import contextmanager, suppress
from functools import cache

import drstream as drs
from drstream.cli.options import write_table
from tests.helpers.logs import world

EVENTS, GROUP = 2_000, 500
WORLD = world(kinds=None)


@contextmanager
def small_disk(size):
    """Let no file grow beyond so many bytes. The system then refuses to write on, as if the disk were full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))  # Python ignores the signal that goes with it
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def few_files(more):
    """Let this process open so many more files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    last = max(int(name) for name in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (last + 1 + more, hard))
    taken = []
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(more):
            os.close(taken.pop())
        yield
    finally:
        for handle in taken:
            os.close(handle)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@cache
def log():
    return drs.Log(WORLD.table(EVENTS), context="x?")


def evaluate(**options):
    policies = {"one": drs.policies.Constant(1), "taste": drs.policies.Softmax(WORLD.taste)}
    return drs.evaluate(log(), policies, threads=1, estimators=["ips", "snips"], **options)


@cache
def result():
    return evaluate()


@cache
def model(name):
    return getattr(drs.models, name)().fit(log())


WRITERS = {  # by what is written: the suffix of the file, and a function of its path
    "a state": (".state", lambda path: evaluate(state=path)),
    "a checkpoint": (".ckpt", lambda path: evaluate(checkpoint=path, checkpoint_every=0)),
    "a model": (".npz", lambda path: model("Ridge").save(path)),
    "a policy": (".npz", lambda path: drs.policies.Greedy(model("Ridge")).save(path)),
    "a result as CSV": (".csv", lambda path: write_table(result().to_arrow(), path)),
    "a result as Parquet": (".parquet", lambda path: write_table(result().to_arrow(), path)),
    "a converted Parquet file": (".parquet", lambda path: drs.convert(log(), path, row_group_rows=GROUP)),
    "a converted Arrow file": (".arrow", lambda path: drs.convert(log(), path, row_group_rows=GROUP)),
    "losses": (".parquet", lambda path: drs.optimize.impute(log(), drs.models.Constant(0.3)).write(path)),
    "a synthetic log": (".parquet", lambda path: WORLD.write(path, EVENTS)),
}
