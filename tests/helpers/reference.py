"""Naive versions of estimators, models and learners of costs, in plain Python and NumPy: slow and obviously right."""

import math

import numpy as np


def weights(name, p, a, pi, cap=math.inf, floor=0.0, inflation=1.0, lambda_=math.inf):
    """The weight that an estimator gives to each event."""
    rows = range(len(p))
    w = [pi[k][a[k]] / p[k] for k in rows]
    if name.endswith("-capped"):
        return [min(pi[k][a[k]] / max(inflation * p[k], floor), cap) for k in rows]
    if name == "dros":  # Su, Dimakopoulou, Krishnamurthy, Dudík 2020
        return [lambda_ * v / (v**2 + lambda_) for v in w]
    if name == "switch-dr":  # Wang, Agarwal, Dudík 2017
        return [v if v <= lambda_ else 0.0 for v in w]
    return w


def control(w, wr):
    """β = Cov(w r, w) / Var(w) of IPS with a control variate; 0 where all weights are the same, up to rounding."""
    m, mr = mean(w), mean(wr)
    spread = math.fsum((v - m) ** 2 for v in w)
    if spread / len(w) <= (1e-14 * m) ** 2:
        return 0.0
    return math.fsum((v - m) * (x - mr) for v, x in zip(w, wr, strict=True)) / spread


def estimate(name, r, p, a, pi, rhat=None, **limits):
    """Value, standard error and per-event terms of an estimator; pi and rhat are (n, K).

    If the policy never takes a logged action, there is no estimate. If a limit leaves no weight, there is no standard
    error.
    """
    n = len(r)
    rows = range(n)
    w = weights(name, p, a, pi, **limits)
    if rhat is not None:
        b = [math.fsum(pi[k][j] * rhat[k][j] for j in range(len(pi[k]))) for k in rows]
        miss = [r[k] - rhat[k][a[k]] for k in rows]
    if name == "dm":
        psi = b
    elif name in ("ips", "ips-capped"):
        psi = [w[k] * r[k] for k in rows]
    elif name in ("dr", "dr-capped", "dros", "switch-dr"):
        psi = [b[k] + w[k] * miss[k] for k in rows]
    elif name == "ips-cv":
        beta = control(w, [w[k] * r[k] for k in rows])
        psi = [w[k] * r[k] - beta * (w[k] - 1) for k in rows]
    elif name == "snips":
        mean_w = math.fsum(w) / n
        if mean_w == 0:
            return math.nan, math.nan, [math.nan] * n
        value = math.fsum(w[k] * r[k] for k in rows) / n / mean_w
        psi = [value + w[k] * (r[k] - value) / mean_w for k in rows]  # its influence function
    elif name == "sndr":
        mean_w = math.fsum(w) / n
        if mean_w == 0:
            return math.nan, math.nan, [math.nan] * n
        part = math.fsum(w[k] * miss[k] for k in rows) / n / mean_w
        psi = [b[k] + part + w[k] * (miss[k] - part) / mean_w for k in rows]
    else:
        raise KeyError(f"there is no naive form of {name}: write it here")
    if name != "dm" and not any(pi[k][a[k]] for k in rows):
        return math.nan, math.nan, [math.nan] * n
    if name != "dm" and not any(w):
        return mean(psi), math.nan, psi
    return mean(psi), standard_error(psi), psi


def mean(x):
    return math.fsum(x) / len(x)


def standard_error(x):
    if len(x) < 2:
        return math.nan
    m = mean(x)
    return math.sqrt(math.fsum((v - m) ** 2 for v in x) / (len(x) - 1) / len(x))


def effective_sample_size(w):
    squares = math.fsum(v * v for v in w)
    return math.fsum(w) ** 2 / squares if squares else math.nan


def softmax(weights, intercept, X):
    scores = X @ np.asarray(weights).T + intercept
    exps = np.exp(scores - scores.max(axis=1, keepdims=True))
    return exps / exps.sum(axis=1, keepdims=True)


def argmax(weights, intercept, X):
    scores = X @ np.asarray(weights).T + intercept
    return np.eye(len(weights))[scores.argmax(axis=1)]


def ridge(X, a, r, n_actions, alpha, fit_intercept):
    """Per-action ridge by the normal equations of a design matrix with a column of ones that is not penalised."""
    coef, intercept = [], []
    for action in range(n_actions):
        rows = a == action
        if not rows.any():
            coef.append(np.zeros(X.shape[1]))
            intercept.append(r.mean())
            continue
        design = np.column_stack([X[rows], np.ones(rows.sum())]) if fit_intercept else X[rows]
        penalty = alpha * np.eye(design.shape[1])
        if fit_intercept:
            penalty[-1, -1] = 0
        w = np.linalg.lstsq(design.T @ design + penalty, design.T @ r[rows], rcond=1e-12)[0]
        coef.append(w[: X.shape[1]])
        intercept.append(w[-1] if fit_intercept else 0.0)
    return np.array(coef), np.array(intercept)


