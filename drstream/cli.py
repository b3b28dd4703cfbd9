"""The command line. Only typer and rich are imported here; a command imports the rest when it runs."""

from __future__ import annotations

import errno
import gc
import os
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from drstream.comparison import Replays
    from drstream.log import Log
    from drstream.results import Evaluation

BAD_INPUT, INTERRUPTED = 2, 130

app = typer.Typer(
    name="drstream",
    help="How good would another policy have been? Offline evaluation of policies from click logs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

LogPath = Annotated[list[str], typer.Argument(metavar="LOG...", help="Parquet or Arrow files, globs or directories.")]
Context = Annotated[
    list[str] | None, typer.Option(help="Context columns: a name or glob; may be given more than once.")
]
Action = Annotated[str | None, typer.Option(help="Column of the logged action.")]
Reward = Annotated[str | None, typer.Option(help="Column of the reward.")]
Propensity = Annotated[str | None, typer.Option(help="Column of the logged action's probability.")]
Actions = Annotated[str | None, typer.Option(help="Number of actions, or their labels, separated by commas.")]
OnBadRow = Annotated[str, typer.Option(help="What to do with events that cannot be used: error or skip.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads; all cores by default.")]


def main() -> None:
    """The entry point: bad input is one line on standard error and exit code 2."""
    from drstream.errors import DrstreamError

    try:
        try:
            app()
            sys.stdout.flush()
        finally:
            gc.freeze()  # the interpreter would look through all of Numba's objects once more before it exits: 0.3 s
    except DrstreamError as error:
        _fail(str(error))
    except SystemExit as end:
        if end.code == INTERRUPTED:  # typer's answer to Ctrl-C
            print("interrupted", file=sys.stderr)  # noqa: T201
        raise
    except BrokenPipeError:  # the reader, e.g. head, has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _fail(f"cannot write the result: {error.strerror}")


def _fail(message: str) -> None:
    print(f"error: {_as_options(message)}", file=sys.stderr)  # noqa: T201
    sys.exit(BAD_INPUT)


def _as_options(message: str) -> str:
    """Messages speak of parameters; here these are options."""
    message = message.replace('on_bad_row="skip"', "--on-bad-row skip")
    message = re.sub(r'\b(tracker|method)="([\w-]+)"', r"--\1 \2", message).replace("c_max=", "--c-max ")
    names = (
        "action|actions|reward|propensity|context|model|cap|floor|confidence"
        "|horizon|q|seed|replicates|shards|tracker|method|threads"
    )
    return re.sub(rf"(?<![\w-])({names})=", r"--\1 ", message)


@app.callback(invoke_without_command=True)
def version(show: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False) -> None:
    if show:
        from drstream import __version__

        typer.echo(f"drstream {__version__}")
        raise typer.Exit


@app.command()
def describe(
    log: LogPath,
    context: Context = None,
    action: Action = None,
    reward: Reward = None,
    propensity: Propensity = None,
    actions: Actions = None,
    json: Annotated[bool, typer.Option("--json", help="JSON instead of text.")] = False,
) -> None:
    """Show what a log holds: rows, roles of the columns, actions, and its first rows."""
    from drstream.errors import LogError

    try:
        opened = _open(log, context, action, reward, propensity, actions, "error")
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
            "action": roles.action,
            "labels": list(opened.labels),
            "reward": roles.reward,
            "negated": roles.negated,
            "propensity": roles.propensity,
        }
        typer.echo(js.dumps(about, indent=2))
        return
    typer.echo(repr(opened))
    _show_head(opened)


def _show_columns(log: list[str]) -> None:
    """What can be said of a file in which the roles were not found."""
    from drstream.log.opening import open_source

    source = open_source(log[0] if len(log) == 1 else log)
    typer.echo(f"{source.name}: {source.rows:,} rows")
    for column in source.schema:
        typer.echo(f"  {column.name}: {column.type}")


def _show_head(log: Log) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    roles = log.roles
    scalars = (roles.action, roles.reward, roles.propensity)
    names = [name for name in (*scalars, *roles.context[:6]) if name is not None]
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    for name in names:
        table.add_column(Text(name))
    for row in log.head(5).select(names).to_pylist():
        table.add_row(*(Text(_cell(row[name])) for name in names))
    _console().print(table)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return ", ".join(_cell(v) for v in value[:4]) + (", ..." if len(value) > 4 else "")
    return str(value)


