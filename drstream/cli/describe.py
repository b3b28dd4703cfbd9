"""drstream describe: what a log holds."""

from __future__ import annotations

from typing import Annotated

import typer

from drstream.cli.options import (
    Action,
    Actions,
    Categorical,
    Context,
    HashedColumns,
    LogPath,
    Missing,
    Propensity,
    Reward,
    SparseContext,
    open_log,
)


def describe(
    log: LogPath,
    context: Context = None,
    sparse: SparseContext = None,
    categorical: Categorical = None,
    hashed: HashedColumns = None,
    missing: Missing = None,
    action: Action = None,
    reward: Reward = None,
    propensity: Propensity = None,
    actions: Actions = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Show what a log holds: rows, roles of the columns, actions, and its first rows."""
    from drstream.errors import LogError

    try:
        opened = open_log(
            log, context, sparse, action, reward, propensity, actions, "error", coded=(categorical, hashed, missing)
        )
    except LogError:
        _show_columns(log)
        raise
    roles = opened.roles
    if json:
        import json as js

        about = {
            "log": opened.source.name,
            "rows": opened.rows,
            "context": list(roles.context),
            "n_features": opened.n_features,
            "sparse": opened.is_sparse,
            "categories": opened.categories,
            "feature_names": opened.feature_names,
            "action": roles.action,
            "labels": list(opened.labels),
            "reward": roles.reward,
            "negated": roles.negated,
            "propensity": roles.propensity,
        }
        typer.echo(js.dumps(about, indent=2))
        return
    from drstream.cli.tables import show_head

    typer.echo(repr(opened))
    show_head(opened)


def _show_columns(log: list[str]) -> None:
    """Print the columns of a log in which the roles were not found."""
    from drstream.log.opening import open_source

    source = open_source(log[0] if len(log) == 1 else log)
    typer.echo(f"{source.name}: {source.rows:,} rows")
    for column in source.schema:
        typer.echo(f"  {column.name}: {column.type}")
