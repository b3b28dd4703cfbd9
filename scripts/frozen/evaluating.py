"""Evaluations of events with one action: every estimator, interval and option, on every form of such logs."""

import numpy as np

from frozen import calls, kept, logs

EVERY = ["ips", "snips", "dr", "sndr", "ips-capped", "dr-capped", "ips-cv", "dros", "switch-dr", "dm"]
LIMITS = {"cap": 5, "floor": 0.05, "inflation": 1.1, "lambda_": 4.0}
INTERVALS = ["tails", "normal", "bootstrap", "bernstein", "freedman", "anytime", "likelihood", "gamma"]
RANGES = {"reward_range": (0, 1), "max_weight_bound": 1e3, "clamp": (0, 1)}
ALL, NONE, OF_USERS = {"propensities": "all"}, {}, {"cluster": "user"}
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


def tempered(pi, p, exponent, out):
    np.power(pi / p, exponent, out=out)


def of_python(log):
    few = policies(log)
    return {"python": in_python, "softmax": few["softmax"], "mixed": calls.policy("Epsilon", in_python, 0.3)}


def of_columns(log):
    return {"target": calls.policy("Column", "target"), "listed": calls.policy("Column", "new")}


def one(log):
    return {"softmax": policies(log)["softmax"]}


def of(estimators=None, model="ridge", who=policies, roles=NONE, **given):
    """An evaluation: who is evaluated on a log with some roles, by what: `model` may name one of `fitted`."""
    return roles, who, model, estimators, given


def options():
    """Evaluations by name."""
    from sklearn.linear_model import LogisticRegression

    unfitted, guess, constant = calls.model("Ridge"), calls.model("Column", "guess"), calls.model("Constant", 0.4)
    propensity, uniform = calls.model("Propensity", floor=0.02), calls.policy("Uniform")
    second = calls.explain(second_model=guess)
    classified = calls.model_of_classifier(LogisticRegression())
    ridges = {"reward": calls.model("Ridge", 2.0), "spend": calls.model("Ridge", 0.5)}
    known = calls.constants(model_bias=0.1, value_variance=0.2)
    rate, two = {"sample_rate": "rate"}, {"reward": ["reward", "spend"]}
    crossfit, forward = {"model": unfitted, "crossfit": 3}, {"model": unfitted, "crossfit": "forward"}
    return {
        "every": of(EVERY, **LIMITS, threads=2),
        "every one thread": of(EVERY, **LIMITS, threads=1),
        "default": of(clamp=True),
        "ips": of(["ips"], None),
        "dm": of("dm"),
        "double precision": of(EVERY, **LIMITS, precision="float64"),
        "clamp": of(clamp=(0.1, 0.9)),
        "all propensities": of(["dr", "dr-stablevar", "dr-minvar"], roles=ALL),
        "categories": of(roles=ALL, embedding="group", explain=True),
        "balanced": of(roles=OF_LOGGERS, threads=2),
        "balanced explain": of(roles=OF_LOGGERS, explain=True, **OF_USERS),
        "loggers": of(roles={"logger": "logger"}, by="mobile"),
        "rate": of(EVERY, roles=rate, **LIMITS, by="mobile"),
        "rate bootstrap": of(roles=rate, who=one, interval=["bootstrap", "normal"]),
        "two rewards": of(model=guess, roles=two, explain=True, by="mobile"),
        "two models": of(model=ridges, roles=two, who=one, crossfit=2),
        "intervals": of(EVERY[:8], **LIMITS, **RANGES, interval=INTERVALS),
        "intervals of users": of(**RANGES, **OF_USERS, interval=["cluster", *INTERVALS]),
        "confidence": of(who=one, **RANGES, confidence=0.8, propensity_error=0.1, interval=INTERVALS),
        "constants": of(who=one, **RANGES, interval="freedman", constants=known),
        "cluster": of(**OF_USERS, threads=2),
        "by": of(EVERY, **LIMITS, by="country"),
        "by two": of(who=one, by=["country", "mobile"], explain=True),
        "by users": of(**OF_USERS, by="country", interval=["bootstrap", "cluster"]),
        "by anytime": of(who=one, **RANGES, by="mobile", interval=["anytime", "likelihood"]),
        "logger": of(propensity=uniform),
        "propensity error": of(propensity_error=0.1, **RANGES),
        "crossfit": of(EVERY, **LIMITS, **crossfit, fold_seed=4, threads=2),
        "crossfit users": of(**crossfit, **OF_USERS, propensity=propensity),
        "crossfit explain": of(**crossfit, who=one, explain=second),
        "forward": of(EVERY[:9], unfitted, **LIMITS, crossfit="forward:500"),
        "forward propensity": of(**forward, who=one, propensity=propensity),
        "forward anytime": of(**forward, who=one, **RANGES, interval=["anytime", "normal"]),
        "explain": of(EVERY, **LIMITS, explain=True),
        "explain second": of(explain=second, cap=4, by="mobile"),
        "auto lambda": of(lambda_="auto", threads=2),
        "auto cap": of(cap="auto", explain=True),
        "auto floor": of(who=one, floor="auto", **OF_USERS),
        "auto by": of(who=one, lambda_="auto", by="mobile"),
        "stored": of(model=guess, who=of_columns, by="mobile"),
        "python": of(EVERY, who=of_python, **LIMITS, **OF_USERS, by="mobile", threads=2),
        "python model": of(EVERY, calls.model("from_function", predicted), **LIMITS),
        "constant model": of(model=constant),
        "once": of(model=constant, who=of_python, **OF_USERS, by="mobile"),
        "logistic": of(model="logistic"),
        "own estimator": of(["dr", calls.own_estimator(tempered)], lambda_=0.5, explain=True),
        "greedy": of(model="second", who=greedy),
        "classifier": of(who=classifier),
        "classified propensity": of(who=one, propensity=classified, crossfit=2),
        "same propensity": of(roles={"propensity": 0.25}, by="mobile"),
        "no propensity": of(roles={"propensity": None}, interval="normal"),
        "filtered": of(roles={"filter": "user >= 200"}, **OF_USERS),
    }


FEW = "every", "default", "ips", "by users", "crossfit", "forward", "explain", "balanced", "rate", "python", "intervals"
FORMS = {"wide": None, "double": None, "sparse": None, "encoded": None, "bad rows": FEW[:-1], "mixed": FEW}
FORMS["stream"] = ("constant model", "once", "ips")
LARGE = ("every", "by users", "crossfit users", "explain second", "intervals", "forward", "python", "balanced", "rate")
_FITTED = {}


def fitted(log, name):
    """A model of half of the log, fitted once."""
    kinds = {"ridge": ("Ridge", 1.0), "second": ("Ridge", 3.0), "logistic": ("Logistic",)}
    kind, *given = kinds[name]
    return calls.fit(calls.model(kind, *given), log.split(0.4, seed=2)[0], threads=2)


def classifier(log):
    from sklearn.tree import DecisionTreeClassifier

    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(500, log.n_features)), np.arange(500) % logs.ACTIONS
    return {"tree": calls.policy("from_sklearn", DecisionTreeClassifier(max_depth=3, random_state=0).fit(X, y))}


def greedy(log):
    return {"greedy": calls.policy("Greedy", fitted(log, "ridge"), epsilon=0.1)}


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
    return kept.evaluation(result)


def cases(folder):
    of_options = options()
    for form, opened in logs.single(folder).items():
        names = LARGE if form.startswith("large") else FORMS.get(form, FEW[:7])
        for name in of_options if names is None else names:
            yield f"evaluate {form}: {name}", lambda o=opened, n=name: evaluated(o, *of_options[n])
