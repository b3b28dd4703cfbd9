"""The replays that run in a process of their own: a small one for start-up, and long ones for peak memory."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq

import drstream as drs
from bench.common import logs, racing
from bench.replaying import cases

LONG = drs.policies.EpsilonGreedy(epsilon=1.0)  # uniform: it accepts 24 % of the events at q = 0.01


def replay_small(log: str) -> drs.Replay:
    source = drs.Log(log, actions=logs.ACTIONS)
    return drs.replay(source, cases.GREEDY.policies, 20, logs.model(), q=cases.Q, threads=racing.THREADS)


def replay_long(log: str, tracker: str) -> drs.Replay:
    """T is a tenth of the log's rows. Two replicates are complete, and each takes 0.4 of the events."""
    source = drs.Log(log, actions=logs.ACTIONS)
    horizon = (source.rows or 0) // 10
    return drs.replay(source, LONG, horizon, logs.model(), q=0.01, tracker=tracker, threads=racing.THREADS)


def values_held(log: str, run: drs.Replay) -> int:
    """The largest size of Q in `replay_long`. Q holds ratios p / π below c_max and only counts the others."""
    small = pq.read_table(log, columns=["propensity"])["propensity"].to_numpy() < run.c_max / logs.ACTIONS
    starts = [*run.replicates["first_row"].to_pylist(), len(small) - run.left_over]
    return max(int(part.sum()) for part in np.split(small, starts[1:]))
