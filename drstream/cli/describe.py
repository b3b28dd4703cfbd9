"""drstream describe: what a log holds."""

from __future__ import annotations

from typing import Annotated

import typer

from drstream.cli.options import (
    Action,
    ActionIs,
    Actions,
    CandidateColumns,
    Categorical,
    Context,
    Eligible,
    Exclude,
    Filter,
    HashedColumns,
    ItemsFile,
    LogPath,
    Missing,
    Positions,
    Propensity,
    Reward,
    SparseContext,
    Threads,
    open_log,
)


def describe(
    log: LogPath,
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
    positions: Positions = None,
    actions: Actions = None,
    eligible: Eligible = None,
    filter: Filter = None,
    exclude: Exclude = None,
    threads: Threads = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Show what a log holds: rows, roles of the columns, rewards, propensities, actions, and its first rows."""
    from drstream.errors import LogError

    try:
        opened = open_log(locals())
    except LogError:
        _show_columns(log)
        raise
    found = opened.describe(threads, progress=True)
    if json:
        typer.echo(found.to_json())
        return
    from drstream.cli.tables import show_head

    typer.echo(repr(found))
    show_head(opened)


def _show_columns(log: list[str]) -> None:
    """Print the columns of a log in which the roles were not found."""
    from drstream.sources.open import open_source

    source = open_source(log[0] if len(log) == 1 else log)
    typer.echo(f"{source.name}: {source.rows:,} rows")
    for column in source.schema:
        typer.echo(f"  {column.name}: {column.type}")
