"""drstream convert: a log in another file, all rows checked."""

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
    Context,
    Eligible,
    Exclude,
    Filter,
    HashedColumns,
    Missing,
    OnBadRow,
    Positions,
    Propensities,
    Propensity,
    Rewards,
    SampleRate,
    SparseContext,
    Threads,
    candidate_options,
    log_options,
    row_options,
)
from drstream.cli.voice import say, tell
from drstream.kernels._notice import clock


def convert(
    log: Annotated[
        list[str],
        typer.Argument(
            metavar="LOG...",
            help="Parquet or Arrow files, CSV (.csv, .tsv), JSON lines (.jsonl), Vowpal Wabbit's text (.vw) or dsjson "
            "(.dsjson), or Open Bandit's CSV; globs or directories.",
        ),
    ],
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="File to write: .parquet; or .arrow, .ipc, .feather for Arrow IPC.")
    ],
    format: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="Format of a text: csv, tsv, json, vw, dsjson or obp (Open Bandit). By default, suffixes and "
            "beginnings of the files tell.",
        ),
    ] = None,
    bits: Annotated[
        int | None,
        typer.Option(help="For vw and dsjson: hash features to 2^BITS indices. By default 18."),
    ] = None,
    items: Annotated[
        str | None,
        typer.Option(
            help="For obp: file item_context.csv, by default the one beside the log. With --candidates: file with a "
            "row for each item, as FILE[:ID]."
        ),
    ] = None,
    row_group_rows: Annotated[
        int | None,
        typer.Option(
            help="Number of rows of a row group or, in Arrow IPC, of a record batch. By default 131072, or fewer if "
            "rows are large."
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(help="Columns to write beside those with a role, separated by commas. By default, all columns."),
    ] = None,
    pack: Annotated[
        str | None,
        typer.Option(help="Pack all context columns into one column of lists with this name, e.g. context."),
    ] = None,
    codec: Annotated[
        str | None, typer.Option(help="Compression of Parquet: snappy (the default), zstd or none.")
    ] = None,
    context: Context = None,
    sparse: SparseContext = None,
    categorical: Categorical = None,
    hashed: HashedColumns = None,
    missing: Missing = None,
    action: Action = None,
    reward: Rewards = None,
    propensity: Propensity = None,
    propensities: Propensities = None,
    sample_rate: SampleRate = None,
    actions: Actions = None,
    eligible: Eligible = None,
    candidates: CandidateColumns = None,
    action_is: ActionIs = None,
    positions: Positions = None,
    filter: Filter = None,
    exclude: Exclude = None,
    on_bad_row: OnBadRow = "error",
    threads: Threads = None,
) -> None:
    """Write a log to a Parquet or Arrow IPC file, and check every row on the way."""
    from drstream.converting.convert import convert as run

    given = log_options(
        context,
        sparse,
        action,
        reward,
        propensity,
        actions,
        sample_rate,
        propensities,
        eligible,
        coded=(categorical, hashed, missing),
    )
    given |= candidate_options(candidates, items if candidates else None, action_is)
    started = clock()
    result = run(
        log[0] if len(log) == 1 else log,
        out,
        row_group_rows=row_group_rows,
        columns=None if columns is None else [name.strip() for name in columns.split(",") if name.strip()],
        pack=pack,
        codec=codec,
        on_bad_row=on_bad_row,
        format=format,
        bits=bits,
        items=None if candidates else items,
        threads=threads,
        progress=True,
        **given,
        **row_options(filter, exclude, positions),
    )
    seconds = clock() - started
    if result.skipped:
        from drstream.cli.tables import reasons

        typer.echo(f"bad rows skipped: {reasons(result.skipped)}", err=True)
        for reason, first in result.first.items():
            typer.echo(f"  the first ({reason}): {first}", err=True)
    tell(str(result))
    say(f"{result.rows:,} rows in {seconds:.2f} s: {result.rows / seconds / 1e6:.2f} M rows/s")
