"""Makes broken files and odd schemas from seeds, and says what drstream does with them. Workers may die of them.

`make(kind, seed, folder)` writes a file. `judge(kind, seed, folder)` reads it and returns (outcome, words):

right      the number that the intact file gives
error      a sentence that names the file
vague      a sentence that does not
other      another number, where no checksum could have told: the words then begin with MADE_UP
DEFECT     anything else: a raw exception, or another number where a checksum could have told

`python -m tests.helpers.broken` is a worker: it reads lines "kind seed", and writes lines "outcome words".
"""

from __future__ import annotations

import io
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.helpers.places import ROOT

ROWS = 60
TIMEOUT = 60.0  # seconds for one file, on a busy machine
MADE_UP = "made up: "
MEMORY = 12 << 30  # bytes of addresses that a worker may have: what a file declares must not be believed


# Intact files


def table(form: int) -> pa.Table:
    """A log, in one of several forms."""
    rng = np.random.default_rng(1)
    action = rng.integers(0, 3, ROWS)
    columns: dict[str, Any] = {
        "x0": rng.normal(size=ROWS).astype(np.float32),
        "x1": rng.normal(size=ROWS),
        "action": action,
        "reward": rng.integers(0, 2, ROWS).astype(float),
        "propensity": np.where(action == 0, 0.5, 0.25),
    }
    if form == 1:
        columns["action"] = pa.array(np.array(["red", "green", "blue"])[action])
        columns["day"] = pa.array(rng.integers(0, 3, ROWS), pa.int32()).cast(pa.date32())
    if form == 2:
        columns["action"] = pa.array(np.array(["red", "green", "blue"])[action]).dictionary_encode()
        columns = {
            "context": [[float(i), 1.0] for i in range(ROWS)],
            **{k: v for k, v in columns.items() if k[0] != "x"},
        }
    if form == 3:
        columns["more"] = pa.array([None if i % 3 else {"a": i, "b": [str(i)]} for i in range(ROWS)])
        columns["half"] = pa.array(rng.normal(size=ROWS).astype(np.float16))
    return pa.table(columns)


@cache
def intact(kind: str, form: int) -> bytes:
    if kind == "parquet":
        sink = io.BytesIO()
        codec, version = ("none", "snappy", "zstd", "none")[form], ("1.0", "2.0")[form % 2]
        more = {"compression": codec, "data_page_version": version, "write_page_checksum": True, "row_group_size": 20}
        pq.write_table(table(form), sink, **more, use_dictionary=form != 0)
        return sink.getvalue()
    if kind == "ipc":
        sink = io.BytesIO()
        options = pa.ipc.IpcWriteOptions(compression="lz4" if form == 3 else None)
        rows = table(form)
        with pa.ipc.new_file(sink, rows.schema, options=options) as file:
            file.write_table(rows, max_chunksize=20)
        return sink.getvalue()
    import drstream as drs

    if kind in ("state", "checkpoint"):
        return state(form) if kind == "state" else checkpoint(form)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        if kind == "npz":
            model: Any = (drs.models.Ridge(), drs.models.Logistic(), drs.models.Propensity(), drs.models.Ridge())[form]
        else:
            from sklearn.linear_model import LinearRegression

            model = drs.models.from_sklearn(LinearRegression())
        model.fit(drs.Log(table(0))).save(path)
        return path.read_bytes()


OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"by": "day", "cluster": "user"},
    {"interval": ["bootstrap", "normal"], "estimators": ["ips", "snips"]},
    {"explain": True},
)


def state(form: int) -> bytes:
    """A state of a pass."""
    import drstream as drs

    found = drs.partial(events(), {"uniform": drs.policies.Uniform()}, log={"context": "x?"}, **OPTIONS[form])
    return found.to_bytes()


def events() -> pa.Table:
    rng = np.random.default_rng(2)
    more = {"day": rng.integers(0, 3, ROWS), "user": rng.integers(0, 9, ROWS)}
    return pa.table({**{name: table(0)[name] for name in table(0).column_names}, **more})


