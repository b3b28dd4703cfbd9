"""drstream merge: the result of states that drstream evaluate wrote, without their logs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from drstream.cli.comparing import parse_pairs
from drstream.cli.options import STDOUT, STOPPED, check_output, write_table
from drstream.cli.reporting import ReportPath, check_report, write_report
from drstream.cli.showing import all_rewards, show_result, stops


def merge(
    states: Annotated[
        list[str], typer.Argument(metavar="STATE...", help="Files that 'drstream evaluate --state' wrote, in order.")
    ],
    compare: Annotated[
        list[str] | None,
        typer.Option(
            help="Two policies, as NEW,OLD: also show the value of the first minus that of the second, with a paired "
            "interval. Repeat the option for more pairs."
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with code 3 if a finding says not to use a number.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            help="Write the estimates to a .parquet or .csv file; '-' prints them as CSV instead of the table."
        ),
    ] = None,
    report: ReportPath = None,
) -> None:
    """Merge states of evaluations: the result of one pass over all of their logs."""
    from drstream.evaluation.states.merging import merge as run

    if output is not None:
        check_output(output, None, json=json)
    check_report(report, None, output, *map(Path, states))
    result = run(states)
    compared = parse_pairs(compare, result.policies)
    if output is not None:
        write_table(all_rewards(result), output)
    write_report(result, report)
    if output != STDOUT:
        show_result(result, compared, json=json)
    if strict and stops(result):
        raise typer.Exit(STOPPED)
