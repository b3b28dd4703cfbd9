"""The journal of models that are fitted within another run, e.g. by fold: it lies beside the run's own checkpoint."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from drstream.checkpoints import CheckpointFile, about_columns, about_labels
from drstream.digests import Digest
from drstream.errors import DrstreamError
from drstream.execution import Workers
from drstream.journals import journaled
from drstream.log import Log
from drstream.models.binding import ModelInputs

FITS = ".fits"  # ending of the file
PARAMETERS = ("crossfit", "cluster", "fold_seed")


def journal_of(
    given: Mapping[str, Any], workers: Workers, log: Log, inputs: Iterable[ModelInputs]
) -> AbstractContextManager[tuple[Workers, CheckpointFile | None]]:
    """Return workers that keep a journal of fits, and its file, if a run has a checkpoint and models to be fitted.

    given  The parameters of the run, with checkpoint and checkpoint_every.
    """
    path, wanted = given["checkpoint"], [one for one in inputs if one.waits]
    if path is None or not wanted or not isinstance(path, str | os.PathLike):
        return journaled(workers, None, 0.0, log, {})
    identity = {
        "models": [Digest.of([one.model, one.propensity, one.second])["sha256"] for one in wanted],
        "parameters": {name: given.get(name) for name in PARAMETERS},
        "log": {**about_columns(log, None), **about_labels(log)},
    }
    return journaled(workers, f"{os.fspath(path)}{FITS}", given["checkpoint_every"], log, identity)


@contextmanager
def starts_again(fits: CheckpointFile | None) -> Iterator[None]:
    """Delete the journal if the run starts again, with more actions: it then fits other models."""
    try:
        yield
    except DrstreamError as error:
        if fits is not None and error.n_actions:
            fits.remove()
        raise
