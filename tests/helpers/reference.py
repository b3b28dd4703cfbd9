"""Naive versions of everything, in plain Python and NumPy, one event at a time: slow and obviously right."""

import copy
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

    Where no event has a weight, there is no standard error.
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


# DR-ns, Algorithm 1, and policies that learn


def quantile(values, q):
    """The ⌈q n⌉-th smallest, the smallest for q = 0."""
    return sorted(values)[max(1, math.ceil(q * len(values))) - 1]


def exact_c(Q, q, c_max):
    return min(c_max, quantile(Q, q))


def sketched_c(Q, q, c_max):
    """The lower edge of the quantile's bucket, of which there are 128 to an octave; the smallest value is known."""
    exact = exact_c(Q, q, c_max)
    if q == 0 or exact == c_max or exact < 2.0**-64:
        return min(Q) if exact < 2.0**-64 else exact
    octave = 2.0 ** math.floor(math.log2(exact))
    return max(min(Q), octave * math.floor(exact / octave * 128) / 128)


def bias_mass(weights, c):
    """The share of the policy's probability that is lost where c w > 1."""
    return np.maximum(weights - 1 / c, 0).sum() / weights.sum()


def targeted_c(weights, target):
    """The largest c, of 128 to an octave up to 1, whose bias mass is at most the target; the smallest p/π is safe."""
    if not any(weights):
        return 1.0
    weights = np.asarray(weights)
    safe = min(1.0, 1 / max(weights))
    c = 2.0 ** math.floor(math.log2(safe))
    edge = c
    while edge < 1:
        edge += 2.0 ** math.floor(math.log2(edge)) / 128
        if bias_mass(weights, edge) <= target:
            c = edge
    return max(safe, c)


def replay(
    events,
    rhat,
    u,
    policy,
    horizon,
    q,
    c_max,
    method,
    carry=False,
    replicates=None,
    find=exact_c,
    bias=None,
    pilot=None,
):
    """Algorithm 1 over events (x, a, r, p), predictions (n, K) or None, with uniforms u. The policy is a naive one.

    With `bias`, c is the largest whose bias mass on all events so far is at most `bias`. The first replicate is then a
    pilot, which ends after `pilot` events at the latest and does not count. Returns complete replicates, rows that were
    accepted, and the counts that a Replay shows.
    """
    if method in ("dr-ns-wc", "rs"):
        c_max = min(c_max, *(p for _, _, _, p in events))
    done, accepted_rows, violations, taken = [], [], 0, 0

    def begin():
        policy.reset()
        return {
            "t": 1, "c": c_max, "V": [], "C": [], "rewards": [], "first": None, "events": 0, "cs": [], "blocks": [],
            "block": 0, "masses": [], "importance": [],
        }  # fmt: skip

    s, Q, weights, in_pilot, before = begin(), [], [], bias is not None, (0, 0, 0)
    for k, (x, a, r, p) in enumerate(events):
        if replicates is not None and len(done) == replicates:
            break
        taken += 1
        s["first"] = k if s["first"] is None else s["first"]
        s["events"] += 1
        pi = [float(v) for v in np.asarray(policy.probabilities(np.array([x])))[0]]
        expected = 0.0 if rhat is None else math.fsum(pi[j] * rhat[k][j] for j in range(len(pi)))
        predicted = 0.0 if rhat is None else rhat[k][a]
        v = expected if method == "dm" else expected + pi[a] / p * (r - predicted)
        s["V"].append(s["c"] * v)
        s["C"].append(s["c"])
        Q.append(p / pi[a] if pi[a] > 0 else math.inf)
        weights.append(pi[a] / p)
        violations += s["c"] * pi[a] / p > 1 + 1e-12  # where c was found, c w is 1 up to rounding
        s["masses"].append(max(s["c"] * pi[a] / p - 1, 0))
        s["importance"].append(s["c"] * pi[a] / p)
        if pi[a] > 0 and u[k] <= s["c"] * pi[a] / p:
            accepted_rows.append(k)
            s["rewards"].append(r)
            s["cs"].append(s["c"])
            block = [math.fsum(s[name][s["block"] :]) for name in ("V", "C", "masses", "importance")]
            s["blocks"].append((r, 1, *block[2:]) if method == "rs" else block)
            s["block"] = len(s["V"])
            policy.update(np.asarray(x), a, r)
            s["t"] += 1
            if bias is not None:
                s["c"] = targeted_c(weights, bias)
            elif method in ("dr-ns", "dm"):
                s["c"] = find(Q, q, c_max)
            if s["t"] == horizon + 1 and not in_pilot:
                V, C = math.fsum(s["V"]), math.fsum(s["C"])
                if method == "rs":
                    V = math.fsum(s["rewards"])
                done.append(
                    {
                        "cumulative": V,
                        "average": V / horizon if method == "rs" else V / C,
                        "weight": C,
                        "steps": horizon,
                        "events": s["events"],
                        "first_row": s["first"],
                        "last_row": k,
                        "cs": s["cs"],
                        "blocks": s["blocks"],
                    }
                )
                s = begin() if bias is None else {**begin(), "c": s["c"]}
                Q = Q if carry else []
        if in_pilot and (s["t"] == horizon + 1 or s["events"] == pilot):
            in_pilot = False
            before = taken, len(accepted_rows), violations
            s = {**begin(), "c": targeted_c(weights, bias)}
    counts = {"events": taken - before[0], "accepted": len(accepted_rows) - before[1], "left_over": s["events"]}
    return done, accepted_rows, {**counts, "violations": violations - before[2], "pilot": before[0]}