def blocks(rows, first):
    """The block of each row: the first has `first` rows, and each later one is half as long as all before it."""
    found, block, end = [], 0, first
    for row in range(rows):
        if row == end:
            block, end = block + 1, end + max(1, end // 2)
        found.append(block)
    return found


MASK = 2**64 - 1


def uniform(seed, row):
    """u_k: splitmix64's finaliser, twice, keyed by the seed."""

    def mix(z):
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)

    gamma = 0x9E3779B97F4A7C15
    key = mix(mix((seed * gamma + gamma) & MASK))
    return (mix(mix((row * gamma + key) & MASK) ^ key) >> 11) * 2.0**-53


# Models that are fitted


def shared_ridge(X, a, r, n_actions, alpha, fit_intercept, weight=None):
    """One w for all actions and an intercept for each, which is not penalised: X, and a column for each action.

    An action without weight is predicted at the weighted mean reward.
    """
    weight = np.ones(len(r)) if weight is None else weight
    known = [k for k in range(n_actions) if weight[a == k].sum() > 0]
    hot = np.column_stack([a == k for k in known]) if fit_intercept else np.zeros((len(r), 0))
    design = np.hstack([X, hot])
    penalty = np.diag([alpha] * X.shape[1] + [0.0] * hot.shape[1])
    w = np.linalg.solve(design.T @ (weight[:, None] * design) + penalty, design.T @ (weight * r))
    coef, intercept = np.zeros((n_actions, X.shape[1])), np.full(n_actions, np.average(r, weights=weight))
    coef[known] = w[: X.shape[1]]
    intercept[known] = w[X.shape[1] :] if fit_intercept else 0.0
    return coef, intercept


def mrdr_weights(pi, a, p):
    """π(a_k|x_k)² (1 - p_k) / p_k², one event at a time."""
    return np.array([pi[k][a[k]] ** 2 * (1 - p[k]) / p[k] ** 2 for k in range(len(p))])


def r_squared(predicted, r):
    centre = mean(r)
    spread = math.fsum((v - centre) ** 2 for v in r)
    misses = math.fsum((v - q) ** 2 for v, q in zip(r, predicted, strict=True))
    return 1 - misses / spread if spread > 0 else math.nan


def fold(key, count, seed):
    """Of a row's number, or of a cluster that is a whole number."""
    return math.floor(uniform((seed + 0xA3EC647659359ACD) & MASK, key & MASK) * count)


# Policies that are trees of classifiers: an action, or a pair of two such; a node is a pair


def balanced_tree(actions):
    """The first half is on the left, which has one more if they are odd."""
    if len(actions) == 1:
        return actions[0]
    half = (len(actions) + 1) // 2
    return balanced_tree(actions[:half]), balanced_tree(actions[half:])


def tree_nodes(tree):
    """From the leaves up, left before right."""
    return [*tree_nodes(tree[0]), *tree_nodes(tree[1]), tree] if isinstance(tree, tuple) else []


def tree_leaves(tree):
    return [*tree_leaves(tree[0]), *tree_leaves(tree[1])] if isinstance(tree, tuple) else [tree]


def tree_winner(tree, goes_right, among=None):
    """The action at the end of the way down, and how many nodes were met. With `among`, a side without them loses."""
    met = 0
    while isinstance(tree, tuple):
        sides = [among is None or not set(tree_leaves(side)).isdisjoint(among) for side in tree]
        tree = tree[1] if not sides[0] or (sides[1] and goes_right(tree)) else tree[0]
        met += 1
    return tree, met


def filter_tree_example(node, costs, goes_right, among=None):
    """What one event says at a node: whether right is better, and how important it is; None if it says nothing."""
    left, right = (tree_winner(side, goes_right, among)[0] for side in node)
    if among is not None and not {left, right} <= set(among):
        return None
    if costs[left] == costs[right]:
        return None
    return costs[right] < costs[left], abs(costs[left] - costs[right])


def offset_tree_example(node, a, r, p, offset, goes_right, among=None):
    """The same from a logged action, its reward and its propensity."""
    left, right = (tree_winner(side, goes_right, among)[0] for side in node)
    if among is not None and not {left, right} <= set(among):
        return None
    if a not in (left, right) or r == offset:
        return None
    if r > offset:
        return a == right, (r - offset) / p
    return a != right, (offset - r) / p


