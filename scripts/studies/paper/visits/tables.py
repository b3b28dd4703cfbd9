"""Makes the tables of figure 3."""

from __future__ import annotations

import math

import numpy as np

from scripts.studies.paper.rows import Error, Results, count_words, with_error
from scripts.studies.results import Found

SHOWN = {"ips": "IPS", "dr": "DR", "snips": "SNIPS", "dm": "DM"}
HEAD = ["size", *(f"rmse {name}" for name in SHOWN.values()), "DR / IPS", "bias IPS", "bias DR"]
Errors = dict[tuple[str, float, int, str], Error]


def figure3(results: Results, found: Found) -> None:
    errors = _errors(results)
    cases = list(dict.fromkeys((data, floor) for data, floor, _, _ in errors))
    sizes = {case: list(dict.fromkeys(n for *of, n, _ in errors if tuple(of) == case)) for case in cases}
    drawn = [case for case in cases if case[0] == "drawn"]
    floored = [case for case in cases if case[0] == "rand" and case[1] > 0]
    for case in (*floored, *drawn):
        name = f"Figure 3: {'RAND' if case[0] == 'rand' else 'drawn'}, μ at least {case[1]:g}"
        found.table(name, HEAD, [_row(errors, case, n) for n in sizes[case]])
        found.figures |= _about(case, name, results)
    below = {case: [errors[*case, n, "dr"].rmse < errors[*case, n, "ips"].rmse for n in sizes[case]] for case in cases}
    gains, drawn_gains = (
        [1 - errors[*case, n, "dr"].rmse / errors[*case, n, "ips"].rmse for case in some for n in sizes[case]]
        for some in (floored, drawn)
    )
    unbiased = [
        abs(errors[*case, n, e].bias) <= 3 * errors[*case, n, e].bias_stderr
        for case in (*floored, *drawn)
        for n in sizes[case]
        for e in ("ips", "dr")
    ]
    found.figures |= {
        "Figure 3: floors of μ": ", ".join(f"{floor:g}" for _, floor in floored),
        "Figure 3: samples of each size, RAND": f"{errors[*floored[0], sizes[floored[0]][0], 'dr'].count}",
        "Figure 3: samples of each size, drawn": f"{errors[*drawn[0], sizes[drawn[0]][0], 'dr'].count}",
        "Figure 3: sizes where DR has the smaller rmse, RAND": count_words([b for c in floored for b in below[c]]),
        "Figure 3: sizes where DR has the smaller rmse, drawn": count_words([b for c in drawn for b in below[c]]),
        "Figure 3: gain in rmse, RAND": f"{np.mean(gains):.0%} ± {_gain_error(errors, floored, sizes):.0%}",
        "Figure 3: gain in rmse, RAND, from and to": f"{min(gains):.0%} to {max(gains):.0%}",
        "Figure 3: gain in rmse, the paper": "10% to 20%",
        "Figure 3: gain in rmse, drawn": f"{np.mean(drawn_gains):.0%}",
        "Figure 3: biases within three standard errors": count_words(unbiased),
    }
    for case in (case for case in cases if case[1] == 0):
        found.figures |= {
            "Figure 3: smallest μ on RAND without a floor": (
                f"{results.of('smallest_propensity', data='rand', floor=0.0).min():.1g}"
            ),
            "Figure 3: largest rmse then": f"{max(errors[*case, n, 'ips'].rmse for n in sizes[case]):.0f}",
            "Figure 3: sizes where DR has the smaller rmse then": count_words(below[case]),
        }


def streamed(results: Results, found: Found) -> None:
    """Time and memory of the passes over the whole drawn set."""
    rows = []
    for what in ("fit", "evaluate"):
        count, seconds, peak = (float(results.of(c, what=what)[0]) for c in ("rows", "seconds", "peak_megabytes"))
        rows.append([what, f"{count:,.0f}", f"{seconds:.1f}", f"{count / seconds / 1e6:.2f} M", f"{peak:.0f}"])
    found.table("Figure 3: streamed", ["task", "rows", "seconds", "rows per second", "peak memory, MB"], rows)
    found.figures |= {
        "Figure 3: estimates of the whole drawn set": ", ".join(_estimate(results, e) for e in ("ips", "dr", "dm")),
        "Figure 3: truth of the whole drawn set": f"{float(results.of('truth', what='evaluate')[0]):.2f}",
    }


def _errors(results: Results) -> Errors:
    found: Errors = {}
    for data in results.values("data"):
        for floor in sorted(set(results.of("floor", data=data).tolist())):
            for n in sorted(set(results.of("size", data=data, floor=floor).tolist())):
                for e in SHOWN:
                    of = {"data": data, "floor": floor, "size": n, "estimator": e}
                    found[data, floor, n, e] = Error.of(results.of("value", **of), results.of("truth", **of))
    return found


def _gain_error(errors: Errors, cases: list[tuple[str, float]], sizes: dict[tuple[str, float], list[int]]) -> float:
    """A standard error of the mean gain. It takes IPS and DR as independent, which makes it too large."""
    parts = []
    for case in cases:
        for n in sizes[case]:
            ips, dr = errors[*case, n, "ips"], errors[*case, n, "dr"]
            parts.append(dr.rmse / ips.rmse * math.hypot(dr.rmse_stderr / dr.rmse, ips.rmse_stderr / ips.rmse))
    return float(np.linalg.norm(parts)) / len(parts)


def _about(case: tuple[str, float], name: str, results: Results) -> dict[str, str]:
    data, floor = case
    of = {"data": data, "floor": floor}
    share, mean, truth, revealed = (
        float(results.of(column, **of)[0])
        for column in ("share_at_floor", "mean_propensity", "truth", "mean_of_revealed")
    )
    return {
        f"{name}: share of rows at the floor, mean μ": f"{share:.0%}, {mean:.2f}",
        f"{name}: truth, mean of revealed visits": f"{truth:.3f}, {revealed:.2f}",
    }


def _row(errors: Errors, case: tuple[str, float], n: int) -> list[str]:
    ips, dr = errors[*case, n, "ips"], errors[*case, n, "dr"]
    rmse = [with_error(errors[*case, n, e].rmse, errors[*case, n, e].rmse_stderr) for e in SHOWN]
    bias = [with_error(error.bias, error.bias_stderr) for error in (ips, dr)]
    return [f"{n:,}", *rmse, f"{dr.rmse / ips.rmse:.2f}", *bias]


def _estimate(results: Results, estimator: str) -> str:
    value, low, high = (float(results.of(column, estimator=estimator)[0]) for column in ("value", "low", "high"))
    interval = "" if math.isnan(low) else f" [{low:.2f}, {high:.2f}]"  # DM has none
    return f"{SHOWN[estimator]} {value:.2f}{interval}"
