"""Results of every kind for tests of reports, each made once; one of them has hostile text wherever text can be."""

import functools
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import drstream as drs
from tests.helpers.candidate_logs import events, log_of
from tests.helpers.rankings import Simulated

WORLD = drs.synth.World(n_actions=3, n_features=2)
POLICIES = {"new": drs.policies.Softmax(WORLD.taste, WORLD.appeal), "even": drs.policies.Uniform()}
SCRIPT = "<script>window.hacked = 1</script>"
IMAGE = "\"><img src=x onerror='window.hacked = 2'>"
ANSI = "\x1b[31mred\x1b]0;title\x07"
RIGHT = "\u202eעברית\u2066"
LONG = "w" * 5_000
HOSTILE = (SCRIPT, IMAGE, ANSI, RIGHT, LONG)


def table(rows=3_000, seed=1, **columns):
    found = WORLD.table(rows, seed=seed)
    for name, values in columns.items():
        found = found.append_column(name, pa.array(values))
    return found


def words(rows, of, seed=0):
    return np.random.default_rng(seed).choice(list(of), rows).tolist()


@functools.cache
def evaluation():
    """Two policies, a reward model, segments, and parts of the variance."""
    log = drs.Log(table(country=words(3_000, ["DE", "FR"])), context="x?")
    return drs.evaluate(log, POLICIES, drs.models.Ridge(), crossfit=2, by="country", explain=True)


@functools.cache
def several_rewards():
    found = table()
    sold = pa.array(found["reward"].to_numpy() * 3.0)
    log = drs.Log(found.append_column("sales", sold), context="x?", reward=["reward", "sales"])
    return drs.evaluate(log, POLICIES, estimators=["ips", "snips"])


@functools.cache
def rankings():
    return Simulated("additive").evaluate(400, 0, ["ips", *drs.rankings.ALL])


@functools.cache
def candidates():
    log = log_of(events(400))
    return drs.evaluate(log, drs.policies.Uniform(), drs.models.Ridge(), crossfit=2)


@functools.cache
def merged():
    days = [drs.partial(table(1_000, seed).to_batches(), POLICIES, explain=True, log={"actions": 3}) for seed in (1, 2)]
    return drs.merge(days)


@functools.cache
def replay():
    """One policy, with a grid of targets of the bias mass."""
    log = drs.Log(table(), context="x?")
    return drs.replay(log, drs.policies.EpsilonGreedy(epsilon=0.2), 40, drs.models.Ridge(), crossfit=2)


@functools.cache
def replays():
    log = drs.Log(table(), context="x?")
    policies = {"greedy": drs.policies.EpsilonGreedy(epsilon=0.2), "even": drs.policies.Uniform()}
    return drs.replay(log, policies, 40, bias=[0.05, 0.1], seed=[0, 1])


@functools.cache
def incomplete():
    """A log that is too short for one of two policies."""
    policies = {"even": drs.policies.Uniform(), "slow": drs.policies.Constant(0)}
    return drs.replay(drs.Log(table(300), context="x?"), policies, 60, bias=0.1)


@functools.cache
def audit():
    return drs.Log(table(time=list(range(3_000))), context="x?").audit(time="time")


@functools.cache
def bad_audit():
    """Propensities that are twice the right ones."""
    found = table()
    wrong = pa.array(np.minimum(2 * found["propensity"].to_numpy(), 1.0))
    place = found.column_names.index("propensity")
    return drs.Log(found.set_column(place, "propensity", wrong), context="x?").audit()


@functools.cache
def plan():
    return drs.plan(drs.Log(table(), context="x?"), POLICIES["new"])


def hostile_log(folder):
    """A file, columns, actions and segments with hostile names."""
    found = table()
    labels = pa.array([f"{SCRIPT}{IMAGE}", RIGHT, ANSI])
    found = found.set_column(found.column_names.index("action"), IMAGE, labels.take(found["action"].cast(pa.int64())))
    found = found.append_column(SCRIPT, pa.array(words(3_000, HOSTILE)))
    path = Path(folder) / f"{SCRIPT.replace('/', '_')}&'.parquet"
    pq.write_table(found.rename_columns([f"{IMAGE}r" if n == "reward" else n for n in found.column_names]), path)
    return drs.Log(path, context="x?", action=IMAGE, reward=f"{IMAGE}r", filter=pc.field(SCRIPT) != SCRIPT.upper())


@functools.cache
def hostile():
    """An evaluation, an audit and a replay of that log, with hostile names of policies."""
    log = hostile_log(tempfile.mkdtemp())
    policies = {name: drs.policies.Uniform() if i else POLICIES["new"] for i, name in enumerate(HOSTILE)}
    result = drs.evaluate(log, policies, drs.models.Ridge(), crossfit=2, by=[SCRIPT], explain=True)
    learners = {name: drs.policies.EpsilonGreedy(epsilon=0.5) for name in (SCRIPT, RIGHT, LONG)}
    return {"evaluation": result, "audit": log.audit(), "replay": drs.replay(log, learners, 40, bias=0.1)}


ALL = {
    "evaluation": evaluation,
    "rewards": several_rewards,
    "rankings": rankings,
    "candidates": candidates,
    "merged": merged,
    "replay": replay,
    "replays": replays,
    "incomplete": incomplete,
    "audit": audit,
    "bad audit": bad_audit,
    "plan": plan,
}
