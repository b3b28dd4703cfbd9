"""Logs of other systems: text that is read as it is, with the roles that its format gives the columns."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from drstream.converting.events import LineSource
from drstream.converting.features import BITS, INDICES, VALUES, check_bits
from drstream.converting.inputs import FORMATS, open_text
from drstream.converting.obp import AFFINITY, USER, describe_items, read_items
from drstream.errors import DrstreamError, LogError, parameter, suggest
from drstream.log import Log, Sparse
from drstream.log.categories import Hashed
from drstream.log.kinds.candidates.columns import candidates_metadata
from drstream.log.labels import MOST
from drstream.log.schema import FIND, USUAL, is_label
from drstream.log.sparse import sparse_metadata
from drstream.running.execution import Workers
from drstream.sources.text import TextSource

Types = Mapping[str, str | pa.DataType] | None
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


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
    return _read(path, "csv" if delimiter == "," else "tsv", None, False, options, types=types)


def read_json(path: Paths, *, types: Types = None, **options: Any) -> Log:
    """Open a log in JSON lines, an object a line, which pyarrow reads. Parameters are those of `read_csv`."""
    return _read(path, "json", None, False, options, types=types)


def read_vw(path: Paths, *, bits: int = BITS, threads: int | None = None, progress: Any = False, **options: Any) -> Log:
    """Open a log in Vowpal Wabbit's text for contextual bandits: `action:cost:probability tag|namespace feature:value`.

    bits     Features are hashed to 2^bits indices, by drstream's own hash.
    threads, progress
             Of the first pass, which finds the columns.
    options  Parameters of `Log`. `actions=K` stands for the labels 1 to K; by default, K is the largest action.

    The columns are action, reward (the negated cost), propensity, indices and values (the sparse context), and tag if
    there are tags. Lines without a label are left out and counted. Malformed lines raise an error, or are left out
    and counted with on_bad_row="skip".
    """
    return _read(path, "vw", threads, progress, options, bits)


def read_dsjson(
    path: Paths, *, bits: int = BITS, threads: int | None = None, progress: Any = False, **options: Any
) -> Log:
    """Open a log in Vowpal Wabbit's dsjson, with one context, or with candidates (adf).

    Parameters are those of `read_vw`; `actions=K` stands for the positions 0 to K - 1.

    The columns are action (the position of the chosen candidate, from 0), reward (the negated cost), propensity,
    indices and values (the sparse context); and, where they occur, propensities (of all candidates), items (their
    positions), item_features (their sparse features), sample_rate (1 - pdrop), event_id and timestamp. Lines without a
    label, and those that are marked _skipLearn, are left out and counted.
    """
    return _read(path, "dsjson", threads, progress, options, bits)


def read_obp(path: Paths, *, items: str | os.PathLike[str] | None = None, **options: Any) -> Log:
    """Open CSV files of the Open Bandit data set, e.g. the folder obd/random/all.

    items    The file item_context.csv. By default, the one beside the log, if there is one. Its items are the actions;
             its features become metadata of the schema.
    options  Parameters of `Log`.

    Contexts are the features of users, which are categories, and the affinities.

    Folders of both loggers may be given: the column `policy` says which one, "random" or "bts", logged an event.
    """
    return _read(path, "obp", None, False, options, items=items)


def _read(
    path: Paths,
    form: str,
    threads: int | None,
    progress: Any,
    options: dict[str, Any],
    bits: int = BITS,
    items: Any = None,
    types: Types = None,
) -> Log:
    if not isinstance(path, str | os.PathLike | list | tuple):
        raise LogError(f"cannot read {FORMATS[form].syntax(BITS).name} from {type(path).__name__}: pass a path")
    known = set(inspect.signature(Log).parameters) - {"source"}
    unknown = next((name for name in options if name not in known), None)
    if unknown is not None:
        raise DrstreamError(f"{unknown}= is no parameter of drs.Log: {suggest(unknown, sorted(known))}")
    log = open_log(path, form, options, Workers.of(threads, progress=progress), bits, items, types)
    assert log is not None
    return log


def open_log(
    source: Any,
    form: str | None,
    options: dict[str, Any],
    workers: Workers,
    bits: int | None = None,
    items: Any = None,
    types: Types = None,
) -> Log | None:
    """Open a log that is text, with the roles of its format; return None if it is anything else.

    form  The format. By default, the suffixes and beginnings of the files tell.
    """
    if bits is not None:
        check_bits(bits)
    skip = options.get("on_bad_row") == "skip"
    about = workers.threads, workers.progress, BITS if bits is None else bits
    found = open_text(source, form, skip, *about, _types(types, options))
    if found is None:
        return None
    form, text = found
    if isinstance(text, TextSource):
        _as_numbers(text, types or {}, options)
    return Log(text, **{**options, **_roles(form, text, options, BITS if bits is None else bits, items)})


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


def _roles(form: str, text: TextSource | LineSource, options: dict[str, Any], bits: int, items: Any) -> dict[str, Any]:
    """Return the parameters of `Log` that the format gives and the caller has not given, and labels in its own way."""
    given = {name for name, value in options.items() if value is not None or name == "propensity"}
    found: dict[str, Any] = {}
    if isinstance(text, LineSource):
        found = {"action": "action", "reward": "reward", "propensity": "propensity"}
        metadata = sparse_metadata(Sparse(INDICES, VALUES, 2**bits))
        sets = "items" in text.schema.names
        if sets:
            more = {name: name for name in ("propensities", "sample_rate") if name in text.schema.names}
            metadata |= candidates_metadata("action", "items", Sparse("item_features", dim=2**bits), **more)
        text.schema = text.schema.with_metadata(metadata)
        if "sample_rate" in text.schema.names:
            found["sample_rate"] = "sample_rate"
        as_actions = not sets or "actions" in given or options.get("candidates", FIND) is None
        if "action" not in given and as_actions and "candidates" not in given:
            found["actions"] = (_vw_labels if form == "vw" else _positions)(text, options.get("actions"))
            given -= {"actions"}
    elif form == "obp":
        found = {"action": "item_id", "reward": "click", "propensity": "propensity_score"}
        users = [one for one in text.schema if one.name.startswith(USER) and is_label(one.type)]
        contexts = [one.name for one in users] + [name for name in text.schema.names if name.startswith(AFFINITY)]
        if contexts and "context" not in given:
            whole = [one.name for one in users if pa.types.is_integer(one.type)]  # codes that happen to have no letter
            found |= {"context": contexts, "categorical": whole or None}
        table = read_items(text.paths, items)
        if table is not None:
            text.schema = text.schema.with_metadata(describe_items(table))
            found["actions"] = sorted(table.column("item_id").to_pylist())
    return {name: value for name, value in found.items() if name not in given}


def _vw_labels(text: LineSource, actions: Any) -> Any:
    """Return the labels 1 to K, if their number is given, or neither."""
    most = text.extremes["action"][1] if actions is None else actions
    if isinstance(most, bool) or not isinstance(most, int):
        return actions
    if actions is None and most > MOST:
        raise LogError(
            f"the largest action is {most:,}: actions are taken as 1 to K. Pass the labels themselves with "
            f"{parameter('actions')}"
        )
    return list(range(1, most + 1))


def _positions(text: LineSource, actions: Any) -> Any:
    """Return the number of candidates, or of actions, if it is not given."""
    if actions is not None:
        return actions
    return max(text.extremes["action"][1] + 1, text.extremes.get("items", (0, 0))[1])
