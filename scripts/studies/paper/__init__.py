"""The paper's experiments, on real data where it is public. A folder has the experiments of a section."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from scripts.studies.paper.adaptive import run as adaptive
from scripts.studies.paper.adaptive import tables as adaptive_tables
from scripts.studies.paper.classification import run as classification
from scripts.studies.paper.classification import tables as classification_tables
from scripts.studies.paper.rows import Results
from scripts.studies.paper.slotting import run as slotting
from scripts.studies.paper.slotting import tables as slotting_tables
from scripts.studies.paper.visits import run as visits
from scripts.studies.paper.visits import tables as visits_tables
from scripts.studies.results import Found
from scripts.studies.trials import Setting


class Experiment(NamedTuple):
    run: Callable[[Setting], Path]  # writes rows, and returns their path
    add: Callable[[Results, Found], None]  # figures and tables of these rows


PARTS = {
    "figure1": Experiment(classification.figure1, classification_tables.figure1),
    "figure2": Experiment(classification.figure2, classification_tables.figure2),
    "dlm": Experiment(classification.minimizers, classification_tables.minimizers),
    "figure3": Experiment(visits.figure3, visits_tables.figure3),
    "table2": Experiment(slotting.table2, slotting_tables.table2),
    "table3": Experiment(adaptive.table3, adaptive_tables.table3),
}


def run(parts: list[str], setting: Setting) -> Found:
    for name in parts:
        PARTS[name].run(setting)
    return summary(parts, setting.output)


def summary(parts: list[str], folder: Path) -> Found:
    found = Found()
    for name in parts:
        results = Results(folder / f"{name}.parquet")
        PARTS[name].add(results, found)
        if name == "figure3":
            visits_tables.streamed(Results(folder / "figure3_streamed.parquet"), found)
        date, commit, seed, seconds, workers = (
            results.about[k] for k in ("date", "commit", "seed", "seconds", "workers")
        )
        found.made[name] = f"{date}, commit {commit}, seed {seed}: {float(seconds):.0f} s on {workers} cores"
    return found
