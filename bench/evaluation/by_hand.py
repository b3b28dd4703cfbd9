"""The whole job by hand: dm, ips, snips and dr of a softmax policy with a linear model, with standard errors.

Each form computes nine sums over the log in one pass. The forms take the exponent without subtracting the largest score
first, which saves time and is safe on this log only. Scores are float32, as the contexts are; sums are float64. With
kind="float64" Polars and DuckDB compute in float64, which takes them 1.5 to 1.7 times as long and serves as a check.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, reduce
from operator import add

import duckdb
import numpy as np
import polars as pl
import pyarrow.parquet as pq
from threadpoolctl import threadpool_limits

from bench.common import logs, racing
from bench.common.baselines import Estimates, from_moments
from bench.evaluation import cases

ACTIONS = range(logs.ACTIONS)
POLARS_CHUNK = 50_000  # rows; takes 0.76 of the processor time that Polars' default takes
NUMBERS = {"float32": "FLOAT", "float64": "DOUBLE"}  # of DuckDB
BATCH_ROWS, BLOCK = 32_768, 4_096  # of NumPy


@cache
def weights() -> tuple[np.ndarray, np.ndarray]:
    """Weights and intercepts of the policy's scores, then those of the model's predictions: (2K, d) and (2K,)."""
    policy, model = cases.SOFTMAX["softmax"], logs.model()
    return np.concatenate([policy.weights, model.coef_]), np.concatenate([policy.intercept, model.intercept_])


def finish(n: int, moments: list[float]) -> Estimates:
    return {("softmax", name): found for name, found in from_moments(n, moments).items()}


# Polars


def polars(log: logs.LogFile, kind: str = "float32") -> Estimates:
    with pl.Config(streaming_chunk_size=POLARS_CHUNK):
        n, *moments = polars_query(log, kind).collect(engine="streaming").row(0)
    return finish(n, moments)


def polars_query(log: logs.LogFile, kind: str) -> pl.LazyFrame:
    dtype = {"float32": pl.Float32, "float64": pl.Float64}[kind]
    coef, intercept = weights()

    def linear(i: int) -> pl.Expr:
        products = (pl.col(f"x{j}").cast(dtype) * pl.lit(value, dtype) for j, value in enumerate(coef[i]))
        return reduce(add, products, pl.lit(intercept[i], dtype))

    def logged(letter: str) -> pl.Expr:
        """The column of the logged action. A sum of masked columns takes as long."""
        chain = pl.when(pl.col("action") == 0).then(pl.col(f"{letter}0"))
        for k in ACTIONS[1:-1]:
            chain = chain.when(pl.col("action") == k).then(pl.col(f"{letter}{k}"))
        return chain.otherwise(pl.col(f"{letter}{ACTIONS[-1]}"))

    e, q = ([pl.col(f"{letter}{k}") for k in ACTIONS] for letter in "eq")
    w, y, b, dr, r = (pl.col(name) for name in ("w", "y", "b", "dr", "reward"))
    exact = pl.Float64
    return (
        pl.scan_parquet(log.path)
        .select(
            "action",
            "reward",
            "propensity",
            **{f"e{k}": linear(k).exp() for k in ACTIONS},
            **{f"q{k}": linear(logs.ACTIONS + k) for k in ACTIONS},
        )
        .select(
            "reward",
            "propensity",
            z=reduce(add, e),
            expected=reduce(add, (one * two for one, two in zip(e, q, strict=True))),
            e=logged("e"),
            q=logged("q"),
        )
        .select(
            "reward",
            "q",
            w=pl.col("e").cast(exact) / pl.col("z") / pl.col("propensity"),
            b=(pl.col("expected") / pl.col("z")).cast(exact),
        )
        .select("w", "b", y=w * r, dr=b + w * (r - pl.col("q")))
        .select(
            pl.len(),
            *(s.sum().alias(str(i)) for i, s in enumerate((w, w * w, y, y * y, w * y, b, b * b, dr, dr * dr))),
        )
    )


# DuckDB


@cache
def connection() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": racing.THREADS})


def duck_columns(log: logs.LogFile, kind: str = "float32") -> Estimates:
    """A score is a sum of products of columns."""
    number = NUMBERS[kind]

    def product(coef: list[float]) -> str:
        return " + ".join(f"x{j} * {value!r}::{number}" for j, value in enumerate(coef))

    return duck(log, "SELECT * FROM read_parquet(?)", product, number)


def duck_arrays(log: logs.LogFile, kind: str = "float32") -> Estimates:
    """A score is one inner product of arrays."""
    number = NUMBERS[kind]
    array = f"{number}[{logs.FEATURES}]"
    x = ", ".join(f"x{j}" for j in range(logs.FEATURES))

    def product(coef: list[float]) -> str:
        return f"array_inner_product(x, {coef}::{array})"

    source = f"SELECT action, reward, propensity, [{x}]::{array} AS x FROM read_parquet(?)"
    return duck(log, source, product, number)


def duck(log: logs.LogFile, source: str, product: Callable[[list[float]], str], number: str) -> Estimates:
    n, *moments = connection().execute(duck_query(source, product, number), [str(log.path)]).fetchone()
    return finish(n, moments)


def duck_query(source: str, product: Callable[[list[float]], str], number: str) -> str:
    coef, intercept = (part.tolist() for part in weights())

    def linear(i: int) -> str:
        return f"{product(coef[i])} + {intercept[i]!r}::{number}"

    def logged(letter: str) -> str:
        return f"CASE action {' '.join(f'WHEN {k} THEN {letter}{k}' for k in ACTIONS)} END"

    scores = ", ".join(f"exp({linear(k)}) AS e{k}, {linear(logs.ACTIONS + k)} AS q{k}" for k in ACTIONS)
    z = " + ".join(f"e{k}" for k in ACTIONS)
    expected = " + ".join(f"e{k} * q{k}" for k in ACTIONS)
    return f"""
        WITH scored AS (SELECT action, reward, propensity, {scores} FROM ({source})),
        chosen AS (SELECT reward, propensity, {logged("e")} AS e, {logged("q")} AS q,
                   ({z})::DOUBLE AS z, ({expected})::DOUBLE AS expected FROM scored),
        weighted AS (SELECT reward, q, e / z / propensity AS w, expected / z AS b FROM chosen),
        terms AS (SELECT w, b, w * reward AS y, b + w * (reward - q) AS dr FROM weighted)
        SELECT count(*), sum(w), sum(w * w), sum(y), sum(y * y), sum(w * y), sum(b), sum(b * b), sum(dr), sum(dr * dr)
        FROM terms
    """


# NumPy over pyarrow


def numpy(log: logs.LogFile) -> Estimates:
    coef, intercept = (part.astype(np.float32) for part in weights())

    def sums(group: int) -> np.ndarray:
        found = np.zeros(9)
        with pq.ParquetFile(log.path) as file:
            for batch in file.iter_batches(BATCH_ROWS, row_groups=[group], columns=log.columns, use_threads=False):
                action, reward, propensity, *x = (column.to_numpy() for column in batch.columns)
                for start in range(0, len(batch), BLOCK):
                    rows = slice(start, start + BLOCK)
                    scores = coef @ np.stack([column[rows] for column in x])
                    scores += intercept[:, np.newaxis]
                    found += block_sums(scores, action[rows], reward[rows], propensity[rows])
        return found

    metadata = pq.read_metadata(log.path)
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(racing.THREADS) as threads:
        moments = sum(threads.map(sums, range(metadata.num_row_groups)))
    return finish(metadata.num_rows, moments.tolist())


def block_sums(scores: np.ndarray, action: np.ndarray, reward: np.ndarray, propensity: np.ndarray) -> np.ndarray:
    exps, predictions = scores[: logs.ACTIONS], scores[logs.ACTIONS :]
    np.exp(exps, out=exps)
    rows = np.arange(len(action))
    z = exps.sum(axis=0, dtype=np.float64)
    w = exps[action, rows] / z / propensity
    b = np.einsum("kn,kn->n", exps, predictions) / z
    y = w * reward
    dr = b + w * (reward - predictions[action, rows])
    return np.array([w.sum(), w @ w, y.sum(), y @ y, w @ y, b.sum(), b @ b, dr.sum(), dr @ dr])
