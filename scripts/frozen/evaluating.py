"""Evaluations of events with one action: every estimator, interval and option, on every form of such logs."""

import numpy as np

from frozen import calls, kept, logs

EVERY = ["ips", "snips", "dr", "sndr", "ips-capped", "dr-capped", "ips-cv", "dros", "switch-dr", "dm"]
LIMITS = {"cap": 5, "floor": 0.05, "inflation": 1.1, "lambda_": 4.0}
INTERVALS = ["normal", "t", "bootstrap", "bernstein", "freedman", "anytime", "likelihood", "gamma"]
RANGES = {"reward_range": (0, 1), "max_weight_bound": 1e3, "clamp": (0, 1)}
ALL, NONE = {"propensities": "all"}, {}
OF_LOGGERS = {"logger": "logger", "logger_propensities": {"a": "of_a", "b": "of_b"}}


def policies(log):
    weights = np.random.default_rng(1).normal(size=(logs.ACTIONS, log.n_features))
    linear = calls.policy("Linear", weights)
    return {
        "softmax": calls.policy("Softmax", weights, temperature=1.5),
        "linear": linear,
        "epsilon": calls.policy("Epsilon", calls.policy("Linear", -weights), 0.2),
        "constant": calls.policy("Constant", log.labels[1]),
        "uniform": calls.policy("Uniform"),
    }


def dense(X):
    return X.toarray() if hasattr(X, "toarray") else np.asarray(X)


def in_python(X):
    scores = np.column_stack([dense(X)[:, :2], -dense(X)[:, :2]])
    return logs.probabilities(scores.astype(float))


def predicted(X):
    return 0.5 + 0.1 * np.tanh(np.column_stack([dense(X)[:, :2], -dense(X)[:, :2]]).astype(float))


def of_python(log):
    few = policies(log)
    return {"python": in_python, "softmax": few["softmax"], "mixed": calls.policy("Epsilon", in_python, 0.3)}


def of_columns(log):
    return {"target": calls.policy("Column", "target"), "listed": calls.policy("Column", "new")}


def one(log):
    return {"softmax": policies(log)["softmax"]}


