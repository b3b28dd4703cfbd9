"""Makes the tables of figures 1 and 2, and of direct loss minimisation."""

from __future__ import annotations

from scripts.studies.paper.classification.run import TRAIN
from scripts.studies.paper.rows import Error, Results, count_words, mean_and_stderr, with_error
from scripts.studies.results import Found

Errors = dict[tuple[str, str, str], Error]
SHOWN = {"ips": "IPS", "dm": "DM", "dr": "DR", "ips of rewards": "IPS of rewards"}


def figure1(results: Results, found: Found) -> None:
    sets, forms = results.values("data"), results.values("classifier")
    errors = {
        (form, n, e): Error.of(
            results.of("error", classifier=form, data=n, estimator=e),
            results.of("truth", classifier=form, data=n, estimator=e),
        )
        for form in forms
        for n in sets
        for e in SHOWN
    }
    mine = {(n, e): errors["default", n, e] for n in sets for e in SHOWN}
    truth = {(form, n): float(results.of("truth", classifier=form, data=n)[0]) for form in forms for n in sets}
    rows = []
    for n in sets:
        rmse = [f"{mine[n, e].rmse:.4f}" for e in SHOWN]
        bias = [f"{mine[n, e].bias:+.4f} ± {mine[n, e].bias_stderr:.4f}" for e in ("ips", "dr")]
        rows.append([n, f"{truth['default', n]:.3f}", *bias, f"{mine[n, 'dm'].bias:+.3f}", *rmse])
    head = ["set", "error", "bias IPS", "bias DR", "bias DM", *(f"rmse {name}" for name in SHOWN.values())]
    claims = [
        ["IPS is unbiased, within three standard errors", *(_unbiased(errors, form, sets, "ips") for form in forms)],
        ["DR is unbiased", *(_unbiased(errors, form, sets, "dr") for form in forms)],
        ["DR's rmse is below that of IPS", *(_below(errors, form, sets, "ips") for form in forms)],
        [
            "DR's rmse is below that of IPS of rewards",
            *(_below(errors, form, sets, "ips of rewards") for form in forms),
        ],
        ["DM has the largest bias", *(_most_biased(errors, form, sets) for form in forms)],
        ["mean error of the classifier", *(f"{sum(truth[form, n] for n in sets) / len(sets):.3f}" for form in forms)],
    ]
    found.figures["Figure 1: samples"] = f"{mine[sets[0], 'dr'].count}"
    found.table("Figure 1: estimates of a classifier's error", head, rows)
    found.table("Figure 1: sets on which", ["", *(f"{form} classifier" for form in forms)], claims)


def _unbiased(errors: Errors, form: str, sets: list[str], estimator: str) -> str:
    found = [errors[form, n, estimator] for n in sets]
    return count_words([abs(error.bias) <= 3 * error.bias_stderr for error in found])


def _below(errors: Errors, form: str, sets: list[str], other: str) -> str:
    return count_words([errors[form, n, "dr"].rmse < errors[form, n, other].rmse for n in sets])


def _most_biased(errors: Errors, form: str, sets: list[str]) -> str:
    others = [e for e in SHOWN if e != "dm"]
    return count_words(
        [abs(errors[form, n, "dm"].bias) > max(abs(errors[form, n, e].bias) for e in others) for n in sets]
    )