@app.command()
def evaluate(
    log: LogPath,
    policy: Annotated[
        list[str],
        typer.Option(
            help="uniform, constant:LABEL, column:NAME, softmax:weights.npz, linear:weights.npz or "
            "python:module:object; NAME=... gives it another name. May be given more than once."
        ),
    ],
    model: Annotated[
        str | None,
        typer.Option(
            help="Reward model: ridge or ridge:ALPHA (fitted on the share of the log that --fit gives, evaluated on "
            "the rest), constant:VALUE, column:NAME[,NAME...] or python:module:object."
        ),
    ] = None,
    fit: Annotated[float, typer.Option(min=0, max=1, help="Share of the log to fit the model on.")] = 0.5,
    seed: Annotated[int, typer.Option(help="Of that split.")] = 0,
    estimator: Annotated[
        list[str] | None,
        typer.Option(help="Of dm, ips, snips, dr, sndr, ips-capped, dr-capped, by commas; by default all that apply."),
    ] = None,
    cap: Annotated[float | None, typer.Option(help="Largest weight of the capped estimators.")] = None,
    floor: Annotated[float | None, typer.Option(help="Smallest propensity of the capped estimators.")] = None,
    confidence: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    context: Context = None,
    action: Action = None,
    reward: Reward = None,
    propensity: Propensity = None,
    actions: Actions = None,
    on_bad_row: OnBadRow = "error",
    threads: Threads = None,
    json: Annotated[bool, typer.Option("--json", help="JSON on standard output instead of a table.")] = False,
    output: Annotated[Path | None, typer.Option(help="Write the estimates to a .parquet or .csv file.")] = None,
) -> None:
    """Estimate the value of policies from a log, each with an interval."""
    from drstream import specs
    from drstream.evaluation import evaluate as run

    opened = _open(log, context, action, reward, propensity, actions, on_bad_row)
    if output is not None:
        _check_output(output, opened)
    policies = specs.policies(policy, opened.labels)
    names = [n.strip() for text in estimator for n in text.split(",")] if estimator else None
    reward_model, opened = specs.model(model, opened, fit, seed, threads)
    started = time.perf_counter()
    result = run(
        opened,
        policies,
        reward_model,
        names,
        cap=cap,
        floor=floor,
        confidence=confidence,
        threads=threads,
        progress=True,
    )
    seconds = time.perf_counter() - started
    if output is not None:
        _write(result.to_arrow(), output)
    left_out = getattr(reward_model, "skipped_", None)
    if left_out:
        typer.echo(f"bad rows skipped while the model was fitted: {_reasons(left_out)}", err=True)
    if json:
        typer.echo(result.to_json())
    else:
        _show(result)
        typer.echo(f"{result.n:,} events in {seconds:.2f} s: {result.n / seconds / 1e6:.2f} M events/s", err=True)


