"""The cases that need a process of their own, peak memory and start-up, with their requirements."""

from __future__ import annotations

from dataclasses import replace

from bench.common.logs import LIST, WIDE, LogFile
from bench.models.cases import MODELS
from bench.process import compiling, once

# Peak memory

MEMORY_MAIN = replace(WIDE, rows=2 * WIDE.rows // 5)  # 2 million
MEMORY_LOGS = {MEMORY_MAIN: 10, LIST: 4}  # the long log has so many times the rows
PEAK_MEMORY = 500  # MB, at any number of rows
LONGER = 4  # for replays and fits, the long log has so many times the rows
MEMORY_GROWTH = 1.10  # maximum ratio of the long log's peak to the short log's
BYTES_A_VALUE = 16  # maximum that the exact tracker adds to the peak, for each value in Q
SKLEARN = dict(zip(MODELS, once.SKLEARN_FITS, strict=True))  # tasks of `bench.process.once`
REPLAY_MEMORY_NAME = "peak memory of replay"


def memory_name(log: LogFile) -> str:
    return f"peak memory, {log}"


def fit_memory_name(model: str) -> str:
    return f"peak memory of the fit of {model}"


# Start-up

START = 2.0  # s, with a warm kernel cache
START_NAME = "a fresh process"
REPLAY_START_NAME = "a fresh process that replays"


def compiling_name(step: str) -> str:
    return f"compiling for first results: {step}"


MAIN = {
    compiling_name("ips"): "first result, no kernels in the cache: IPS",
    compiling_name("folds"): "then with a ridge model and folds",
    compiling_name("replay"): "then a replay",
    memory_name(MEMORY_MAIN): "peak memory, ten times the rows",
}
NAMES = [
    *map(memory_name, MEMORY_LOGS),
    REPLAY_MEMORY_NAME,
    *map(fit_memory_name, MODELS),
    START_NAME,
    REPLAY_START_NAME,
    *map(compiling_name, compiling.LIMITS),
]
