"""The check that features are right, before the clock starts: scikit-learn's one-hot encoding of the same rows."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from sklearn.preprocessing import OneHotEncoder

from bench.categories import cases
from bench.categories.log import COLUMNS, TextFile
from bench.common import racing
from bench.common.baselines import PARITY_ROWS, SCAN, scan


def scan_dictionaries(log: TextFile) -> int:
    """Decodes text as dictionaries, the fastest way to read it, and returns the number of rows."""
    pa.set_cpu_count(racing.THREADS)
    form = ds.ParquetFileFormat(dictionary_columns=COLUMNS)
    return sum(batch.num_rows for batch in ds.dataset(log.path, format=form).to_batches(columns=log.columns))


BASELINES = {SCAN: scan, cases.DICTIONARIES: scan_dictionaries}


def check_parity(case: cases.Case) -> None:
    log = cases.opened(case.log)
    assert BASELINES[case.baseline](case.log) == case.log.rows
    assert cases.find(case.log) == log.n_features
    assert cases.encode(case.log) == case.log.rows * len(COLUMNS)
    head = ds.dataset(case.log.path).head(PARITY_ROWS)
    words = np.column_stack([head[name].to_numpy() for name in COLUMNS])
    theirs = OneHotEncoder(categories=[log.categories[name] for name in COLUMNS]).fit_transform(words)
    reader = log.reader(context=True)
    batch = next(reader.batches(next(log.parts(reader.columns)), Counter()))
    ours = batch[:PARITY_ROWS].matrix
    same = theirs[: ours.shape[0]] - ours
    assert abs(same).max() == 0
