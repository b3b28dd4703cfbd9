"""The command line. Only typer and rich are imported here; a command imports the rest when it runs."""

from __future__ import annotations

import errno
import gc
import os
import re
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from drstream.log import Log

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
Propensity = Annotated[str | None, typer.Option(help="Column of the logged action's probability; none: there is none.")]
SparseContext = Annotated[
    str | None,
    typer.Option(help="Sparse contexts, as INDICES,VALUES,DIM: two columns of lists and the number of features."),
]
RewardModel = Annotated[
    str | None,
    typer.Option(
        help="Reward model: ridge[:ALPHA] or logistic[:C] (fitted by fold with --crossfit, else on the share --fit of "
        "the log, which is then left out), a file of drstream fit, constant:VALUE, column:NAME[,NAME...] or "
        "python:module:object."
    ),
]
PropensityModel = Annotated[
    str | None,
    typer.Option(
        help="Propensities from a model, where the log has none or they are doubted: logistic[:C] (fitted as the "
        "reward model), a file of drstream fit, or the logging policy itself: uniform or python:module:object."
    ),
]
Inflation = Annotated[float | None, typer.Option(help="Factor on the propensity model's probabilities.")]
PropensityFloor = Annotated[float | None, typer.Option(help="Least probability of the propensity model.")]
Crossfit = Annotated[int | None, typer.Option(help="Fit models in so many folds, each on the other folds' events.")]
Cluster = Annotated[
    str | None, typer.Option(help="Column, e.g. the user, whose rows stay together in folds (intervals ignore it).")
]
FoldSeed = Annotated[int, typer.Option(help="Of the folds.")]
Clamp = Annotated[str | None, typer.Option(help="Hold predictions within LOW,HIGH; range: of the rewards of the fit.")]
FIT_HELP = "Share of the log to fit models on, without --crossfit."
Actions = Annotated[str | None, typer.Option(help="Number of actions, or their labels, separated by commas.")]
OnBadRow = Annotated[str, typer.Option(help="What to do with events that cannot be used: error or skip.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads; all cores by default.")]


def main() -> None:
    """The entry point: bad input is one line on standard error and exit code 2."""
    from drstream.errors import DrstreamError

    warnings.showwarning = _warn
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


def _warn(message: Any, *where: Any, **more: Any) -> None:
    print(f"warning: {_as_options(str(message))}", file=sys.stderr)  # noqa: T201


def _fail(message: str) -> None:
    print(f"error: {_as_options(message)}", file=sys.stderr)  # noqa: T201
    sys.exit(BAD_INPUT)


def _as_options(message: str) -> str:
    """Messages speak of parameters; here these are options."""
    message = message.replace('on_bad_row="skip"', "--on-bad-row skip")
    message = re.sub(r'\b(tracker|method)="([\w-]+)"', r"--\1 \2", message).replace("c_max=", "--c-max ")
    from drstream.estimators import NO_PROPENSITIES

    here = (
        "and the log has none: name their column with --propensity, or give --propensity-model: logistic with "
        "--crossfit 5, say, or uniform"
    )
    message = message.replace(NO_PROPENSITIES, here)
    message = message.replace("propensity=None", "--propensity none")
    names = (
        "action|actions|reward|propensity|context|model|cap|floor|confidence|crossfit|cluster|clamp|sparse"
        "|horizon|q|seed|replicates|shards|tracker|method|threads"
    )
    message = message.replace("train, test = log.split(0.5)", "drstream fit --share 0.5")
    message = message.replace("train, test = log.split(0.7)", "drstream optimize --share 0.7")
    message = message.replace("drs.models.Ridge()", "ridge")
    message = re.sub(rf"(?<![\w-])({names})=(?=[ .,;:)])", r"--\1", message)
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
    sparse: SparseContext = None,
    action: Action = None,
    reward: Reward = None,
    propensity: Propensity = None,
    actions: Actions = None,
    json: Annotated[bool, typer.Option("--json", help="JSON instead of text.")] = False,
) -> None:
    """Show what a log holds: rows, roles of the columns, actions, and its first rows."""
    from drstream.errors import LogError

    try:
        opened = _open(log, context, sparse, action, reward, propensity, actions, "error")
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
            "sparse": roles.sparse is not None,
            "action": roles.action,
            "labels": list(opened.labels),
            "reward": roles.reward,
            "negated": roles.negated,
            "propensity": roles.propensity,
        }
        typer.echo(js.dumps(about, indent=2))
        return
    from drstream.tables import show_head

    typer.echo(repr(opened))
    show_head(opened)


