"""Checksums of pages: files that drstream writes have them, and with verify=True a changed byte is an error."""

from __future__ import annotations

from pathlib import Path

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


def test_pages_without_checksums_are_read(tmp_path: Path) -> None:
    pq.write_table(table(), tmp_path / "log.parquet")
    assert value(tmp_path / "log.parquet", verify=True) == value(tmp_path / "log.parquet")


def test_only_parquet_has_checksums() -> None:
    with pytest.raises(LogError, match=r"verify=True is about checksums of pages of Parquet files, .* from table"):
        drs.Log(table(), verify=True)
