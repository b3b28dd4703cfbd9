"""Options that several commands share, and their common work: open the log, check and write files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from drstream.cli.voice import detail, voice
from drstream.errors import DrstreamError, LogError, because, suggest

if TYPE_CHECKING:
    from drstream.log import Hashed, Log, Sparse


Coded = tuple[list[str] | None, list[str] | None, str | None]  # --categorical, --hashed, --missing
BAD_INPUT, STOPPED, INTERRUPTED, TERMINATED = 2, 3, 130, 143  # exit codes
STDOUT = Path("-")  # --output -

LogPath = Annotated[list[str], typer.Argument(metavar="LOG...", help="Parquet or Arrow files, globs or directories.")]
Context = Annotated[list[str] | None, typer.Option(help="Name or glob of context columns. Repeat the option for more.")]
Action = Annotated[
    str | None, typer.Option(help="Column with the logged action. 'none' if the log has no such column.")
]
Filter = Annotated[
    str | None,
    typer.Option(help="Use only rows that satisfy this condition, e.g. \"country == 'DE' and day >= '2026-11-01'\"."),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option(help="Name or glob of columns that a glob of --context does not take. Repeat the option for more."),
]
Checkpoint = Annotated[
    Path | None,
    typer.Option(
        help="Write a checkpoint to this file, every 30 seconds. If the run is killed, the same command goes on "
        "from there. The file is deleted at the end."
    ),
]
Reward = Annotated[str | None, typer.Option(help="Column with the reward.")]
Rewards = Annotated[str | None, typer.Option(help="Column with the reward, or several columns, separated by commas.")]
SampleRate = Annotated[
    str | None,
    typer.Option(help="For a down-sampled log: column with the probability with which each row was kept."),
]
Propensity = Annotated[
    str | None,
    typer.Option(
        help="Column with the logged action's probability; a number, such as 0.25 or 1/3, that holds for every row; "
        "'uniform' for 1 / the number of actions, or of eligible ones; or 'none'."
    ),
]
Propensities = Annotated[
    str | None,
    typer.Option(
        help="Column with lists of the probabilities of all actions, or a column for each action, separated by commas."
    ),
]
Logger = Annotated[
    str | None,
    typer.Option(help="For a log of several logging policies: column that says which one logged a row."),
]
LoggerPropensities = Annotated[
    str | None,
    typer.Option(
        help="Columns with each logger's probability of the logged action, as LOGGER=COLUMN,LOGGER=COLUMN, or as "
        "columns in the order of the sorted loggers. For the balanced estimators."
    ),
]
Positions = Annotated[
    str | None,
    typer.Option(
        help="For a log of rankings: what propensities by position are. 'marginal' (of an item at its position), "
        "'conditional' (given the items above), or 'independent' (positions were filled independently)."
    ),
]
Eligible = Annotated[
    str | None,
    typer.Option(help="Column with lists of the actions that each event could choose from. By default, all actions."),
]
SparseContext = Annotated[
    str | None,
    typer.Option(help="Sparse contexts, as INDICES,VALUES,DIM: two columns of lists and the number of features."),
]
CandidateColumns = Annotated[
    str | None,
    typer.Option(
        "--candidates",
        help="For a log whose events have candidates of their own, as IDS[,FEATURES...]: a column with lists of ids, "
        "or 'none', and columns with lists of their features. FEATURES:DIM is a column of sparse features.",
    ),
]
ItemsFile = Annotated[
    str | None,
    typer.Option(
        "--items",
        help="File with a row for each item, as FILE[:ID]: features of --candidates are its columns, by default all "
        "numbers, looked up by the column ID, 'item' unless given.",
    ),
]
ActionIs = Annotated[
    str | None,
    typer.Option(help="With --candidates: whether the action is the 'id' of a candidate, or its 'position', from 0."),
]
EmbeddingOption = Annotated[
    str | None,
    typer.Option(
        "--embedding",
        help="Categories of actions, for estimators that weigh by category: the column with the category of the logged "
        "action, or FILE:ACTION,CATEGORY, a file with a row for each action; for candidates, a column with lists of "
        "categories, or a column of --items.",
    ),
]
Categorical = Annotated[
    list[str] | None,
    typer.Option(help="Context column whose integers or booleans are categories, as strings are. Repeat for more."),
]
HashedColumns = Annotated[
    list[str] | None,
    typer.Option(
        "--hashed",
        help="Context column with too many categories, hashed, as NAME[:BITS]: 2^BITS features, 2^18 unless given.",
    ),
]
Missing = Annotated[
    str | None,
    typer.Option(
        help="Nulls and NaN in the context: error, keep, or a number to put in their place. error by default."
    ),
]
RewardModel = Annotated[
    str | None,
    typer.Option(
        help="Reward model: ridge[:ALPHA], logistic[:C], a file of drstream fit, constant:VALUE, "
        "column:NAME[,NAME...] or python:module:object. ridge and logistic are fitted by fold with --crossfit, else on "
        "the share --fit of the log, which is then left out of the result. With --candidates, ':interactions' after "
        "them adds products of contexts and candidates."
    ),
]
PropensityModel = Annotated[
    str | None,
    typer.Option(
        help="Model that replaces the propensities of the log: logistic[:C], fitted like the reward model; a file that "
        "drstream fit wrote; or, if you know the logging policy, uniform or python:module:object."
    ),
]
Inflation = Annotated[float | None, typer.Option(help="Multiply estimated propensities by this factor.")]
PropensityFloor = Annotated[float | None, typer.Option(help="Raise smaller estimated propensities to this value.")]
Crossfit = Annotated[
    str | None,
    typer.Option(
        help="Number of folds. Events of each fold are scored by models fitted on the other folds. 'forward' fits "
        "models on earlier rows only, for a log whose logging policy learned as it went. 'forward:500' sets the number "
        "of first rows, which have no model. The default is 1000."
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        help="Column, e.g. the user. Rows with the same value stay together, in the --fit split or in a fold. "
        "The intervals of evaluate allow for them to depend on each other."
    ),
]
FoldSeed = Annotated[int, typer.Option(help="Random seed of the folds.")]
Clamp = Annotated[
    str | None,
    typer.Option(help="Limit predictions to LOW,HIGH, e.g. 0,1. 'range' means the rewards of the model's fit."),
]
FIT_HELP = "Share of the log that models are fitted on, without --crossfit. The rest is used for the result."
Actions = Annotated[str | None, typer.Option(help="Number of actions, or their labels, separated by commas.")]
OnBadRow = Annotated[str, typer.Option(help="What happens to events that cannot be used: error or skip.")]
Precision = Annotated[
    str | None,
    typer.Option(help="float64: compute scores and predictions in float64. By default, in the type of the contexts."),
]
Threads = Annotated[int | None, typer.Option(min=1, help="Number of threads. All cores by default.")]


ROLES = ("context", "sparse", "action", "reward", "propensity", "actions", "sample_rate", "propensities", "eligible")


def open_log(options: Mapping[str, Any], **more: Any) -> Log:
    """Open the log of a command.

    options  The command's parameters by name: its `locals()`. Those that are not about the log do not count.
    more     Parameters of `Log`, as they are.
    """
    from drstream.log import Log

    coded = options.get("categorical"), options.get("hashed"), options.get("missing")
    given = log_options(*(options.get(role) for role in ROLES), coded=coded)
    given |= row_options(options.get("filter"), options.get("exclude"), options.get("positions"))
    given |= candidate_options(options.get("candidates"), options.get("items"), options.get("action_is"))
    log = options["log"]
    opened = Log(log[0] if len(log) == 1 else log, on_bad_row=options.get("on_bad_row", "error"), **given, **more)
    if voice.verbose:
        detail(repr(opened))
    return opened


def parse_logger_propensities(text: str | None) -> dict[str, str] | list[str] | None:
    """Parse --logger-propensities.

    >>> parse_logger_propensities("random=p_0, bts=p_1"), parse_logger_propensities("p_0,p_1")
    ({'random': 'p_0', 'bts': 'p_1'}, ['p_0', 'p_1'])
    """
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not any("=" in part for part in parts):
        return parts
    pairs = [(logger.strip(), column.strip()) for logger, _, column in (part.rpartition("=") for part in parts)]
    if not all(logger and column for logger, column in pairs) or len(dict(pairs)) < len(pairs):
        raise LogError(f"--logger-propensities {text!r}: write LOGGER=COLUMN for each logger, separated by commas")
    return dict(pairs)


def log_options(
    context: list[str] | None,
    sparse: str | None,
    action: str | None,
    reward: str | None,
    propensity: str | None,
    actions: str | None,
    sample_rate: str | None = None,
    propensities: str | None = None,
    eligible: str | None = None,
    *,
    coded: Coded = (None, None, None),
) -> dict[str, Any]:
    """Return the parameters of a log that the options give.

    coded  The options --categorical, --hashed and --missing.
    """
    named = {"context": context, "action": action, "propensity": propensity, "sample_rate": sample_rate}
    named["eligible"] = eligible
    rewards = reward.split(",") if reward else []
    named["reward"] = [name.strip() for name in rewards] if len(rewards) > 1 else reward
    of_all = [name.strip() for name in propensities.split(",")] if propensities else []
    named["propensities"] = of_all if len(of_all) > 1 else propensities
    given: dict[str, Any] = {role: name for role, name in named.items() if name}
    if context and len(context) == 1:
        given["context"] = context[0]
    if sparse:
        if context:
            raise LogError("--sparse and --context are two ways to name the context: give one of them")
        given["context"] = parse_sparse(sparse)
    if propensity:
        given["propensity"] = parse_propensity(propensity)
    if action == "none":
        given["action"] = None
    categorical, hashed, missing = coded
    if hashed:
        if sparse:
            raise LogError("--sparse and --hashed are two ways to name the context: give one of them")
        given["context"] = [*(context or []), *map(parse_hashed, hashed)]
    if categorical:
        given["categorical"] = categorical
    if missing is not None:
        given["missing"] = parse_missing(missing)
    return {**given, "actions": parse_actions(actions)}


def candidate_options(candidates: str | None, items: str | None, action_is: str | None) -> dict[str, Any]:
    """Return the candidates of a log that the options give."""
    if candidates is None:
        for option, value in (("items", items), ("action-is", action_is)):
            if value is not None:
                raise LogError(f"--{option} {value} is about candidates: name the column of ids with --candidates")
        return {}
    from drstream.log import Candidates, Items, Sparse

    ids, *names = [name.strip() for name in candidates.split(",")]
    if not ids or not all(names):
        raise LogError(f"--candidates {candidates!r}: write IDS or IDS,FEATURE,..., with 'none' if there are no ids")
    features: Any = names[0] if len(names) == 1 else names or None
    if len(names) == 1 and names[0].rpartition(":")[2].isdigit():
        features = Sparse(names[0].rpartition(":")[0], dim=int(names[0].rpartition(":")[2]))
    if items is not None:
        file, colon, id = items.rpartition(":")
        known = bool(colon) and not id.startswith("//") and "/" not in id
        features = Items(file, id, features) if known else Items(items, features=features)
    return {"candidates": Candidates(None if ids == "none" else ids, features, action_is)}


def parse_embedding(text: str | None) -> Any:
    """Parse --embedding: a column, or a mapping from a file with columns of ids and of categories."""
    file, colon, names = (text or "").rpartition(":")
    if not colon or "," not in names:
        return text
    import pyarrow as pa
    import pyarrow.csv

    from drstream.sources.open import open_source

    id, _, category = (name.strip() for name in names.partition(","))
    try:
        source = open_source(pyarrow.csv.read_csv(file) if file.endswith(".csv") else file)
    except (pa.ArrowException, OSError) as error:
        raise DrstreamError(f"--embedding {text}: cannot read {file}: {error}") from None
    for name in (id, category):
        if name not in source.schema.names:
            raise DrstreamError(
                f"--embedding {text}: {file} has no column {name!r}: {suggest(name, source.schema.names)}"
            )
    rows = [batch.to_pydict() for part in source.parts((id, category)) for batch in part.batches()]
    return {key: value for found in rows for key, value in zip(found[id], found[category], strict=True)}


def row_options(filter: str | None, exclude: list[str] | None, positions: str | None = None) -> dict[str, Any]:
    """Return the parameters of a log about rows, left-out columns and rankings that the options give."""
    given = {"filter": filter, "exclude": exclude, "positions": positions}
    return {name: value for name, value in given.items() if value is not None}


def parse_propensity(text: str) -> str | float | None:
    """Parse --propensity, e.g. `pscore`, `0.25`, `1/3`, `uniform` or `none`."""
    if text == "none":
        return None
    number = re.fullmatch(r"([0-9.]+(?:e-?[0-9]+)?)(?:/([0-9.]+))?", text)
    try:
        return text if number is None else float(number[1]) / float(number[2] or 1)
    except (ValueError, ZeroDivisionError):
        raise LogError(f"--propensity {text}: it is no number") from None


def parse_actions(text: str | None) -> int | list[Any] | None:
    """Parse --actions, e.g. `10` or `web,news,movie`."""
    if text is None:
        return None
    labels: list[Any] = [int_or_text(label.strip()) for label in text.split(",")]
    if len(labels) == 1 and isinstance(labels[0], int):
        return labels[0]
    return labels if all(isinstance(label, int) for label in labels) else [label.strip() for label in text.split(",")]


def parse_crossfit(text: str | None) -> int | str | None:
    """Parse --crossfit, e.g. `5` or `forward`."""
    return None if text is None else int_or_text(text.strip())


def int_or_text(text: str) -> int | str:
    return int(text) if re.fullmatch(r"-?[0-9]+", text) else text


def parse_sparse(text: str) -> Sparse:
    """Parse --sparse, e.g. `indices,values,47236` or `indices,47236`."""
    from drstream.log import Sparse

    *columns, dim = text.split(",")
    if not 1 <= len(columns) <= 2 or not dim.strip().isdigit():
        raise LogError(f"--sparse {text!r}: write INDICES,VALUES,DIM or INDICES,DIM")
    names = [name.strip() for name in columns]
    return Sparse(names[0], names[1] if len(names) > 1 else None, int(dim))


def parse_hashed(text: str) -> Hashed:
    """Parse --hashed, e.g. `user_agent` or `user_agent:18`."""
    from drstream.log import Hashed

    name, colon, bits = text.rpartition(":")
    if not colon:
        return Hashed(text)
    if not bits.isdigit():
        raise LogError(f"--hashed {text!r}: write NAME or NAME:BITS, e.g. user_agent:18")
    return Hashed(name, int(bits))


def parse_missing(text: str) -> str | float:
    """Parse --missing, e.g. `keep` or `0`."""
    try:
        return float(text)
    except ValueError:
        return text.strip()


def numbers(text: str, option: str, kind: Callable[[str], Any] = float, more: str = "") -> list[Any]:
    """Parse numbers, e.g. `0,0.01,0.05`."""
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        raise DrstreamError(f"{option} {text!r}: write numbers, separated by commas{more}") from None


def check_output(path: Path, log: Log | None, *, json: bool = False) -> None:
    """Check a file that a table will be written to. `-` is standard output, which then holds CSV and nothing else."""
    if path == STDOUT:
        if json:
            raise DrstreamError("--output - and --json both print to standard output: give one of them")
        return
    check_folder(path, log)
    if path.suffix not in (".parquet", ".csv"):
        raise DrstreamError(f"--output {path}: the name must end in .parquet or .csv")


def check_folder(path: Path, log: Log | None) -> None:
    if path == STDOUT:
        raise DrstreamError("--output -: this file is not text for a terminal or a pipe: name a file")
    keys = () if log is None else log.source.keys
    if str(path.resolve()) in {os.path.realpath(key) for key in keys if isinstance(key, str)}:
        raise DrstreamError(f"--output {path} is a file of the log itself: choose another name")
    if not path.parent.is_dir():
        raise DrstreamError(f"--output {path}: there is no folder {str(path.parent)!r}")
    if not os.access(path.parent, os.W_OK) or path.is_dir():
        raise DrstreamError(f"--output {path} cannot be written: choose another name or folder")


def write_table(table: Any, path: Path) -> None:
    """Write a table to a .csv or .parquet file, which appears only when it is complete; or to standard output."""
    import pyarrow.csv
    import pyarrow.parquet

    from drstream.states.files import atomic_path

    if path == STDOUT:
        _print_csv(table)
        return
    parquet = partial(pyarrow.parquet.write_table, write_page_checksum=True)
    write: Any = pyarrow.csv.write_csv if path.suffix == ".csv" else parquet
    try:
        with atomic_path(path) as unfinished:
            write(table, unfinished)
    except OSError as error:
        raise DrstreamError(f"--output {path}: cannot write: {because(error)}. Nothing was written") from None


def _print_csv(table: Any) -> None:
    import io

    import pyarrow.csv

    text = io.BytesIO()
    pyarrow.csv.write_csv(table, text)
    typer.echo(text.getvalue().decode(), nl=False)
