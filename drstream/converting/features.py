"""Named features become the entries of sparse contexts: a hash of the name is the index.

The hash is drstream's own and never changes. It is not that of Vowpal Wabbit, so weights cannot be carried over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drstream.errors import LogError, parameter
from drstream.log.rows import keys_of
from drstream.types import Ints

BITS = 18
MOST_BITS = 30
GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # Fibonacci hashing: the upper bits of the product depend on all bits
INDICES, VALUES = "indices", "values"
SPARSE = (
    pa.list_(pa.field("element", pa.int32(), nullable=False)),
    pa.list_(pa.field("element", pa.float64(), nullable=False)),
)


def check_bits(bits: Any) -> int:
    if isinstance(bits, bool) or not isinstance(bits, int) or not 1 <= bits <= MOST_BITS:
        raise LogError(f"{parameter('bits', bits)}: features are hashed to 2^bits indices; give 1 to {MOST_BITS}")
    return bits


def index_of(names: pa.Array | Sequence[str], bits: int) -> NDArray[np.int32]:
    """Return the index of each feature, from 0 to 2^bits - 1.

    It is the FNV-1a hash of the name's UTF-8 bytes, in 64 bits, times the golden ratio; of the product, the upper bits.
    """
    texts = names if isinstance(names, pa.Array) else pa.array(names, pa.large_string())
    return ((keys_of(texts) * GOLDEN) >> np.uint64(64 - bits)).astype(np.int32)


def lists(values: NDArray[Any], starts: Ints, kind: pa.DataType) -> pa.Array:
    """Return a column of lists. List i holds values[starts[i]:starts[i + 1]]."""
    return pa.ListArray.from_arrays(pa.array(starts, pa.int32()), pa.array(values), type=kind)


@dataclass(frozen=True)
class FeatureLines:
    """What the syntaxes of Vowpal Wabbit have in common: an event a line, whose features become sparse contexts."""

    bits: int = BITS  # there are 2^bits features
