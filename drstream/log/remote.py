"""Logs in object storage and on other file systems: names to files, errors that pass, and reading ahead.

A URI goes to pyarrow's file systems (s3, gs, abfs, hdfs), or else to fsspec's. Credentials are theirs: nothing here
reads or shows them.
"""

from __future__ import annotations

import itertools
import random
import re
import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import pyarrow as pa
import pyarrow.fs

from drstream.errors import LogError, MissingFileError, without_secrets
from drstream.log.files import SUFFIXES, arrow_says

Result = TypeVar("Result")
OURS = ("file", "s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")  # schemes of pyarrow's file systems
LASTING = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)  # trying again does not help
ATTEMPTS = 6
FIRST, LONGEST = 0.1, 5.0  # seconds: most that is waited after the first error, and after any error
READERS = 16  # threads that read footers, or parts ahead
STALE = 10.0  # seconds after which a file is asked again for its size and tag: it may have been replaced
MOST_OPEN = 10_000  # files whose size and tag are kept
LOGS = 8  # logs whose open files are shared


class Retries:
    """Tries again after errors of a file system that may pass, such as resets, timeouts and server errors.

    It waits between attempts: a random part of a time that doubles, so that many workers do not come back together.
    `count` says how often it has tried again.
    """

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[Retries], tuple[()]]:
        return Retries, ()  # a worker counts its own

    def add(self, count: int) -> None:
        with self._lock:
            self.count += count

    def call(self, action: Callable[[], Result]) -> Result:
        """Return action(), perhaps after some attempts."""
        for attempt in itertools.count(1):
            try:
                return action()
            except OSError as error:
                if isinstance(error, LASTING) or attempt == ATTEMPTS:
                    raise
            self.add(1)
            time.sleep(random.uniform(0, min(LONGEST, FIRST * 2 ** (attempt - 1))))
        raise AssertionError


def is_remote(filesystem: pa.fs.FileSystem) -> bool:
    return not isinstance(filesystem, pa.fs.LocalFileSystem)


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
    filesystem = with_retries(filesystem)
    try:
        if wild:
            matches = _pattern(path.rstrip("/") + where[len(base) :])
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


def _pattern(glob: str) -> re.Pattern[str]:
    """Return a glob as a regular expression: * stays within a folder, ** goes through any number of them.

    >>> bool(_pattern("b/day=*/x.parquet").fullmatch("b/day=1/x.parquet")), bool(_pattern("b/*").fullmatch("b/c/d"))
    (True, False)
    >>> bool(_pattern("b/**/x.parquet").fullmatch("b/x.parquet")), bool(_pattern("b/[0-2].pq").fullmatch("b/3.pq"))
    (True, False)
    """
    words = {"**/": r"(?:.*/)?", "**": r".*", "*": r"[^/]*"}
    pieces = re.split(r"(\*\*/|\*\*|\*|\[[^\]/]+\])", glob)
    return re.compile("".join(words.get(p, p.replace("[!", "[^") if p[:1] == "[" else re.escape(p)) for p in pieces))


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


# A file system that tries again


def with_retries(filesystem: pa.fs.FileSystem) -> pa.fs.FileSystem:
    """Return a file system that tries again after errors that may pass. A local one stays as it is."""
    if not is_remote(filesystem) or retries_in(filesystem) is not None:
        return filesystem
    return pa.fs.PyFileSystem(_Handler(filesystem, Retries()))


def retries_in(filesystem: Any) -> Retries | None:
    handler = getattr(filesystem, "handler", None)
    return handler.retries if isinstance(handler, _Handler) else None


def retries_of(thing: Any) -> Retries | None:
    """Return what counts the repeated reads of a source or part; None if it is local."""
    return retries_in(getattr(getattr(thing, "file", thing), "filesystem", None))


def forget(filesystem: Any, path: str) -> None:
    """Ask the storage for size and tag of a file when they are next needed, not at most every ten seconds."""
    handler = getattr(filesystem, "handler", None)
    if isinstance(handler, _Handler) and handler.files is not None:
        handler.files.forget(path)


