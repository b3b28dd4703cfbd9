"""The list of experiments. Each has a function that runs it, and one that writes its section of the page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from scripts.studies.paper.adaptive import page as adaptive_page
from scripts.studies.paper.adaptive import run as adaptive
from scripts.studies.paper.classification import page as classification_page
from scripts.studies.paper.classification import run as classification
from scripts.studies.paper.rows import Results
from scripts.studies.paper.slotting import page as slotting_page
from scripts.studies.paper.slotting import run as slotting
from scripts.studies.paper.visits import page as visits_page
from scripts.studies.paper.visits import run as visits
from scripts.studies.trials import Setting


class Experiment(NamedTuple):
    run: Callable[[Setting], Path]  # writes the results, and returns their path
    section: Callable[[Results, Path], str]  # writes the figure to the path, and returns the text


EXPERIMENTS = {  # in the order of the page
    "figure1": Experiment(classification.figure1, classification_page.figure1),
    "figure2": Experiment(classification.figure2, classification_page.figure2),
    "dlm": Experiment(classification.minimizers, classification_page.minimizers),
    "figure3": Experiment(visits.figure3, visits_page.figure3),
    "table2": Experiment(slotting.table2, slotting_page.table2),
    "table3": Experiment(adaptive.table3, adaptive_page.table3),
}
