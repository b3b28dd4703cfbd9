"""Makes table 3."""

from __future__ import annotations

import math

import numpy as np

from scripts.studies.paper.adaptive.run import DEFAULT, C
from scripts.studies.paper.rows import Error, Results
from scripts.studies.results import Found

PAPER = {  # T = 300: rmse, its 95 % interval, bias, std
    ("dm", 0.0): (0.0329, 0.0007, 0.0328, 0.0027),
    ("rs", 0.0): (0.0179, 0.0050, 0.0007, 0.0181),
    ("dr-ns-wc", 0.0): (0.0156, 0.0037, 0.0086, 0.0132),
    ("dr-ns", 0.0): (0.0129, 0.0034, 0.0046, 0.0122),
    ("dr-ns", 0.01): (0.0089, 0.0017, 0.0065, 0.0062),
    ("dr-ns", 0.05): (0.0123, 0.0017, 0.0107, 0.0061),
    ("dr-ns", 0.1): (0.0946, 0.0015, 0.0946, 0.0053),
}
OURS = (DEFAULT, math.nan)
CASES = [*PAPER, OURS]
NAMES = {"dm": "DM", "rs": "RS", "dr-ns-wc": "DR-ns-wc", DEFAULT: "drstream's default"}
VALUES = {"value": "V_avg = V / C", "per_step": "V/T"}
Z = 1.96


def table3(results: Results, found: Found) -> None:
    horizons = results.values("horizon")
    for horizon in horizons:
        for kind, title in VALUES.items():
            _table(results, horizon, kind, f"Table 3: T = {horizon}, {title}", found)
        losses = np.unique(results.of("truth", horizon=horizon))
        found.figures[f"Table 3: true loss at T = {horizon}"] = (
            f"{losses.mean():.4f}, {losses.min():.4f} to {losses.max():.4f} over partitions"
        )
    found.figures |= {
        "Table 3: steps T": ", ".join(map(str, horizons)),
        "Table 3: standard error of the true loss": f"{results.of('truth_stderr', horizon=horizons[0]).mean():.4f}",
        "Table 3: partitions": f"{len(results.values('partition'))}",
        "Table 3: runs in each": f"{len(set(results.of('repetition', horizon=horizons[0]).tolist()))}",
        "Table 3: C of the regressions": f"{C:g}",
    }
    _verdict(results, horizons, found)


def _case(results: Results, horizon: int, case: tuple[str, float], column: str) -> np.ndarray:
    method, q = case
    of = {"horizon": horizon, "method": method} | ({"q": q} if method == "dr-ns" else {})
    return np.asarray(results.of(column, **of), float)


def _error(results: Results, horizon: int, case: tuple[str, float], kind: str) -> Error | None:
    values, truth = (_case(results, horizon, case, column) for column in (kind, "truth"))
    known = np.isfinite(values)
    return Error.of(values[known], truth[known]) if known.sum() > 1 else None


def _name(method: str, q: float) -> str:
    return NAMES.get(method, f"DR-ns, q = {q:g}")


def _table(results: Results, horizon: int, kind: str, title: str, found: Found) -> None:
    rows = []
    for case in CASES:
        error = _error(results, horizon, case, kind)
        failed = int(_case(results, horizon, case, "failed").sum())
        cells = [_name(*case) + (" (survivors)" if failed and error else "")]
        if error is None:
            cells += ["fails", "", "", "0", str(failed), "", "", "", ""]
        else:
            columns = ("replicates", "violations", "bias_mass", "bias_bound")
            mean = {c: _mean(results, horizon, case, c) for c in columns}
            mass = "" if math.isnan(mean["bias_mass"]) else f"{mean['bias_mass']:.4f}"
            bound = "" if math.isnan(mean["bias_bound"]) else f"{mean['bias_bound']:.3g}"
            cells += [f"{error.rmse:.4f} ± {Z * error.rmse_stderr:.4f}", f"{error.bias:+.4f}", f"{error.std:.4f}"]
            cells += [f"{mean['replicates']:.1f}", str(failed), f"{mean['violations']:.2%}", mass, bound]
            cells.append(_coverage(results, horizon, case) if kind == "value" else "")
        paper = PAPER.get(case)
        known = f"{paper[0]:.4f} ± {paper[1]:.4f}, {paper[2]:.4f}, {paper[3]:.4f}" if paper else ""
        rows.append([*cells, known])
    head = ["evaluator", "rmse ± 95 %", "bias", "std", "replicates", "failed", "violations", "bias mass"]
    head += ["bound on the bias, estimated", "95 % interval covers"]
    found.table(title, [*head, "paper, T = 300: rmse, bias, std"], rows)