class Learner:
    """A policy that learns, in plain Python: both what `drs.replay` can run and what `replay` above walks with."""

    def __init__(self, n_actions, n_features, **parameters):
        self.K, self.d = n_actions, n_features
        self.__dict__.update(parameters)
        self.reset()

    def reset(self):
        self.n = 0
        self.version = 0
        self.start()

    def probabilities(self, X):
        return np.array([self.choose([float(v) for v in x]) for x in X]).reshape(len(X), self.K)

    def update(self, x, action, reward):
        self.learn([float(v) for v in x], action, reward)
        self.n += 1
        self.version += 1


class LinearLearner(Learner):
    rate, rate_decay, loss = 0.05, 0.0, "squared"

    def start(self):
        self.W = [[0.0] * (self.d + 1) for _ in range(self.K)]

    def scores(self, x):
        return [sum(w[j] * x[j] for j in range(self.d)) + w[self.d] for w in self.W]

    def learn(self, x, action, reward):
        score, curvature = self.scores(x)[action], 1.0
        if self.loss == "logistic":
            score, curvature = 1 / (1 + math.exp(-score)), 0.25
        rate = self.rate / (1 + self.rate_decay * self.n)
        size = sum(v * v for v in x) + 1
        pace = rate * (reward - score) / (1 + rate * curvature * size)
        for j, v in enumerate([*x, 1.0]):
            self.W[action][j] += pace * v


def first_largest(values):
    return values.index(max(values))


class EpsilonGreedy(LinearLearner):
    epsilon, decay = 0.1, 0.0

    def choose(self, x):
        epsilon = self.epsilon / (1 + self.decay * self.n)
        scores = self.scores(x)
        best = [s == max(scores) for s in scores]
        return [epsilon / self.K + (1 - epsilon) / sum(best) * is_best for is_best in best]


class Boltzmann(LinearLearner):
    temperature, cooling = 0.1, 0.0

    def choose(self, x):
        scores = self.scores(x)
        temperature = self.temperature / (1 + self.cooling * self.n)
        weights = [math.exp((s - max(scores)) / temperature) for s in scores]
        return [w / sum(weights) for w in weights]


class SquareCB(LinearLearner):
    gamma, exponent = 10.0, 0.5

    def choose(self, x):
        scores = self.scores(x)
        best = first_largest(scores)
        gamma = self.gamma * (1 + self.n) ** self.exponent
        pi = [1 / (self.K + gamma * (scores[best] - s)) for s in scores]
        pi[best] = 1 - (sum(pi) - pi[best])
        return pi


class LinUCB(Learner):
    alpha, ridge = 1.0, 1.0

    def start(self):
        self.A = [self.ridge * np.eye(self.d + 1) for _ in range(self.K)]
        self.b = [np.zeros(self.d + 1) for _ in range(self.K)]

    def choose(self, x):
        z = np.array([*x, 1.0])
        bounds = []
        for A, b in zip(self.A, self.b, strict=True):
            inverse = np.linalg.inv(A)
            bounds.append(float(inverse @ b @ z + self.alpha * math.sqrt(z @ inverse @ z)))
        pi = [0.0] * self.K
        pi[first_largest([round(v, 9) for v in bounds])] = 1.0  # untried actions tie, up to rounding
        return pi

    def learn(self, x, action, reward):
        z = np.array([*x, 1.0])
        self.A[action] += np.outer(z, z)
        self.b[action] += reward * z


