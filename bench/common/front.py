"""The short table of the README: main rows on files of other writers, a first result, and what else costs a user."""

from __future__ import annotations

from pathlib import Path

from bench.common import history, main_table
from bench.common.markdown import Info, table
from bench.lock import cases as lock_cases
from bench.lock import report as lock_report
from bench.others import cases as other_cases
from bench.others import report as other_report
from bench.others.files import ROWS
from bench.process import cases as process_cases
from bench.process import report as process_report

README = Path(__file__).parents[2] / "README.md"
BEGIN = "<!-- scripts/bench writes this table -->\n\n"
END = "\n\n<!-- the end of the table -->"
TOPICS: main_table.Topics = [
    (process_cases, process_report),
    (other_cases, other_report),
    (lock_cases, lock_report),
]


def front(results: history.Run) -> str:
    """The table and a line about the machine."""
    found: dict[str, Info] = {b["extra_info"]["name"]: b["extra_info"] for b in results["benchmarks"]}
    rows = main_table.rows(found, TOPICS, results["machine_info"]["full_size"])
    made = (
        f"{results['datetime'][:10]}, {history.machine(results)}; K = 10 actions, d = 20 features, {ROWS / 1e6:g} M "
        "rows a file. A ratio is of events per second, with those of the slowest and the fastest pair of runs."
    )
    return f"{table(main_table.HEAD, rows)}\n\n{made}"


def write(results: history.Run, readme: Path = README) -> None:
    text = readme.read_text()
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    readme.write_text(f"{text[:begin]}{front(results)}{text[end:]}")