def _coverage(results: Results, horizon: int, case: tuple[str, float]) -> str:
    """How many of the runs that have an interval contain the truth of the documents that the logs are made of."""
    low, high, truth = (_case(results, horizon, case, column) for column in ("low", "high", "truth_eval"))
    known = np.isfinite(low) & np.isfinite(high)
    covered = known & (low <= truth) & (truth <= high)
    return f"{covered.sum()} of {known.sum()}" if known.any() else "no interval"


def _verdict(results: Results, horizons: list[int], found: Found) -> None:
    horizon, longer = horizons[0], horizons[-1]
    claims = {kind: _claims(results, horizon, kind) for kind in VALUES}
    rows = [[claim, *(claims[kind][claim] for kind in VALUES)] for claim in claims["value"]]
    found.table(f"Table 3: claims at T = {horizon}", ["", *VALUES.values()], rows)
    levels = [case for case in PAPER if case[0] == "dr-ns" and len(_case(results, horizon, case, "value"))]
    first, last = levels[0], levels[-1]

    def grown(column: str, form: str) -> str:
        return " to ".join(f"{_mean(results, horizon, case, column):{form}}" for case in (first, last))

    def errors(kind: str, field: str, form: str) -> str:
        ends = [_error(results, horizon, case, kind) for case in (first, last)]
        return " to ".join("" if error is None else f"{getattr(error, field):{form}}" for error in ends)

    failed = _case(results, longer, ("rs", 0.0), "failed")
    found.figures |= {
        "Table 3: levels q, from the smallest to the largest": f"{first[1]:g} to {last[1]:g}",
        "Table 3: replicates as q grows": grown("replicates", ".1f"),
        "Table 3: bias mass as q grows": grown("bias_mass", ".4f"),
        "Table 3: weight C of a replicate as q grows, in T": grown("weight", ".2f"),
        "Table 3: spread of V_avg as q grows": errors("value", "std", ".4f"),
        "Table 3: bias of V/T as q grows": errors("per_step", "bias", "+.4f"),
        f"Table 3: runs in which RS fails at T = {longer}": f"{int(failed.sum())} of {len(failed)}",
    }


def _mean(results: Results, horizon: int, case: tuple[str, float], column: str) -> float:
    values = _case(results, horizon, case, column)
    values = values[np.isfinite(values)]
    return float(values.mean()) if len(values) else math.nan


def _claims(results: Results, horizon: int, kind: str) -> dict[str, str]:
    errors = {case: _error(results, horizon, case, kind) for case in PAPER}
    found = {case: error for case, error in errors.items() if error is not None}
    adaptive = {case: error for case, error in found.items() if case[0] == "dr-ns"}
    best = min(adaptive, key=lambda case: adaptive[case].rmse)
    replicates = [_mean(results, horizon, case, "replicates") for case in adaptive]
    rs = found.get(("rs", 0.0))
    return {
        "DR-ns is best at": f"q = {best[1]:g}",
        "its rmse over that of RS": f"{adaptive[best].rmse / rs.rmse:.2f}" if rs else "RS failed",
        "largest spread": _name(*max(found, key=lambda case: found[case].std)),
        "largest bias": _name(*max(found, key=lambda case: abs(found[case].bias))),
        "replicates grow with q": "yes" if replicates == sorted(replicates) else "no",
    }
