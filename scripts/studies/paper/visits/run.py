"""Section 4.2: the average number of visits under covariate shift. Figure 3 compares IPS and DR over sample sizes.

There are two data sets: doctor visits of the RAND experiment, and a synthetic set of the paper's size, which is
streamed from files. The log reveals the visits v of a row (action 1) with probability μ(x) = min{φ(x·x̄), 1}. We want
the value of the policy that always reveals.

The paper does not define all that the density φ depends on. We scale features to [0, 1], like the paper's binary ones.
x̄ is the first principal component about the mean, of length 1, with the sign that makes the mean projection positive.
μ is at least `floor`, because φ falls to 5e-8 on RAND and to 0 on the drawn set. RAND also has results for a floor of
0. There a few weights of up to 1e7 decide, and most of them never appear in a log.
"""

from __future__ import annotations

import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse
from numpy.typing import NDArray

import drstream as drs
from scripts.studies import data, trials
from scripts.studies.trials import Row, Setting

Floats = NDArray[np.float64]

KEY, RAND, DRAWN = 3, 0, 1  # keys of random numbers: of Figure 3, and of its data sets
REVEAL = 1
ESTIMATORS = ("dm", "ips", "snips", "dr")
FLOORS = (0.0, 0.01, 0.05)
SIZES = (200, 500, 1_000, 2_000, 5_000, 10_000)  # of samples of RAND
SHARE = 0.2  # of RAND's persons, to fit r̂
RAND_REPETITIONS, REPETITIONS = 500, 100  # the paper has 100, too few to see a difference of a tenth
CHUNK = 20  # repetitions in a task

ROWS, DIM = 3_854_689, 5_000  # the paper's
FRACTIONS = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05)  # the paper's
FIT_ROWS, QUICK_ROWS = 400_000, 50_000
DRAWN_FLOOR = 0.01
PART = 1 << 17  # rows in a file, which has one row group
ONES, SHAPE, FLATTENED = 30, 2.0, 20  # mean number of draws in a row; its shape; first rank of Zipf's law
EFFECT, DISPERSION, VISITS = 0.1, 1.0, 23.8  # of features on log visits; of visits; the paper's mean
CONTEXT = drs.Sparse("indices", dim=DIM)


def figure3(setting: Setting) -> Path:
    """figure3.parquet has the estimates, figure3_streamed.parquet the passes over the whole drawn set."""
    started = time.perf_counter()
    floors, sizes = (FLOORS[1:2], SIZES[1:4:2]) if setting.quick else (FLOORS, SIZES)
    chunks = _chunks(setting.repetitions(RAND_REPETITIONS, 40))
    cases = [(setting.data, setting.seed, f, n, *chunk) for f in floors for n in sizes for chunk in chunks]
    rows = trials.run(rand, cases, setting, "Figure 3, RAND")
    with tempfile.TemporaryDirectory(prefix="visits-") as folder:
        streamed, drawn = _drawn(Path(folder), _chunks(setting.repetitions(REPETITIONS, 40)), setting)
    trials.write("figure3_streamed", streamed, setting, started)
    return trials.write("figure3", rows + drawn, setting, started)


def _chunks(count: int) -> list[tuple[int, int]]:
    return [(first, min(first + CHUNK, count)) for first in range(0, count, CHUNK)]


class Shift(NamedTuple):
    """μ(a = 1|x): a bias toward small values along the first principal component."""

    component: Floats
    lowest: float  # m
    mean: float  # m̄

    def reveal(self, projected: Floats, floor: float) -> Floats:
        centre, spread = self.lowest + (self.mean - self.lowest) / 3, (self.mean - self.lowest) / 4
        density = np.exp(-(((projected - centre) / spread) ** 2) / 2) / (spread * np.sqrt(2 * np.pi))
        return np.clip(density, floor, 1)


