"""Tells which tests reach the kernel lines that those marked covers do not, after all of them ran as plain Python.

`scripts/test cover` does both. A test that it names gets the mark; a line that it names needs a test.
"""

from pathlib import Path

import coverage

MARKED = "covers "  # how the names of tests begin that have the mark


def note(test):
    """Let coverage note that the lines that follow are reached by a test, if it is measuring."""
    if measuring := coverage.Coverage.current():
        name = test.nodeid.partition("[")[0]
        measuring.switch_context(MARKED + name if test.get_closest_marker("covers") else name)


def main():
    measured, reached, left = coverage.Coverage(), {}, set()
    measured.load()
    for file in measured.get_data().measured_files():
        name = Path(file).name
        left |= {(name, line) for line in measured.analysis2(file)[1]}
        for line, tests in measured.get_data().contexts_by_lineno(file).items():
            for test in tests:
                reached.setdefault(test, set()).add((name, line))
    for test, lines in reached.items():
        if not test or test.startswith(MARKED):  # "" is what an import runs
            left -= lines
    while left:
        test = max(sorted(reached), key=lambda test: len(left & reached[test]))
        lines = left & reached[test] or left
        where = " ".join(f"{name}:{line}" for name, line in sorted(lines))
        print(test if lines <= reached[test] else "no test", "reaches", where)  # noqa: T201
        left -= lines


if __name__ == "__main__":
    main()
