"""Writes docs/paper.md: the results of each experiment, beside what the paper says."""

from __future__ import annotations

import textwrap
from pathlib import Path

from drstream.storage import atomic_path
from scripts.studies.paper.contents import EXPERIMENTS
from scripts.studies.paper.rows import Results

HEAD = """# The paper's experiments

`scripts/paper all` runs the experiments and writes this page. Every number on it comes from the rows in
[paper/](paper/). The paper is Dudík, Erhan, Langford and Li, *Doubly Robust Policy Evaluation and Optimization*. The
numbers of sections, tables and figures are the paper's. ± is one standard error over repetitions, unless the text says
otherwise. "IPS" is that of the paper: of losses in figures 1 and 2, of visits in figure 3, of rewards in table 2. The
data is real where we can get it. Where the paper's data is not public, the text names what we use instead.
`scripts/paper figure1 --quick` takes seconds. `--data FOLDER` names the folder that holds the data.
"""

SLIPS = """## Slips in the paper that an implementer must know

Each of these was checked by enumerating small worlds or by simulation.

- **Section 5.3**: n ≥ (mT + ln(e/δ))/α events are not enough for m replicates with probability 1 - δ. n α ≥ mT + L +
√(L² + 2mTL) with L = ln(1/δ) are (`tests/replaying/test_needed.py`). The observed rate α is an estimate of the one
that the bound needs.

- **IPS as a special case of DR**: its model is r̂ = 0, so Δ = -r*, and not r*. With the wrong sign, Theorem 3.5 gives
another variance.

- **Theorem 3.9**: D = 1 + M is too small if propensities can be too small, ϱ_max > 1. D = M + max(1, ϱ_max) holds
([ADR 17](adr/0017-constants-of-the-bound.md)).

- **The variance of DM, and Theorem 3.5**, are printed for deterministic policies ν.

- **Algorithm 1** starts at t = 0 and ends at T + 1. The theory means T acceptances, and so does drstream.

- **Theorem 5.1** needs the largest bias mass over all histories. A mean of measured ones is an estimate, and tends to
be too small.

- **DR-ns-wc and RS** need the smallest propensity of all actions in all contexts. The smallest one of the logged
actions is larger.

- **Appendix G** applies Freedman's inequality with a random number N of events. The length n of the log under the
root is safe. The bound needs r̂ in [0, 1], and an M that truly bounds 1/p.
"""


def write(folder: Path, page: Path) -> None:
    """Writes the page, with a section for each experiment that has results in the folder."""
    paths = {name: folder / f"{name}.parquet" for name in EXPERIMENTS}
    known = {name: Results(path) for name, path in paths.items() if path.is_file()}
    text = [HEAD, _made(known)]
    for name, results in known.items():
        text.append(EXPERIMENTS[name].section(results, folder / f"{name}.svg"))
        text.append(_how(name, results))
    text.append(SLIPS)
    with atomic_path(page) as unfinished:
        unfinished.write_text(wrapped("\n".join(text)))


def wrapped(text: str) -> str:
    """Wraps paragraphs at 120 characters. Headings, tables and figures stay as they are."""
    blocks = text.strip().split("\n\n")
    return "\n\n".join(b if b.lstrip()[0] in "#|!" else _filled(b) for b in blocks) + "\n"


def _made(known: dict[str, Results]) -> str:
    """From which commits, and in what time."""
    commits = list(dict.fromkeys(results.about["commit"] for results in known.values()))
    minutes = sum(float(results.about["seconds"]) for results in known.values()) / 60
    return f"All results together took {minutes:.0f} minutes. They are of commit {', '.join(commits)}.\n"


def _how(name: str, results: Results) -> str:
    about = results.about
    quick = ", quick form" if about["quick"] == "True" else ""
    seconds, workers = float(about["seconds"]), about["workers"]
    how = f"`scripts/paper {name}`{quick}, seed {about['seed']}: {seconds:.0f} s on {workers} cores, {about['date']}"
    return f"*{how}.*\n"


def _filled(paragraph: str) -> str:
    return textwrap.fill(" ".join(paragraph.split()), 120, break_on_hyphens=False)
