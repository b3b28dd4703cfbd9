"""Logs of other systems: text that is read as it is, with the roles that its format gives the columns.

To add a format, add it to `FORMATS`. pyarrow reads CSV and JSON lines (`sources/text.py`). Of a format with an event a
line, a `Syntax` says what a line means.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from drstream.converting.dsjson import DSJSON
from drstream.converting.events import BITS, LineSource, Syntax, check_bits
from drstream.converting.obp import (
    AFFINITY,
    ITEM_CONTEXT,
    USER,
    check_names,
    describe_items,
    is_open_bandit,
    logger_of,
    read_items,
)
from drstream.converting.vw import VW
from drstream.errors import DrstreamError, LogError, parameter, suggest
from drstream.log import Log, Sparse
from drstream.log.categories import Hashed
from drstream.log.kinds.candidates.columns import candidates_metadata
from drstream.log.labels import MOST
from drstream.log.schema import FIND, USUAL, is_label
from drstream.log.sparse import sparse_metadata
from drstream.parameters import one_of
from drstream.sources.names import expand
from drstream.sources.open import check_no_file_twice
from drstream.sources.text import Csv, JsonLines, TextSource, no_constants

Types = Mapping[str, str | pa.DataType] | None
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
FORMATS: dict[str, Csv | JsonLines | Syntax] = {
    "csv": Csv(),
    "tsv": Csv("\t", "tab-separated values"),
    "json": JsonLines(),
    "vw": VW,
    "dsjson": DSJSON,
    "obp": Csv(name="Open Bandit's CSV"),
}
SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".vw": "vw",
    ".dsjson": "dsjson",
}
COMPRESSED = (".gz", ".bz2", ".zst")
FIRST_BYTES = 1 << 16  # of a file, to tell formats with the same suffix apart


def read_csv(path: Paths, *, delimiter: str = ",", types: Types = None, **options: Any) -> Log:
    """Open a log in CSV files, which pyarrow reads.

    path       A path, glob, directory or list. Files may be compressed: .gz, .bz2, .zst.
    delimiter  What separates the fields: "," or a tab.
    types      Types of some columns, e.g. {"x": "float64"}. By default, the first 8 MB of each file decide. Rewards and
               propensities are numbers with fractions, and categories are text.
    options    Parameters of `Log`. With on_bad_row="skip", lines with too many or too few fields are left out, too.

    The log is read again for each pass. `drs.convert` writes it to a file that is faster to read.
    """
    if delimiter not in (",", "\t"):
        raise LogError(f"delimiter={delimiter!r}: it must be a comma or a tab")
    return _read(path, "csv" if delimiter == "," else "tsv", options, types=types)


def read_json(path: Paths, *, types: Types = None, **options: Any) -> Log:
    """Open a log in JSON lines, an object a line, which pyarrow reads. Parameters are those of `read_csv`."""
    return _read(path, "json", options, types=types)


def read_vw(path: Paths, *, bits: int = BITS, progress: Any = False, **options: Any) -> Log:
    """Open a log in Vowpal Wabbit's text for contextual bandits: `action:cost:probability tag|namespace feature:value`.

    bits      Features are hashed to 2^bits indices, by drstream's own hash.
    progress  Of the first pass, which finds the columns.
    options   Parameters of `Log`. `actions=K` stands for the labels 1 to K; by default, K is the largest action.

    The columns are action, reward (the negated cost), propensity, indices and values (the sparse context), and tag if
    there are tags. Lines without a label are left out and counted. Malformed lines raise an error, or are left out
    and counted with on_bad_row="skip".
    """
    return _read(path, "vw", options, bits=bits, progress=progress)


def read_dsjson(path: Paths, *, bits: int = BITS, progress: Any = False, **options: Any) -> Log:
    """Open a log in Vowpal Wabbit's dsjson, with one context, or with candidates (adf).

    Parameters are those of `read_vw`; `actions=K` stands for the positions 0 to K - 1.

    The columns are action (the position of the chosen candidate, from 0), reward (the negated cost), propensity,
    indices and values (the sparse context); and, where they occur, propensities (of all candidates), items (their
    positions), item_features (their sparse features), sample_rate (1 - pdrop), event_id and timestamp. Lines without a
    label, and those that are marked _skipLearn, are left out and counted.
    """
    return _read(path, "dsjson", options, bits=bits, progress=progress)


def read_obp(path: Paths, *, items: str | os.PathLike[str] | None = None, **options: Any) -> Log:
    """Open CSV files of the Open Bandit data set, e.g. the folder obd/random/all.

    items    The file item_context.csv. By default, the one beside the log, if there is one. Its items are the actions;
             its features become metadata of the schema.
    options  Parameters of `Log`.

    Contexts are the features of users, which are categories, and the affinities.

    Folders of both loggers may be given: the column `policy` says which one, "random" or "bts", logged an event.
    """
    return _read(path, "obp", options, items=items)


def _read(path: Paths, form: str, options: dict[str, Any], **about: Any) -> Log:
    if not isinstance(path, str | os.PathLike | list | tuple):
        raise LogError(f"cannot read {FORMATS[form].name} from {type(path).__name__}: pass a path")
    known = set(inspect.signature(Log).parameters) - {"source"}
    unknown = next((name for name in options if name not in known), None)
    if unknown is not None:
        raise DrstreamError(f"{unknown}= is no parameter of drs.Log: {suggest(unknown, sorted(known))}")
    log = open_log(path, form, options, **about)
    assert log is not None
    more = {"delimiter": "\t"} if form == "tsv" else {}
    log.opened = f"read_{'csv' if form == 'tsv' else form}", {"source": path, **more, **about, **options}
    return log


def open_log(
    source: Any,
    form: str | None,
    options: dict[str, Any],
    *,
    bits: int | None = None,
    items: Any = None,
    types: Types = None,
    progress: Any = False,
) -> Log | None:
    """Open a log that is text, with the roles of its format; return None if it is anything else.

    form  The format. By default, the suffixes and beginnings of the files tell.
    """
    bits = BITS if bits is None else check_bits(bits)
    if form is not None:
        one_of("format", form, list(FORMATS), error=LogError)
    names = [source] if isinstance(source, str | os.PathLike) else source
    if not isinstance(names, list | tuple) or not all(isinstance(name, str | os.PathLike) for name in names):
        if form is not None:
            what = parameter("format", form, option="from")
            raise LogError(f"{what}: pass paths of files, not {type(source).__name__}")
        return None
    paths = _paths([os.fspath(name) for name in names], form)
    formats = [form or format_of(path) for path in paths]
    first = next((found for found in formats if found is not None), None)
    if first is None:
        return None
    name, syntax = os.fspath(names[0]) if len(names) == 1 else f"{len(names)} paths", FORMATS[first]
    other = next((path for path, found in zip(paths, formats, strict=True) if found != first), None)
    if other is not None:
        one = paths[formats.index(first)]
        raise LogError(f"{name} holds files of two kinds, e.g. {one} and {other}: choose one kind, e.g. with a glob")
    check_no_file_twice(paths)
    remote = next((path for path in paths if "://" in path), None)
    if remote is not None:
        raise LogError(f"cannot read {remote}: a file of {syntax.name} must be on this computer. Copy it first")
    skip = options.get("on_bad_row") == "skip"
    if isinstance(syntax, Syntax):
        lines = LineSource(paths, name, syntax, bits, skip, progress)
        found = _roles_of_events(lines, first, options)
        return Log(lines, **{**options, **_but_given(found, options)})
    told = logger_of if first == "obp" else no_constants
    text = TextSource(tuple(paths), name, syntax, _types(types, options), skip, told)
    _as_numbers(text, types or {}, options)
    found = _roles_of_open_bandit(text, options, items) if first == "obp" else {}
    return Log(text, **{**options, **_but_given(found, options)})


def format_of(path: str) -> str | None:
    """Return the format of a file by its suffix and beginning; None for Parquet and Arrow, whatever they are called."""
    name = Path(path.lower())
    found = SUFFIXES.get(Path(name.stem).suffix if name.suffix in COMPRESSED else name.suffix)
    if found == "csv" and is_open_bandit(_first_bytes(path)):
        return "obp"
    return "dsjson" if found == "json" and b'"_label_cost"' in _first_bytes(path) else found


def _first_bytes(path: str) -> bytes:
    try:
        with pa.input_stream(path) as file:
            return file.read(FIRST_BYTES)
    except (pa.ArrowException, OSError):
        return b""  # the error comes when it is read


def _paths(names: Sequence[str], form: str | None) -> list[str]:
    """Return the files, without those that describe the items of Open Bandit."""
    known = [suffix for suffix, name in SUFFIXES.items() if form in (None, name)] or [".csv"]
    suffixes = tuple(suffix + more for suffix in known for more in ("", *COMPRESSED))
    found = [path for name in names for path in expand(name, suffixes)]
    others = [path for path in found if os.path.basename(path) != ITEM_CONTEXT]
    return others if form in (None, "obp") and others else found


def _types(types: Types, options: dict[str, Any]) -> dict[str, pa.DataType]:
    """Return the types that the caller gives. Categories are text: as numbers, 01 and 1 would be the same."""
    named, context = options.get("categorical") or [], options.get("context")
    contexts = context if isinstance(context, list | tuple) else [context]
    hashed = [one.column for one in contexts if isinstance(one, Hashed)]
    found = {name: pa.string() for name in [*([named] if isinstance(named, str) else named), *hashed]}
    for name, kind in (types or {}).items():
        try:
            found[name] = pa.type_for_alias(kind) if isinstance(kind, str) else kind
        except ValueError:
            raise LogError(f"types={{{name!r}: {kind!r}}}: no such type; give one of Arrow, e.g. 'float64'") from None
    return found


def _as_numbers(text: TextSource, types: Mapping[str, Any], options: dict[str, Any]) -> None:
    """Read rewards and propensities as float64: integers at first may have fractions later, and text is an error."""
    lower = {name.lower(): name for name in text.schema.names}
    for role in ("reward", "propensity"):
        given = options.get(role, FIND)
        usual = next((lower[name] for name in USUAL[role] if name in lower), None)
        names = [usual] if given is FIND else given if isinstance(given, list | tuple) else [given]
        for name in names:
            place = text.schema.get_field_index(name) if isinstance(name, str) else -1
            if place >= 0 and name not in types and not pa.types.is_nested(text.schema.field(place).type):
                text.schema = text.schema.set(place, pa.field(name, pa.float64()))


def _but_given(found: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of `Log` that the format gives and the caller has not given. Labels have its own way."""
    given = {name for name, value in options.items() if value is not None or name == "propensity"}
    return {name: value for name, value in found.items() if name not in given or name == "actions"}


