"""Results as tables on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from drstream.cli.layout import Text, new_table, open_console, print_table
from drstream.evaluation.words import assumptions, events
from drstream.findings import to_show

if TYPE_CHECKING:
    from drstream.auditing.result import Audit
    from drstream.evaluation.result import Evaluation
    from drstream.log import Log
    from drstream.planning.result import Forecast
    from drstream.replaying.comparison import Replays


def show_head(log: Log) -> None:
    roles = log.roles
    scalars = (roles.action, roles.reward, roles.propensity)
    names = [name for name in (*scalars, *roles.context[:6]) if name is not None]
    table = new_table()
    for name in names:
        table.add_column(Text(name))
    for row in log.head(5).select(names).to_pylist():
        table.add_row(*(Text(_cell(row[name])) for name in names))
    print_table(open_console(), table, 0)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return ", ".join(_cell(v) for v in value[:4]) + (", ..." if len(value) > 4 else "")
    return str(value)


def show(result: Evaluation, truth: dict[str, float] | None = None) -> None:
    """Print estimates, and true values if these are known."""
    table = new_table()
    interval = f"{100 * result.confidence:.6g} % interval"
    last_column = "truth" if truth else "vs logging"
    rows = result.rows()
    heads = ["policy", "estimator", "value", interval, last_column, "ess", "max w"]
    heads += ["capped"] if _any_reduced(rows) else []
    heads += ["note"] if any(row["warning"] for row in rows) else []
    for name in heads:
        table.add_column(name, justify="left" if name in ("policy", "estimator") else "right", no_wrap=True)
    last = None
    for row in rows:
        if last not in (None, row["policy"]):
            table.add_section()
        gain = f"{row['difference']:+.5f}"
        if row["difference_low"] == row["difference_low"]:
            gain += f" ± {(row['difference_high'] - row['difference_low']) / 2:.5f}"
        cells = [
            row["policy"] if row["policy"] != last else "",
            row["estimator"],
            _number(row["value"]),
            _interval(row),
            _number(truth[row["policy"]]) if truth else gain,
            _count(row["ess"]),
            "" if row["max_weight"] != row["max_weight"] else f"{row['max_weight']:.4g}",
        ]
        if _any_reduced(rows):
            cells.append(f"{row['capped']:.2%}" if row["capped"] else "")
        if heads[-1] == "note":
            cells.append(row["warning"])
        table.add_row(*map(Text, cells))
        last = row["policy"]
    console = open_console()
    what, of_a_list = events(result.n, result.labels, result.lists), " of a list" if result.lists else ""
    console.print(
        f"{what}; the logging policy's mean {_reward_name(result)}{of_a_list}: {result.baseline}",
        highlight=False,
        markup=False,
    )
    print_table(console, table, 2)
    if len(result.policies) > 1:
        console.print(result.best().sentence, highlight=False, markup=False)
    if how := result.how():
        console.print(how, highlight=False, markup=False)
    if result.skipped:
        console.print(f"rows skipped: {reasons(result.skipped)}", highlight=False, markup=False)
    if result.by:
        _show_segments(result, console)
    if result.loggers is not None:
        _show_loggers(result, console)
    for line in assumptions(result.assumptions):
        console.print(line, highlight=False, markup=False)
    for finding in to_show(result.findings):
        console.print(str(finding), highlight=False, markup=False)


def show_differences(rows: list[dict[str, Any]], confidence: float) -> None:
    """Print differences between two policies."""
    table = new_table()
    for name in ("policy", "minus", "estimator", "difference", f"{100 * confidence:.6g} % interval"):
        left = name in ("policy", "minus", "estimator")
        table.add_column(name, justify="left" if left else "right", no_wrap=True)
    for row in rows:
        interval = "" if row["low"] != row["low"] else f"{row['low']:+.5f} .. {row['high']:+.5f}"
        gain = "undefined" if row["value"] != row["value"] else f"{row['value']:+.5f}"
        table.add_row(*map(Text, [row["policy"], row["other"], row["estimator"], gain, interval]))
    print_table(open_console(), table, 3)


def _show_loggers(result: Evaluation, console: Console) -> None:
    """Print the weights of each policy on the events of each logger."""
    assert result.loggers is not None
    table = new_table()
    for name in ("policy", "logger", "rows", "share", "mean reward", "mean weight", "ess", "max w", "ips"):
        table.add_column(name, justify="left" if name in ("policy", "logger") else "right", no_wrap=True)
    for row in result.loggers.to_pylist():
        cells = [row["policy"], str(row["logger"]), f"{row['rows']:,}", f"{row['share']:.1%}"]
        cells += [_number(row["mean_reward"])]
        known = row["max_weight"] == row["max_weight"]
        weights = f"{row['mean_weight']:.4g} ± {row['mean_weight_stderr']:.2g}", _count(row["ess"])
        cells += (
            [*weights, f"{row['max_weight']:.4g}", f"{_number(row['value'])} ± {row['stderr']:.5f}"]
            if known
            else [""] * 4
        )
        table.add_row(*map(Text, cells))
    print_table(console, table, 2)


def show_explanations(result: Evaluation) -> None:
    """Print where the variance of estimates comes from. A width is that of an interval with this part alone."""
    found, console = result.explanations, open_console()
    if result.unexplained:
        names = ", ".join(result.unexplained)
        console.print(f"The parts of the variance are not known for {names}.", highlight=False, markup=False)
    if not found:
        return
    table = new_table()
    parts = [row["part"] for row in found[0].parts]
    heads = ["policy", "estimator", "variance", *(name.replace("_", " ") for name in parts), "width", "bias of the cap"]
    for name in heads:
        table.add_column(name, justify="left" if name in ("policy", "estimator") else "right")
    for one in found:
        cells = [one.policy, one.estimator, f"{one.variance:.5g}"]
        cells += ["" if row["share"] != row["share"] else f"{row['share']:.1%}" for row in one.parts]
        cells.append("" if one.width != one.width else f"{one.width:.5f}")
        cells.append(f"{one.bias:+.5f} ± {one.bias_stderr:.5f}" if one.bias or one.bias_stderr else "")
        table.add_row(*map(Text, cells))
    print_table(console, table, 2)
    for one in found:
        for sentence in one.notes:
            console.print(f"{one.policy}, {one.estimator}: {sentence}", highlight=False, markup=False)


def _reward_name(result: Evaluation) -> str:
    return f"{result.reward}" if len(result.rewards) > 1 or result.reward != "reward" else "reward"


def _interval(row: dict[str, Any]) -> str:
    if row["low"] != row["low"]:
        return ""
    given = " given the model" if "given the model" in row["method"] else ""
    return f"{_number(row['low'])} .. {_number(row['high'])}{given}"


def _show_segments(result: Evaluation, console: Console) -> None:
    """Print the segments, by the estimator that policies are compared with."""
    found = result.segments
    assert found is not None
    table = new_table()
    heads = [*result.by, "policy", "events", result.headline, "interval", "vs logging", "q-value", "level"]
    for place, name in enumerate(heads):
        table.add_column(Text(name), justify="left" if place <= len(result.by) else "right", no_wrap=True)
    for row in found.to_pylist():
        if row["estimator"] == result.headline:
            gain = f"{row['difference']:+.5f} ± {(row['difference_high'] - row['difference_low']) / 2:.5f}"
            values = [str(row[name]) for name in result.by]
            cells = [*values, row["policy"], f"{row['n']:,}", _number(row["value"]), _interval(row), gain]
            q = "" if row["q_value"] != row["q_value"] else f"{row['q_value']:.3g}"
            table.add_row(*map(Text, [*cells, q, "" if row["level"] == "ok" else row["level"]]))
    print_table(console, table, len(result.by) + 1)


def show_replays(result: Replays) -> None:
    """Print replays, with T above the table. With short names, the table fits 80 columns."""
    first, console = result.runs[0], open_console()
    several, wide = len(result.seeds) > 1, console.width >= 110
    table = new_table()
    heads = ["policy", first.level_name, *(["seed"] if several else []), "per step"]
    heads += [f"{100 * first.confidence:.6g} % interval", *(["T"] if wide else []), "replicates", "accepted"]
    for head in [*heads, *(["c w > 1", "left over"] if wide else [])]:
        table.add_column(head, justify="left" if head == "policy" else "right", no_wrap=head != "policy")
    last = None
    for one in result:
        row = one.row()
        interval = f"{_short(row['low'])} .. {_short(row['high'])}" if row["low"] == row["low"] else "none"
        cells = [one.policy if one.policy != last else "", _level(one.level_value)]
        cells += [*([str(one.seed)] if several else []), _short(row["value"]), interval]
        cells += [*([f"{one.horizon:,}"] if wide else []), f"{one.complete:,}"]
        cells += [f"{one.acceptance:.2%}", *([f"{one.violations:.2%}", f"{one.left_over:,}"] if wide else [])]
        table.add_row(*map(Text, cells))
        last = one.policy
    events = max(one.events for one in result)
    actions = f", {len(first.labels)} actions" if first.labels else ""
    head = f"{events:,} events{actions}, replayed by {first.method}; T = {first.horizon:,} steps a replicate"
    console.print(head, highlight=False, markup=False)
    print_table(console, table, 1)
    for one in result:
        if one.complete and one.bias is not None:
            text = f"{one.policy}: targets {one.targets}; {one.about_bias}; a pilot of {one.pilot_events:,} events"
            console.print(text, highlight=False, markup=False)
    if how := first.how():
        console.print(how, highlight=False, markup=False)
    for note in result.notes:
        console.print(f"note: {note}", highlight=False, markup=False)


def _level(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"


def show_forecast(result: Forecast) -> None:
    """Print the widths of intervals, and the replicates of replays. With short names, the tables fit 80 columns."""
    console = open_console()
    console.print(result.head, highlight=False, markup=False)
    if result.widths:
        heads = ["policy", "estimator", "width", "±", "rows for half", "exploration for half"]
        table = new_table()
        for head in heads:
            table.add_column(head, justify="left" if head in ("policy", "estimator") else "right", no_wrap=True)
        for one in result.widths:
            cells = [one.policy, one.estimator, _short(one.width), _percent(one.error), _count(one.rows_to_halve)]
            table.add_row(*map(Text, [*cells, one.advice]))
        console.print(f"evaluate: {100 * result.confidence:.6g} % intervals", highlight=False, markup=False)
        print_table(console, table, 2)
    if result.replays:
        table = new_table()
        for head in ("policy", "level", "replicates", "±", "for one", "for ten", "T for one", "T for ten", "width"):
            table.add_column(head, justify="left" if head == "policy" else "right", no_wrap=head != "policy")
        for run in result.replays:
            cells = [run.policy, run.level, f"{run.replicates:.1f}", _percent(run.error)]
            cells += [_count(number) for number in (run.events_for_one, run.events_for_ten)]
            cells += [f"{run.longest_for_one:,}", f"{run.longest_for_ten:,}"]
            table.add_row(*map(Text, [*cells, "" if run.width != run.width else _short(run.width)]))
        head = f"replay: replicates of {result.horizon:,} steps, events for one and ten, longest T for one and ten"
        console.print(head, highlight=False, markup=False)
        print_table(console, table, 1)
    for note in result.notes:
        console.print(f"note: {note}", highlight=False, markup=False)


def _percent(value: float) -> str:
    return "" if value != value else f"{value:.0%}"


ACTIONS_SHOWN = 20
BLOCK_COLUMNS = ["start", "rows", "bad_share", "reward", "reward_z", "mean_inverse", "mean_inverse_z"]


def show_audit(result: Audit) -> None:
    """Print findings, the worst first, then the actions whose 1{a}/p is farthest from 1, and the blocks of time."""
    console = open_console()
    console.print(f"{result.name}: {result.headline}", highlight=False, markup=False)
    table = new_table()
    for name in ("level", "check", "what was found"):
        table.add_column(name, no_wrap=name != "what was found", overflow="fold")
    for finding in result.ordered():
        table.add_row(*map(Text, (finding.level, finding.check, finding.message)))
    print_table(console, table, 2)
    rows = sorted(result.actions.to_pylist(), key=lambda row: -abs(row["z"]) if row["z"] == row["z"] else 0)
    if rows:
        print_table(console, _columns(rows[:ACTIONS_SHOWN], result.actions.column_names))
    if len(rows) > ACTIONS_SHOWN:
        rest = f"{len(rows) - ACTIONS_SHOWN:,} more actions, whose z is smaller"
        console.print(rest, highlight=False, markup=False)
    if result.blocks is not None:
        print_table(console, _columns(result.blocks.to_pylist(), BLOCK_COLUMNS))


def _columns(rows: list[dict[str, Any]], names: list[str]) -> Table:
    table = new_table()
    for name in names:
        table.add_column(Text(name.replace("_", " ")), justify="right")
    for row in rows:
        shown = {
            name: f"{value:,}" if name in ("count", "rows") else _four_digits(value) for name, value in row.items()
        }
        table.add_row(*(Text(shown[name]) for name in names))
    return table


def _four_digits(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _short(value: float) -> str:
    """Format a number with five decimals or, if it is below 0.01, with four digits."""
    return _number(value) if value != value or value == 0 or abs(value) >= 0.01 else f"{value:.4g}"


def reasons(skipped: dict[str, int]) -> str:
    return ", ".join(f"{count:,} ({why})" for why, count in skipped.items())


def _any_reduced(rows: list[dict[str, Any]]) -> bool:
    return any(row["capped"] for row in rows)


def _count(value: float) -> str:
    return "" if value != value else f"{value:,.0f}"


def _number(value: float) -> str:
    return "undefined" if value != value else f"{value:.5f}"
