"""drstream fit: a model in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from drstream.cli.options import (
    Action,
    ActionIs,
    Actions,
    CandidateColumns,
    Categorical,
    Checkpoint,
    Context,
    Eligible,
    Exclude,
    Filter,
    HashedColumns,
    ItemsFile,
    LogPath,
    Missing,
    OnBadRow,
    Propensity,
    Reward,
    SparseContext,
    Threads,
    check_folder,
    open_log,
)
from drstream.cli.voice import say_speed, tell
from drstream.cli.workers import DaskAddress, WorkerProcesses, open_executor
from drstream.kernels._notice import clock


def fit(
    log: LogPath,
    model: Annotated[
        str,
        typer.Option(
            help="Model to fit: ridge[:ALPHA] or logistic[:C], regressions of the reward, one for each action; or "
            "propensity[:C], a multinomial logistic regression of the logged action."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write the model to, e.g. model.npz.")],
    share: Annotated[
        float, typer.Option(min=0, max=1, help="Fit on this share of the rows. evaluate then uses the other rows.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(help="Random seed of the --share split.")] = 0,
    cluster: Annotated[
        str | None,
        typer.Option(help="Column, e.g. the user. Rows with the same value stay on one side of the --share split."),
    ] = None,
    weights: Annotated[str | None, typer.Option(help="Weights of the events, for ridge: 1/p.")] = None,
    shared: Annotated[
        bool, typer.Option("--shared", help="Fit one set of weights for all actions, for ridge.")
    ] = False,
    context: Context = None,
    sparse: SparseContext = None,
    candidates: CandidateColumns = None,
    items: ItemsFile = None,
    action_is: ActionIs = None,
    categorical: Categorical = None,
    hashed: HashedColumns = None,
    missing: Missing = None,
    action: Action = None,
    reward: Reward = None,
    propensity: Propensity = None,
    actions: Actions = None,
    eligible: Eligible = None,
    filter: Filter = None,
    exclude: Exclude = None,
    on_bad_row: OnBadRow = "error",
    threads: Threads = None,
    checkpoint: Checkpoint = None,
    workers: WorkerProcesses = None,
    dask: DaskAddress = None,
) -> None:
    """Fit a reward model or a propensity model, and write it to a file for --model or --propensity-model."""
    from drstream.cli import specs
    from drstream.errors import DrstreamError

    opened = open_log(locals())
    if weights == "mrdr":
        raise DrstreamError('--weights mrdr needs a policy: use drs.models.Ridge(weights="mrdr", policy=...) in Python')
    check_folder(output, opened)
    if output.suffix != ".npz":
        raise DrstreamError(f"--output {output}: the name must end in .npz")
    made = specs.model_to_fit(model, weights=weights, shared=shared)
    if share < 1:
        opened = opened.split(share, seed, cluster)[0]
    elif cluster is not None:
        raise DrstreamError(f"--cluster {cluster} is about the split of --share, and there is none")
    started = clock()
    made.fit(opened, threads=threads, executor=open_executor(workers, dask), progress=True, checkpoint=checkpoint)
    seconds = clock() - started
    made.save(output)
    if made.skipped_:
        from drstream.cli.tables import reasons

        typer.echo(f"bad rows skipped: {reasons(made.skipped_)}", err=True)
    tell(f"{output}: {made!r}")
    say_speed(made.n_events_, seconds)
