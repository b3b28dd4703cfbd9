"""Checksums of pages: files that drstream writes have them, and for an audit a changed byte is an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import drstream as drs
from drstream.errors import LogError

ROWS = 2_000


def table() -> pa.Table:
    rng = np.random.default_rng(0)
    return pa.table(
        {
            "x0": rng.normal(size=ROWS),
            "action": np.arange(ROWS) % 2,
            "reward": rng.normal(size=ROWS),
            "propensity": np.full(ROWS, 0.5),
        }
    )


def damaged(path: Path) -> list[Path]:
    """Return copies of a file, each with one reward changed, in plain pages."""
    whole, found = path.read_bytes(), []
    for row in (0, ROWS // 2, ROWS - 1):
        value = table()["reward"][row].as_py()
        before, after = np.array(value).tobytes(), np.array(value + 1e6).tobytes()
        start = whole.index(before)
        found.append(path.with_name(f"damaged-{row}.parquet"))
        found[-1].write_bytes(whole[:start] + after + whole[start + 8 :])
    return found


def test_an_audit_compares_what_convert_writes_with_its_checksums(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    drs.convert(drs.Log(table()), path, codec="none")
    assert drs.Log(path).audit().level
    for other in damaged(path):
        assert drs.Log(other).to_arrow().num_rows == ROWS  # without a check, there is a wrong number
        with pytest.raises(LogError, match=rf"row group 0 of {other}: .*CRC"):
            drs.Log(other).audit()


@pytest.mark.parametrize(
    "options", [{}, {"compression": "zstd"}, {"data_page_version": "2.0"}, {"use_dictionary": False}]
)
def test_files_without_checksums_are_audited(tmp_path: Path, options: dict[str, Any]) -> None:
    pq.write_table(table(), tmp_path / "a.parquet", write_page_checksum=True, **options)
    pq.write_table(table(), tmp_path / "b.parquet", **options)
    assert drs.Log(tmp_path).audit().rows == 2 * ROWS
