"""drstream audit: whether a log can be trusted."""

from __future__ import annotations

from typing import Annotated

import typer

from drstream.cli.options import (
    STOPPED,
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
    Propensity,
    Reward,
    SparseContext,
    Threads,
    open_log,
)
from drstream.cli.reporting import ReportPath, check_report, write_report


def audit(
    log: LogPath,
    event_id: Annotated[str | None, typer.Option(help="Column whose values must all be different.")] = None,
    time: Annotated[
        str | None,
        typer.Option(help="Column of timestamps, dates or numbers, to compare blocks of time with each other."),
    ] = None,
    expected_rows: Annotated[int | None, typer.Option(help="Rows that the log should have.")] = None,
    expected_reward: Annotated[float | None, typer.Option(help="Mean that the reward should have.")] = None,
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
    threads: Threads = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    report: ReportPath = None,
) -> None:
    """Check whether a log can be trusted. The exit code is 3 if it cannot."""
    from drstream.findings import STOP

    opened = open_log(locals())
    check_report(report, opened)
    result = opened.audit(event_id, time, expected_rows, expected_reward, threads, progress=True)
    write_report(result, report)
    if json:
        typer.echo(result.to_json())
    else:
        from drstream.cli.tables import show_audit

        show_audit(result)
    if result.level == STOP:
        raise typer.Exit(STOPPED)
