"""Files in object storage and on other file systems: from names to files, and reading ahead.

A URI goes to pyarrow's file systems (s3, gs, abfs, hdfs), or else to fsspec's. Credentials are theirs: nothing here
reads or shows them. They also try again after errors that may pass, such as resets, timeouts and server errors.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.fs

from drstream.errors import LogError, MissingFileError, without_secrets
from drstream.sources.names import SUFFIXES, arrow_says, pattern_of

Result = TypeVar("Result")
OURS = ("file", "s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")  # schemes of pyarrow's file systems
READERS = 16  # threads that read footers, or parts ahead


def is_remote(filesystem: pa.fs.FileSystem) -> bool:
    return not isinstance(filesystem, pa.fs.LocalFileSystem)


def is_far(source: Any) -> bool:
    """Whether the rows of a source come over a network, so that the next parts should be read ahead."""
    filesystem = getattr(source, "filesystem", None)
    return filesystem is not None and is_remote(filesystem)


def open_uris(names: Iterable[str]) -> tuple[pa.fs.FileSystem, list[str]]:
    """Return the file system of some URIs, and the files that they stand for: single ones, globs and directories."""
    found: list[str] = []
    filesystem: pa.fs.FileSystem | None = None
    for name in names:
        if "://" not in name:
            raise LogError(
                without_secrets(f"{name} is a path, and other files are URIs: give files of one file system")
            )
        here, files = _expand(name)
        if filesystem is not None and not here.equals(filesystem):
            raise LogError(
                without_secrets(f"{name} is on another file system than the files before it: read one alone")
            )
        filesystem = filesystem or here
        found += files
    assert filesystem is not None
    return filesystem, found


def _expand(name: str) -> tuple[pa.fs.FileSystem, list[str]]:
    where, query = name.partition("?")[::2]
    wild = re.search(r"[*\[]", where)
    base = where[: where.rindex("/", 0, wild.start())] if wild else where
    if wild and base.endswith(":/"):
        raise LogError(without_secrets(f"{name}: a glob must not begin before the bucket or folder"))
    filesystem, path = _resolve(f"{base}?{query}" if query else base)
    try:
        if wild:
            matches = pattern_of(path.rstrip("/") + where[len(base) :])
            files = [file for file in _files(filesystem, path) if matches.fullmatch(file)]
            if not files:
                raise MissingFileError(without_secrets(f"no file matches {name!r}"))
            return filesystem, files
        kind = filesystem.get_file_info(path).type
        if kind == pa.fs.FileType.NotFound:
            raise MissingFileError(without_secrets(f"no such file or directory: {name!r}"))
        if kind != pa.fs.FileType.Directory:
            return filesystem, [path]
        files = [file for file in _files(filesystem, path) if file.lower().endswith(SUFFIXES)]
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, LogError):
            raise
        raise LogError(without_secrets(f"cannot read {name}: {arrow_says(error)}")) from None
    if not files:
        raise MissingFileError(without_secrets(f"there is no {', '.join(SUFFIXES[:3])} file in {name!r}"))
    return filesystem, files


def _resolve(uri: str) -> tuple[pa.fs.FileSystem, str]:
    scheme = uri.partition("://")[0].lower()
    reason = f"pyarrow has no file system for {scheme}://"
    if scheme in OURS:
        try:
            found: tuple[pa.fs.FileSystem, str] = pa.fs.FileSystem.from_uri(uri)
            return found
        except (pa.ArrowException, OSError, ValueError) as error:
            reason = arrow_says(error)
    try:
        import fsspec

        other, path = fsspec.core.url_to_fs(uri.partition("?")[0])
        return pa.fs.PyFileSystem(pa.fs.FSSpecHandler(other)), path
    except ImportError as error:
        lacking = error.name or "fsspec"
        text = f"cannot open {uri}: {reason}, and the package {lacking} is not installed: pip install {lacking}"
    except (ValueError, OSError) as error:
        text = f"cannot open {uri}: {reason}; fsspec says: {arrow_says(error)}"
    raise LogError(without_secrets(text)) from None


def _files(filesystem: pa.fs.FileSystem, folder: str) -> list[str]:
    """Return all files below a folder, in order, without hidden ones and those in folders like _temporary."""
    selector = pa.fs.FileSelector(folder, recursive=True)
    found = filesystem.get_file_info(selector)
    files = [info.path for info in found if info.type == pa.fs.FileType.File]
    below = len(folder.rstrip("/"))
    return sorted(file for file in files if not re.search(r"/[_.]", file[below:]))


def together(action: Callable[[Any], Result], things: list[Any]) -> list[Result]:
    """Return action(thing) for all things, several at a time: each waits for the network."""
    if len(things) < 2:
        return [action(thing) for thing in things]
    with ThreadPoolExecutor(READERS, thread_name_prefix="drstream-open") as pool:
        return list(pool.map(action, things))


def read_ahead(parts: Iterable[Any], count: int) -> Generator[Any, None, None]:
    """Yield parts. Threads read the next `count` of them meanwhile, so that work does not wait for the network."""
    pool = ThreadPoolExecutor(min(count, READERS), thread_name_prefix="drstream-ahead")
    try:
        waiting: deque[Fetched] = deque()
        for part in parts:
            waiting.append(Fetched(part, pool.submit(_all, part)))
            if len(waiting) > count:
                yield waiting.popleft()
        while waiting:
            yield waiting.popleft()
    except BaseException:  # nobody wants more
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown(wait=False)


def _all(part: Any) -> list[pa.RecordBatch]:
    return list(part.batches())


@dataclass
class Fetched:
    """A part whose rows are being read."""

    part: Any
    future: Future[list[pa.RecordBatch]]

    @property
    def first_row(self) -> int:
        return int(self.part.first_row)

    @property
    def rows(self) -> int:
        return int(self.part.rows)

    @property
    def place(self) -> Any:
        return self.part.place

    def batches(self, rows: int | None = None) -> Iterator[pa.RecordBatch]:
        for batch in self.future.result():
            step = rows or max(batch.num_rows, 1)
            for start in range(0, batch.num_rows, step):
                yield batch.slice(start, step)