@cache
def own_folder() -> tuple[Path, tempfile.TemporaryDirectory[str]]:
    """A folder of this process with a log."""
    folder = tempfile.TemporaryDirectory()
    pq.write_table(events(), Path(folder.name) / "log.parquet", row_group_size=20)
    return Path(folder.name), folder


def run(form: int, path: Path) -> Any:
    """A run with a checkpoint: two passes, a fit, or a replay. What it gives."""
    import drstream as drs

    log = drs.Log(own_folder()[0] / "log.parquet", context="x?")
    kept: dict[str, Any] = {"checkpoint": path, "checkpoint_every": 0, "threads": 1}
    if form == 2:
        model = drs.models.Logistic().fit(log, **kept)
        return [model.coef_.tolist(), model.intercept_.tolist()]
    if form == 3:
        return drs.replay(log, drs.policies.EpsilonGreedy(0.3), 5, q=0.05, **kept).row()
    found = drs.evaluate(log, {"uniform": drs.policies.Uniform()}, **OPTIONS[form], **kept).to_dict()
    return str({name: value for name, value in found.items() if name != "provenance"})


def checkpoint(form: int) -> bytes:
    """The checkpoint of a run that did not end."""
    from drstream.states import checkpoint as module

    class Stop(Exception):  # noqa: N818  # it stands for a kill
        pass

    def note(kept: Any) -> None:
        module.Checkpoint.write(kept)
        notes.append(1)
        if len(notes) == 2:
            raise Stop

    notes: list[int] = []
    usual, module.Checkpoint.note = module.Checkpoint.note, note  # type: ignore[method-assign]
    path = own_folder()[0] / "run.ckpt"
    try:
        with suppress(Stop):
            run(form, path)
        return path.read_bytes()
    finally:
        module.Checkpoint.note = usual  # type: ignore[method-assign]
        path.unlink(missing_ok=True)


# What is done to them


def truncate(data: bytearray, rng: np.random.Generator) -> None:
    del data[int(rng.integers(len(data))) :]


def flip(data: bytearray, rng: np.random.Generator) -> None:
    for _ in range(int(rng.choice([1, 1, 1, 2, 8]))):
        data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))


def flip_end(data: bytearray, rng: np.random.Generator) -> None:
    """Change the footer, or the directory of a zip file."""
    size = int.from_bytes(data[-8:-4], "little") if data[-4:] == b"PAR1" else len(data) // 4
    for _ in range(int(rng.choice([1, 1, 1, 2, 4]))):
        data[len(data) - 1 - int(rng.integers(min(len(data), size + 8)))] ^= 1 << int(rng.integers(8))


def flip_start(data: bytearray, rng: np.random.Generator) -> None:
    """Change headers: schema and lengths of an IPC file, the first page of Parquet, the first member of a zip file."""
    data[int(rng.integers(min(len(data), 400)))] ^= 1 << int(rng.integers(8))


def huge(data: bytearray, rng: np.random.Generator) -> None:
    """Put a huge number somewhere."""
    numbers = (2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63, 2**64 - 1)
    number = numbers[int(rng.integers(len(numbers)))].to_bytes(8, "little")
    width = int(rng.choice([4, 8]))
    place = int(rng.integers(max(1, len(data) - width)))
    data[place : place + width] = number[:width]


def zeros(data: bytearray, rng: np.random.Generator) -> None:
    place, size = int(rng.integers(len(data))), int(rng.integers(1, 200))
    data[place : place + size] = bytes(len(data[place : place + size]))


def drop(data: bytearray, rng: np.random.Generator) -> None:
    place = int(rng.integers(len(data)))
    del data[place : place + int(rng.integers(1, 64))]


def double(data: bytearray, rng: np.random.Generator) -> None:
    place, size = int(rng.integers(len(data))), int(rng.integers(1, 300))
    data[place:place] = data[place : place + size]


def swap(data: bytearray, rng: np.random.Generator) -> None:
    a, b = sorted(int(i) for i in rng.integers(0, len(data), 2))
    size = min(64, b - a, len(data) - b)
    data[a : a + size], data[b : b + size] = data[b : b + size], data[a : a + size]


DAMAGE = (truncate, flip, flip, flip_end, flip_end, flip_start, huge, zeros, drop, double, swap)


