"""Events that choose from sets of their own: eligible actions, candidates with features, and rankings."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from frozen import calls, evaluating, kept, logs

ROWS, ACTIONS, ITEMS = 3_000, 5, 12
LIMITS = evaluating.LIMITS
USERS = {"cluster": "user", "interval": ["cluster", "bootstrap"]}


def some(rng, count, most):
    return np.sort(rng.permutation(count)[: rng.integers(1, most + 1)])


def chosen(rng, sets, scores):
    """For each event: the probabilities of its set, the position of the action, and its propensity."""
    p = [logs.probabilities(0.5 * s[None])[0] for s in scores]
    at = np.array([rng.choice(len(s), p=q) for s, q in zip(sets, p, strict=True)])
    return p, at, np.array([q[i] for q, i in zip(p, at, strict=True)])


def drawn(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(ROWS, 2)).astype(np.float32)
    columns = {"x0": X[:, 0], "x1": X[:, 1], "user": rng.integers(0, 300, ROWS), "mobile": rng.random(ROWS) < 0.5}
    return rng, X.astype(float), columns


def eligible():
    rng, X, columns = drawn(11)
    sets = [some(rng, ACTIONS, ACTIONS) for _ in range(ROWS)]
    taste = rng.normal(size=(ACTIONS, 2))
    _, at, p = chosen(rng, sets, [taste[s] @ x for s, x in zip(sets, X, strict=True)])
    action = np.array([s[i] for s, i in zip(sets, at, strict=True)])
    reward = (rng.random(ROWS) < 0.1 + 0.15 * action).astype(float)
    columns |= {"items": logs.lists(sets, pa.int64()), "action": action, "reward": reward, "propensity": p}
    return pa.table(columns)


def candidates():
    rng, X, columns = drawn(12)
    features = rng.normal(size=(ITEMS, 3)).astype(np.float32).astype(float)
    sets = [some(rng, ITEMS, 6) for _ in range(ROWS)]
    taste = rng.normal(size=(2, 3))
    all_p, at, p = chosen(rng, sets, [features[s] @ (x @ taste) for s, x in zip(sets, X, strict=True)])
    action = np.array([s[i] for s, i in zip(sets, at, strict=True)])
    reward = (rng.random(ROWS) < 0.2 + 0.05 * action).astype(float)
    z = [features[s].tolist() for s in sets]
    columns |= {
        "items": logs.lists(100 + s for s in sets),
        "z": pa.array(z, pa.list_(pa.list_(pa.float64()))),
        "at": pa.array([[[0, 2]] * len(s) for s in sets], pa.list_(pa.list_(pa.int32()))),
        "is": pa.array([features[s][:, [0, 2]].tolist() for s in sets], pa.list_(pa.list_(pa.float64()))),
        "action": 100 + action,
        "reward": reward,
        "propensity": p,
        "all": logs.lists(all_p),
        "group": logs.lists([s % 3 for s in sets]),
        "new": logs.lists([rng.dirichlet(np.ones(len(s))) for s in sets]),
        "guess": logs.lists([0.2 + 0.05 * s for s in sets]),
    }
    items = {"item": 100 + np.arange(ITEMS), **{f"z{j}": features[:, j] for j in range(3)}}
    return pa.table(columns), pa.table(items)


def rankings():
    rng, X, columns = drawn(13)
    rows = {name: [] for name in ("shown", "p", "r", "offered", "z", "soft", "q", "q_new", "whole", "soft whole")}
    for x in X:
        count = int(rng.integers(2, 7))
        length = min(count, int(rng.integers(1, 4)))
        ids, z = rng.permutation(40)[:count], rng.normal(size=(count, 2)).round(2)
        place, soft = rng.permutation(count)[:length], logs.probabilities((z @ (x + 0.5))[None])[0]
        q = 0.2 + 0.01 * ids
        row = ids[place], np.full(length, 1 / count), rng.integers(0, 2, length), ids, z, soft[place], q[place]
        rest = np.full(length, soft @ q), count**-length, soft[place].prod()
        for name, value in zip(rows, (*row, *rest), strict=True):
            rows[name].append(np.asarray(value, float if name in ("p", "r") else None).tolist())
    return pa.table({**columns, **rows})


class InPython:
    def __init__(self, width):
        self.width = width

    def __call__(self, X, features, starts):
        scores = features[:, 0] - 0.5 * features[:, -1]
        return np.concatenate([logs.probabilities(s[None])[0] for s in np.split(scores, starts[1:-1])])


def opened(folder):
    """Logs of these kinds, by name."""
    x = ["x0", "x1"]
    pq.write_table(eligible(), folder / "eligible.parquet", row_group_size=1_000)
    table, items = candidates()
    pq.write_table(table, folder / "candidates.parquet", row_group_size=900)
    ranked = rankings()
    pq.write_table(ranked, folder / "rankings.parquet", row_group_size=900)
    roles = {"context": x, "action": "shown", "propensity": "p", "reward": "r"}

    def of_items(features, source=folder / "candidates.parquet", **more):
        return calls.log(source, context=x, candidates=calls.candidates("items", features), **more)

    return {
        "eligible": calls.log(folder / "eligible.parquet", context=x, eligible="items"),
        "candidates": of_items("z", propensities="all"),
        "candidates sparse": of_items(calls.sparse("at", "is", 3)),
        "candidates items": of_items(calls.items(items, ["z0", "z1", "z2"]), table),
        "rankings": calls.log(folder / "rankings.parquet", positions="independent", **roles),
        "rankings conditional": calls.log(ranked, positions="conditional", **roles),
        "rankings marginal": calls.log(ranked, positions="marginal", **roles),
        "rankings whole": calls.log(ranked, **{**roles, "propensity": "whole"}),
    }


def pairs(name):
    """Options of a model on one of these logs."""
    return {"interactions": True} if name in ("candidates", "candidates items") else {}


def fixed(log, name):
    """Policies for one of these logs."""
    if name.startswith("rankings"):
        return {"stored": calls.policy("Column", "soft whole" if "whole" in name else "soft")}
    rng = np.random.default_rng(2)
    weights = rng.normal(size=(ACTIONS, 2)) if name == "eligible" else np.array([0.1, 0.2, 0.5, -1.0, 0.7])
    more = {"interactions": rng.normal(size=(2, 3))} if pairs(name) else {}
    linear = calls.policy("Linear", weights, **more)
    found = {"softmax": calls.policy("Softmax", weights, **more), "linear": linear, "uniform": calls.policy("Uniform")}
    found["epsilon"] = calls.policy("Epsilon", linear, 0.2)
    if name == "candidates":
        found |= {"stored": calls.policy("Column", "new"), "python": InPython(3)}
    return found


def options(name):
    """Evaluations of one of these logs: a reward model (None, unfitted, or fitted), estimators, options."""
    if name.startswith("rankings"):
        positions = calls.model("Positions", "q", "q_new") if name == "rankings" else None
        every = None if name != "rankings" else ["rips", "iips", "pi", "ips", "snips", "snrips", "sniips", "snpi"]
        yield from (("default", positions, None, {}), ("every", None, every, {"threads": 2}))
        yield from (("by", positions, None, {"by": "mobile"}), ("users", positions, None, {**USERS}))
        if name != "rankings marginal":
            yield "capped", None, ["ips", "ips-capped"], {"cap": 5.0}
        yield "ranges", positions, None, {"reward_range": (0, 3), "interval": ["normal", "bootstrap"]}
        return
    more = pairs(name)
    fitted, unfitted = "ridge", calls.model("Ridge", **more)
    estimated = {} if "sparse" in name else {"propensity": calls.model("Propensity", floor=0.02, **more)}
    yield "every", fitted, evaluating.EVERY, {**LIMITS, "threads": 2}
    yield "default", fitted, None, {"clamp": True}
    yield "by users", fitted, None, {"by": "mobile", **USERS}
    yield "intervals", fitted, None, {**evaluating.RANGES, "interval": evaluating.INTERVALS}
    yield "explain", fitted, None, {"explain": True}
    yield "auto", fitted, None, {"lambda_": "auto", "by": "mobile"}
    yield "crossfit", unfitted, None, {"crossfit": 3, "cluster": "user", **estimated}
    yield "forward", unfitted, None, {"crossfit": "forward:500"}
    yield "logger", fitted, None, {"propensity": calls.policy("Uniform")}
    if name == "candidates":
        yield "categories", calls.model("Column", "guess"), ["mips", "snmips", "offcem", "dr"], {"embedding": "group"}


def evaluated(log, name, model, estimators, given):
    if model == "ridge":
        train, log = log.split(0.4, seed=2)
        model = calls.fit(calls.model("Ridge", **pairs(name)), train)
    result = calls.evaluate(log, fixed(log, name), model, estimators, **given)
    return kept.evaluation(result)


def cases(folder):
    for name, log in opened(folder).items():
        for word, *given in options(name):
            yield f"evaluate {name}: {word}", lambda o=(log, name, *given): evaluated(*o)