# Losses of all actions, and direct loss minimisation


def completed_costs(a, r, p, rhat):
    """Section 4.1.3, one event and one action at a time; costs are minus rewards."""
    return np.array(
        [
            [-(rhat[k][b] + ((r[k] - rhat[k][b]) / p[k] if b == a[k] else 0.0)) for b in range(len(rhat[k]))]
            for k in range(len(r))
        ]
    )


def toward_better(X, costs, theta, epsilon, rate):
    """One batch update of appendix D, and the loss of the weights before it; theta is (K, d).

    Actions that cost infinity are not eligible.
    """
    move = np.zeros_like(theta)
    loss = 0.0
    for x, cost in zip(X, costs, strict=True):
        scores = [float(w @ x) for w in theta]
        among = [b for b in range(len(scores)) if cost[b] < np.inf]
        a2 = max(among, key=lambda b: scores[b])
        a1 = max(among, key=lambda b: scores[b] - epsilon * cost[b])
        loss += cost[a2]
        move[a1] += x
        move[a2] -= x
    return theta + rate * move / len(X), loss / len(X)


def completed_ridge(X, costs, alpha=1.0):
    """Weights (K, d) of ridge regressions of the rewards of each action; a column of zeros gets weights of 0."""
    used = X.any(axis=0)
    weights = np.zeros((costs.shape[1], X.shape[1]))
    for a, cost in enumerate(costs.T):
        Z, cost = X[cost < np.inf][:, used], cost[cost < np.inf]  # the events that could choose it
        weights[a, used] = np.linalg.solve(Z.T @ Z + alpha * np.eye(used.sum()), -Z.T @ cost)
    return weights


def backtracking(X, costs, theta, epochs, tolerance):
    """Direct loss minimisation by steps that reduce the loss; a failed one is undone, and halves the step and ε."""
    theta = theta - theta.mean(axis=0)
    scores = np.sort(np.where(costs < np.inf, X @ theta.T, -np.inf), axis=1)
    margins = [s[-1] - s[-2] if s[-2] > -np.inf else 0.0 for s in scores]
    per_norm = np.mean(margins) / np.linalg.norm(theta)
    losses, passes, step, share = [toward_better(X, costs, theta, 0.0, 0.0)[1]], 1, 0.1, 1.0
    move = None
    while step > tolerance and passes < epochs:
        if move is None:
            moved, _ = toward_better(X, costs, theta, share * per_norm * np.linalg.norm(theta), 1.0)
            move, passes = moved - theta, passes + 1
            continue
        if np.linalg.norm(move) < 1e-13:
            break
        tried = theta + step * np.linalg.norm(theta) / np.linalg.norm(move) * move
        moved, loss = toward_better(X, costs, tried, share * per_norm * np.linalg.norm(theta), 1.0)
        passes += 1
        if loss < losses[-1]:
            theta, move, step = tried, moved - tried, min(1.3 * step, 0.5)
            losses.append(loss)
        else:
            move, step, share = None, step / 2, share / 2
    return {"theta": theta, "losses": losses, "passes": passes}


# Plans


def explored_variance(p, weights, residuals, predicted, share, n_actions):
    """The variance of DR's score if the logging policy had explored: p' = (1 - share) p + share / K, event by event.

    An event counts p'/p times. What depends on the context alone is the same under both policies.
    """
    value = np.mean(predicted + weights * residuals)
    total = 0.0
    sizes = np.broadcast_to(n_actions, len(p))  # of eligible sets, or K
    for p_k, w, residual, r, size in zip(p, weights, residuals, predicted, sizes, strict=True):
        other = (1 - share) * p_k + share / size
        context = r - value
        weighted = w * p_k / other * residual  # π/p' (r - r̂)
        total += context**2 + (other / p_k) * (2 * context * weighted + weighted**2)
    return total / len(p)


def longest_horizon(replicates, events, acceptance, failure):
    """Try one horizon after the other."""
    steps, log = 0, math.log(1 / failure)
    while True:
        s = replicates * (steps + 1)
        if s + log + math.sqrt(log * log + 2 * s * log) > events * acceptance:
            return steps
        steps += 1


def slope_by_hand(values, widths):
    """Su, Srinath, Krishnamurthy 2020: the last index up to which all pairs of intervals agree."""
    for i in range(1, len(values)):
        for j in range(i):
            if not abs(values[i] - values[j]) <= widths[i] + (math.sqrt(6) - 1) * widths[j]:
                return i - 1
    return len(values) - 1
