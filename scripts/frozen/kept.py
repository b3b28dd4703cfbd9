"""What is kept of a result: its numbers, and no text, time, version or path."""

import hashlib
import math

import numpy as np
import pyarrow as pa

LARGEST = 2_000  # numbers of an array that are stored; of a larger one, its digest, sums and every so-many-th number


def stored(value):
    """A value as JSON: floats in hexadecimal, each bit of them."""
    if isinstance(value, dict):
        return {str(key): stored(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [stored(v) for v in value]
    if isinstance(value, float | np.floating):
        return float(value).hex()
    if isinstance(value, bool | str | type(None)):
        return value
    if isinstance(value, int | np.integer | np.bool_):
        return int(value)
    if isinstance(value, pa.Table):
        return {name: stored(value[name].to_pylist()) for name in value.column_names}
    array = np.ascontiguousarray(value)
    flat = array.reshape(-1)
    about = {"type": str(array.dtype), "shape": list(array.shape)}
    if array.size <= LARGEST:
        return {**about, "values": stored(flat.tolist())}
    sums = [math.fsum(flat), math.fsum(np.abs(flat))]
    some = flat[:: array.size // 200].tolist()
    return {**about, "digest": hashlib.sha256(array.tobytes()).hexdigest(), "sums": stored(sums), "some": stored(some)}


def estimate(found):
    names = ("value", "stderr", "low", "high", "n", "ess", "max_weight", "capped")
    return {**{name: getattr(found, name) for name in names}, "intervals": found.intervals}


def rows(table, without=("method", "warning")):
    return None if table is None else table.drop_columns([name for name in without if name in table.column_names])


def evaluation(result):
    """An evaluation, with the differences of its policies."""
    names = result.policies
    found = {"n": result.n, "baseline": estimate(result.baseline), "skipped": result.skipped}
    for policy in names:
        for name in result.estimators:
            found[f"{policy} {name}"] = estimate(result[policy, name])
    found["findings"] = [[f.level, f.check, f.policy, f.value] for f in result.findings]
    for policy in names:
        for name in result.estimators:
            found[f"{policy} {name} - logger"] = estimate(result.difference(policy, None, name))
    for name in result.estimators if len(names) > 1 else ():
        found[f"{names[0]} - {names[-1]} {name}"] = estimate(result.difference(names[0], names[-1], name))
    numbers = ("r2", "clamped", "least_propensity", "unpredicted", "estimated_propensities", "limits", "labels")
    found |= {name: getattr(result, name) for name in numbers}
    found |= {name: rows(getattr(result, name)) for name in ("calibration", "segments", "loggers", "grid")}
    found["lists"] = None if result.lists is None else vars(result.lists)
    about = "variance", "contexts", "importance", "reward_noise", "model_error", "bias", "bias_stderr", "width"
    for e in result.explanations:
        found[f"explanation {e.policy} {e.estimator}"] = {name: getattr(e, name) for name in about}
        if e.estimator != "dm":
            found[f"weights {e.policy} {e.estimator}"] = result.weights(e.policy, e.estimator)
    for reward, other in result.rewards.items():
        if other is not result:
            found[f"reward {reward}"] = evaluation(other)
    return found


def fitted(model, X):
    """A fitted model: its coefficients, and what it predicts for some contexts, if there are any."""
    kept = {name: getattr(model, name) for name in ("coef_", "intercept_") if hasattr(model, name)}
    for name in ("n_events_", "reward_range_", "skipped_"):
        kept[name] = getattr(model, name, None)
    if X is not None:
        kept["predict"] = model.predict(X) if hasattr(model, "predict") else model.probabilities(X)
    return kept