def _show_columns(log: list[str]) -> None:
    """What can be said of a file in which the roles were not found."""
    from drstream.log.opening import open_source

    source = open_source(log[0] if len(log) == 1 else log)
    typer.echo(f"{source.name}: {source.rows:,} rows")
    for column in source.schema:
        typer.echo(f"  {column.name}: {column.type}")


@app.command()
def evaluate(
    log: LogPath,
    policy: Annotated[
        list[str],
        typer.Option(
            help="uniform, constant:LABEL, column:NAME, softmax:weights.npz, linear:weights.npz, "
            "python:module:object, or a file of drstream optimize (the rows that it was learned from are then left "
            "out); NAME=... gives it another name. May be given more than once."
        ),
    ],
    model: RewardModel = None,
    propensity_model: PropensityModel = None,
    inflation: Inflation = None,
    propensity_floor: PropensityFloor = None,
    crossfit: Crossfit = None,
    cluster: Cluster = None,
    fold_seed: FoldSeed = 0,
    clamp: Clamp = None,
    fit: Annotated[float, typer.Option(min=0, max=1, help=FIT_HELP)] = 0.5,
    seed: Annotated[int, typer.Option(help="Of that split.")] = 0,
    estimator: Annotated[
        list[str] | None,
        typer.Option(help="Of dm, ips, snips, dr, sndr, ips-capped, dr-capped, by commas; by default all that apply."),
    ] = None,
    cap: Annotated[float | None, typer.Option(help="Largest weight of the capped estimators.")] = None,
    floor: Annotated[float | None, typer.Option(help="Smallest propensity of the capped estimators.")] = None,
    confidence: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    context: Context = None,
    sparse: SparseContext = None,
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

    opened = _open(log, context, sparse, action, reward, propensity, actions, on_bad_row)
    if output is not None:
        _check_output(output, opened)
    policies = specs.policies(policy, opened.labels)
    opened = specs.less_what_they_know(policies.values(), opened)
    names = [n.strip() for text in estimator for n in text.split(",")] if estimator else None
    fitting = specs.Fitting(fit, seed, crossfit, cluster, fold_seed, threads)
    wanted = model, propensity_model, inflation, propensity_floor, clamp
    models, opened = specs.fitted_models(*wanted, opened, fitting)
    started = time.perf_counter()
    result = run(
        opened,
        policies,
        estimators=names,
        **models,
        cap=cap,
        floor=floor,
        confidence=confidence,
        threads=threads,
        progress=True,
    )
    seconds = time.perf_counter() - started
    if output is not None:
        _write(result.to_arrow(), output)
    left_out = getattr(models["model"], "skipped_", None)
    if left_out:
        from drstream.tables import reasons

        typer.echo(f"bad rows skipped while the model was fitted: {reasons(left_out)}", err=True)
    if json:
        typer.echo(result.to_json())
    else:
        from drstream.tables import show

        show(result)
        typer.echo(f"{result.n:,} events in {seconds:.2f} s: {result.n / seconds / 1e6:.2f} M events/s", err=True)


@app.command()
def fit(
    log: LogPath,
    model: Annotated[
        str,
        typer.Option(
            help="ridge[:ALPHA] or logistic[:C] of the reward, propensity[:C] of the logged action (multinomial "
            "logistic): a regression for each action, or of it."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write the model to, e.g. model.npz.")],
    share: Annotated[
        float, typer.Option(min=0, max=1, help="Fit on this share of the rows; evaluate will use the others.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(help="Of that split.")] = 0,
    cluster: Cluster = None,
    weights: Annotated[str | None, typer.Option(help="Of the events, for ridge: 1/p.")] = None,
    shared: Annotated[bool, typer.Option("--shared", help="For ridge: the same weights for all actions.")] = False,
    context: Context = None,
    sparse: SparseContext = None,
    action: Action = None,
    reward: Reward = None,
    propensity: Propensity = None,
    actions: Actions = None,
    on_bad_row: OnBadRow = "error",
    threads: Threads = None,
) -> None:
    """Fit a reward model or a propensity model, and write it to a file for --model or --propensity-model."""
    from drstream import specs
    from drstream.errors import DrstreamError

    opened = _open(log, context, sparse, action, reward, propensity, actions, on_bad_row)
    if weights == "mrdr":
        raise DrstreamError('--weights mrdr needs a policy: use drs.models.Ridge(weights="mrdr", policy=...) in Python')
    _check_folder(output, opened)
    if output.suffix != ".npz":
        raise DrstreamError(f"--output {output}: the name must end in .npz")
    made = specs.model_to_fit(model, weights=weights, shared=shared)
    if share < 1:
        opened = opened.split(share, seed, cluster)[0]
    elif cluster is not None:
        raise DrstreamError(f"--cluster {cluster} is about the split of --share, and there is none")
    started = time.perf_counter()
    made.fit(opened, threads=threads, progress=True)
    seconds = time.perf_counter() - started
    made.save(output)
    if made.skipped_:
        from drstream.tables import reasons

        typer.echo(f"bad rows skipped: {reasons(made.skipped_)}", err=True)
    typer.echo(f"{output}: {made!r}")
    typer.echo(
        f"{made.n_events_:,} events in {seconds:.2f} s: {made.n_events_ / seconds / 1e6:.2f} M events/s", err=True
    )


@app.command()
def optimize(
    log: LogPath,
    learner: Annotated[
        str,
        typer.Option(
            help="dlm (direct loss minimisation), filter-tree, offset-tree, or a policy that learns, as of replay, for "
            "its progressive validation policy; perhaps with parameters, as in dlm:restarts=5,epochs=100."
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="File to write the policy to: .npz; .skops for the trees.")
    ],
    losses: Annotated[str | None, typer.Option(help="What is learned from: dr (the default), ips or dm.")] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Reward model of dr and dm, as of evaluate; by default ridge, fitted by fold."),
    ] = None,
    propensity_model: PropensityModel = None,
    crossfit: Annotated[
        int | None, typer.Option(help="Folds for models that are not yet fitted; by default 5.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(help="Column, e.g. the user, whose rows stay together in the split and in folds.")
    ] = None,
    fold_seed: Annotated[int | None, typer.Option(help="Of the folds.")] = None,
    clamp: Clamp = None,
    share: Annotated[
        float, typer.Option(min=0, max=1, help="Learn on this share of the rows; evaluate will use the others.")
    ] = 0.7,
    seed: Annotated[int, typer.Option(help="Of that split.")] = 0,
    horizon: Annotated[
        int | None, typer.Option(help="Steps to replay a policy that learns; by default as many as the log has.")
    ] = None,
    q: Annotated[
        float | None, typer.Option(help="Quantile level of the multiplier c of that replay; by default 0.01.")
    ] = None,
    c_max: Annotated[float | None, typer.Option(help="Largest multiplier of that replay; by default 1.")] = None,
    context: Context = None,
    sparse: SparseContext = None,
    action: Action = None,
    reward: Reward = None,
    propensity: Propensity = None,
    actions: Actions = None,
    on_bad_row: OnBadRow = "error",
    threads: Threads = None,
) -> None:
    """Learn a policy on a part of a log, and write it to a file for --policy of evaluate, which uses the other part."""
    from drstream import specs
    from drstream.errors import DrstreamError
    from drstream.saving import check_savable

    opened = _open(log, context, sparse, action, reward, propensity, actions, on_bad_row)
    _check_folder(output, opened)
    made = specs.learner(learner, horizon, q, c_max)
    suffix = ".skops" if made.estimators else ".npz"
    if output.suffix != suffix:
        raise DrstreamError(f"--output {output}: the name must end in {suffix} for --learner {learner}")
    check_savable(made)
    asked = specs.Learning(losses, model, propensity_model, crossfit, cluster, fold_seed, clamp, share, seed)
    started = time.perf_counter()
    made = specs.optimized(made, opened, asked, {"threads": threads, "progress": True})
    seconds = time.perf_counter() - started
    made.save(output)
    if made.skipped_:
        from drstream.tables import reasons

        typer.echo(f"bad rows skipped: {reasons(made.skipped_)}", err=True)
    typer.echo(f"{output}: {made!r}")
    typer.echo(f"{made.n_events_:,} events in {seconds:.2f} s", err=True)


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
    model: RewardModel = None,
    propensity_model: PropensityModel = None,
    inflation: Inflation = None,
    propensity_floor: PropensityFloor = None,
    crossfit: Crossfit = None,
    cluster: Cluster = None,
    fold_seed: FoldSeed = 0,
    clamp: Clamp = None,
    fit: Annotated[float, typer.Option(min=0, max=1, help=FIT_HELP)] = 0.2,
    fit_seed: Annotated[int, typer.Option(help="Of that split.")] = 0,
    confidence: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    context: Context = None,
    sparse: SparseContext = None,
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
    opened = _open(log, context, sparse, action, reward, propensity, actions, on_bad_row)
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
    opened = specs.less_what_they_know(policies.values(), opened)
    fitting = specs.Fitting(fit, fit_seed, crossfit, cluster, fold_seed, threads)
    wanted = model, propensity_model, inflation, propensity_floor, clamp
    models, opened = specs.fitted_models(*wanted, opened, fitting)
    started = time.perf_counter()
    try:
        result = run(
            opened,
            policies,
            horizon,
            **models,
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
        from drstream.tables import show_replays

        show_replays(result)
        events = max(one.events for one in result)
        typer.echo(f"{events:,} events in {seconds:.2f} s: {events / seconds / 1e6:.2f} M events/s", err=True)
    if any(one.interrupted for one in result):
        raise typer.Exit(INTERRUPTED)


def _open(
    log: list[str],
    context: list[str] | None,
    sparse: str | None,
    action: str | None,
    reward: str | None,
    propensity: str | None,
    actions: str | None,
    on_bad_row: str,
) -> Log:
    from drstream import specs
    from drstream.errors import LogError
    from drstream.log import Log

    named = {"context": context, "action": action, "reward": reward, "propensity": propensity}
    given: dict[str, Any] = {role: name for role, name in named.items() if name}
    if context and len(context) == 1:
        given["context"] = context[0]
    if sparse:
        if context:
            raise LogError("--sparse and --context are two ways to name the context: give one of them")
        given["context"] = specs.sparse(sparse)
    if propensity == "none":
        given["propensity"] = None
    return Log(log[0] if len(log) == 1 else log, actions=specs.actions(actions), on_bad_row=on_bad_row, **given)


def _check_output(path: Path, log: Log) -> None:
    from drstream.errors import DrstreamError

    _check_folder(path, log)
    if path.suffix not in (".parquet", ".csv"):
        raise DrstreamError(f"--output {path}: the name must end in .parquet or .csv")


def _check_folder(path: Path, log: Log) -> None:
    from drstream.errors import DrstreamError

    if str(path.resolve()) in {os.path.realpath(key) for key in log.source.keys if isinstance(key, str)}:
        raise DrstreamError(f"--output {path} is a file of the log itself: choose another name")
    if not path.parent.is_dir():
        raise DrstreamError(f"--output {path}: there is no folder {str(path.parent)!r}")
    if not os.access(path.parent, os.W_OK) or path.is_dir():
        raise DrstreamError(f"--output {path} cannot be written: choose another name or folder")


def _write(table: Any, path: Path) -> None:
    """The file appears when it is complete."""
    import pyarrow.csv
    import pyarrow.parquet

    from drstream.errors import DrstreamError
    from drstream.writing import whole

    write = pyarrow.csv.write_csv if path.suffix == ".csv" else pyarrow.parquet.write_table
    try:
        with whole(path) as unfinished:
            write(table, unfinished)
    except OSError as error:
        raise DrstreamError(f"--output {path}: cannot write: {error}") from None


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
    from drstream.tables import show

    show(result, truth)
    missed = demonstration.missed(result, truth)
    typer.echo(
        f"{len(result.policies)} policies, {len(result.estimators)} estimators: "
        f"{missed} of {len(result.policies) * (len(result.estimators) - 1)} intervals (DM apart) miss the truth; "
        "DM trusts its model and is wrong where that is.\n"
        f"All of it in {time.perf_counter() - started:.1f} s, compilation included."
    )
