"""Logs: from files and streams to batches of events."""

from drstream.log.batch import Batch, Block, Reader
from drstream.log.log import Log

__all__ = ["Batch", "Block", "Log", "Reader"]