class _Handler(pa.fs.FileSystemHandler):  # type: ignore[misc]
    """Reads files of another file system, and tries again. It writes nothing."""

    def __init__(self, inner: pa.fs.FileSystem, retries: Retries, log: str = "") -> None:
        self.inner, self.retries = inner, retries
        self.log = log or secrets.token_hex(8)  # a log that is opened later may find other files
        self.files = None if isinstance(inner, pa.fs.PyFileSystem) else _Files.of(inner, self.log)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Handler, (self.inner, self.retries, self.log)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Handler) and bool(self.inner.equals(other.inner))

    def __hash__(self) -> int:
        return hash(self.inner.type_name)

    def get_type_name(self) -> str:
        return str(self.inner.type_name)

    def normalize_path(self, path: str) -> str:
        return str(self.inner.normalize_path(path))

    def get_file_info(self, paths: list[str]) -> Any:
        return self.retries.call(lambda: self.inner.get_file_info(paths))

    def get_file_info_selector(self, selector: pa.fs.FileSelector) -> Any:
        return self.retries.call(lambda: self.inner.get_file_info(selector))

    def identity(self, path: str) -> tuple[int, str] | None:
        """Return the size of a file and the tag of its contents, as of a short while ago. None if nobody knows tags."""
        files = self.files
        if files is None:
            return None

        def ask() -> tuple[int, str]:
            file = files.get(path)
            about = file.metadata() or {}
            return file.size(), str(about.get("ETag") or about.get("Last-Modified") or "")

        return self.retries.call(ask)

    def open_input_file(self, path: str) -> pa.PythonFile:
        return pa.PythonFile(_File(self, path), mode="r")

    def open_input_stream(self, path: str) -> pa.PythonFile:
        return self.open_input_file(path)

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError("logs are read only")

    copy_file = create_dir = delete_dir = delete_dir_contents = delete_file = delete_root_dir_contents = _refuse
    move = open_append_stream = open_output_stream = _refuse


class _Files:
    """Files of a file system of pyarrow's that are open. To open one takes a request, which asks for size and tag.

    Any number of threads can read one, as they say where to read.
    """

    known: ClassVar[OrderedDict[str, _Files]] = OrderedDict()  # by log
    lock = threading.Lock()

    def __init__(self, inner: pa.fs.FileSystem) -> None:
        self.inner = inner
        self.entries: OrderedDict[str, _Entry] = OrderedDict()

    @classmethod
    def of(cls, inner: pa.fs.FileSystem, log: str) -> _Files:
        """Return the open files of a log. In a worker process, all of its parts share them."""
        with cls.lock:
            found = cls.known.setdefault(log, cls(inner))
            if len(cls.known) > LOGS:
                cls.known.popitem(last=False)
            return found

    def get(self, path: str) -> pa.NativeFile:
        with self.lock:
            entry = self.entries.setdefault(path, _Entry())
            if len(self.entries) > MOST_OPEN:
                self.entries.popitem(last=False)
        with entry.lock:
            if entry.file is None or time.monotonic() - entry.since >= STALE:
                entry.file = self.inner.open_input_file(path)
                entry.since = time.monotonic()
            return entry.file

    def forget(self, path: str) -> None:
        with self.lock:
            self.entries.pop(path, None)


@dataclass
class _Entry:
    file: pa.NativeFile | None = None
    since: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)


class _File:
    """A file of another file system. After an error it is opened again, and read from where it was."""

    closed = False

    def __init__(self, handler: _Handler, path: str) -> None:
        self.handler, self.path = handler, path
        self.inner: pa.NativeFile | None = None
        self.at = 0
        self.length = int(self._try(lambda file: file.size()))

    def _try(self, action: Callable[[pa.NativeFile], Result]) -> Result:
        files = self.handler.files

        def attempt() -> Result:
            try:
                if files is not None:
                    return action(files.get(self.path))
                if self.inner is None:
                    self.inner = self.handler.inner.open_input_file(self.path)
                return action(self.inner)
            except OSError:
                self.inner = None  # the next attempt opens it again
                if files is not None:
                    files.forget(self.path)
                raise

        return self.handler.retries.call(attempt)

    def read(self, count: int | None = -1) -> bytes:
        left = max(self.length - self.at, 0)
        wanted = left if count is None or count < 0 else min(count, left)

        def take(file: pa.NativeFile) -> bytes:
            found = bytes(file.read_at(wanted, self.at))
            if len(found) != wanted:
                raise OSError(f"{self.path}: {len(found)} bytes came instead of {wanted}")
            return found

        data = self._try(take) if wanted else b""
        self.at += len(data)
        return data

    def seek(self, to: int, whence: int = 0) -> int:
        self.at = to + (0, self.at, self.length)[whence]
        return self.at

    def tell(self) -> int:
        return self.at

    def size(self) -> int:
        return self.length

    def close(self) -> None:
        self.closed = True
        if self.inner is not None:
            self.inner.close()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False
