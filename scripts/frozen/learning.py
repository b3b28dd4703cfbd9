"""Fits of models, replays of policies that learn, policies that are optimised, and states of evaluations."""

import numpy as np
import pyarrow.parquet as pq

from frozen import calls, choices, evaluating, kept, logs

LEARNERS = {
    "epsilon": ("EpsilonGreedy", {"epsilon": 0.2, "epsilon_decay": 0.01}),
    "epsilon logistic": ("EpsilonGreedy", {"epsilon": 0.2, "loss": "logistic", "learning_rate_decay": 0.5}),
    "boltzmann": ("Boltzmann", {"cooling": 0.01}),
    "square": ("SquareCB", {"gamma": 5.0}),
    "linucb": ("LinUCB", {}),
    "ucb": ("UCB1", {}),
    "exp3": ("Exp3", {}),
}
USERS = ["bootstrap", "cluster", "likelihood"]
ON_ITEMS = ("epsilon", "epsilon logistic", "boltzmann", "square", "linucb")
FORMS = ("wide", "double", "sparse", "encoded", "bad rows", "integers", "eligible", "candidates")


class Means:
    """A policy in Python that learns mean rewards."""

    def __init__(self, actions):
        self.actions = actions

    def reset(self):
        self.sums, self.counts, self.version = np.zeros(self.actions), np.ones(self.actions), 0

    def probabilities(self, X):
        out = np.full((X.shape[0], self.actions), 0.2 / self.actions)
        out[:, int(np.argmax(self.sums / self.counts))] += 0.8
        return out

    def update(self, x, action, reward):
        self.sums[action] += reward
        self.counts[action] += 1
        self.version += 1


def contexts(log):
    """Contexts for predictions; None where each event has candidates of its own."""
    if log.has_candidates:
        return None
    X = np.random.default_rng(5).normal(size=(50, log.n_features))
    if log.n_features < 40:
        return X
    import scipy.sparse

    return scipy.sparse.csr_array(X * (np.random.default_rng(6).random(X.shape) < 0.2))


def fits(log, name):
    """Models to fit, by name."""
    from sklearn.tree import DecisionTreeRegressor

    items = choices.pairs(name)
    yield "ridge", calls.model("Ridge", 0.5, **items)
    yield "ridge of 1/p", calls.model("Ridge", weights="1/p", **items)
    if name != "bad rows":
        yield "logistic", calls.model("Logistic", **items)
    yield "propensity", calls.model("Propensity", **items)
    if name == "candidates":
        return
    yield "ridge without intercept", calls.model("Ridge", fit_intercept=False)
    yield "ridge shared", calls.model("Ridge", shared=True)
    weights = np.random.default_rng(1).normal(size=(log.n_actions, log.n_features))
    yield "mrdr", calls.model("Ridge", weights="mrdr", policy=calls.policy("Softmax", weights))
    yield "tree", calls.model("from_sklearn", DecisionTreeRegressor(max_depth=3, random_state=0))


def learners(log, name, ridge):
    """Policies to replay, by name."""
    from sklearn.linear_model import LogisticRegression

    for word, (kind, given) in LEARNERS.items():
        if name == "candidates" and word in ON_ITEMS:
            yield word, calls.policy(kind, **given, interactions=True)
        elif name != "candidates" and (name, word) not in (("sparse", "linucb"), ("bad rows", "epsilon logistic")):
            yield word, calls.policy(kind, **given)
    fixed = choices.fixed(log, name) if name in ("eligible", "candidates") else evaluating.policies(log)
    yield "softmax", fixed["softmax"]
    if ridge is not None:
        yield "greedy", calls.policy("Greedy", ridge, epsilon=0.2)
    if name not in ("eligible", "candidates"):
        yield "python", Means(log.n_actions)
    if name in ("wide", "sparse"):
        yield "retrained", calls.policy("Retrained", LogisticRegression(), every=25)


REPLAYS = {
    "bias": {},
    "quantile": {"q": 0.05, "threads": 2},
    "worst case": {"method": "dr-ns-wc", "c": 0.05},
    "rejection": {"method": "rs", "c": 0.05},
    "direct": {"method": "dm", "bias": 0.05},
    "grid": {"q": [0.0, 0.1], "seed": [1, 2], "carry": True, "tracker": "sketch", "replicates": 3},
    "crossfit": {"q": 0.1, "crossfit": 3, "shards": 2},
    "targets": {"bias": [0.02, 0.1]},
    "uniform logger": {"q": 0.1, "propensity": calls.policy("Uniform")},
    "precise": {"q": 0.1, "precision": "float64"},
}


def replayed(run):
    """A replay: its numbers, every replicate, its learning curve, and the grid that it comes from."""
    if not run.complete:
        return {"complete": 0}
    names = ("value", "stderr", "low", "high", "cumulative", "cumulative_low", "cumulative_high", "acceptance")
    names += ("complete", "violations", "events", "by_step", "shift", "bias_mass", "multiplier", "bias_bound", "r2")
    found = {name: getattr(run, name) for name in (*names, "replicates", "curve", "grid")}
    return {**found, "pooled": kept.estimate(run.pooled)}


def replays(log, name, learner, given):
    train, test = log.split(0.3, seed=2)
    ridge = fitted_ridge(train, name)
    model = calls.model("Ridge") if "crossfit" in given else ridge
    policy = dict(learners(test, name, ridge))[learner]
    runs = calls.replay(test, {learner: policy}, 40, None if given.get("method") == "rs" else model, **given)
    return {str(i): replayed(run) for i, run in enumerate(runs)}


