"""Options --workers and --dask: who does the work of a command, instead of threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Annotated, Any

import typer

from drstream.errors import DrstreamError, WorkerError

WorkerProcesses = Annotated[
    int | None,
    typer.Option(
        "--workers",
        min=1,
        help="Number of worker processes that do the work instead of threads.",
    ),
]
DaskAddress = Annotated[
    str | None,
    typer.Option("--dask", help="Address of a Dask scheduler whose workers do the work, e.g. tcp://10.0.0.1:8786."),
]
TIMEOUT = 30  # seconds to reach a scheduler
opened = ExitStack()  # executors of this command


def open_executor(workers: int | None, dask: str | None) -> Any:
    """Return the executor that was asked for; None for threads. It is closed when the command ends."""
    return opened.enter_context(executor_of(workers, dask))


@contextmanager
def executor_of(workers: int | None, dask: str | None) -> Iterator[Any]:
    """Start worker processes or find a Dask cluster, as asked. Give the executor; None for threads."""
    if workers is not None and dask is not None:
        raise DrstreamError("--workers starts processes here, and --dask takes those of a cluster: give one of them")
    if workers is not None:
        from drstream.running.executors import Processes

        processes = Processes(workers)
        try:
            yield processes
        finally:
            processes.kill()  # nobody waits for their results any more
    elif dask is not None:
        with _client(dask) as client:
            yield client.get_executor(pure=False)
    else:
        yield None


def _client(address: str) -> Any:
    try:
        from distributed import Client
    except ImportError:
        raise WorkerError("--dask needs Dask: pip install 'drstream[dask]'") from None
    try:
        return Client(address, timeout=TIMEOUT)
    except (OSError, ValueError) as error:
        raise WorkerError(f"--dask {address}: cannot reach a scheduler there ({error}). Is it running?") from None
