"""drstream warmup: compiles what commands need before it is needed, as in an image or a CI job."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drstream.cli.voice import tell
from drstream.kernels import _notice

if TYPE_CHECKING:
    from drstream.log import Log

ROWS = 2000  # of the log that commands are tried on


def warmup() -> None:
    """Compile what evaluate and replay need, by running them on a tiny log. Later commands then start at once."""
    before, _notice.silent = _notice.seconds(), True  # it says more itself
    with tempfile.TemporaryDirectory(prefix="drstream-") as folder:
        for text, work in _works(Path(folder)):
            started = _notice.seconds()
            work()
            tell(f"{text}: compiled in {_notice.seconds() - started:.1f} s")
    took = _notice.seconds() - before
    tell(f"{took:.1f} s in all" if took else "All kernels were there, and none was compiled")


def _works(folder: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield what is done, in words and as a function. There are kernels for contexts of each precision."""
    from drstream import evaluate, replay
    from drstream.models import Ridge
    from drstream.policies import Epsilon, EpsilonGreedy, Linear, Softmax
    from drstream.synth import World

    world = World(n_actions=3, n_features=2)
    linear, softmax = Linear(world.taste, world.appeal), Softmax(world.taste, world.appeal)
    policies = {"softmax": softmax, "linear": linear, "epsilon": Epsilon(linear, 0.1)}
    learner = EpsilonGreedy(0.1)
    for precision in ("float32", "float64"):
        log = _log(folder / f"{precision}.parquet", world, precision)
        yield f"evaluate, {precision} contexts", partial(evaluate, log, policies)
        yield f"evaluate with a model and folds, {precision}", partial(evaluate, log, policies, Ridge(), crossfit=2)
        yield f"replay, {precision} contexts", partial(replay, log, learner, 20, Ridge(), crossfit=2)


def _log(path: Path, world: Any, precision: str) -> Log:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from drstream.log import Log

    table = world.table(ROWS)
    names = [name for name in table.column_names if name.startswith("x")]
    for name in names:
        kind = pa.float32() if precision == "float32" else pa.float64()
        table = table.set_column(table.column_names.index(name), name, table[name].cast(kind))
    pq.write_table(table, path, row_group_size=ROWS // 2)
    return Log(path, context=names)