def figure2(results: Results, found: Found) -> None:
    sets = results.values("data")
    names = {"ips": "IPS", "ips of rewards": "IPS of rewards", "dr": "DR", "dr, cross-fitted": "DR, cross-fitted"}
    pairs = [*((one, kind) for one in ("dlm", "filter tree") for kind in names), ("offset tree", "logged")]
    errors = {(n, *p): results.of("error", data=n, learner=p[0], losses=p[1]) for n in sets for p in pairs}
    mean = {key: mean_and_stderr(values) for key, values in errors.items()}

    def below(one: str, kind: str, other: tuple[str, str]) -> str:
        return count_words([mean[n, one, kind][0] < mean[n, *other][0] for n in sets])

    def clearly(one: str, kind: str) -> str:
        """Counts the sets on which the difference on the same splits exceeds two standard errors."""
        difference = [mean_and_stderr(errors[n, one, "ips"] - errors[n, one, kind]) for n in sets]
        return count_words([d > 2 * e for d, e in difference])

    rows = [[n, *(with_error(*mean[n, *p]) for p in pairs)] for n in sorted(sets)]
    head = ["set", *(f"{one.replace('dlm', 'DLM')}, {names.get(kind, 'logged')}" for one, kind in pairs)]
    head = [text.replace("offset tree, logged", "offset tree") for text in head]
    logged = "offset tree", "logged"
    done = count_words(results.of("converged", learner="dlm").tolist())
    kinds = [(n, one) for n in sets for one in ("dlm", "filter tree")]
    most = max(abs(mean[n, one, "dr"][0] - mean[n, one, "dr, cross-fitted"][0]) for n, one in kinds)

    def wins(one: str) -> str:
        """Names the sets on which the Offset Tree is better, by how much, on the same splits."""
        gains = {n: mean_and_stderr(errors[n, one, "dr"] - errors[n, *logged]) for n in sorted(sets)}
        found = [f"{n} (by {gain:.3f} ± {error:.3f})" for n, (gain, error) in gains.items() if gain > 0]
        return " and ".join(found) if found else "no set"

    verdicts = [
        ["DR below IPS", below("dlm", "dr", ("dlm", "ips")), below("filter tree", "dr", ("filter tree", "ips"))],
        ["by more than two standard errors", clearly("dlm", "dr"), clearly("filter tree", "dr")],
        [
            "cross-fitted DR below IPS",
            below("dlm", "dr, cross-fitted", ("dlm", "ips")),
            below("filter tree", "dr, cross-fitted", ("filter tree", "ips")),
        ],
        [
            "DR below IPS of rewards",
            below("dlm", "dr", ("dlm", "ips of rewards")),
            below("filter tree", "dr", ("filter tree", "ips of rewards")),
        ],
        ["DR below the Offset Tree", below("dlm", "dr", logged), below("filter tree", "dr", logged)],
    ]
    found.figures |= {
        "Figure 2: repetitions": f"{len(errors[sets[0], 'dlm', 'dr'])}",
        "Figure 2: training part, %": f"{100 * TRAIN:.0f}",
        "Figure 2: fits of DLM that converge": done,
        "Figure 2: largest difference of fitted and cross-fitted loss models": f"{most:.3f}",
        "Figure 2: sets where the Offset Tree is better than the Filter Tree": wins("filter tree"),
        "Figure 2: sets where the Offset Tree is better than DLM": wins("dlm"),
    }
    found.table("Figure 2: test errors of learned policies", head, rows)
    found.table("Figure 2: sets on which", ["", "DLM", "Filter Tree"], verdicts)


def minimizers(results: Results, found: Found) -> None:
    sets = sorted(results.values("data"))
    forms = ("start", "former", "new")

    def mean(column: str, name: str, form: str) -> float:
        return float(results.of(column, data=name, form=form).mean())

    def gain(name: str, other: str) -> tuple[float, float]:
        """How much the error of the new form is below that of another, on the same splits."""
        error = {form: results.of("error", data=name, form=form) for form in ("new", other)}
        return mean_and_stderr(error[other] - error["new"])

    rows = []
    for name in sets:
        loss, error = ([f"{mean(column, name, form):.3f}" for form in forms] for column in ("loss", "error"))
        ends = [
            text
            for form in ("former", "new")
            for text in (
                count_words(results.of("converged", data=name, form=form).tolist()),
                f"{mean('epochs', name, form):.0f}",
                f"{mean('seconds', name, form):.2f} s",
            )
        ]
        rows.append([name, *loss, *error, "{:+.3f} ± {:.3f}".format(*gain(name, "start")), *ends])
    head = ["set", *(f"{what}, {form}" for what in ("loss", "error") for form in forms), "error, start - new"]
    head += [f"{what}, {form}" for form in ("former", "new") for what in ("converged", "epochs", "time")]
    worse = [d < -2 * e for d, e in (gain(name, "start") for name in sets)]
    better = [d > 2 * e for d, e in (gain(name, "start") for name in sets)]
    than_former = [gain(name, "former") for name in sets]
    done = {form: count_words(results.of("converged", form=form).tolist()) for form in ("former", "new")}
    seconds = {form: sum(mean("seconds", name, form) for name in sets) for form in ("former", "new")}
    found.figures |= {
        "DLM: repetitions": f"{len(results.of('error', data=sets[0], form='new'))}",
        "DLM: fits that converge, former": done["former"],
        "DLM: fits that converge, new": done["new"],
        "DLM: sets where new is better than start by two standard errors": count_words(better),
        "DLM: sets where it is worse": count_words(worse),
        "DLM: sets where new is better than former": count_words([d > 2 * e for d, e in than_former]),
        "DLM: sets where it is worse than former": count_words([d < -2 * e for d, e in than_former]),
        "DLM: seconds of one fit of each set, new": f"{seconds['new']:.1f}",
        "DLM: seconds of one fit of each set, former": f"{seconds['former']:.1f}",
    }
    found.table("DLM: where it starts, and which steps it takes", head, rows)
