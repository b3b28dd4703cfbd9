"""Logs of several days, a file for each, of every kind, and all that a result says."""

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import drstream as drs
from tests.helpers import candidate_logs, rankings
from tests.helpers.eligible import lists_of, random_mask
from tests.helpers.logs import world

P, M = drs.policies, drs.models
WORLD = world(kinds=None)
SOFT, LINEAR = P.Softmax(WORLD.taste), P.Linear(WORLD.taste[::-1])


def day(seed, rows=70):
    """Events of one day, with all columns that some kind of log needs."""
    table, rng = WORLD.table(rows, seed=seed), np.random.default_rng(seed)
    X = np.column_stack([table[f"x{j}"].to_numpy() for j in range(3)])
    mask = random_mask(rng, rows, 4)
    mask[np.arange(rows), table["action"].to_numpy()] = True
    more = {
        "user": rng.integers(0, 20, rows),
        "country": rng.choice(["DE", "FR", "IT"], rows),
        "spend": table["reward"].to_numpy() * rng.exponential(size=rows),
        "rate": rng.choice([0.5, 1.0], rows),
        "who": rng.choice(["a", "b"], rows),
        "mu": list(WORLD.logging(X)),
        "items": lists_of(mask),
        "size": rng.choice(["s", "m"], rows),
        "name": np.array(["n0", "n1", "n2", "n3"])[table["action"].to_numpy()],
    }
    for name, values in more.items():
        table = table.append_column(name, values if isinstance(values, pa.Array) else pa.array(values))
    return table


def ranked(seed, rows=40):
    rng = np.random.default_rng(seed)
    found = []
    for i in range(rows):
        length = 3 if i == 0 else int(rng.integers(1, 4))  # each day has a list of the longest length
        draw = {name: rng.uniform(0.1, 1, length).round(3).tolist() for name in ("p", "pi", "q", "e")}
        clicks = rng.integers(0, 2, length).astype(float).tolist()
        found.append({"items": rng.permutation(6)[:length].tolist(), "r": clicks, **draw})
    return rankings.table_of(found, country=pa.array(rng.choice(["DE", "FR"], rows)))


def offered(seed, rows=40):
    found = candidate_logs.events(rows=rows, seed=seed)
    columns, _ = candidate_logs.columns_of(found)
    action = [found["ids"][s[i]] for s, i in zip(found["sets"], found["position"], strict=True)]
    numbers = {name: found[name] for name in ("reward", "propensity")}
    return pa.table({"x": list(found["x"]), "action": action, **numbers, **columns})


@dataclasses.dataclass
class Kind:
    """A kind of evaluation: tables by day, options of the log and of `evaluate`."""

    policies: dict
    log: dict = dataclasses.field(default_factory=dict)
    options: dict = dataclasses.field(default_factory=dict)
    make: object = day
    model: object = None  # made from a log of other days
    plain: bool = True  # whether a pass without a state has the same bits, too

    def open(self, paths):
        return drs.Log(paths, **self.log)

    def evaluate(self, paths, **more):
        return drs.evaluate(self.open(paths), self.policies, **{**self.fitted, **self.options, **more})

    @property
    def fitted(self):
        return {} if self.model is None else self.model(self.log)


def ridge(log):
    return {"model": M.Ridge().fit(drs.Log(day(99), **log))}


def predicted(log):
    return {**ridge(log), "propensity": M.Propensity().fit(drs.Log(day(98), **log))}


def halves(X):
    return np.tile([0.5, 0.5, 0.0, 0.0], (len(X), 1))


CONTEXT = {"context": "x?"}
TWO = {"soft": SOFT, "linear": LINEAR}
FOUR = {**TWO, "one": P.Constant(1), "even": P.Epsilon(SOFT, 0.2)}
LIMITED = ["ips", "snips", "dr", "dm", "sndr", "ips-cv", "ips-capped", "dr-capped", "dros", "switch-dr"]
KINDS = {
    "fused": Kind(FOUR, CONTEXT, model=ridge),
    "limits": Kind(TWO, CONTEXT, {"estimators": LIMITED, "cap": 5.0, "lambda_": 3.0, "explain": True}, model=ridge),
    "grid": Kind(TWO, CONTEXT, {"estimators": ["dros", "dr-capped"], "lambda_": "auto"}, model=ridge),
    "segments and clusters": Kind(
        TWO,
        CONTEXT,
        {"by": ["country", "size"], "cluster": "user", "interval": ["cluster", "normal"]},
        model=ridge,
    ),
    "bounds": Kind(
        TWO,
        CONTEXT,
        {
            "interval": ["gamma", "likelihood", "bernstein", "freedman"],
            "reward_range": (0, 1),
            "max_weight_bound": 1e3,
            "estimators": ["ips", "snips"],
            "propensity_error": 0.1,
        },
    ),
    "rewards": Kind(TWO, {**CONTEXT, "reward": ["reward", "spend"], "sample_rate": "rate"}),
    "loggers": Kind(TWO, {**CONTEXT, "logger": "who"}, {"estimators": ["ips", "snips"]}),
    "propensities": Kind(TWO, CONTEXT, {"clamp": (0, 1)}, model=predicted),
    "categories": Kind(
        {"soft": P.Softmax(WORLD.taste)},
        {**CONTEXT, "propensities": "mu"},
        {"estimators": ["ips", "mips", "snmips"], "embedding": {0: "a", 1: "b", 2: "a", 3: "b"}},
        plain=False,
    ),
    "eligible": Kind(
        {"soft": SOFT, "even": P.Epsilon(SOFT, 0.3), "uniform": P.Uniform()}, {**CONTEXT, "eligible": "items"}
    ),
    "functions": Kind(
        {
            "halves": halves,
            "named": P.named("v1", halves),
            "arrow": P.from_arrow(lambda batch: np.tile([1.0, 0, 0, 0], (batch.num_rows, 1)), columns=["x0"]),
        },
        {**CONTEXT, "actions": 4},
    ),
    "texts": Kind(
        {"uniform": P.Uniform(), "n1": P.Constant("n1")},
        {
            "context": ["x0", "size"],
            "categorical": ["size"],
            "action": "name",
            "actions": ["n0", "n1", "n2", "n3"],
            "filter": "country != 'IT'",
            "on_bad_row": "skip",
        },
    ),
    "rankings": Kind({"new": rankings.NEW}, rankings.ROLES, {"by": "country"}, make=ranked),
    "candidates": Kind(
        {"uniform": P.Uniform(), "soft": P.Softmax(np.array([0.3, 0.1, 0.5, -1.0, 0.2]))},
        {"context": "x", "candidates": drs.Candidates("items", "z")},
        make=offered,
    ),
}


def write(folder, tables, rows=25):
    """One file a day, each with several row groups."""
    paths = [folder / f"{number:02}.parquet" for number in range(len(tables))]
    for path, table in zip(paths, tables, strict=True):
        pq.write_table(table, path, row_group_size=rows)
    return paths


def contents(result):
    """All that a result says, to the last bit, but for where it comes from. Undefined numbers equal each other."""
    found = without_origin(result.to_dict())
    pairs = [(a, b) for a in result.policies for b in result.policies if a != b]
    paired = [vars(result.difference(a, b, e)) for a, b in pairs for e in result.estimators]
    return repr((found, paired, [repr(one) for one in result.rewards.values()]))


def without_origin(found):
    if isinstance(found, dict):
        return {name: without_origin(value) for name, value in found.items() if name != "provenance"}
    return found
