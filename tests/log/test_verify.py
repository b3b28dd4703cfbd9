"""Checksums of pages: files that drstream writes have them, and with verify=True a changed byte is an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import drstream as drs
from drstream.errors import LogError
from drstream.log.footers import page_has_checksum

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


def value(path: Path, **options: bool) -> float:
    return drs.evaluate(drs.Log(path, **options), drs.policies.Uniform(), estimators=["ips"])["ips"].value


def test_what_convert_writes_is_verified(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    drs.convert(drs.Log(table()), path, codec="none")
    assert value(path, verify=True) == value(path)
    for other in damaged(path):
        assert value(other) != value(path)  # without a check, it is a wrong number
        with pytest.raises(LogError, match=rf"row group 0 of {other}: .*CRC"):
            value(other, verify=True)


@pytest.mark.parametrize(
    "options", [{}, {"compression": "zstd"}, {"data_page_version": "2.0"}, {"use_dictionary": False}]
)
def test_files_without_checksums_are_named_and_read(tmp_path: Path, options: dict[str, Any]) -> None:
    pq.write_table(table(), tmp_path / "a.parquet", write_page_checksum=True, **options)
    for name in ("b", "c", "d", "e"):
        pq.write_table(table(), tmp_path / f"{name}.parquet", **options)
    with pytest.warns(drs.DrstreamWarning, match="verify=True: 4 of 5 files have no checksums") as told:
        log = drs.Log(tmp_path, verify=True)
    assert "a.parquet" not in str(told[0].message)
    assert "b.parquet, " in str(told[0].message)
    assert "and 1 more" in str(told[0].message)
    found = drs.evaluate(log, drs.policies.Uniform(), estimators=["ips"])["ips"]
    assert found.value == value(tmp_path)


def test_a_header_that_is_none_says_nothing() -> None:
    assert page_has_checksum(b"") is None
    assert page_has_checksum(b"\x15\x00\x15") is None
    assert page_has_checksum(b"junk") is None


def test_only_parquet_has_checksums() -> None:
    with pytest.raises(LogError, match=r"verify=True is about checksums of pages of Parquet files, .* from table"):
        drs.Log(table(), verify=True)
