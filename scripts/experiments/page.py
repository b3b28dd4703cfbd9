"""Writes docs/paper.md: the results of each experiment, beside what the paper says."""

from __future__ import annotations

import textwrap
from pathlib import Path

from drstream.storage import atomic_path
from scripts.experiments.contents import EXPERIMENTS
from scripts.experiments.summary import Results

HEAD = """# The paper's experiments

`scripts/paper all` runs the experiments and writes this page. Every number on it comes from the rows in
[paper/](paper/). The paper is Dudík, Erhan, Langford and Li, *Doubly Robust Policy Evaluation and Optimization*. The
numbers of sections, tables and figures are the paper's. ± is one standard error over repetitions, unless the text says
otherwise. The data is real where we can get it. Where the paper's data is not public, the text names what we use
instead. `scripts/paper figure1 --quick` takes seconds. `--data FOLDER` names the folder that holds the data.
"""


def write(folder: Path, page: Path) -> None:
    """Writes the page, with a section for each experiment that has results in the folder."""
    text = [HEAD]
    for name, experiment in EXPERIMENTS.items():
        path = folder / f"{name}.parquet"
        if path.is_file():
            results = Results(path)
            text.append(experiment.section(results, folder / f"{name}.svg"))
            text.append(_how(name, results))
    with atomic_path(page) as unfinished:
        unfinished.write_text(wrapped("\n".join(text)))


def wrapped(text: str) -> str:
    """Wraps paragraphs at 120 characters. Headings, tables and figures stay as they are."""
    blocks = text.strip().split("\n\n")
    return "\n\n".join(b if b.lstrip()[0] in "#|!" else _filled(b) for b in blocks) + "\n"


def _how(name: str, results: Results) -> str:
    about = results.about
    quick = ", quick form" if about["quick"] == "True" else ""
    seconds, workers = float(about["seconds"]), about["workers"]
    how = f"`scripts/paper {name}`{quick}, seed {about['seed']}: {seconds:.0f} s on {workers} cores, {about['date']}"
    return f"*{how}.*\n"


def _filled(paragraph: str) -> str:
    return textwrap.fill(" ".join(paragraph.split()), 120, break_on_hyphens=False)
