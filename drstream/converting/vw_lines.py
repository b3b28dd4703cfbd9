"""Vowpal Wabbit's text for contextual bandits: `action:cost:probability tag|namespace feature:value ...`.

Lines are read a block at a time with Arrow. Lines that Arrow's patterns do not match are read one by one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drstream.converting.features import INDICES, SPARSE, VALUES, FeatureLines, index_of, lists
from drstream.converting.lines import MALFORMED, NOT_UTF8, Malformed, Parsed
from drstream.types import Bools, Floats, Ints

NUMBER = r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
ACTION = r"[1-9][0-9]{0,8}"
LABEL = (
    rf"^\s*(?P<action>{ACTION}):(?P<cost>{NUMBER}):(?P<probability>{NUMBER})\s+"
    r"(?P<tag>'[^\s]*\s*|[^\s:']+)?$"  # a tag touches the bar, or begins with '
)
EXPECTED = "a label is action:cost:probability, e.g. 2:0.5:0.25, with actions from 1 on"
NO_LABEL = "no label"  # why a line is left out
ADF = "'shared' begins an event of several lines (adf), which is read from dsjson only: write the log as dsjson. Found"


@dataclass(frozen=True)
class Vw(FeatureLines):
    name: str = "Vowpal Wabbit's text"

    def parse(self, data: bytes, schema: pa.Schema | None, skip: bool) -> Parsed:
        block = _Block(*_split_lines(data))
        labels = _Labels(block)
        columns = dict(labels.columns)
        if schema is None or skip or INDICES in schema.names or VALUES in schema.names:
            starts, hashed, values = _features(block, self.bits)
            columns[INDICES] = lists(hashed, starts, SPARSE[0])
            columns[VALUES] = lists(values, starts, SPARSE[1])
        found = block.left_out(skip)
        table = pa.table({name: _of_rows(column, block, name) for name, column in columns.items()})
        if schema is not None and "tag" in schema.names and "tag" not in table.column_names:
            table = table.append_column("tag", pa.nulls(table.num_rows, pa.string()))
        found.table = table if schema is None else table.select(schema.names)
        return found

    def common_type(self, one: pa.DataType, other: pa.DataType) -> pa.DataType:
        return one


@dataclass
class _Block:
    """The lines of a block, cut at their bars."""

    lines: pa.Array
    problems: dict[int, tuple[str, str, bool]]  # reason, what and whether it may be skipped, by line
    starts: Ints = field(init=False)  # where the pieces of each line begin
    pieces: pa.Array = field(init=False)
    good: Bools = field(init=False)  # lines with an event

    def __post_init__(self) -> None:
        cut = pc.split_pattern(self.lines, "|")
        self.starts = cut.offsets.to_numpy().astype(np.int64)
        self.pieces = cut.values
        self.good = ~pc.match_substring_regex(self.lines, r"^\s*$").to_numpy(zero_copy_only=False)

    def refuse(self, line: int, what: str, reason: str = MALFORMED, skippable: bool = True) -> None:
        """Leave a line out."""
        self.problems.setdefault(line, (reason, what, skippable))
        self.good[line] = False

    def left_out(self, skip: bool) -> Parsed:
        """Return which lines are left out, and which are rows; or raise an error at the first malformed line."""
        rows = np.flatnonzero(self.good)
        found = Parsed(None, None if self.good.all() else rows)
        for line, (reason, what, skippable) in sorted(self.problems.items()):
            if reason == MALFORMED and not (skip and skippable):
                raise Malformed(what, line, skippable)
            found.leave_out(reason, line, what)
        return found


def _split_lines(data: bytes) -> tuple[pa.Array, dict[int, tuple[str, str, bool]]]:
    """Return the lines, with their breaks, and those that are not UTF-8, as empty texts."""
    try:
        data.decode()
    except UnicodeDecodeError:
        texts, problems = [], {}
        for number, line in enumerate(data.split(b"\n")):
            try:
                texts.append(line.decode())
            except UnicodeDecodeError:
                texts.append("")
                problems[number] = MALFORMED, f"{line[:60]!r} is not UTF-8: {NOT_UTF8}", True
        return pa.array(texts, pa.string()), problems
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")) + 1
    if not data.endswith(b"\n"):
        ends = np.append(ends, len(data))
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    return pa.StringArray.from_buffers(len(ends), pa.py_buffer(offsets), pa.py_buffer(data)), {}


# Labels


class _Labels:
    """The columns of all lines that come from what stands before the first bar."""

    def __init__(self, block: _Block) -> None:
        heads = block.pieces.take(pa.array(block.starts[:-1]))
        bars = np.diff(block.starts) - 1
        found = pc.extract_regex(heads, LABEL)
        usual = found.is_valid().to_numpy(zero_copy_only=False) & (bars > 0)
        action, cost, probability, tag = found.flatten()
        self.action = pc.cast(action, pa.int64()).fill_null(0).to_numpy().copy()
        self.cost = pc.cast(cost, pa.float64()).fill_null(0).to_numpy().copy()
        self.propensity = pc.cast(probability, pa.float64()).fill_null(0).to_numpy().copy()
        tag = pc.ascii_trim_whitespace(pc.replace_substring_regex(tag, "^'", ""))
        more = {}
        for line in np.flatnonzero(block.good & ~usual):
            label = _label(block, int(line), heads[line].as_py(), bool(bars[line]))
            if label is not None:
                self.action[line], self.cost[line], self.propensity[line], more[line] = label
        if more:
            texts = tag.to_pylist()
            for line, text in more.items():
                texts[line] = text
            tag = pa.array(texts, pa.string())
        self.tag = pc.if_else(pc.equal(pc.binary_length(tag), 0), pa.scalar(None, pa.string()), tag)

    @property
    def columns(self) -> dict[str, pa.Array]:
        found = {
            "action": pa.array(self.action),
            "reward": pa.array(0.0 - self.cost),  # not -cost: a cost of 0 is a reward of 0, not of -0
            "propensity": pa.array(self.propensity),
        }
        if self.tag.null_count < len(self.tag):
            found["tag"] = self.tag
        return found


def _label(block: _Block, line: int, text: str, bar: bool) -> tuple[int, float, float, str | None] | None:
    """Read what stands before the first bar. Return None, and tell the block, if it is not one label."""
    words, tag = text.split(), None
    if bar and words and (not text[-1].isspace() or words[-1].startswith("'")):
        tag = words.pop().removeprefix("'")
    problem = _problem(words, tag, text.strip(), bar)
    if problem is not None:
        block.refuse(line, problem, skippable=words[:1] != ["shared"])
    elif not words:
        block.refuse(line, f"there is no label in {block.lines[line].as_py().strip()[:60]!r}", NO_LABEL)
    else:
        action, cost, probability = words[0].split(":")
        return int(action), number(cost), number(probability), tag
    return None


def _problem(words: list[str], tag: str | None, text: str, bar: bool) -> str | None:
    """Return what is wrong with the words before the first bar."""
    if not bar:
        return f"there is no bar (|) in {text!r}"
    if not words and tag is not None and tag.count(":") == 2:
        return f"the label {tag!r} touches the bar, which makes it a tag: write a space between"
    if words[:1] == ["shared"]:
        return f"{ADF} {text!r}"
    if len(words) > 1:
        return f"there are {len(words)} labels in {text!r}: a log has one"
    parts = words[0].split(":") if words else []
    if words and not (len(parts) == 3 and re.fullmatch(ACTION, parts[0]) and all(map(is_number, parts[1:]))):
        return f"{EXPECTED}, but got {words[0]!r}"
    return None


def number(text: str) -> float:
    """Return a number; also nan and inf, which a log reports as bad values. Unlike `float`, it takes no 1_000."""
    if "_" in text:
        raise ValueError(text)
    return float(text)


def is_number(text: str) -> bool:
    try:
        number(text)
    except ValueError:
        return False
    return True


# Features


def _features(block: _Block, bits: int) -> tuple[Ints, np.ndarray, Floats]:
    """Return where the features of each good line begin, their indices and their values."""
    heads = block.starts[:-1]
    line_of_piece = np.repeat(np.arange(len(heads)), np.diff(block.starts))
    chosen = block.good[line_of_piece]
    chosen[heads] = False
    pieces = block.pieces.filter(pa.array(chosen))
    line_of_piece = line_of_piece[chosen]

    words = pc.ascii_split_whitespace(pieces)
    starts, words = words.offsets.to_numpy().astype(np.int64), words.values
    piece_of_word = np.repeat(np.arange(len(pieces)), np.diff(starts))
    is_feature = pc.binary_length(words).to_numpy() > 0
    is_feature[starts[:-1]] = False  # the name of the namespace, or nothing
    spaces, weights = _namespaces(words.take(pa.array(starts[:-1])), line_of_piece, block)

    words, piece_of_word = words.filter(pa.array(is_feature)), piece_of_word[is_feature]
    line = line_of_piece[piece_of_word]
    names, values = _named_values(words, line, block)
    keep = block.good[line]
    names, piece_of_word = names.filter(pa.array(keep)), piece_of_word[keep]
    full = pc.binary_join_element_wise(spaces.take(pa.array(piece_of_word)), names, "^")
    counts = np.bincount(line[keep], minlength=len(heads))[block.good]
    return np.concatenate([[0], np.cumsum(counts)]), index_of(full, bits), values[keep] * weights[piece_of_word]


def _namespaces(words: pa.Array, line: Ints, block: _Block) -> tuple[pa.Array, Floats]:
    """Return the name and the weight of each namespace. There are few, many times."""
    coded = words.dictionary_encode()
    used = coded.indices.to_numpy()
    names, weights = [], []
    for place, word in enumerate(coded.dictionary.to_pylist()):
        name, colon, weight = word.partition(":")
        names.append(name)
        weights.append(number(weight) if is_number(weight) else 1.0)
        if colon and not (name and is_number(weight)):
            for at in np.flatnonzero(used == place):
                block.refuse(int(line[at]), f"a namespace is name:weight, but got {word!r}")
    return pa.array(names, pa.string()).take(coded.indices), np.array(weights, np.float64)[used]


def _named_values(words: pa.Array, line: Ints, block: _Block) -> tuple[pa.Array, Floats]:
    """Return the name and the value of each feature. What has a word as its value, as in city:Bern, is its own name."""
    cut = pc.split_pattern(words, ":", max_splits=1)
    starts, pieces = cut.offsets.to_numpy().astype(np.int64), cut.values
    names = pieces.take(pa.array(starts[:-1]))
    values = np.ones(len(words))
    valued = np.flatnonzero(np.diff(starts) == 2)
    texts = pieces.take(pa.array(starts[:-1][valued] + 1))
    usual = pc.match_substring_regex(texts, f"^{NUMBER}$").to_numpy(zero_copy_only=False)
    values[valued[usual]] = pc.cast(texts.filter(pa.array(usual)), pa.float64()).to_numpy()
    for at in np.flatnonzero(pc.binary_length(names).to_numpy() == 0):
        block.refuse(int(line[at]), f"a feature has no name: {words[at].as_py()!r}")
    own_name = np.zeros(len(words), bool)
    for at, text in zip(valued[~usual], texts.filter(pa.array(~usual)).to_pylist(), strict=True):
        if not text or ":" in text:
            block.refuse(int(line[at]), f"a feature is name:value, but got {words[at].as_py()!r}")
        elif is_number(text):  # nan, inf
            values[at] = number(text)
        else:
            own_name[at] = True
    return (pc.if_else(pa.array(own_name), words, names) if own_name.any() else names), values


def _of_rows(column: pa.Array, block: _Block, name: str) -> pa.Array:
    """Return the values of the good lines. Lists have no others."""
    return column if name in (INDICES, VALUES) or block.good.all() else column.filter(pa.array(block.good))