@app.command()
def replay(
    log: LogPath,
    policy: Annotated[
        list[str],
        typer.Option(
            help="epsilon-greedy, boltzmann, square-cb, linucb, ucb1, exp3, perhaps with parameters as in "
            "linucb:alpha=0.5, or a fixed policy as of evaluate, or python:module:object; NAME=... gives it another "
            "name. May be given more than once."
        ),
    ],
    horizon: Annotated[int, typer.Option(help="T: steps to simulate, again and again until the log ends.")],
    method: Annotated[str, typer.Option(help="dr-ns, dr-ns-wc, rs or dm.")] = "dr-ns",
    q: Annotated[str, typer.Option(help="Quantile level of the multiplier c; several by commas.")] = "0.01",
    c_max: Annotated[float, typer.Option(help="Largest multiplier.")] = 1.0,
    seed: Annotated[str, typer.Option(help="Of the random numbers; several by commas.")] = "0",
    carry: Annotated[bool, typer.Option("--carry", help="Keep the set Q from one replicate to the next.")] = False,
    replicates: Annotated[int | None, typer.Option(help="Stop after so many replicates.")] = None,
    shards: Annotated[int, typer.Option(help="Replay so many runs of row groups independently.")] = 1,
    tracker: Annotated[str, typer.Option(help="Of the quantile: auto, exact or sketch.")] = "auto",
    epsilon: Annotated[float | None, typer.Option(help="Of epsilon-greedy.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Of boltzmann.")] = None,
    gamma: Annotated[float | None, typer.Option(help="Of square-cb and exp3.")] = None,
    alpha: Annotated[float | None, typer.Option(help="Of linucb.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Of the linear learners.")] = None,
    loss: Annotated[str | None, typer.Option(help="Of the linear learners: squared or logistic.")] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Reward model: ridge or ridge:ALPHA (fitted on the share of the log that --fit gives, replayed on the "
            "rest), constant:VALUE, column:NAME[,NAME...] or python:module:object."
        ),
    ] = None,
    fit: Annotated[float, typer.Option(min=0, max=1, help="Share of the log to fit the model on.")] = 0.2,
    fit_seed: Annotated[int, typer.Option(help="Of that split.")] = 0,
    confidence: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    context: Context = None,
    action: Action = None,
    reward: Reward = None,
    propensity: Propensity = None,
    actions: Actions = None,
    on_bad_row: OnBadRow = "error",
    threads: Threads = None,
    json: Annotated[bool, typer.Option("--json", help="JSON on standard output instead of a table.")] = False,
    output: Annotated[Path | None, typer.Option(help="Write the table to a .parquet or .csv file.")] = None,
    curve: Annotated[Path | None, typer.Option(help="Write the learning curves to a .parquet or .csv file.")] = None,
) -> None:
    """Simulate policies that learn on the events of a log (DR-ns), and estimate what they would have earned."""
    from drstream import specs
    from drstream.errors import DrstreamError

    levels, seeds = specs.numbers(q, "--q"), specs.numbers(seed, "--seed", int)
    opened = _open(log, context, action, reward, propensity, actions, on_bad_row)
    for path in (output, curve):
        if path is not None:
            _check_output(path, opened)
    if output is not None and output == curve:
        raise DrstreamError(f"--output and --curve are both {output}: give two files")
    parameters = {"epsilon": epsilon, "temperature": temperature, "gamma": gamma, "alpha": alpha}
    parameters |= {"learning_rate": learning_rate, "loss": loss}  # type: ignore[dict-item]
    given = {name: value for name, value in parameters.items() if value is not None}
    from drstream.replaying import replay as run

    policies = specs.online_policies(policy, opened.labels, given)
    reward_model, opened = specs.model(model, opened, fit, fit_seed, threads)
    started = time.perf_counter()
    try:
        result = run(
            opened,
            policies,
            horizon,
            reward_model,
            method=method,
            q=levels,
            c_max=c_max,
            seed=seeds,
            carry=carry,
            replicates=replicates,
            shards=shards,
            tracker=tracker,
            confidence=confidence,
            threads=threads,
            progress=True,
        )
    except KeyboardInterrupt as stop:
        typer.echo("\n".join(getattr(stop, "__notes__", [])), err=True)
        raise
    seconds = time.perf_counter() - started
    if output is not None:
        _write(result.to_arrow(), output)
    if curve is not None:
        _write(result.curves(), curve)
    if json:
        typer.echo(result.to_json())
    else:
        _show_replays(result)
        events = max(one.events for one in result)
        typer.echo(f"{events:,} events in {seconds:.2f} s: {events / seconds / 1e6:.2f} M events/s", err=True)
    if any(one.interrupted for one in result):
        raise typer.Exit(INTERRUPTED)


def _open(
    log: list[str],
    context: list[str] | None,
    action: str | None,
    reward: str | None,
    propensity: str | None,
    actions: str | None,
    on_bad_row: str,
) -> Log:
    from drstream import specs
    from drstream.log import Log

    named = {"context": context, "action": action, "reward": reward, "propensity": propensity}
    given: dict[str, Any] = {role: name for role, name in named.items() if name}
    if context and len(context) == 1:
        given["context"] = context[0]
    return Log(log[0] if len(log) == 1 else log, actions=specs.actions(actions), on_bad_row=on_bad_row, **given)


def _check_output(path: Path, log: Log) -> None:
    from drstream.errors import DrstreamError

    if str(path.resolve()) in {os.path.realpath(key) for key in log.source.keys if isinstance(key, str)}:
        raise DrstreamError(f"--output {path} is a file of the log itself: choose another name")
    if path.suffix not in (".parquet", ".csv"):
        raise DrstreamError(f"--output {path}: the name must end in .parquet or .csv")
    if not path.parent.is_dir():
        raise DrstreamError(f"--output {path}: there is no folder {str(path.parent)!r}")


def _write(table: Any, path: Path) -> None:
    """The file appears when it is complete."""
    import pyarrow.csv
    import pyarrow.parquet

    unfinished = path.with_name(path.name + ".part")
    try:
        write = pyarrow.csv.write_csv if path.suffix == ".csv" else pyarrow.parquet.write_table
        write(table, unfinished)
        unfinished.replace(path)
    except OSError as error:
        from drstream.errors import DrstreamError

        raise DrstreamError(f"--output {path}: cannot write: {error}") from None
    finally:
        unfinished.unlink(missing_ok=True)


