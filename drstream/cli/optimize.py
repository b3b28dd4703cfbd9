"""drstream optimize: a policy in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from drstream.cli.options import (
    Action,
    Actions,
    Categorical,
    Checkpoint,
    Clamp,
    Context,
    Eligible,
    Exclude,
    Filter,
    HashedColumns,
    LogPath,
    Missing,
    OnBadRow,
    Propensity,
    PropensityModel,
    Reward,
    SparseContext,
    Threads,
    check_folder,
    open_log,
)
from drstream.cli.voice import say, tell
from drstream.kernels._notice import clock


def optimize(
    log: LogPath,
    learner: Annotated[
        str,
        typer.Option(
            help="Learner: dlm (direct loss minimisation), filter-tree, offset-tree, or an online policy of "
            "drstream replay, such as epsilon-greedy. The result is then the mixture of all states that this policy "
            "goes through in a replay. Parameters follow a colon, as in "
            "dlm:restarts=5,epochs=100."
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="File to write the policy to: .npz, or .skops for the trees.")
    ],
    losses: Annotated[str | None, typer.Option(help="How losses are completed: dr (the default), ips or dm.")] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Reward model for dr and dm, as for evaluate. By default ridge, fitted by fold."),
    ] = None,
    propensity_model: PropensityModel = None,
    crossfit: Annotated[
        int | None, typer.Option(help="Folds for models that are not yet fitted. By default 5.")
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(help="Column, e.g. the user. Rows with the same value stay together in split and folds."),
    ] = None,
    fold_seed: Annotated[int | None, typer.Option(help="Random seed of the folds.")] = None,
    clamp: Clamp = None,
    share: Annotated[
        float,
        typer.Option(min=0, max=1, help="Learn on this share of the rows. evaluate will use the others."),
    ] = 0.7,
    seed: Annotated[int, typer.Option(help="Random seed of the --share split.")] = 0,
    horizon: Annotated[
        int | None, typer.Option(help="Steps to replay a policy that learns. By default, the whole log.")
    ] = None,
    q: Annotated[
        float | None, typer.Option(help="Quantile level of the multiplier c in that replay. By default 0.01.")
    ] = None,
    c_max: Annotated[float | None, typer.Option(help="Largest multiplier in that replay. By default 1.")] = None,
    context: Context = None,
    sparse: SparseContext = None,
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
) -> None:
    """Learn a policy on a part of a log, and write it to a file; evaluate --policy FILE uses the other part."""
    from drstream.cli import specs
    from drstream.errors import DrstreamError
    from drstream.models.saved import check_savable

    opened = open_log(locals())
    check_folder(output, opened)
    made = specs.learner(learner, horizon, q, c_max)
    suffix = ".skops" if made.estimators else ".npz"
    if output.suffix != suffix:
        raise DrstreamError(f"--output {output}: the name must end in {suffix} for --learner {learner}")
    check_savable(made)
    if checkpoint is not None:
        made.check_keeps_passes()
    asked = specs.Learning(losses, model, propensity_model, crossfit, cluster, fold_seed, clamp, share, seed)
    started = clock()
    made = specs.optimized(made, opened, asked, {"threads": threads, "progress": True, "checkpoint": checkpoint})
    seconds = clock() - started
    made.save(output)
    if made.skipped_:
        from drstream.cli.tables import reasons

        typer.echo(f"bad rows skipped: {reasons(made.skipped_)}", err=True)
    tell(f"{output}: {made!r}")
    say(f"{made.n_events_:,} events in {seconds:.2f} s")
