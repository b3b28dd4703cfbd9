"""drstream convert: a log in another file, all rows checked."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from drstream.cli.options import (
    Action,
    Actions,
    Context,
    OnBadRow,
    Propensity,
    SampleRate,
    SparseContext,
    Threads,
    log_options,
)


def convert(
    log: Annotated[
        list[str],
        typer.Argument(
            metavar="LOG...",
            help="Parquet or Arrow files, CSV (.csv, .tsv) or JSON lines (.jsonl), globs or directories.",
        ),
    ],
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="File to write: .parquet; or .arrow, .ipc, .feather for Arrow IPC.")
    ],
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
    action: Action = None,
    reward: Annotated[
        str | None, typer.Option(help="Column with the reward, or several columns, separated by commas.")
    ] = None,
    propensity: Propensity = None,
    propensities: Annotated[
        str | None,
        typer.Option(
            help="Column with lists of the probabilities of all actions, or a column for each action, separated by "
            "commas."
        ),
    ] = None,
    sample_rate: SampleRate = None,
    actions: Actions = None,
    on_bad_row: OnBadRow = "error",
    threads: Threads = None,
) -> None:
    """Write a log to a Parquet or Arrow IPC file, and check every row on the way."""
    from drstream.converting.convert import convert as run

    given = log_options(context, sparse, action, reward, propensity, actions, sample_rate, propensities)
    started = time.perf_counter()
    result = run(
        log[0] if len(log) == 1 else log,
        out,
        row_group_rows=row_group_rows,
        columns=None if columns is None else [name.strip() for name in columns.split(",") if name.strip()],
        pack=pack,
        codec=codec,
        on_bad_row=on_bad_row,
        threads=threads,
        progress=True,
        **given,
    )
    seconds = time.perf_counter() - started
    if result.skipped:
        from drstream.cli.tables import reasons

        typer.echo(f"bad rows skipped: {reasons(result.skipped)}", err=True)
    typer.echo(str(result))
    typer.echo(f"{result.rows:,} rows in {seconds:.2f} s: {result.rows / seconds / 1e6:.2f} M rows/s", err=True)