def options():
    """By name: options of the log, policies, the reward model (or None), estimators, and options of the call."""
    from sklearn.linear_model import LogisticRegression

    ridge, unfitted = "ridge", calls.model("Ridge")
    propensity = calls.model("Propensity", floor=0.02)
    guess = calls.model("Column", "guess")
    second = calls.explain(second_model=guess)
    trees = {"reward": calls.model("Ridge", 2.0), "spend": calls.model("Ridge", 0.5)}
    known = calls.constants(model_bias=0.1, value_variance=0.2)
    return {
        "every": (NONE, policies, ridge, EVERY, {**LIMITS, "threads": 2}),
        "every one thread": (NONE, policies, ridge, EVERY, {**LIMITS, "threads": 1}),
        "default": (NONE, policies, ridge, None, {"clamp": True}),
        "ips": (NONE, policies, None, ["ips"], {}),
        "dm": (NONE, policies, ridge, "dm", {}),
        "double precision": (NONE, policies, ridge, EVERY, {**LIMITS, "precision": "float64"}),
        "no pairs": (NONE, policies, ridge, None, {"pairs": False, "clamp": (0.1, 0.9)}),
        "all propensities": (ALL, policies, ridge, ["dr", "dr-stablevar", "dr-minvar"], {}),
        "categories": (ALL, policies, ridge, None, {"embedding": "group", "explain": True}),
        "balanced": (OF_LOGGERS, policies, ridge, None, {"threads": 2}),
        "balanced explain": (OF_LOGGERS, policies, ridge, None, {"explain": True, "cluster": "user"}),
        "loggers": ({"logger": "logger"}, policies, ridge, None, {"by": "mobile"}),
        "rate": ({"sample_rate": "rate"}, policies, ridge, EVERY, {**LIMITS, "by": "mobile"}),
        "rate bootstrap": ({"sample_rate": "rate"}, one, ridge, None, {"interval": ["bootstrap", "normal", "t"]}),
        "two rewards": ({"reward": ["reward", "spend"]}, policies, guess, None, {"explain": True, "by": "mobile"}),
        "two models": ({"reward": ["reward", "spend"]}, one, trees, None, {"crossfit": 2}),
        "intervals": (NONE, policies, ridge, EVERY[:8], {**LIMITS, **RANGES, "interval": INTERVALS}),
        "intervals of users": (
            NONE,
            policies,
            ridge,
            None,
            {**RANGES, "interval": ["cluster", *INTERVALS], "cluster": "user"},
        ),
        "confidence": (
            NONE,
            one,
            ridge,
            None,
            {"confidence": 0.8, **RANGES, "interval": INTERVALS, "propensity_error": 0.1},
        ),
        "constants": (NONE, one, ridge, None, {**RANGES, "interval": "freedman", "constants": known}),
        "cluster": (NONE, policies, ridge, None, {"cluster": "user", "threads": 2}),
        "by": (NONE, policies, ridge, EVERY, {**LIMITS, "by": "country"}),
        "by two": (NONE, one, ridge, None, {"by": ["country", "mobile"], "explain": True}),
        "by users": (
            NONE,
            policies,
            ridge,
            None,
            {"by": "country", "cluster": "user", "interval": ["bootstrap", "cluster"]},
        ),
        "by anytime": (NONE, one, ridge, None, {"by": "mobile", **RANGES, "interval": ["anytime", "likelihood"]}),
        "logger": (NONE, policies, ridge, None, {"propensity": calls.policy("Uniform")}),
        "propensity error": (NONE, policies, ridge, None, {"propensity_error": 0.1, **RANGES}),
        "crossfit": (NONE, policies, unfitted, EVERY, {**LIMITS, "crossfit": 3, "fold_seed": 4, "threads": 2}),
        "crossfit users": (
            NONE,
            policies,
            unfitted,
            None,
            {"crossfit": 3, "cluster": "user", "propensity": propensity},
        ),
        "crossfit explain": (NONE, one, unfitted, None, {"crossfit": 3, "explain": second}),
        "forward": (NONE, policies, unfitted, EVERY[:9], {**LIMITS, "crossfit": "forward:500"}),
        "forward propensity": (NONE, one, unfitted, None, {"crossfit": "forward", "propensity": propensity}),
        "forward anytime": (NONE, one, unfitted, None, {"crossfit": "forward", **RANGES, "interval": ["anytime", "t"]}),
        "explain": (NONE, policies, ridge, EVERY, {**LIMITS, "explain": True}),
        "explain second": (NONE, policies, ridge, None, {"explain": second, "cap": 4, "by": "mobile"}),
        "auto lambda": (NONE, policies, ridge, None, {"lambda_": "auto", "threads": 2}),
        "auto cap": (NONE, policies, ridge, None, {"cap": "auto", "explain": True}),
        "auto floor": (NONE, one, ridge, None, {"floor": "auto", "cluster": "user"}),
        "auto by": (NONE, one, ridge, None, {"lambda_": "auto", "by": "mobile"}),
        "stored": (NONE, of_columns, guess, None, {"by": "mobile"}),
        "python": (NONE, of_python, ridge, EVERY, {**LIMITS, "by": "mobile", "cluster": "user", "threads": 2}),
        "python model": (NONE, policies, calls.model("from_function", predicted), EVERY, LIMITS),
        "constant model": (NONE, policies, calls.model("Constant", 0.4), None, {}),
        "logistic": (NONE, policies, "logistic", None, {}),
        "greedy": (
            NONE,
            lambda log: {"greedy": calls.policy("Greedy", fitted(log, "ridge"), epsilon=0.1)},
            "second",
            None,
            {},
        ),
        "sklearn": (NONE, lambda log: {"tree": classifier(log)}, ridge, None, {}),
        "same propensity": ({"propensity": 0.25}, policies, ridge, None, {"by": "mobile"}),
        "no propensity": ({"propensity": None}, policies, ridge, None, {"interval": "normal"}),
        "filtered": ({"filter": "user >= 200"}, policies, ridge, None, {"cluster": "user"}),
        "split": (NONE, policies, "half", None, {}),
        "sklearn propensity": (
            NONE,
            one,
            ridge,
            None,
            {"propensity": calls.model_of_classifier(LogisticRegression()), "crossfit": 2},
        ),
    }


FEW = (
    "every",
    "default",
    "ips",
    "by users",
    "crossfit",
    "forward",
    "explain",
    "balanced",
    "rate",
    "python",
    "intervals",
)
FORMS = {"wide": None, "double": None, "sparse": None, "encoded": None, "bad rows": FEW[:-1], "mixed": FEW}
LARGE = ("every", "by users", "crossfit users", "explain second", "intervals", "forward", "python", "balanced", "rate")
_FITTED = {}


def fitted(log, name):
    """A model of half of the log, fitted once."""
    kinds = {"ridge": ("Ridge", 1.0), "second": ("Ridge", 3.0), "half": ("Ridge", 1.0), "logistic": ("Logistic",)}
    kind, *given = kinds[name]
    return calls.fit(calls.model(kind, *given), log.split(0.4, seed=2)[0], threads=2)


def classifier(log):
    from sklearn.tree import DecisionTreeClassifier

    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(500, log.n_features)), np.arange(500) % logs.ACTIONS
    return calls.policy("from_sklearn", DecisionTreeClassifier(max_depth=3, random_state=0).fit(X, y))


def evaluated(opened, roles, chosen, model, estimators, given):
    log = opened(**roles)
    if isinstance(model, str):
        events = opened()
        key = id(opened), model
        if key not in _FITTED:
            _FITTED[key] = fitted(events, model)
        model = _FITTED[key]
        log = log.split(0.4, seed=2)[1]
    result = calls.evaluate(log, chosen(log), model, estimators, **given)
    return kept.evaluation(result, constants="freedman" in (given.get("interval") or ()))


def cases(folder):
    of_options = options()
    for form, opened in logs.single(folder).items():
        names = LARGE if form.startswith("large") else FORMS.get(form, FEW[:7])
        for name in of_options if names is None else names:
            yield f"evaluate {form}: {name}", lambda o=opened, n=name: evaluated(o, *of_options[n])