def fitted_ridge(log, name):
    return calls.fit(calls.model("Ridge", **choices.pairs(name)), log)


def planned(log, name):
    """Forecasts of widths, of estimates and of replays."""
    ridge = fitted_ridge(log, name)
    policies = choices.fixed(log, name) if name in ("eligible", "candidates") else evaluating.policies(log)
    learner = calls.policy("EpsilonGreedy", 0.2)
    found = calls.plan(log, policies, ridge) + calls.plan(log, {"learner": learner}, ridge, horizon=40)
    return [{key: value for key, value in row.items() if key != "method"} for row in found]


def optimised(log, name, what):
    train, test = log.split(0.5, seed=2)
    ridge, X = fitted_ridge(train, name), contexts(log)
    if what.startswith("impute"):
        estimator = what.split()[1]
        losses = calls.impute(train, None if estimator == "ips" else ridge, estimator=estimator)
        return [[batch.losses, batch.rows] for batch in losses]
    if what == "tree":
        trees = [calls.optimiser(kind, sample=2_000) for kind in ("FilterTree", "OffsetTree")]
        return [trees[0].fit(train, ridge).choose(X), trees[1].fit(train).choose(X)]
    if what == "descent":
        random = {"start": "random", "step": "decaying"}
        found = {}
        for word, given, model in (("random", random, ridge), ("warm", {}, ridge), ("of losses", {}, None)):
            dlm = calls.optimiser("DirectLossMinimizer", restarts=3, epochs=8, **given).fit(train, model)
            found[word] = {"losses": dlm.run_losses_, "loss": dlm.loss_, **kept.fitted(dlm, X)}
        return found
    learner = calls.policy("EpsilonGreedy", 0.2) if what == "progressive" else calls.policy("Exp3")
    pv = calls.optimiser("ProgressivePolicy", learner, q=0.1, snapshots=40).fit(train, ridge, clamp=(0, 1))
    numbers = [pv.value, pv.bound(), pv.weight_, pv.steps_, pv.events_, pv.least_propensity_, pv.states_, pv.weights_]
    result = calls.evaluate(test, {"pv": pv}, ridge)
    return {"numbers": numbers, "p": pv.probabilities(X), "evaluation": kept.evaluation(result)}


OPTIMISED = ("impute dr", "impute ips", "impute dm", "tree", "descent", "progressive", "progressive exp3")


def states(folder, kind, given):
    """States of two days, on their own, merged, and beside one pass with a checkpoint over both."""
    paths = logs.days(folder, kind)
    files = [path.with_suffix(".state") for path in paths]
    opened = [logs.opened(path) for path in (*paths, [*paths])]
    policies, model = evaluating.policies(opened[0]), calls.model("Constant", 0.4)
    for log, path in zip(opened, files, strict=False):
        calls.evaluate(log, policies, model, state=path, **given)
    whole = calls.evaluate(opened[2], policies, model, checkpoint=folder / "checkpoint", **given)
    found = {"first": calls.merge(files[:1]), "merged": calls.merge(files), "whole": whole}
    return {name: kept.evaluation(result) for name, result in found.items()}


def partials(folder, given):
    """Partial states of record batches, merged."""
    batches = pq.read_table(logs.days(folder, np.float64)[0]).to_batches(max_chunksize=1_100)
    roles = {"context": logs.CONTEXT, "actions": logs.ACTIONS}
    policies = evaluating.policies(logs.opened(logs.days(folder, np.float64)[0]))
    found = [calls.partial([batch], policies, None, ["ips", "snips"], log=roles, **given) for batch in batches]
    return kept.evaluation(calls.merge(found))


STATES = {
    "plain": {},
    "by users": {"by": "mobile", "cluster": "user", "reward_range": (0, 1), "interval": USERS},
    "explain": {"interval": "normal", "explain": True},
    "bootstrap of rows": {"interval": "bootstrap"},
    "auto": {"lambda_": "auto", "by": ["country", "mobile"]},
}


def cases(folder):
    singles = logs.single(folder)
    opened = choices.opened(folder)
    every = {name: opened[name] if name in opened else singles[name]() for name in FORMS}
    for name, log in every.items():
        for word, model in fits(log, name):
            yield f"fit {name}: {word}", lambda m=model, o=log: kept.fitted(calls.fit(m, o, threads=2), contexts(o))
        names = [word for word, _ in learners(log, name, None)]
        yield f"plan {name}: default", lambda a=(log, name): planned(*a)
        for word, given in REPLAYS.items() if name in ("wide", "eligible", "candidates") else list(REPLAYS.items())[:3]:
            for learner in [*names, "greedy"] if word == "quantile" else names[:1]:
                yield f"replay {name}: {word} {learner}", lambda a=(log, name, learner, given): replays(*a)
        for what in OPTIMISED if name != "candidates" else ():
            yield f"optimise {name}: {what}", lambda a=(log, name, what): optimised(*a)
    for kind in (np.float32, np.float64):
        for word, given in STATES.items():
            yield f"state {kind.__name__}: {word}", lambda a=(folder, kind, given): states(*a)
    for word, given in {"plain": {}, "users": {"cluster": "user"}}.items():
        yield f"state partial: {word}", lambda g=given: partials(folder, g)
