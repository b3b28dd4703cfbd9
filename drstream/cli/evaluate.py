"""drstream evaluate: the value of fixed policies."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from drstream.cli.comparing import parse_pairs
from drstream.cli.held_out import held_out
from drstream.cli.options import (
    FIT_HELP,
    STDOUT,
    STOPPED,
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
    EmbeddingOption,
    Exclude,
    Filter,
    FoldSeed,
    HashedColumns,
    ItemsFile,
    Logger,
    LoggerPropensities,
    LogPath,
    Missing,
    OnBadRow,
    Positions,
    Precision,
    Propensity,
    PropensityFloor,
    PropensityModel,
    RewardModel,
    Rewards,
    SampleRate,
    SparseContext,
    Threads,
    check_output,
    numbers,
    open_log,
    parse_crossfit,
    parse_embedding,
    parse_logger_propensities,
    write_table,
)
from drstream.cli.reporting import ReportPath, check_report, write_report
from drstream.cli.showing import all_rewards, show_result, stops
from drstream.cli.voice import say_speed
from drstream.cli.workers import DaskAddress, WorkerProcesses, open_executor
from drstream.evaluation.estimators import ALL as ESTIMATORS
from drstream.evaluation.estimators import AUTO
from drstream.evaluation.rankings import ALL as RANKINGS
from drstream.intervals.names import NAMES as INTERVALS
from drstream.kernels._notice import clock


def evaluate(
    log: LogPath,
    policy: Annotated[
        list[str],
        typer.Option(
            help="Policy: uniform, constant:LABEL, column:NAME, softmax:weights.npz, linear:weights.npz, "
            "greedy:model.npz, python:module:object, or a file of drstream optimize. "
            "The rows that a file was learned from are left out. NAME=... gives it another name. Repeat the "
            "option for more policies."
        ),
    ],
    model: RewardModel = None,
    propensity_model: PropensityModel = None,
    inflation: Annotated[
        float | None,
        typer.Option(
            help="Multiply propensities by this factor: those of the propensity model or, for the capped estimators, "
            "those of the log."
        ),
    ] = None,
    propensity_floor: PropensityFloor = None,
    crossfit: Crossfit = None,
    cluster: Cluster = None,
    fold_seed: FoldSeed = 0,
    clamp: Clamp = None,
    fit: Annotated[float, typer.Option(min=0, max=1, help=FIT_HELP)] = 0.5,
    seed: Annotated[int, typer.Option(help="Random seed of the --fit split.")] = 0,
    estimator: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Estimators, separated by commas: {', '.join(ESTIMATORS)}. By default, all that apply. Only "
            f"on request: {', '.join(name for name, e in ESTIMATORS.items() if not e.default)}. For rankings: "
            f"{', '.join(RANKINGS)}."
        ),
    ] = None,
    cap: Annotated[
        str | None,
        typer.Option(help="For the capped estimators: lower larger weights to this value. 'auto' chooses from a grid."),
    ] = None,
    floor: Annotated[
        str | None,
        typer.Option(
            help="For the capped estimators: raise smaller propensities to this value. 'auto' chooses from a grid."
        ),
    ] = None,
    lambda_: Annotated[
        str | None,
        typer.Option(
            "--lambda",
            help="Limit of the estimators that shrink weights, or drop those above it. 'auto' chooses from a grid.",
        ),
    ] = None,
    embedding: EmbeddingOption = None,
    interval: Annotated[
        str | None,
        typer.Option(
            help=f"Methods of the intervals, separated by commas: {', '.join(INTERVALS)}. The first one is shown. By "
            "default, one that suits the log."
        ),
    ] = None,
    confidence: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    reward_range: Annotated[
        str | None, typer.Option(help="Smallest and largest possible reward, as LOW,HIGH, e.g. 0,1.")
    ] = None,
    max_weight_bound: Annotated[float | None, typer.Option(help="Largest possible importance weight.")] = None,
    propensity_error: Annotated[
        float | None,
        typer.Option(help="How wrong propensities may be, e.g. 0.1: true ones are within 10 % of those in the log."),
    ] = None,
    measured: Annotated[
        bool,
        typer.Option(
            "--measured/--not-measured",
            help="For --interval freedman: measure its constants, or take the largest possible ones, which guarantees "
            "the coverage.",
        ),
    ] = True,
    by: Annotated[
        str | None,
        typer.Option(help="Columns, separated by commas, e.g. country,device. Each segment is evaluated, too."),
    ] = None,
    compare: Annotated[
        list[str] | None,
        typer.Option(
            help="Two policies, as NEW,OLD: also show the value of the first minus that of the second, with a paired "
            "interval. Repeat the option for more pairs."
        ),
    ] = None,
    precision: Precision = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Also show where the variance comes from, and the bias of a cap.")
    ] = False,
    second_model: Annotated[
        str | None,
        typer.Option(
            help="With --explain: another reward model, as in --model. It tells the noise of the rewards from the "
            "error of the first model."
        ),
    ] = None,
    deterministic_rewards: Annotated[
        bool,
        typer.Option(
            "--deterministic-rewards",
            help="With --explain: an action in a context always has the same reward, so that there is no noise.",
        ),
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with code 3 if a finding says not to use a number.")
    ] = False,
    context: Context = None,
    sparse: SparseContext = None,
    candidates: CandidateColumns = None,
    items: ItemsFile = None,
    action_is: ActionIs = None,
    categorical: Categorical = None,
    hashed: HashedColumns = None,
    missing: Missing = None,
    action: Action = None,
    reward: Rewards = None,
    propensity: Propensity = None,
    propensities: Annotated[
        str | None,
        typer.Option(
            help="Column with lists of the probabilities of all actions, or a column for each action, separated by "
            f"commas. For {', '.join(name for name, e in ESTIMATORS.items() if e.needs_all_propensities)}."
        ),
    ] = None,
    sample_rate: SampleRate = None,
    logger: Logger = None,
    logger_propensities: LoggerPropensities = None,
    positions: Positions = None,
    actions: Actions = None,
    eligible: Eligible = None,
    filter: Filter = None,
    exclude: Exclude = None,
    on_bad_row: OnBadRow = "error",
    threads: Threads = None,
    state: Annotated[
        Path | None,
        typer.Option(help="Write the state of the pass to this file. 'drstream merge' makes results of such files."),
    ] = None,
    checkpoint: Checkpoint = None,
    workers: WorkerProcesses = None,
    dask: DaskAddress = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            help="Write the estimates to a .parquet or .csv file; '-' prints them as CSV instead of the table."
        ),
    ] = None,
    report: ReportPath = None,
) -> None:
    """Estimate the value of policies from a log, each with an interval."""
    from drstream.cli import specs
    from drstream.evaluation.evaluate import evaluate as run

    of_loggers = parse_logger_propensities(logger_propensities)
    whole = opened = open_log(locals(), logger=logger, logger_propensities=of_loggers)
    if output is not None:
        check_output(output, opened, json=json)
    check_report(report, opened, output, state, checkpoint)
    categories = parse_embedding(embedding)
    policies = specs.policies(policy, opened)
    compared = parse_pairs(compare, policies)
    opened = specs.without_training_rows(policies.values(), opened)
    names = [n.strip() for text in estimator for n in text.split(",")] if estimator else None
    executor = open_executor(workers, dask)
    fitting = specs.Fitting(fit, seed, parse_crossfit(crossfit), cluster, fold_seed, threads, executor, checkpoint)
    of_model = None if propensity_model is None else inflation  # else it is about the log's own propensities
    wanted = model, propensity_model, of_model, propensity_floor, clamp
    models, opened, fitted_here = specs.fitted_models(*wanted, opened, fitting, second_model)
    held = held_out(whole, opened, fitting if fitted_here else None)
    told = _explain(explain, models.pop("second_model", None), deterministic_rewards)
    started = clock()
    result = run(
        opened,
        policies,
        estimators=names,
        **{**models, "cluster": cluster},
        cap=_limit(cap, "--cap"),
        floor=_limit(floor, "--floor"),
        inflation=inflation if propensity_model is None else None,
        lambda_=_limit(lambda_, "--lambda"),
        embedding=categories,
        interval=_words(interval),
        confidence=confidence,
        reward_range=numbers(reward_range, "--reward-range") if reward_range else None,
        max_weight_bound=max_weight_bound,
        propensity_error=propensity_error,
        constants=None if measured else _largest_constants(),
        by=_words(by),
        precision=precision,
        explain=told,
        threads=threads,
        executor=executor,
        progress=True,
        state=state,
        checkpoint=checkpoint,
    )
    seconds = clock() - started
    result.provenance.update(held.to_dict())
    write_report(result, report)
    left_out = getattr(models["model"], "skipped_", None)
    if left_out:
        from drstream.cli.tables import reasons

        typer.echo(f"bad rows skipped while the model was fitted: {reasons(left_out)}", err=True)
    if output is not None:
        write_table(all_rewards(result), output)
    if output != STDOUT:
        show_result(result, compared, json=json, explain=explain)
    if not json:
        if text := str(held):
            typer.echo(text, err=output == STDOUT)
        say_speed(result.n, seconds)
    if strict and stops(result):
        raise typer.Exit(STOPPED)


def _largest_constants() -> Any:
    from drstream.intervals.statistic import Constants

    return Constants(measured=False)


def _explain(asked: bool, second_model: Any, deterministic_rewards: bool) -> Any:
    from drstream.errors import DrstreamError
    from drstream.evaluation.explanation import Explain

    given = {"second-model": second_model is not None, "deterministic-rewards": deterministic_rewards}
    for option, is_given in given.items():
        if is_given and not asked:
            raise DrstreamError(f"--{option} is about explanations: give --explain, too")
    return Explain(second_model, deterministic_rewards) if asked else False


def _words(text: str | None) -> list[str] | None:
    return [word.strip() for word in text.split(",")] if text else None


def _limit(text: str | None, option: str) -> float | str | None:
    return text if text in (None, AUTO) else numbers(text, option)[0]
