"""drstream demo: a log with known truth, and three policies evaluated on it."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from drstream.cli.options import Threads
from drstream.cli.reporting import ReportPath, check_report, write_report
from drstream.cli.voice import tell
from drstream.kernels import _notice

if TYPE_CHECKING:
    from drstream.evaluation.result import Evaluation
    from drstream.synth import World


def demo(
    rows: Annotated[int, typer.Option(min=1000, help="Number of events in the log.")] = 1_000_000,
    seed: Annotated[int, typer.Option(help="Random seed of the log.")] = 0,
    threads: Threads = None,
    report: ReportPath = None,
) -> None:
    """Make a synthetic click log with known true values, and evaluate three policies on it."""
    import tempfile

    check_report(report)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="drstream-") as folder:
        path = Path(folder) / "clicks.parquet"
        tell(f"Writing a click log of {rows:,} events, 10 items, 20 features ...")
        world = _write_log(path, rows, seed)
        tell("Fitting a reward model on one half of the log, evaluating three policies on the other ...")
        result, truth = _evaluate(world, path, threads)
    from drstream.cli.tables import show

    show(result, truth)
    write_report(result, report)
    weighted = [row for row in result.rows() if not math.isnan(row["max_weight"])]  # DM has no weights
    missed = [row for row in weighted if not row["low"] <= truth[row["policy"]] <= row["high"]]
    typer.echo(
        f"{len(result.policies)} policies, {len(result.estimators)} estimators: "
        f"{len(missed)} of {len(weighted)} intervals miss the truth. DM is left out of this count: it trusts its "
        "reward model, and is wrong where that is.\n"
        f"All of it in {time.perf_counter() - started:.1f} s, of which {_notice.seconds():.1f} s to compile kernels."
    )


def _write_log(path: Path, rows: int, seed: int) -> World:
    from drstream import synth

    world = synth.World(seed=seed)
    world.write(path, rows, seed=seed + 1)
    return world


def _evaluate(world: World, path: Path, threads: int | None) -> tuple[Evaluation, dict[str, float]]:
    """Return the estimates and the true values."""
    from drstream.evaluation.evaluate import evaluate
    from drstream.log import Log
    from drstream.models import Ridge
    from drstream.policies import Epsilon, Linear, Softmax, Uniform

    policies = {
        "uniform": Uniform(n_actions=world.n_actions),
        "softmax": Softmax(world.taste, world.appeal, temperature=0.5),
        "greedy": Epsilon(Linear(world.taste, world.appeal), 0.1),
    }
    train, test = Log(path).split(0.5, seed=0)
    model = Ridge().fit(train, threads=threads)
    result = evaluate(test, policies, model, threads=threads, progress=True)
    return result, {name: world.value(policy) for name, policy in policies.items()}
