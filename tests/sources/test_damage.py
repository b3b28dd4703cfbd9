"""Damaged files give pyarrow's numbers, or an error that names them: no crash, no traceback, no other number."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import drstream as drs

ROWS, GROUP = 300, 100
MUTANTS = 400  # of each file
PARQUET: dict[str, dict[str, Any]] = {
    "plain": {"compression": "none", "use_dictionary": False},
    "dictionaries": {"compression": "snappy"},
    "small pages": {"compression": "zstd", "data_page_size": 300, "write_batch_size": 32},
}
ARROW: dict[str, dict[str, Any]] = {"plain": {}, "zstd": {"compression": "zstd"}}
FILES = {**{f"{name}.parquet": how for name, how in PARQUET.items()}, **{f"{n}.arrow": how for n, how in ARROW.items()}}


def table() -> pa.Table:
    rng = np.random.default_rng(0)
    words = pa.array([f"word {i % 7}" for i in range(ROWS)])
    return pa.table(
        {
            "x0": rng.normal(size=ROWS),
            "x1": rng.normal(size=ROWS).astype(np.float32),
            "lists": pa.array([[float(i), 1.0] for i in range(ROWS)], pa.list_(pa.float32())),
            "gaps": pa.array([None if i % 5 == 0 else i for i in range(ROWS)]),
            "word": words,
            "code": words.dictionary_encode(),
            "day": pa.array(np.arange(ROWS) // GROUP, pa.int32()).cast(pa.date32()),
            "action": np.arange(ROWS) // GROUP % 3,
            "reward": rng.normal(size=ROWS),
            "propensity": np.full(ROWS, 0.5),
        }
    )


def write(path: Path) -> None:
    if path.suffix == ".parquet":
        pq.write_table(table(), path, row_group_size=GROUP, **FILES[path.name])
    else:
        options = pa.ipc.IpcWriteOptions(unify_dictionaries=True, **FILES[path.name])
        with pa.ipc.new_file(str(path), table().schema, options=options) as file:
            file.write_table(table(), max_chunksize=GROUP)


def mutated(whole: bytes, draw: random.Random, path: Path) -> bytes:
    """Return the file with some bits, bytes or lengths changed, or a piece left out; half of the time in its footer."""
    data = bytearray(whole)
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little") if path.suffix == ".parquet" else len(data) - 1200
    kind = draw.choice(["bits", "bytes", "length", "cut", "gone"])
    low = draw.choice([4, max(footer, 4)])
    for _ in range(draw.randint(1, 3)):
        place = draw.randrange(low, len(data) - 4)
        if kind == "bits":
            data[place] ^= 1 << draw.randrange(8)
        elif kind == "bytes":
            data[place] = draw.randrange(256)
        elif kind == "length":
            value = draw.choice([0, 1, 2**31 - 1, 2**32 - 1, len(data), draw.randrange(2**32)])
            data[place : place + 4] = value.to_bytes(4, "little")
    if kind == "cut":
        return bytes(data[: draw.randrange(len(data))])
    if kind == "gone":
        place = draw.randrange(low, len(data))
        del data[place : place + draw.choice([1, 8, 64])]
    return bytes(data)


def by_pyarrow(path: Path) -> pa.Table | None:
    """What pyarrow reads; None if it refuses the file."""
    try:
        if path.suffix == ".parquet":
            file = pq.ParquetFile(path)  # read at once, a row group that lacks rows would go on in the next
            groups = range(file.num_row_groups)
            found = pa.concat_tables(file.read_row_group(i, use_threads=False) for i in groups)
        else:
            found = pa.ipc.open_file(pa.OSFile(str(path))).read_all()
        found.validate(full=True)
    except Exception:
        return None
    return found


def try_all(path: Path, seed: int) -> None:
    """Read mutants of a file, and say how many were read and refused."""
    write(path)
    whole, draw = path.read_bytes(), random.Random(seed)
    read = refused = 0
    for number in range(MUTANTS):
        path.write_bytes(mutated(whole, draw, path))
        path.with_suffix(".number").write_text(str(number))  # for whoever looks for the mutant that ended the process
        for columns in (["x0", "x1", "action", "reward", "propensity"], None):
            try:
                log = drs.Log(path, context=["x0"], actions=3)
                names = columns or log.source.schema.names
                batches = [batch for part in log.source.parts(names) for batch in part.batches()]
                found = pa.Table.from_batches(batches, pa.schema([log.source.schema.field(name) for name in names]))
            except drs.DrstreamError:
                refused += 1
                continue
            read += 1
            wanted = by_pyarrow(path)
            if columns is None and wanted is not None:  # what pyarrow refuses may be in rows that nobody asked for
                assert same(found, wanted), number
        for options in ({}, {"filter": pc.field("action") == 1}, {"filter": "day > '1970-01-02'", "actions": 3}):
            try:
                log = drs.Log(path, context=["x0"], **options)
                drs.evaluate(log, drs.policies.Uniform(), estimators=["ips"], threads=1)
            except drs.DrstreamError:
                pass
    print(read, refused)  # noqa: T201  # for the process that counts


def same(one: pa.Table, other: pa.Table) -> bool:
    """Whether tables have the same rows; NaN equals NaN."""

    def plain(table: pa.Table) -> list[Any]:
        columns = [table.column(name).combine_chunks() for name in table.schema.names]
        columns = [c.dictionary_decode() if pa.types.is_dictionary(c.type) else c for c in columns]
        return [column.to_string(window=ROWS, container_window=ROWS) for column in columns]

    return plain(one) == plain(other)


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_damaged_files_do_not_end_the_process(tmp_path: Path, name: str) -> None:
    code = f"from tests.sources import test_damage; from pathlib import Path; test_damage.try_all(Path({name!r}), 1)"
    folder = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(folder)!r}); {code}"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    read, refused = map(int, done.stdout.split())
    assert min(read, refused) > 50
