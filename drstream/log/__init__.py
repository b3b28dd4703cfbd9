"""Logs: from files and streams to batches of events."""

from drstream.log.batch import Batch, Block
from drstream.log.log import Log, as_log
from drstream.log.reader import Reader
from drstream.log.sparse import Csr, Sparse

__all__ = ["Batch", "Block", "Csr", "Log", "Reader", "Sparse", "as_log"]
