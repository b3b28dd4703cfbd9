"""The short table of the README: how fast the same job is elsewhere, also where that is faster."""

from __future__ import annotations

from pathlib import Path

from bench.common import history
from bench.common.markdown import Info, against, millions, table

README = Path(__file__).parents[2] / "README.md"
BEGIN = "<!-- scripts/bench writes this table -->\n\n"
END = "\n\n<!-- the end of the table -->"
FOUR = "dm, ips, snips, dr of a softmax policy, wide snappy, against {}"
COLUMN = "ips, snips of a column, wide snappy, against {}"
ROWS = {  # what the README calls a benchmark
    FOUR.format("pyarrow scan, one row group per thread"): "four estimators, softmax policy, ridge model",
    FOUR.format("Polars by hand"): "the same",
    FOUR.format("DuckDB by hand, columns"): "the same",
    FOUR.format("Open Bandit Pipeline in memory"): "the same",
    COLUMN.format("DuckDB"): "IPS and SNIPS of a column",
    COLUMN.format("Polars"): "the same",
    "replay of an ε-greedy learner, list mapped, against Vowpal Wabbit's explore_eval": "replay of ε-greedy",
}


HEAD = ("job", "drstream, events/s", "beside", "events/s", "ratio")


def rows(results: history.Run) -> list[list[str]]:
    found: dict[str, Info] = {b["extra_info"].get("name", ""): b["extra_info"] for b in results["benchmarks"]}
    return [
        [
            words,
            millions(info["events_per_second"]),
            against(info),
            millions(info["baseline_events_per_second"]),
            f"{info['ratio']:.2f}" if info["ratio"] < 10 else f"{info['ratio']:.0f}",
        ]
        for name, words in ROWS.items()
        if (info := found.get(name)) is not None
    ]


def front(results: history.Run) -> str:
    """The table and a line about the machine."""
    made = (
        f"{results['datetime'][:10]}, {history.machine(results)}; K = 10 actions, d = 20 features, 5 M rows of Parquet."
    )
    return f"{table(HEAD, rows(results))}\n\n{made}"


def write(results: history.Run, readme: Path = README) -> None:
    text = readme.read_text()
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    readme.write_text(f"{text[:begin]}{front(results)}{text[end:]}")
