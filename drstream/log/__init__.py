"""Logs: from files and streams to batches of events."""

from drstream.log.categories import Hashed
from drstream.log.encoding import Coded
from drstream.log.events import Events
from drstream.log.kinds.candidates.columns import Candidates, Items
from drstream.log.kinds.candidates.reading import Offered
from drstream.log.log import Log, as_log
from drstream.log.reader import Reader
from drstream.log.sparse import Csr, Sparse

__all__ = [
    "Candidates",
    "Coded",
    "Csr",
    "Events",
    "Hashed",
    "Items",
    "Log",
    "Offered",
    "Reader",
    "Sparse",
    "as_log",
]