def _roles_of_events(text: LineSource, form: str, options: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"action": "action", "reward": "reward", "propensity": "propensity"}
    metadata = sparse_metadata(Sparse("indices", "values", 2**text.bits))
    sets, actions = "items" in text.schema.names, options.get("actions")
    if sets:
        more = {name: name for name in ("propensities", "sample_rate") if name in text.schema.names}
        metadata |= candidates_metadata("action", "items", Sparse("item_features", dim=2**text.bits), **more)
    text.schema = text.schema.with_metadata(metadata)
    if "sample_rate" in text.schema.names:
        found["sample_rate"] = "sample_rate"
    as_actions = not sets or actions is not None or options.get("candidates", FIND) is None
    if options.get("action") is None and as_actions and options.get("candidates") is None:
        labels = _vw_labels(text, actions) if form == "vw" else actions
        found["actions"] = max(text.most_action + 1, text.most_items) if labels is None else labels
    return found


def _roles_of_open_bandit(text: TextSource, options: dict[str, Any], items: Any) -> dict[str, Any]:
    check_names(text.name, text.schema)
    found: dict[str, Any] = {"action": "item_id", "reward": "click", "propensity": "propensity_score"}
    users = [one for one in text.schema if one.name.startswith(USER) and is_label(one.type)]
    contexts = [one.name for one in users] + [name for name in text.schema.names if name.startswith(AFFINITY)]
    if contexts and options.get("context") is None:
        whole = [one.name for one in users if pa.types.is_integer(one.type)]  # codes that happen to have no letter
        found |= {"context": contexts, "categorical": whole or None}
    table = read_items(text.paths, items)
    if table is not None:
        text.schema = text.schema.with_metadata(describe_items(table))
        if options.get("actions") is None:
            found["actions"] = sorted(table.column("item_id").to_pylist())
    return found


def _vw_labels(text: LineSource, actions: Any) -> Any:
    """Return the labels 1 to K, if their number is given, or neither."""
    most = text.most_action if actions is None else actions
    if isinstance(most, bool) or not isinstance(most, int):
        return actions
    if actions is None and most > MOST:
        raise LogError(
            f"the largest action is {most:,}: actions are taken as 1 to K. Pass the labels themselves with "
            f"{parameter('actions')}"
        )
    return list(range(1, most + 1))