def rewrite(data: bytes, rng: np.random.Generator) -> bytes:
    """Write a zip file anew, with checksums that are right and contents that are not."""
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        members = {name: bytearray(file.read(name)) for name in file.namelist()}
    name = str(rng.choice(sorted(members)))
    if rng.random() < 0.7:
        DAMAGE[int(rng.integers(len(DAMAGE)))](members[name], rng)
    else:
        members[name] = bytearray(b"\0" * 3_000_000)  # small when compressed
    out = io.BytesIO()
    codec = zipfile.ZIP_DEFLATED if rng.random() < 0.3 else zipfile.ZIP_STORED
    with zipfile.ZipFile(out, "w", codec) as file:
        for member, contents in members.items():
            file.writestr(member, bytes(contents))
    return out.getvalue()


ODD: list[Any] = [None, -1, 0, 2**31, 2**62, 10**30, 1.5, float("nan"), "", "x", [], {}, [[]], True, {"array": "x"}]


def craft(data: bytes, rng: np.random.Generator) -> bytes:
    """Write other words or arrays, with checksums that are right."""
    from drstream.states import arrays

    words, found = arrays.read(io.BytesIO(data))
    if rng.random() < 0.5:
        places: list[tuple[Any, Any]] = []
        left: list[Any] = [words]
        while left:
            node = left.pop()
            inside = list(node.items()) if isinstance(node, dict) else list(enumerate(node))
            places += [(node, key) for key, _ in inside]
            left += [value for _, value in inside if isinstance(value, dict | list)]
        node, key = places[int(rng.integers(len(places)))]
        node[key] = ODD[int(rng.integers(len(ODD)))]
    else:
        name = str(rng.choice(sorted(found)))
        found[name] = odd(found[name], rng)
    if "sha256" in words:  # of a state or checkpoint
        del words["sha256"]
        return arrays.to_bytes("", words, found)
    out = io.BytesIO()
    arrays.write(out, words, found)
    return out.getvalue()


def odd(array: Any, rng: np.random.Generator) -> Any:
    """Another array: of another type or shape, or with odd numbers."""
    how = int(rng.integers(8))
    if how == 0:
        return array.reshape(-1)
    if how == 1:
        return array[:-1] if array.ndim and len(array) else array.reshape(1, *array.shape)
    if how == 2:
        return np.concatenate([array.reshape(-1), array.reshape(-1)])
    if how == 3:
        return np.zeros(array.shape, np.float32)
    if how == 4:
        return np.array(["x"])
    other = array.copy()
    flat = other.reshape(-1)
    if len(flat):
        place = int(rng.integers(len(flat)))
        if array.dtype.names:
            name = str(rng.choice(array.dtype.names))
            flat[name][place] = int(rng.choice([-1, 0, 2**31, 2**62]))
        elif array.dtype.kind == "f":
            flat[place] = rng.choice([np.nan, np.inf, -1.0, 1e300, -1e-300])
        elif array.dtype.kind in "iu":
            flat[place] = rng.choice([-1, 2**31, 2**62]) if array.dtype.itemsize == 8 else 255
    return other


# Odd schemas

ROLES = ("x0", "action", "reward", "propensity", "sample_rate", "eligible", "cluster", "segment", "unused")
PLAIN = [pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()]
FLOATS = [pa.float16(), pa.float32(), pa.float64(), pa.decimal128(30, 3), pa.decimal256(50, 3)]
TEXT = [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view()]
TIMES = [
    pa.date32(),
    pa.date64(),
    pa.timestamp("s"),
    pa.timestamp("ns", "Europe/Berlin"),
    pa.time32("s"),
    pa.duration("ms"),
]
KINDS = [*PLAIN, *FLOATS, *TEXT, *TIMES, pa.bool_(), pa.null(), pa.binary(1)]


