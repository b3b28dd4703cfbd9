"""Runs one evaluation on candidates, and prints its peak memory in MB.

usage: python -m bench.candidates.once LAYOUT ROWS CATALOGUE
"""

from __future__ import annotations

import sys

from bench.candidates import cases
from bench.candidates.log import CandidateFile
from bench.process.once import peak_memory

if __name__ == "__main__":
    layout, rows, catalogue = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    cases.run(CandidateFile(layout, rows=rows, catalogue=catalogue), interactions=True)
    print(peak_memory())  # noqa: T201
