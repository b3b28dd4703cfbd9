"""Measures the throughput of the decoder of numbers in turns with pyarrow's."""

from __future__ import annotations

from typing import Any

import pytest

from bench.common.racing import PAIRS, compare, race
from bench.common.selecting import params
from bench.decoding import cases
from bench.decoding.baselines import check_parity, decode, decode_by_pyarrow


@pytest.mark.parametrize("case", params(cases.CASES))
def bench_decoding(benchmark: Any, case: cases.Case) -> None:
    case.log.make()
    check_parity(case)
    ours, others = race(benchmark, lambda: decode(case), lambda: decode_by_pyarrow(case), PAIRS)
    benchmark.extra_info |= {
        "kind": "decoding",
        "name": str(case),
        "what": case.what,
        "log": str(case.log),
        "rows": case.log.rows,
        "baseline": cases.PYARROW,
        **compare(ours, others, case.log.rows),
        "required": None,
        "passed": True,
    }
