"""The data sets, from a local folder, or from OpenML for those who are online."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from drstream.errors import DrstreamError

# name: (OpenML's name and version there, classes, rows), as in Table 1 of the paper
UCI = {
    "ecoli": (("ecoli", 1), 8, 336),
    "glass": (("glass", 1), 6, 214),
    "letter": (("letter", 1), 26, 20_000),
    "optdigits": (("optdigits", 1), 10, 5_620),
    "pageblocks": (("page-blocks", 1), 5, 5_473),
    "pendigits": (("pendigits", 1), 10, 10_992),
    "satimage": (("satimage", 1), 6, 6_435),
    "vehicle": (("vehicle", 1), 4, 846),
    "yeast": (("yeast", 1), 10, 1_484),
}
FOLDER = Path(os.environ.get("DRSTREAM_DATA", Path(__file__).parents[3] / "shared" / "data"))


class Classes(NamedTuple):
    """A classification problem."""

    name: str
    X: NDArray[np.float32]  # (n, d)
    y: NDArray[np.int64]  # 0, ..., K - 1
    n_classes: int


class MissingData(DrstreamError):  # noqa: N818  # reads as what it is
    """A data set that is neither in the folder nor to be had."""


def path(folder: Path, name: str) -> Path:
    found = folder / name
    if not found.is_file():
        raise MissingData(
            f"{name} is not in {folder}: pass --data FOLDER, or set DRSTREAM_DATA, to the folder that holds it"
        )
    return found


def uci(name: str, folder: Path) -> Classes:
    """One of the nine sets; a file uci_NAME.parquet has columns x, a list of features, and y, the class' number."""
    (known_as, version), classes, rows = UCI[name]
    file = folder / f"uci_{name}.parquet"
    if file.is_file():
        table = pq.read_table(file)
        X, y = _matrix(table["x"]), table["y"].to_numpy().astype(np.int64)
    else:
        X, y = _from_openml(known_as, version, file)
    found = int(y.max()) + 1
    if (found, len(y)) != (classes, rows):
        raise MissingData(f"{name} has {len(y)} rows and {found} classes; the paper's has {rows} and {classes}")
    return Classes(name, X, y, classes)


def _matrix(column: pa.ChunkedArray) -> NDArray[np.float32]:
    flat = column.combine_chunks()
    flat = flat.combine_chunks() if isinstance(flat, pa.ChunkedArray) else flat
    return flat.flatten().to_numpy().reshape(len(column), -1).astype(np.float32)


def _from_openml(name: str, version: int, file: Path) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    from sklearn.datasets import fetch_openml

    try:
        found = fetch_openml(name, version=version, as_frame=False, parser="liac-arff")
    except Exception as error:
        raise MissingData(
            f"{file.name} is not in {file.parent}, and OpenML cannot be reached ({type(error).__name__}): pass --data "
            "FOLDER, or set DRSTREAM_DATA, to the folder that holds it, or go online"
        ) from None
    return np.asarray(found.data, np.float32), np.unique(found.target, return_inverse=True)[1]


def rows(values: NDArray[np.float32]) -> pa.FixedSizeListArray:
    """Contexts (n, d) as one column of lists."""
    flat = np.ascontiguousarray(values)
    return pa.FixedSizeListArray.from_arrays(pa.array(flat.reshape(-1)), flat.shape[1])