def principal(X: Any, steps: int = 1000, tolerance: float = 1e-8) -> Floats:
    """The first principal component, by power iteration. X may be sparse, so the products are centred instead of X."""
    mean = np.asarray(X.mean(axis=0), np.float64).reshape(-1)
    found = mean / np.linalg.norm(mean)
    for _ in range(steps):
        product = X.T @ (X @ found) / X.shape[0] - mean * (mean @ found)
        before, found = found, product / np.linalg.norm(product)
        if np.abs(found - before).max() < tolerance:
            break
    return found * np.sign(mean @ found)


def described(name: str, floor: float, size: int, visits: Floats, mu: Floats) -> Row:
    """What all estimates from samples of these rows share."""
    about: Row = {"data": name, "floor": floor, "size": size, "truth": float(visits.mean())}
    mean = float((mu * visits).sum() / mu.sum())  # expected mean of the revealed visits
    shift = {"mean_of_revealed": mean, "mean_propensity": float(mu.mean()), "smallest_propensity": float(mu.min())}
    return {**about, **shift, "share_at_floor": float((mu == floor).mean())}


def explore(visits: Floats, mu: Floats, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """Section 4.2: r = a v, with a ~ μ(.|x)."""
    action = (rng.random(len(mu)) < mu).astype(np.int32)
    return {"action": action, "reward": action * visits, "propensity": np.where(action, mu, 1 - mu)}


def values(log: drs.Log, model: Any) -> dict[str, float]:
    result = drs.evaluate(log, drs.policies.Constant(REVEAL), model, estimators=list(ESTIMATORS), threads=1)
    return {estimator: result["policy", estimator].value for estimator in ESTIMATORS}


# RAND


class Rand(NamedTuple):
    X: NDArray[np.float32]
    visits: Floats
    projected: Floats
    shift: Shift
    others: NDArray[np.int64]  # rows to fit r̂
    pool: NDArray[np.int64]  # rows of other persons, for samples


@cache
def _rand(folder: Path, seed: int) -> Rand:
    known = data.visits(folder)
    low, high = known.X.min(axis=0), known.X.max(axis=0)
    X = ((known.X - low) / (high - low)).astype(np.float32)
    component = principal(X.astype(np.float64))
    projected = X @ component
    persons = trials.generator(seed, KEY, RAND).permutation(np.unique(known.person))
    mine = np.isin(known.person, persons[: round(SHARE * len(persons))])
    shift = Shift(component, float(projected.min()), float(projected.mean()))
    return Rand(X, known.y.astype(float), projected, shift, np.flatnonzero(mine), np.flatnonzero(~mine))


def rand(folder: Path, seed: int, floor: float, size: int, first: int, last: int) -> list[Row]:
    """Estimates from samples of this size. Each has its own r̂, fitted on exploration data of other persons."""
    known = _rand(folder, seed)
    mu = known.shift.reveal(known.projected, floor)
    about = described("rand", floor, size, known.visits[known.pool], mu[known.pool])
    rows = []
    for repetition in range(first, last):
        rng = trials.generator(seed, KEY, RAND, size, repetition)
        sample = rng.choice(known.pool, size, replace=False)
        train, test = (
            drs.Log(
                pa.table({**explore(known.visits[chosen], mu[chosen], rng), "x": data.rows(known.X[chosen])}),
                context="x",
                actions=2,
            )
            for chosen in (known.others, sample)
        )
        model = drs.models.Ridge().fit(train, threads=1)  # r̂(x, 0) = 0, because all rewards of a = 0 are 0
        found = values(test, model)
        rows += [{**about, "repetition": repetition, "estimator": name, "value": found[name]} for name in ESTIMATORS]
    return rows


# The drawn set, of the paper's size


def _drawn(folder: Path, chunks: list[tuple[int, int]], setting: Setting) -> tuple[list[Row], list[Row]]:
    """Rows about the passes over the whole drawn set, and estimates from samples of it."""
    rows, fit_rows = (QUICK_ROWS, QUICK_ROWS) if setting.quick else (ROWS, FIT_ROWS)
    seed = setting.seed
    pieces = [("all", i, min(PART, rows - first)) for i, first in enumerate(range(0, rows, PART))]
    pieces += [("fit", i, min(PART, fit_rows - first)) for i, first in enumerate(range(0, fit_rows, PART))]
    begun = time.perf_counter()
    first = draw(*pieces[0], 1.0, seed)
    scale = VISITS / float(first.visits.mean())
    component = principal(first.X)  # of the first file's rows; m and m̄ are over all rows
    cases = [(*piece, seed, component) for piece in pieces if piece[0] == "all"]
    projected = trials.run(project, cases, setting, "Figure 3, drawn: projections")
    shift = Shift(component, min(r["lowest"] for r in projected), sum(r["sum"] for r in projected) / rows)
    cases = [(*piece, scale, seed, shift, folder) for piece in pieces]
    written = trials.run(write_part, cases, setting, "Figure 3, drawn: files")
    truth = sum(row["visits"] for row in written if row["of"] == "all") / rows
    drawing = {"what": "draw and write", "rows": rows + fit_rows, "seconds": time.perf_counter() - begun}
    streamed = [_pass(drawing, truth, {"megabytes": sum(row["bytes"] for row in written) / 1e6})]
    for task, name in (
        (fit_all, "fit"),
        (evaluate_all, "evaluation"),
    ):  # one process each, to measure its memory
        streamed += [_pass(row, truth) for row in trials.run(task, [(folder,)], setting, f"Figure 3, drawn: {name}")]
    trials.run(
        predict_part, [(folder, piece[1]) for piece in pieces if piece[0] == "all"], setting, "Figure 3, drawn: r̂"
    )
    sizes = [round(f * ROWS) for f in FRACTIONS[: 3 if setting.quick else None]]
    cases = [(folder, seed, n, *chunk) for n in sizes for chunk in chunks]
    return streamed, trials.run(samples, cases, setting, "Figure 3, drawn")


def _pass(found: Row, truth: float, more: Row | None = None) -> Row:
    empty = dict.fromkeys(("estimator", "value", "low", "high", "peak_megabytes", "megabytes", "passes"))
    row = {**empty, **found, **(more or {}), "truth": truth}
    return {**row, "rows_per_second": row["rows"] / row["seconds"]}


class Drawn(NamedTuple):
    X: scipy.sparse.csr_array  # (n, DIM), of ones
    visits: Floats
    rng: np.random.Generator


def draw(of: str, part: int, rows: int, scale: float, seed: int) -> Drawn:
    """Draws users of different activity, with distinct features by Zipf's law, and their visits.

    Visits are negative binomial. The logarithm of their mean is linear in the features, and the mean is not, so a
    linear r̂ is wrong.
    """
    rng = trials.generator(seed, KEY, DRAWN, part, of == "all")
    frequency = 1 / (np.arange(DIM) + FLATTENED)
    features = np.repeat(np.arange(DIM), np.ceil(frequency / frequency.sum() * 2**16).astype(int))
    count = rng.poisson(ONES * rng.gamma(SHAPE, 1 / SHAPE, rows))
    chosen = features[rng.integers(0, len(features), count.sum(), dtype=np.uint32)]
    keys = np.repeat(np.arange(rows) * DIM, count) + chosen
    keys.sort()
    keys = keys[np.diff(keys, prepend=-1) > 0]
    starts = np.searchsorted(keys, np.arange(rows + 1) * DIM).astype(np.int32)
    X = scipy.sparse.csr_array((np.ones(len(keys)), (keys % DIM).astype(np.int32), starts), shape=(rows, DIM))
    effects = trials.generator(seed, KEY, DRAWN).normal(0, EFFECT, DIM)
    mean = scale * np.exp(X @ effects)
    return Drawn(X, rng.poisson(mean * rng.gamma(DISPERSION, 1 / DISPERSION, rows)).astype(float), rng)


def project(of: str, part: int, rows: int, seed: int, component: Floats) -> list[Row]:
    projected = draw(of, part, rows, 1.0, seed).X @ component
    return [{"lowest": float(projected.min()), "sum": float(projected.sum())}]


def write_part(of: str, part: int, rows: int, scale: float, seed: int, shift: Shift, folder: Path) -> list[Row]:
    """Writes the rows with their visits, and what the log reveals. It draws them again instead of keeping them."""
    drawn = draw(of, part, rows, scale, seed)
    mu = shift.reveal(drawn.X @ shift.component, DRAWN_FLOOR)
    contexts = pa.ListArray.from_arrays(pa.array(drawn.X.indptr), pa.array(drawn.X.indices))
    revealed = explore(drawn.visits, mu, drawn.rng)
    file = folder / f"{of}-{part:03}.parquet"
    pq.write_table(pa.table({"indices": contexts, **revealed, "visits": drawn.visits, "mu": mu}), file)
    return [{"of": of, "visits": float(drawn.visits.sum()), "bytes": file.stat().st_size}]


def fit_all(folder: Path) -> list[Row]:
    log = drs.Log(f"{folder}/fit-*.parquet", context=CONTEXT, actions=2)
    begun = time.perf_counter()
    model = drs.models.Ridge().fit(log)
    took = time.perf_counter() - begun
    model.save(folder / "model.npz")
    return [{"what": "fit", "rows": log.rows, "seconds": took, "peak_megabytes": peak(), "passes": model.n_passes_}]


def evaluate_all(folder: Path) -> list[Row]:
    log = drs.Log(f"{folder}/all-*.parquet", context=CONTEXT, actions=2)
    model = drs.models.load(folder / "model.npz")
    begun = time.perf_counter()
    result = drs.evaluate(log, drs.policies.Constant(REVEAL), model, estimators=list(ESTIMATORS))
    took = {"seconds": time.perf_counter() - begun, "peak_megabytes": peak(), "passes": 1}
    about = {"what": "evaluate", "rows": log.rows, **took}
    found = {name: result["policy", name] for name in ESTIMATORS}
    return [{**about, "estimator": name, "value": e.value, "low": e.low, "high": e.high} for name, e in found.items()]


def peak() -> float | None:
    """Peak memory of this process in MB. None, unless the system is Linux."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.is_file() else []
    return next((int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("VmHWM")), None)


def predict_part(folder: Path, part: int) -> list[Row]:
    """Writes r̂, visits and μ of a file's rows, which is all that samples need."""
    table = pq.read_table(folder / f"all-{part:03}.parquet", columns=["indices", "visits", "mu"]).combine_chunks()
    at = table["indices"].chunk(0)
    parts = np.ones(len(at.values)), at.values.to_numpy(), at.offsets.to_numpy()
    predicted = drs.models.load(folder / "model.npz").predict(scipy.sparse.csr_array(parts, shape=(len(table), DIM)))
    columns = {f"rhat_{a}": np.ascontiguousarray(predicted[:, a]) for a in range(2)}
    pq.write_table(
        pa.table({"visits": table["visits"], "mu": table["mu"], **columns}), folder / f"known-{part:03}.parquet"
    )
    return []


@cache
def _known(folder: Path) -> dict[str, Floats]:
    table = pa.concat_tables(pq.read_table(file) for file in sorted(folder.glob("known-*.parquet")))
    return {name: table[name].to_numpy() for name in table.column_names}


def samples(folder: Path, seed: int, size: int, first: int, last: int) -> list[Row]:
    """Estimates from samples of this size. Each sample draws its own actions."""
    known = _known(folder)
    visits, mu = known["visits"], known["mu"]
    about = described("drawn", DRAWN_FLOOR, size, visits, mu)
    model = drs.models.Column("rhat_0", "rhat_1")
    rows = []
    for repetition in range(first, last):
        rng = trials.generator(seed, KEY, DRAWN, size, repetition)
        sample = rng.choice(len(visits), size, replace=False)
        predicted = {name: known[name][sample] for name in ("rhat_0", "rhat_1")}
        found = values(drs.Log(pa.table({**explore(visits[sample], mu[sample], rng), **predicted}), actions=2), model)
        rows += [{**about, "repetition": repetition, "estimator": name, "value": found[name]} for name in ESTIMATORS]
    return rows