def odd_column(seed: int) -> tuple[str, pa.Array]:
    """A role, and a column of zeros and ones for it, of some type, perhaps within others."""
    rng = np.random.default_rng(seed)
    role = ROLES[seed % len(ROLES)]
    values = np.ones(ROWS, int) if role in ("propensity", "sample_rate") else np.arange(ROWS) % 2
    base: pa.Array = pa.array(values)
    kind = KINDS[seed // len(ROLES) % len(KINDS)]
    if pa.types.is_null(kind):
        base = pa.nulls(ROWS)
    elif pa.types.is_temporal(kind):
        width = kind.bit_width
        base = base.cast(pa.int32() if width == 32 else pa.int64()).view(kind)
        if kind == pa.date64():
            base = base.cast(pa.int64()).view(kind)
    elif kind in TEXT or pa.types.is_fixed_size_binary(kind):
        base = pa.array([str(v) for v in values]).cast(pa.binary() if "binary" in str(kind) else pa.string()).cast(kind)
    else:
        base = base.cast(pa.float32()).cast(kind) if kind == pa.float16() else base.cast(kind)
    wrap = int(rng.integers(10))
    if wrap == 0:
        base = base.dictionary_encode() if not pa.types.is_null(kind) else base
    elif wrap == 1:
        base = pa.array([[v] for v in base.to_pylist()], pa.list_(kind))
    elif wrap == 2:
        base = pa.array([[v, v] for v in base.to_pylist()], pa.list_(kind, 2))
    elif wrap == 3:
        base = pa.array([{"a": v} for v in base.to_pylist()], pa.struct([("a", kind)]))
    elif wrap == 4:
        base = pa.array([None if i % 5 == 0 else v for i, v in enumerate(base.to_pylist())], kind)
    return role, base


def odd_table(seed: int) -> tuple[str, pa.Table]:
    role, column = odd_column(seed)
    bits = np.arange(ROWS) % 2
    columns = {"x0": bits * 1.0, "action": bits, "reward": bits * 1.0, "propensity": np.ones(ROWS), role: column}
    return role, pa.table(columns)


# Judging


def number(path: Path, audit: bool = False) -> float:
    import drstream as drs

    log = drs.Log(path)
    if audit:
        log.audit()  # it compares pages with their checksums
    return float(drs.evaluate(log, drs.policies.Uniform(), estimators=["ips"], threads=1)["ips"].value)


def predictions(path: Path) -> list[Any]:
    import drstream as drs

    model = drs.models.load(path)
    contexts = np.ones((2, 2), np.float32 if hasattr(model, "models_") else np.float64)
    found = model.predict(contexts)
    return np.asarray(found).tolist()


def summed(path: Path) -> Any:
    """What a state says."""
    import drstream as drs

    return str({name: value for name, value in drs.merge([path]).to_dict().items() if name != "provenance"})


@cache
def wanted(kind: str, form: int) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"log.{kind}"
        if kind != "checkpoint":  # else it is a whole run
            path.write_bytes(intact(kind, form))
        if kind in ("state", "checkpoint"):
            return summed(path) if kind == "state" else run(form, path)
        return number(path) if kind in ("parquet", "ipc") else predictions(path)


def make(kind: str, seed: int, folder: Path) -> tuple[Path, int, bool]:
    """Write a file and return its path, the form that it was made from, and whether its checksums are right."""
    rng = np.random.default_rng([seed, len(kind)])
    form = int(rng.integers(4))
    path = folder / f"case-{kind}-{seed}.{'arrow' if kind == 'ipc' else kind}"
    data = bytearray(intact(kind, form))
    crafted = kind in ("npz", "skops", "state", "checkpoint") and rng.random() < 0.5
    if crafted:
        whole = rewrite if kind == "skops" or rng.random() < 0.3 else craft
        data = bytearray(whole(bytes(data), rng))
    else:
        DAMAGE[int(rng.integers(len(DAMAGE)))](data, rng)
    path.write_bytes(data)
    return path, form, crafted


def judge(kind: str, seed: int, folder: Path) -> tuple[str, str]:
    import drstream as drs

    path, form, crafted = folder, 0, False
    try:
        if kind == "schema":
            return judge_schema(seed, folder)
        path, form, crafted = make(kind, seed, folder)
        if kind in ("state", "checkpoint"):
            found: Any = summed(path) if kind == "state" else run(form, path)
        elif kind in ("parquet", "ipc"):
            found = number(path, audit=kind == "parquet")
        else:
            found = predictions(path)
    except drs.errors.DrstreamError as error:
        words = " ".join(str(error).split())
        return ("error" if path.name in words or crafted else "vague"), words
    except BaseException as error:
        return "DEFECT", f"{type(error).__name__}: {error}"
    if found == wanted(kind, form):
        return "right", ""
    return "other", f"{MADE_UP if crafted else ''}{found} instead of {wanted(kind, form)}"


def judge_schema(seed: int, folder: Path) -> tuple[str, str]:
    """Read an odd table as Parquet, as Arrow IPC and from memory: always the same number, or sentences."""
    import drstream as drs

    role, rows = odd_table(seed)
    options = {} if role in ("x0", "action", "reward", "propensity", "unused", "cluster", "segment") else {role: role}
    more = {"cluster": {"cluster": role}, "segment": {"by": role}}.get(role, {})
    sources: list[Any] = [rows]
    for kind in ("parquet", "arrow"):
        path = folder / f"odd-{seed}.{kind}"
        try:
            if kind == "parquet":
                pq.write_table(rows, path, row_group_size=20)
            else:
                with pa.ipc.new_file(str(path), rows.schema) as file:
                    file.write_table(rows, max_chunksize=20)
        except pa.ArrowException:  # this format cannot hold the type
            continue
        sources.append(path)
    outcomes = []
    for source in sources:
        try:
            log = drs.Log(source, **options)
            result = drs.evaluate(log, drs.policies.Uniform(), estimators=["ips"], threads=1, **more)
            outcomes.append(str(result["ips"].value))
        except drs.errors.DrstreamError as error:
            outcomes.append(f"error {error}")
        except BaseException as error:
            return "DEFECT", f"{role} of type {rows.schema.field(role).type}: {type(error).__name__}: {error}"
    numbers = {one for one in outcomes if not one.startswith("error")}
    if numbers and (numbers != {"0.25"} and role != "eligible"):
        return "other", f"{role} of type {rows.schema.field(role).type}: {outcomes}"
    return ("right" if numbers else "error"), outcomes[0]


# Workers that may die


def work() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    wanted("ipc", 0)  # imports take long, and compile, which is no fault of the first file
    out.write("ready\n")
    out.flush()
    with tempfile.TemporaryDirectory() as folder:
        for line in sys.stdin:
            kind, seed = line.split()
            outcome = judge(kind, int(seed), Path(folder))
            out.write(json.dumps(outcome) + "\n")
            out.flush()
            for path in Path(folder).iterdir():
                path.unlink()


class Worker:
    def __init__(self) -> None:
        command = [sys.executable, "-W", "ignore", "-m", "tests.helpers.broken"]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process: Any = subprocess.Popen(command, text=True, env=env, cwd=ROOT, **pipes)
        assert self.process.stdout.readline() == "ready\n"

    def ask(self, kind: str, seed: int) -> tuple[str, str]:
        """Let the worker judge one file. If it dies or hangs, that is the outcome."""
        clock = threading.Timer(TIMEOUT, self.process.kill)
        clock.start()
        try:
            self.process.stdin.write(f"{kind} {seed}\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except OSError:
            line = ""
        late = not clock.is_alive()
        clock.cancel()
        if line:
            outcome, words = json.loads(line)
            return outcome, words
        code = self.process.wait()
        return "DEFECT", "hang" if late else f"the process ended with {code}"

    def close(self) -> None:
        with suppress(BrokenPipeError):  # it has died
            self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def judge_all(cases: Iterable[tuple[str, int]], workers: int = 2) -> Iterator[tuple[str, int, str, str]]:
    """Yield kind, seed, outcome and words of each case, in any order."""
    waiting: queue.SimpleQueue[tuple[str, int]] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[str, int, str, str]] = queue.SimpleQueue()
    count = 0
    for case in cases:
        waiting.put(case)
        count += 1

    def feed() -> None:
        worker = Worker()
        while True:
            try:
                kind, seed = waiting.get_nowait()
            except queue.Empty:
                worker.close()
                return
            outcome, words = worker.ask(kind, seed)
            done.put((kind, seed, outcome, words))
            if worker.process.poll() is not None:
                worker.close()
                worker = Worker()

    threads = [threading.Thread(target=feed, daemon=True) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for _ in range(count):
        yield done.get()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    work()
