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
