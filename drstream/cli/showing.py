"""An evaluation on the terminal, as a table or JSON, and as a table for a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer

from drstream.cli.comparing import Pair, differences, with_differences
from drstream.findings import STOP, worst


def show_result(result: Any, compared: Sequence[Pair], *, json: bool, explain: bool = False) -> None:
    """Print the estimates of all rewards, and the differences of pairs of policies."""
    if json:
        import json as js

        typer.echo(js.dumps(with_differences(result, compared), indent=2, default=str))
        return
    from drstream.cli.tables import show, show_differences, show_explanations

    for one in result.rewards.values():
        show(one)
        if compared:
            show_differences(differences(one, compared), one.confidence)
        if explain:
            show_explanations(one)


def all_rewards(result: Any) -> Any:
    """Return the table of estimates. With several rewards, a column says which one each row is about."""
    import pyarrow as pa

    if len(result.rewards) == 1:
        return result.to_arrow()
    tables = [one.to_arrow() for one in result.rewards.values()]
    names = [pa.array([name] * len(table)) for name, table in zip(result.rewards, tables, strict=True)]
    return pa.concat_tables(
        [table.add_column(0, "reward", column) for table, column in zip(tables, names, strict=True)]
    ).replace_schema_metadata(tables[0].schema.metadata)


def stops(result: Any) -> bool:
    """Whether a finding says not to use a number."""
    return any(worst(one.findings) == STOP for one in result.rewards.values())
