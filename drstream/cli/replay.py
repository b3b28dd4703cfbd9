"""drstream replay: the value of policies that learn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from drstream.replaying.comparison import Replays

from drstream.cli.held_out import held_out
from drstream.cli.options import (
    FIT_HELP,
    INTERRUPTED,
    STDOUT,
    Action,
    ActionIs,
    Actions,
    CandidateColumns,
    Categorical,
    Checkpoint,
    Clamp,
    Cluster,
    Context,
    Crossfit,
    Eligible,
    Exclude,
    Filter,
    FoldSeed,
    HashedColumns,
    Inflation,
    ItemsFile,
    LogPath,
    Missing,
    OnBadRow,
    Precision,
    Propensity,
    PropensityFloor,
    PropensityModel,
    Reward,
    RewardModel,
    SparseContext,
    Threads,
    check_output,
    numbers,
    open_log,
    parse_crossfit,
    write_table,
)
from drstream.cli.reporting import ReportPath, check_report, write_report
from drstream.cli.voice import say_speed
from drstream.cli.workers import DaskAddress, WorkerProcesses, open_executor
from drstream.kernels._notice import clock


def replay(
    log: LogPath,
    policy: Annotated[
        list[str],
        typer.Option(
            help="Online policy, e.g. epsilon-greedy or, with parameters, linucb:alpha=0.5 (write '--policy ?' for a "
            "list); a fixed policy, as for drstream evaluate; or python:module:object. NAME=... gives it "
            "another name. Repeat the option for more policies."
        ),
    ],
    horizon: Annotated[
        int, typer.Option(help="T: number of steps in one replicate. New replicates start until the log ends.")
    ],
    method: Annotated[str, typer.Option(help="Method: dr-ns, dr-ns-wc, rs or dm.")] = "dr-ns",
    bias: Annotated[
        str,
        typer.Option(
            help="Target of the bias mass: share of the policy's probability that the simulation may lose, e.g. 0.02. "
            "'auto', unless --q or --c-max is given, tries several and pools those whose bias is small. Separate "
            "several by commas."
        ),
    ] = "auto",
    q: Annotated[
        str | None,
        typer.Option(
            help="Instead of --bias, the paper's quantile level: c is the q-quantile of p/π so far. A larger q accepts "
            "more events and adds bias. Separate several by commas."
        ),
    ] = None,
    c_max: Annotated[
        float | None, typer.Option(help="With --q: largest multiplier c; 1 by default. Alone, q is 0.01.")
    ] = None,
    c: Annotated[
        float | None,
        typer.Option(help="With dr-ns-wc and rs: the multiplier, if the smallest propensity of all actions is known."),
    ] = None,
    seed: Annotated[str, typer.Option(help="Random seed of the replay. Separate several by commas.")] = "0",
    carry: Annotated[bool, typer.Option("--carry", help="Keep the values p/π from one replicate to the next.")] = False,
    replicates: Annotated[int | None, typer.Option(help="Maximum number of replicates of each target or q.")] = None,
    shards: Annotated[
        int, typer.Option(help="Number of contiguous pieces of the log that are replayed independently.")
    ] = 1,
    tracker: Annotated[str, typer.Option(help="How the quantile is tracked: auto, exact or sketch.")] = "auto",
    epsilon: Annotated[float | None, typer.Option(help="Sets epsilon of every policy that has this parameter.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Sets temperature, likewise.")] = None,
    gamma: Annotated[float | None, typer.Option(help="Sets gamma, likewise.")] = None,
    alpha: Annotated[float | None, typer.Option(help="Sets alpha, likewise.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Sets learning_rate, likewise.")] = None,
    loss: Annotated[str | None, typer.Option(help="Sets loss, likewise: squared or logistic.")] = None,
    model: RewardModel = None,
    propensity_model: PropensityModel = None,
    inflation: Inflation = None,
    propensity_floor: PropensityFloor = None,
    crossfit: Crossfit = None,
    cluster: Cluster = None,
    fold_seed: FoldSeed = 0,
    clamp: Clamp = None,
    fit: Annotated[float, typer.Option(min=0, max=1, help=FIT_HELP)] = 0.2,
    fit_seed: Annotated[int, typer.Option(help="Random seed of the --fit split.")] = 0,
    confidence: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    precision: Precision = None,
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
    on_bad_row: OnBadRow = "error",
    threads: Threads = None,
    checkpoint: Checkpoint = None,
    workers: WorkerProcesses = None,
    dask: DaskAddress = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    output: Annotated[
        Path | None, typer.Option(help="Write the table to a .parquet or .csv file; '-' prints it as CSV instead.")
    ] = None,
    curve: Annotated[Path | None, typer.Option(help="Write the learning curves to a .parquet or .csv file.")] = None,
    report: ReportPath = None,
) -> None:
    """Simulate policies that learn on the events of a log (DR-ns), and estimate what they would have earned."""
    from drstream.cli import specs
    from drstream.errors import DrstreamError

    levels, seeds = None if q is None else numbers(q, "--q"), numbers(seed, "--seed", int)
    targets = bias if bias == "auto" else numbers(bias, "--bias", more=", or auto")
    whole = opened = open_log(locals())
    for path in (output, curve):
        if path is not None:
            check_output(path, opened, json=json)
    check_report(report, opened, output, curve)
    if output is not None and output == curve:
        raise DrstreamError(f"--output and --curve are both {output}: give two files")
    parameters = {"epsilon": epsilon, "temperature": temperature, "gamma": gamma, "alpha": alpha}
    parameters |= {"learning_rate": learning_rate, "loss": loss}  # type: ignore[dict-item]
    given = {name: value for name, value in parameters.items() if value is not None}
    from drstream.replaying.replay import replay as run

    policies = specs.online_policies(policy, opened, given)
    opened = specs.without_training_rows(policies.values(), opened)
    executor = open_executor(workers, dask)
    fitting = specs.Fitting(fit, fit_seed, parse_crossfit(crossfit), cluster, fold_seed, threads, executor, checkpoint)
    wanted = model, propensity_model, inflation, propensity_floor, clamp
    models, opened, fitted_here = specs.fitted_models(*wanted, opened, fitting)
    held = held_out(whole, opened, fitting if fitted_here else None)
    started = clock()
    result: Replays = run(
        opened,
        policies,
        horizon,
        **models,
        method=method,
        bias=targets,
        q=levels,
        c_max=c_max,
        c=c,
        seed=seeds,
        carry=carry,
        replicates=replicates,
        shards=shards,
        tracker=tracker,
        confidence=confidence,
        precision=precision,
        threads=threads,
        executor=executor,
        progress=True,
        checkpoint=checkpoint,
    )
    seconds = clock() - started
    result.provenance.update(held.to_dict())
    if output is not None:
        write_table(result.to_arrow(), output)
    if curve is not None:
        write_table(result.curves(), curve)
    write_report(result, report)
    if json:
        typer.echo(result.to_json())
    elif STDOUT not in (output, curve):
        from drstream.cli.tables import show_replays

        show_replays(result)
    if not json:
        if text := str(held):
            typer.echo(text, err=STDOUT in (output, curve))
        events = max(one.events for one in result)
        say_speed(events, seconds)
    if any(one.interrupted for one in result):
        raise typer.Exit(INTERRUPTED)
