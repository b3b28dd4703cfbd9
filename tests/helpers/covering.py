"""Tells which tests reach the kernel lines that tests marked covers do not, after all tests ran as plain Python.

`scripts/test cover` does both. A test that it names gets the mark; a line that it names needs a test.
"""

import re
import subprocess
import sys
from pathlib import Path

import coverage


def marked():
    """The tests marked covers, as coverage names what runs: tests.kernels.test_kernels.test_merge."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "covers", "tests"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^(\S+)\.py::(\w+(?:::\w+)*)", listed, re.MULTILINE)
    return {f"{path}/{name}".replace("/", ".").replace("::", ".") for path, name in found}


def main():
    measured, reached, lines = coverage.Coverage(), {}, set()
    measured.load()
    data = measured.get_data()
    for file in sorted(data.measured_files()):
        name = Path(file).name
        lines |= {(name, line) for line in measured.analysis2(file)[1]}
        for line, tests in data.contexts_by_lineno(file).items():
            for test in tests:
                reached.setdefault(test, set()).add((name, line))
    for test in marked() | {""}:  # "" is what importing the kernels runs
        lines -= reached.get(test, set())
    while lines:
        best = max(sorted(reached), key=lambda test: len(lines & reached[test]))
        gain = sorted(lines & reached[best]) or sorted(lines)
        print(best if lines & reached[best] else "no test", *(f"{name}:{line}" for name, line in gain))  # noqa: T201
        lines -= set(gain)


if __name__ == "__main__":
    main()
