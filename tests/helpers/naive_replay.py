"""Algorithm 1 (DR-ns), policies that learn, and progressive validation, naively: one event at a time."""

import copy
import math

import numpy as np


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
    pilot_steps=None,
    eligible=None,
):
    """Algorithm 1 over events (x, a, r, p), predictions (n, K) or None, with uniforms u. The policy is a naive one.

    eligible  (n, K), whether events could choose actions: the policy is asked about these only.

    With `bias`, c is the largest whose bias mass on all events so far is at most `bias`. The first replicate is then a
    pilot of `pilot_steps` steps, by default all, which ends after `pilot` events at the latest and does not count.
    Returns complete replicates, rows that were accepted, and the counts that a Replay shows.
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
        sets = [] if eligible is None else [eligible[k : k + 1]]
        pi = [float(v) for v in np.asarray(policy.probabilities(np.array([x]), *sets))[0]]
        among = [j for j in range(len(pi)) if eligible is None or eligible[k][j]]
        expected = 0.0 if rhat is None else math.fsum(pi[j] * rhat[k][j] for j in among)
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
            policy.update(np.asarray(x), a, r, *(row[0] for row in sets))
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
        if in_pilot and (s["t"] == (pilot_steps or horizon) + 1 or s["events"] == pilot):
            in_pilot = False
            before = taken, len(accepted_rows), violations
            s = {**begin(), "c": targeted_c(weights, bias)}
    counts = {"events": taken - before[0], "accepted": len(accepted_rows) - before[1], "left_over": s["events"]}
    return done, accepted_rows, {**counts, "violations": violations - before[2], "pilot": before[0]}


class Learner:
    """A policy that learns, in plain Python: both what `drs.replay` can run and what `replay` above walks with.

    `choose` and `learn` are about one event, which could choose `self.among`. `choose` returns a probability for each.
    """

    def __init__(self, n_actions, n_features, **parameters):
        self.K, self.d = n_actions, n_features
        self.__dict__.update(parameters)
        self.reset()

    def reset(self):
        self.n = 0
        self.version = 0
        self.start()

    def probabilities(self, X, eligible=None):
        out = np.zeros((len(X), self.K))
        for i, x in enumerate(X):
            self.meet(None if eligible is None else eligible[i])
            out[i, self.among] = self.choose([float(v) for v in x])
        return out

    def meet(self, eligible):
        self.among = [a for a in range(self.K) if eligible is None or eligible[a]]

    def update(self, x, action, reward, eligible=None):
        self.meet(eligible)
        self.learn([float(v) for v in x], action, reward)
        self.n += 1
        self.version += 1


class LinearLearner(Learner):
    rate, rate_decay, loss = 0.05, 0.0, "squared"

    def start(self):
        self.W = [[0.0] * (self.d + 1) for _ in range(self.K)]

    def scores(self, x):
        return [sum(w[j] * x[j] for j in range(self.d)) + w[self.d] for w in self.W]

    def eligible_scores(self, x):
        scores = self.scores(x)
        return [scores[a] for a in self.among]

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
        scores = self.eligible_scores(x)
        best = [s == max(scores) for s in scores]
        return [epsilon / len(scores) + (1 - epsilon) / sum(best) * is_best for is_best in best]


class Boltzmann(LinearLearner):
    temperature, cooling = 0.1, 0.0

    def choose(self, x):
        scores = self.eligible_scores(x)
        temperature = self.temperature / (1 + self.cooling * self.n)
        weights = [math.exp((s - max(scores)) / temperature) for s in scores]
        return [w / sum(weights) for w in weights]


class SquareCB(LinearLearner):
    gamma, exponent = 10.0, 0.5

    def choose(self, x):
        scores = self.eligible_scores(x)
        best = first_largest(scores)
        gamma = self.gamma * (1 + self.n) ** self.exponent
        pi = [1 / (len(scores) + gamma * (scores[best] - s)) for s in scores]
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
        for a in self.among:
            inverse = np.linalg.inv(self.A[a])
            bounds.append(float(inverse @ self.b[a] @ z + self.alpha * math.sqrt(z @ inverse @ z)))
        pi = [0.0] * len(bounds)
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
            for n, s in ((self.counts[a], self.sums[a]) for a in self.among)
        ]
        pi = [0.0] * len(bounds)
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
        weights = [self.weights[a] for a in self.among]
        return [(1 - self.gamma) * w / sum(weights) + self.gamma / len(weights) for w in weights]

    def learn(self, x, action, reward):
        estimate = reward / self.choose(x)[self.among.index(action)]
        self.weights[action] *= math.exp(self.gamma * estimate / len(self.among))


def progressive(events, rhat, u, policy, horizon, q, c_max, X, eligible=None, within=None):
    """DR-ns with a naive policy for `horizon` steps (None: as many as there are), and π_PV at contexts X (the last
    appendix), from copies of the policy as it was in each block. `eligible` are the sets of the events, `within` those
    of X."""
    policy.reset()
    c, Q, blocks, block = c_max, [], [], []
    for k, (x, a, r, p) in enumerate(events):
        if len(blocks) == horizon:
            break
        sets = [] if eligible is None else [eligible[k : k + 1]]
        pi = np.asarray(policy.probabilities(np.array([x]), *sets))[0]
        expected = 0.0 if rhat is None else math.fsum(pi * rhat[k])
        block.append(expected + pi[a] / p * (r - (0.0 if rhat is None else rhat[k][a])))
        Q.append(p / pi[a] if pi[a] > 0 else math.inf)
        if pi[a] > 0 and u[k] <= c * pi[a] / p:
            blocks.append((copy.deepcopy(policy), c * len(block), c * math.fsum(block), len(block)))
            policy.update(np.asarray(x), a, r, *(row[0] for row in sets))
            c, block = exact_c(Q, q, c_max), []
    V, C, N = (math.fsum(b[j] for b in blocks) for j in (2, 1, 3))
    sets = [] if within is None else [within]
    mixture = sum(weight / C * np.asarray(was.probabilities(X, *sets)) for was, weight, *_ in blocks)
    return {"pi": mixture, "value": V / C, "weight": C, "steps": len(blocks), "events": int(N), "c_max": c_max}


def progressive_bound(found, n, delta, M, error, variance):
    """The theorem at the end of the paper, for rewards in [0, 1]; n, the log's length, bounds the random N."""
    C, log = found["weight"], math.log(2 / delta)
    return found["c_max"] / C * 2 * max((1 + M) * log, math.sqrt(n * (variance + M * error) * log))