def _show(result: Evaluation, truth: dict[str, float] | None = None) -> None:
    """A table that fits 80 columns for short names; with the true values beside the estimates, where they are known."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    interval = f"{100 * result.confidence:.6g} % interval"
    last_column = "truth" if truth else "vs logging"
    for name in ("policy", "estimator", "value", interval, last_column, "ess", "max w", "capped")[
        : 8 if _any_capped(result) else 7
    ]:
        table.add_column(name, justify="left" if name in ("policy", "estimator") else "right", no_wrap=True)
    last = None
    for row in result.rows():
        if last not in (None, row["policy"]):
            table.add_section()
        gain = f"{row['difference']:+.5f} ± {(row['difference_high'] - row['difference_low']) / 2:.5f}"
        cells = [
            row["policy"] if row["policy"] != last else "",
            row["estimator"],
            _number(row["value"]),
            f"{_number(row['low'])} .. {_number(row['high'])}",
            _number(truth[row["policy"]]) if truth else gain,
            _count(row["ess"]),
            "" if row["max_weight"] != row["max_weight"] else f"{row['max_weight']:.4g}",
        ]
        if _any_capped(result):
            cells.append(f"{row['capped']:.2%}" if row["capped"] else "")
        table.add_row(*map(Text, cells))
        last = row["policy"]
    console = _console()
    actions = f", {len(result.labels)} actions" if result.labels else ""
    console.print(
        f"{result.n:,} events{actions}; the logging policy's mean reward: {result.baseline}",
        highlight=False,
        markup=False,
    )
    console.print(table)
    if result.skipped:
        console.print(f"bad rows skipped: {_reasons(result.skipped)}", highlight=False, markup=False)


def _show_replays(result: Replays) -> None:
    """A table that fits 80 columns for short names; T stands above it."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    first, console = result.runs[0], _console()
    several, wide = len(result.seeds) > 1, console.width >= 110
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    heads = ["policy", "q" if first.adaptive else "c", *(["seed"] if several else []), "per step"]
    heads += [f"{100 * first.confidence:.6g} % interval", *(["T"] if wide else []), "replicates", "accepted"]
    for head in [*heads, *(["c w > 1", "left over"] if wide else [])]:
        table.add_column(head, justify="left" if head == "policy" else "right", no_wrap=head != "policy")
    last = None
    for one in result:
        row = one.row()
        interval = f"{_short(row['low'])} .. {_short(row['high'])}" if row["low"] == row["low"] else "none"
        cells = [one.policy if one.policy != last else "", f"{one.q if one.adaptive else one.c_max:.4g}"]
        cells += [*([str(one.seed)] if several else []), _short(row["value"]), interval]
        cells += [*([f"{one.horizon:,}"] if wide else []), f"{one.complete:,}"]
        cells += [f"{one.acceptance:.2%}", *([f"{one.violations:.2%}", f"{one.left_over:,}"] if wide else [])]
        table.add_row(*map(Text, cells))
        last = one.policy
    events, actions = max(one.events for one in result), len(first.labels)
    head = f"{events:,} events, {actions} actions, replayed by {first.method}; T = {first.horizon:,} steps a replicate"
    console.print(head, highlight=False, markup=False)
    console.print(table)
    for note in result.notes:
        console.print(f"note: {note}", highlight=False, markup=False)


def _short(value: float) -> str:
    """Five decimals, or four digits of what is smaller."""
    return _number(value) if value != value or value == 0 or abs(value) >= 0.01 else f"{value:.4g}"


def _reasons(skipped: dict[str, int]) -> str:
    return ", ".join(f"{count:,} ({why})" for why, count in skipped.items())


def _any_capped(result: Evaluation) -> bool:
    return any(name.endswith("-capped") for name in result.estimators)


def _console() -> Console:
    """Wide enough for whole tables in a pipe, where there is no terminal to fit."""
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=160)


def _count(value: float) -> str:
    return "" if value != value else f"{value:,.0f}"


def _number(value: float) -> str:
    return "undefined" if value != value else f"{value:.5f}"


@app.command()
def demo(
    rows: Annotated[int, typer.Option(min=1000, help="Events of the log.")] = 1_000_000,
    seed: Annotated[int, typer.Option(help="Of the log.")] = 0,
    threads: Threads = None,
) -> None:
    """Make a synthetic click log with known true values, and evaluate three policies on it."""
    import tempfile

    started = time.perf_counter()  # before kernels are imported, and so compiled
    from drstream import demonstration

    with tempfile.TemporaryDirectory(prefix="drstream-") as folder:
        path = Path(folder) / "clicks.parquet"
        typer.echo(f"Writing a click log of {rows:,} events, 10 items, 20 features ...")
        world = demonstration.write_log(path, rows, seed)
        typer.echo("Fitting a reward model on one half of the log, evaluating three policies on the other ...")
        result, truth = demonstration.evaluate(world, path, threads)
    _show(result, truth)
    missed = demonstration.missed(result, truth)
    typer.echo(
        f"{len(result.policies)} policies, {len(result.estimators)} estimators: "
        f"{missed} of {len(result.policies) * (len(result.estimators) - 1)} intervals (DM apart) miss the truth; "
        "DM trusts its model and is wrong where that is.\n"
        f"All of it in {time.perf_counter() - started:.1f} s, compilation included."
    )
