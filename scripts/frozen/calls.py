"""Every call of drstream that `scripts/bits` makes. When a public name changes, it changes here and nowhere else."""

import drstream as drs


def log(source, **roles):
    return drs.Log(source, **roles)


def policy(name, *given, **options):
    return getattr(drs.policies, name)(*given, **options)


def model(name, *given, **options):
    return getattr(drs.models, name)(*given, **options)


def fit(unfitted, events, *given, **options):
    return unfitted.fit(events, *given, **options)


def evaluate(events, policies, reward_model=None, estimators=None, **options):
    return drs.evaluate(events, policies, reward_model, estimators, **options)


def explain(**told):
    return drs.Explain(**told)


def constants(**known):
    return drs.Constants(**known)


def merge(states):
    return drs.merge(states)


def partial(batches, policies, reward_model=None, estimators=None, **options):
    return drs.partial(batches, policies, reward_model, estimators, **options)


def sparse(indices, values, dim):
    return drs.Sparse(indices, values, dim=dim)


def hashed(column, buckets):
    return drs.Hashed(column, buckets)


def model_of_classifier(classifier):
    return drs.models.Propensity.from_sklearn(classifier, sample=3_000)


def candidates(ids, features, *given):
    return drs.Candidates(ids, features, *given)


def items(table, features):
    return drs.Items(table, features=features)


def replay(events, policies, horizon, reward_model=None, **options):
    return drs.replay(events, policies, horizon, reward_model, **options)


def optimiser(name, *given, **options):
    return getattr(drs.optimize, name)(*given, **options)


def impute(events, reward_model=None, **options):
    return drs.optimize.impute(events, reward_model, **options)


def own_estimator(weight):
    """The mean of a term with a weight of the user's own, without an entry among the estimators."""
    tempered = drs.estimators.Weight("tempered", weight, (("lambda_", 1.0),))
    return drs.estimators.Estimator("tempered dr", ("robust",), tempered, lambda s: s.mean[0])


def plan(events, policies, reward_model=None, **options):
    """The rows of a forecast: of estimates, and of replays."""
    found = drs.plan(events, policies, reward_model, **options).to_dict()
    return found["evaluate"] + found["replay"]
