"""drstream plan: what evaluate and replay will tell on the whole log, from a sample of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from drstream.cli.held_out import held_out
from drstream.cli.options import (
    FIT_HELP,
    STDOUT,
    Action,
    ActionIs,
    Actions,
    CandidateColumns,
    Categorical,
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
    Inflation,
    ItemsFile,
    LogPath,
    Missing,
    OnBadRow,
    Propensities,
    Propensity,
    PropensityFloor,
    PropensityModel,
    Reward,
    RewardModel,
    SampleRate,
    SparseContext,
    Threads,
    check_output,
    numbers,
    open_log,
    parse_embedding,
    write_table,
)
from drstream.cli.reporting import ReportPath, check_report, write_report


def plan(
    log: LogPath,
    policy: Annotated[
        list[str],
        typer.Option(
            help="Fixed policy, as for drstream evaluate, or online policy, as for drstream replay (write '--policy ?' "
            "for a list). NAME=... gives it another name. Repeat the option for more policies."
        ),
    ],
    horizon: Annotated[
        int | None,
        typer.Option(
            help="T: number of steps in one replicate. All policies are then planned for a replay. Without it, only "
            "online policies are, for 1,000 steps."
        ),
    ] = None,
    sample: Annotated[
        float | None,
        typer.Option(help="Share of the rows to look at. By default 2 %, at least 10,000 rows and at most 500,000."),
    ] = None,
    estimator: Annotated[
        list[str] | None, typer.Option(help="Estimators, separated by commas. By default, all that apply.")
    ] = None,
    cap: Annotated[
        float | None, typer.Option(help="For the capped estimators: lower larger weights to this value.")
    ] = None,
    floor: Annotated[
        float | None, typer.Option(help="For the capped estimators: raise smaller propensities to this value.")
    ] = None,
    lambda_: Annotated[
        float | None,
        typer.Option("--lambda", help="Limit of the estimators that shrink weights, or drop those above it."),
    ] = None,
    embedding: EmbeddingOption = None,
    interval: Annotated[
        str | None, typer.Option(help="Method of the intervals. By default, one that suits the log.")
    ] = None,
    confidence: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    reward_range: Annotated[
        str | None, typer.Option(help="Smallest and largest possible reward, as LOW,HIGH, e.g. 0,1.")
    ] = None,
    max_weight_bound: Annotated[float | None, typer.Option(help="Largest possible importance weight.")] = None,
    bias: Annotated[
        str,
        typer.Option(
            help="Target of the bias mass, e.g. 0.02. 'auto' means all targets that drstream replay tries. Separate "
            "several by commas."
        ),
    ] = "auto",
    q: Annotated[
        str | None,
        typer.Option(help="Instead of --bias, the paper's quantile level. Separate several by commas."),
    ] = None,
    c_max: Annotated[float | None, typer.Option(help="With --q: largest multiplier c; 1 by default.")] = None,
    seed: Annotated[int, typer.Option(help="Random seed of the replay.")] = 0,
    model: RewardModel = None,
    propensity_model: PropensityModel = None,
    inflation: Inflation = None,
    propensity_floor: PropensityFloor = None,
    crossfit: Crossfit = None,
    cluster: Cluster = None,
    fold_seed: FoldSeed = 0,
    clamp: Clamp = None,
    fit: Annotated[
        float | None, typer.Option(min=0, max=1, help=f"{FIT_HELP} By default 0.5, or 0.2 with --horizon.")
    ] = None,
    fit_seed: Annotated[int, typer.Option(help="Random seed of the --fit split.")] = 0,
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
    propensities: Propensities = None,
    sample_rate: SampleRate = None,
    actions: Actions = None,
    eligible: Eligible = None,
    filter: Filter = None,
    exclude: Exclude = None,
    on_bad_row: OnBadRow = "error",
    threads: Threads = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            help="Write the forecasts to a .parquet or .csv file; '-' prints them as CSV instead of the tables."
        ),
    ] = None,
    report: ReportPath = None,
) -> None:
    """Say, from a sample of a log, how wide intervals will be on all of it, and how many replicates a replay gives."""
    from drstream.cli import specs
    from drstream.planning.plan import plan as run

    whole = opened = open_log(locals())
    if output is not None:
        check_output(output, opened, json=json)
    check_report(report, opened, output)
    categories = parse_embedding(embedding)
    policies = specs.online_policies(policy, opened, {})
    opened = specs.without_training_rows(policies.values(), opened)
    share = fit if fit is not None else 0.5 if horizon is None else 0.2
    fitting = specs.Fitting(share, fit_seed, crossfit, cluster, fold_seed, threads)
    wanted = model, propensity_model, inflation, propensity_floor, clamp
    models, opened, fitted_here = specs.fitted_models(*wanted, opened, fitting)
    held = held_out(whole, opened, fitting if fitted_here else None)
    result = run(
        opened,
        policies,
        horizon=horizon,
        sample=sample,
        estimators=[n.strip() for text in estimator for n in text.split(",")] if estimator else None,
        **{**models, "cluster": cluster},
        cap=cap,
        floor=floor,
        lambda_=lambda_,
        embedding=categories,
        interval=interval,
        confidence=confidence,
        reward_range=numbers(reward_range, "--reward-range") if reward_range else None,
        max_weight_bound=max_weight_bound,
        bias=bias if bias == "auto" else numbers(bias, "--bias", more=", or auto"),
        q=None if q is None else numbers(q, "--q"),
        c_max=c_max,
        seed=seed,
        threads=threads,
    )
    result.provenance.update(held.to_dict())
    if output is not None:
        write_table(result.to_arrow(), output)
    write_report(result, report)
    if json:
        typer.echo(result.to_json())
        return
    if output != STDOUT:
        from drstream.cli.tables import show_forecast

        show_forecast(result)
    if text := str(held):
        typer.echo(text, err=output == STDOUT)
