"""Loads the data sets from a local folder. Some can be downloaded if they are not there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse
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
    """A data set is not in the folder and cannot be downloaded."""


def path(folder: Path, name: str) -> Path:
    found = folder / name
    if not found.is_file():
        raise MissingData(
            f"{name} is not in {folder}: pass --data FOLDER, or set DRSTREAM_DATA, to the folder that holds it"
        )
    return found


def uci(name: str, folder: Path) -> Classes:
    """One of the nine sets. uci_NAME.parquet has columns x, a list of features, and y, the number of the class."""
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
        found = fetch_openml(name, version=version, as_frame=False, parser="liac-arff", n_retries=1, delay=0.5)
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


# Documents

RCV1_TOPICS = ("CCAT", "ECAT", "GCAT", "MCAT")
RCV1_FEATURES = 47_236
RCV1_ROWS = 40_000  # of the paper's selection


class Documents(NamedTuple):
    """Sparse contexts with sets of labels."""

    X: scipy.sparse.csr_array  # (n, d)
    Y: NDArray[np.bool_]  # (n, K): is the label right?


def rcv1(folder: Path) -> Documents:
    """News and their topics. rcv1_top4.parquet has columns indices, values and label_mask, one bit for each topic."""
    file = folder / "rcv1_top4.parquet"
    if not file.is_file():
        return _rcv1_from_scikit_learn(file)
    table = pq.read_table(file, columns=["indices", "values", "label_mask"]).combine_chunks()
    at, values = (table[name].chunk(0) for name in ("indices", "values"))
    parts = values.flatten().to_numpy(), at.flatten().to_numpy(), at.offsets.to_numpy() - at.offsets[0].as_py()
    X = scipy.sparse.csr_array(parts, shape=(len(table), RCV1_FEATURES))
    return Documents(X, (table["label_mask"].to_numpy()[:, None] >> np.arange(len(RCV1_TOPICS))) & 1 == 1)


def _rcv1_from_scikit_learn(file: Path) -> Documents:
    from sklearn.datasets import fetch_rcv1

    try:
        found = fetch_rcv1()
    except Exception as error:
        raise MissingData(
            f"{file.name} is not in {file.parent}, and RCV1 cannot be downloaded ({type(error).__name__}): pass --data "
            "FOLDER, or set DRSTREAM_DATA, to the folder that holds it, or go online"
        ) from None
    columns = [list(found.target_names).index(topic) for topic in RCV1_TOPICS]
    labels = found.target.tocsc()[:, columns].toarray() > 0
    known = np.flatnonzero(labels.any(axis=1))
    chosen = np.random.default_rng(0).choice(known, min(RCV1_ROWS, len(known)), replace=False)
    return Documents(scipy.sparse.csr_array(found.data[chosen]).astype(np.float32), labels[chosen])


def sparse_rows(X: scipy.sparse.csr_array) -> dict[str, pa.ListArray]:
    """Contexts as two columns of lists, for drs.Sparse("indices", "values", d)."""
    offsets = pa.array(X.indptr.astype(np.int32))
    columns = {"indices": X.indices.astype(np.int32), "values": X.data}
    return {name: pa.ListArray.from_arrays(offsets, pa.array(column)) for name, column in columns.items()}


class Visits(NamedTuple):
    """Visits to a doctor in a year, from the RAND health insurance experiment."""

    X: NDArray[np.float32]  # (n, 31)
    y: NDArray[np.int64]
    person: NDArray[np.int64]


def visits(folder: Path) -> Visits:
    table = pq.read_table(path(folder, "randhie_visits.parquet"))
    return Visits(_matrix(table["x"]), *(table[name].to_numpy().astype(np.int64) for name in ("y", "person")))


def open_bandit(campaign: str, folder: Path) -> pa.Table:
    """The small sample of the Open Bandit Dataset. Its metadata has the features of items."""
    return pq.read_table(path(folder, f"obd_{campaign}.parquet"))