class UCB1(Learner):
    scale = 1.0

    def start(self):
        self.counts, self.sums = [0] * self.K, [0.0] * self.K

    def choose(self, x):
        bounds = [
            s / n + self.scale * math.sqrt(2 * math.log(self.n) / n) if n else math.inf
            for n, s in zip(self.counts, self.sums, strict=True)
        ]
        pi = [0.0] * self.K
        pi[first_largest([round(v, 12) for v in bounds])] = 1.0
        return pi

    def learn(self, x, action, reward):
        self.counts[action] += 1
        self.sums[action] += reward


class Exp3(Learner):
    gamma = 0.1

    def start(self):
        self.weights = [1.0] * self.K

    def choose(self, x):
        total = sum(self.weights)
        return [(1 - self.gamma) * w / total + self.gamma / self.K for w in self.weights]

    def learn(self, x, action, reward):
        estimate = reward / self.choose(x)[action]
        self.weights[action] *= math.exp(self.gamma * estimate / self.K)


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


def tree_winner(tree, goes_right):
    """The action at the end of the way down, and how many nodes were met."""
    met = 0
    while isinstance(tree, tuple):
        tree = tree[1] if goes_right(tree) else tree[0]
        met += 1
    return tree, met


def filter_tree_example(node, costs, goes_right):
    """What one event says at a node: whether right is better, and how important it is; None if it says nothing."""
    left, right = (tree_winner(side, goes_right)[0] for side in node)
    if costs[left] == costs[right]:
        return None
    return costs[right] < costs[left], abs(costs[left] - costs[right])


def offset_tree_example(node, a, r, p, offset, goes_right):
    """The same from a logged action, its reward and its propensity."""
    left, right = (tree_winner(side, goes_right)[0] for side in node)
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
    """One batch update of appendix D, and the loss of the weights before it; theta is (K, d)."""
    move = np.zeros_like(theta)
    loss = 0.0
    for x, cost in zip(X, costs, strict=True):
        scores = [float(w @ x) for w in theta]
        a2 = max(range(len(scores)), key=lambda b: scores[b])
        a1 = max(range(len(scores)), key=lambda b: scores[b] - epsilon * cost[b])
        loss += cost[a2]
        move[a1] += x
        move[a2] -= x
    return theta + rate * move / len(X), loss / len(X)


def completed_ridge(X, costs, alpha=1.0):
    """Weights (K, d) of ridge regressions of the rewards of each action; a column of zeros gets weights of 0."""
    used = X.any(axis=0)
    weights = np.zeros((costs.shape[1], X.shape[1]))
    weights[:, used] = np.linalg.solve(X[:, used].T @ X[:, used] + alpha * np.eye(used.sum()), -X[:, used].T @ costs).T
    return weights


def backtracking(X, costs, theta, epochs, tolerance):
    """Direct loss minimisation by steps that reduce the loss; a failed one is undone, and halves the step and ε."""
    theta = theta - theta.mean(axis=0)
    scores = np.sort(X @ theta.T, axis=1)
    per_norm = (scores[:, -1] - scores[:, -2]).mean() / np.linalg.norm(theta)
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


# The progressive validation policy


def progressive(events, rhat, u, policy, horizon, q, c_max, X):
    """DR-ns with a naive policy for `horizon` steps (None: as many as there are), and π_PV at contexts X (the last
    appendix), from copies of the policy as it was in each block."""
    policy.reset()
    c, Q, blocks, block = c_max, [], [], []
    for k, (x, a, r, p) in enumerate(events):
        if len(blocks) == horizon:
            break
        pi = np.asarray(policy.probabilities(np.array([x])))[0]
        expected = 0.0 if rhat is None else math.fsum(pi * rhat[k])
        block.append(expected + pi[a] / p * (r - (0.0 if rhat is None else rhat[k][a])))
        Q.append(p / pi[a] if pi[a] > 0 else math.inf)
        if pi[a] > 0 and u[k] <= c * pi[a] / p:
            blocks.append((copy.deepcopy(policy), c * len(block), c * math.fsum(block), len(block)))
            policy.update(np.asarray(x), a, r)
            c, block = exact_c(Q, q, c_max), []
    V, C, N = (math.fsum(b[j] for b in blocks) for j in (2, 1, 3))
    mixture = sum(weight / C * np.asarray(was.probabilities(X)) for was, weight, *_ in blocks)
    return {"pi": mixture, "value": V / C, "weight": C, "steps": len(blocks), "events": int(N), "c_max": c_max}


def progressive_bound(found, n, delta, M, error, variance):
    """The theorem at the end of the paper, for rewards in [0, 1]; n, the log's length, bounds the random N."""
    C, log = found["weight"], math.log(2 / delta)
    return found["c_max"] / C * 2 * max((1 + M) * log, math.sqrt(n * (variance + M * error) * log))
