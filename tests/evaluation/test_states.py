"""States that last: merged, they are one pass, to the last bit. What does not fit together is refused."""

import dataclasses
import io
import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import drstream as drs
from drstream.evaluation.states import by_file
from drstream.evaluation.states.state import State
from drstream.states import arrays
from tests.helpers.cut import cut_log
from tests.helpers.days import CONTEXT, KINDS, LINEAR, SOFT, TWO, contents, day, halves, ridge, write
from tests.helpers.passes import PLAIN

DAYS, WINDOW = 30, 7
P = drs.policies


@pytest.fixture(scope="module")
def month(tmp_path_factory):
    """A file and a state for each day."""
    folder = tmp_path_factory.mktemp("month")
    paths = write(folder, [day(seed, rows=40 + 3 * seed) for seed in range(DAYS)])
    kind = KINDS["fused"]
    model = kind.fitted
    for path in paths:
        drs.evaluate(kind.open(path), kind.policies, **model, state=path.with_suffix(".state"))
    return paths, model


def test_every_window_of_a_week_is_one_pass_over_its_files(month):
    paths, model = month
    for first in range(0, DAYS - WINDOW + 1, 8 if PLAIN else 1):
        week = paths[first : first + WINDOW]
        whole = drs.evaluate(KINDS["fused"].open(week), KINDS["fused"].policies, **model)
        merged = drs.merge([path.with_suffix(".state") for path in week])
        assert contents(merged) == contents(whole)
    assert merged.provenance["run"] == "merge"
    assert merged.provenance["rows"] == merged.n
    assert [one["state"] for one in merged.provenance["states"]] == [f"{path.stem}.state" for path in week]


@pytest.mark.parametrize("name", KINDS)
def test_all_kinds_of_logs_and_evaluations(name, tmp_path):
    kind = KINDS[name]
    paths = write(tmp_path, [kind.make(seed) for seed in range(3)])
    model = kind.fitted
    states = [path.with_suffix(".state") for path in paths]
    kind.options = {**kind.options, **model}
    for path, state in zip(paths, states, strict=True):
        kind.evaluate(path, state=state)
    whole = kind.evaluate(paths, state=tmp_path / "whole.state")
    merged = drs.merge(states)
    doubted = [finding.policy for finding in merged.findings if finding.check == "identity"]
    assert doubted == (["halves", "arrow"] if name == "functions" else [])
    assert contents(drs.merge(tmp_path / "whole.state")) == contents(whole)
    if kind.plain:
        assert contents(kind.evaluate(paths)) == contents(whole)
    if doubted or name == "propensities":  # one pass has no doubts, and other first rows to compare propensities with
        for one in (merged, whole):
            one._about = dataclasses.replace(one._about, findings=())
            vars(one).pop("findings", None)
    assert contents(merged) == contents(whole)
    one = State.of(states[0])
    assert State.of(one.to_bytes()).to_bytes() == states[0].read_bytes() == one.to_bytes()


def test_threads_and_batch_sizes_do_not_matter(month, tmp_path):
    paths, model = month
    for options, threads in (({"batch_size": 11}, 1), ({}, 3)):
        log = cut_log(paths[:2], **CONTEXT, **options)
        drs.evaluate(log, KINDS["fused"].policies, **model, threads=threads, state=tmp_path / "two.state")
        states = [path.with_suffix(".state") for path in paths[:2]]
        assert contents(drs.merge(tmp_path / "two.state")) == contents(drs.merge(states))


def test_a_large_state_is_merged_and_says_so(month, tmp_path, monkeypatch):
    paths, model = month
    monkeypatch.setattr(by_file, "LARGEST", 10_000)
    whole = drs.evaluate(KINDS["fused"].open(paths), KINDS["fused"].policies, **model, state=tmp_path / "all.state")
    merged = drs.merge(tmp_path / "all.state")
    assert len(State.of(tmp_path / "all.state").units) < 10
    assert not merged.provenance["exact"]
    for row, wanted in zip(merged.rows(), whole.rows(), strict=True):
        assert row["value"] == pytest.approx(wanted["value"], rel=1e-13)


# Shares of a log from elsewhere


def batches(seed):
    return day(seed).to_batches(max_chunksize=17)


def test_partial_gives_what_files_do(tmp_path):
    model = ridge(CONTEXT)
    options = {"log": {**CONTEXT, "actions": 4}, "by": "country", "cluster": "user"}
    parts = [drs.partial(batches(seed), TWO, **model, **options) for seed in range(3)]
    paths = write(tmp_path, [day(seed) for seed in range(3)], rows=1000)
    whole = drs.evaluate(drs.Log(paths, **options.pop("log")), TWO, **model, **options)
    assert contents(drs.merge([part.to_bytes() for part in parts])) == contents(whole)
    parts[0].save(tmp_path / "part.state")
    assert contents(drs.merge([tmp_path / "part.state", *parts[1:]])) == contents(whole)
    assert repr(parts[0]) == "State of 70 events from 1 file"


def test_partial_of_nothing():
    nothing = drs.partial([], TWO)
    filtered = {"log": {**CONTEXT, "actions": 4, "filter": "x0 > 1000"}}
    some = {"log": {**CONTEXT, "actions": 4}}
    assert State.of(nothing.to_bytes()).n == 0
    one = drs.partial(batches(0), TWO, **some)
    assert contents(drs.merge([nothing, one])) == contents(drs.merge([one]))
    assert drs.partial(day(0), TWO, **filtered).n == 0
    with pytest.raises(drs.StateError, match="there is no event in 2 states"):
        drs.merge([nothing, drs.partial([], TWO)])
    with pytest.raises(drs.LogError, match="there is no event in 1 states"):
        drs.merge([drs.partial(day(0), TWO, **filtered)])
    with pytest.raises(drs.LogError, match="a dict is not a pyarrow RecordBatch"):
        drs.partial([{"x": 1}], TWO)
    with pytest.raises(drs.DrstreamError, match="leave out state="):
        drs.partial(batches(0), TWO, state="x.state")


BUCKETS = {"interval": ["bootstrap", "normal"], "estimators": ["ips", "snips"], "by": "country"}


def test_buckets_of_rows_merge(tmp_path):
    """A bucket comes from the row within its file, so it is the same one whatever files come before."""
    paths = write(tmp_path, [day(seed, rows=60 + seed) for seed in range(4)], rows=1000)
    for path in paths:
        drs.evaluate(drs.Log(path, **CONTEXT), TWO, **BUCKETS, state=path.with_suffix(".state"))
    whole = drs.evaluate(drs.Log(paths, **CONTEXT), TWO, **BUCKETS)
    assert contents(drs.merge([path.with_suffix(".state") for path in paths])) == contents(whole)
    assert drs.merge([path.with_suffix(".state") for path in paths]).provenance["exact"]
    shares = [
        drs.partial(day(seed, rows=60 + seed), TWO, log={**CONTEXT, "actions": 4}, **BUCKETS) for seed in range(4)
    ]
    assert contents(drs.merge([share.to_bytes() for share in shares])) == contents(whole)


@pytest.mark.parametrize("more", [{}, {"cluster": "user"}])
def test_states_of_several_files_have_one_table_of_buckets(tmp_path, more):
    paths = write(tmp_path, [day(seed) for seed in range(6)])
    states = [tmp_path / "first.state", tmp_path / "second.state"]
    for path, some in zip(states, (paths[:2], paths[2:]), strict=True):
        drs.evaluate(drs.Log(some, **CONTEXT), TWO, **BUCKETS, **more, state=path)
        rows = arrays.load(path, "evaluation")[1]["buckets.0.bucket.rows"]
        assert len(set(rows.tolist())) == len(rows) <= 70
    whole, merged = drs.evaluate(drs.Log(paths, **CONTEXT), TWO, **BUCKETS, **more), drs.merge(states)
    assert not merged.provenance["exact"]
    for row, wanted in zip(merged.rows(), whole.rows(), strict=True):
        assert (row["value"], row["n"]) == (wanted["value"], wanted["n"])
        assert row["low"] == pytest.approx(wanted["low"], rel=1e-12, abs=1e-12)
        assert row["high"] == pytest.approx(wanted["high"], rel=1e-12, abs=1e-12)


# Differences are named


def state(folder, name="one", seed=0, policies=TWO, log=None, table=None, **options):
    table = day(seed) if table is None else table
    (folder / name).mkdir()
    path = write(folder / name, [table])[0]
    drs.evaluate(drs.Log(path, **{**CONTEXT, **(log or {})}), policies, **options, state=folder / f"{name}.state")
    return folder / f"{name}.state"


@pytest.mark.parametrize(
    ("other", "wanted"),
    [
        (
            {"policies": {"soft": SOFT, "linear": P.Linear(LINEAR.weights * 2)}},
            r"policy 'linear' is Linear\(.* sha256 ",
        ),
        ({"policies": {"soft": SOFT}}, "policy 'linear' is .* in the first, and none in the second"),
        (
            {"policies": {"soft": SOFT, "linear": P.Epsilon(LINEAR, 0.1)}},
            "policy 'linear' is Linear.*Epsilon",
        ),
        ({"estimators": ["ips"]}, "estimators is"),
        ({"confidence": 0.9}, "settings confidence is 0.95 in the first, and 0.9 in the second"),
        ({"by": "country"}, "form by is"),
        ({"log": {"filter": "x0 > 0"}}, r"the log's filter is none in the first, and \(x0 > 0\) in the second"),
        ({"log": {"on_bad_row": "skip"}}, "the log's on bad row is error in the first, and skip in the second"),
        ({"log": {"reward": "spend"}}, "spend"),
        ({"model": drs.models.Constant(0.5)}, "reward model of 'reward'|set of models"),
    ],
)
def test_states_of_other_evaluations_are_refused(tmp_path, other, wanted):
    first = state(tmp_path)
    second = state(tmp_path, "two", 1, **other)
    with pytest.raises(drs.StateError, match=wanted) as error:
        drs.merge([first, second])
    assert str(error.value).startswith(f"{first} and {second} cannot be merged: ")


def test_other_actions_are_refused_with_advice(tmp_path):
    uniform = {"uniform": P.Uniform()}
    first = state(tmp_path, policies=uniform)
    second = state(tmp_path, "two", 1, policies=uniform, log={"actions": 5})
    with pytest.raises(
        drs.StateError, match=r"the set of actions is 4 in the first, and 5 in the second. Give all actions"
    ):
        drs.merge([first, second])


def test_models_are_known_by_what_they_have_learned(tmp_path):
    models = [drs.models.Ridge().fit(drs.Log(day(seed), **CONTEXT)) for seed in (50, 51)]
    states = [state(tmp_path, f"day{seed}", seed, model=model) for seed, model in enumerate(models)]
    with pytest.raises(drs.StateError, match=r"the reward model of 'reward' is .* in the first"):
        drs.merge(states)
    models[0].save(tmp_path / "model.npz")
    again = state(tmp_path, "again", 2, model=drs.models.load(tmp_path / "model.npz"))
    assert drs.merge([states[0], again]).n == 140


def test_rows_that_are_in_two_states_are_refused(tmp_path):
    first, second = state(tmp_path), state(tmp_path, "two", 1)
    with pytest.raises(drs.StateError, match=r"both have row group 0 of .*00.parquet. Its events would count twice"):
        drs.merge([first, second, first])
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    drs.evaluate(drs.Log(tmp_path / "copy", **CONTEXT), TWO, state=tmp_path / "copy.state")
    with pytest.raises(drs.StateError, match=r"the first one as row group 0 of .*one/00.parquet"):
        drs.merge([first, tmp_path / "copy.state"])
    parts = [drs.partial(batches(0), TWO, log=CONTEXT) for _ in range(2)]
    with pytest.raises(drs.StateError, match="both have rows 0 to 69 of a table"):
        drs.merge(parts)


def test_a_file_with_the_same_footer_and_other_rows_is_another(tmp_path):
    """Without statistics and compression, the footers of two days are the same."""
    states = []
    for seed in range(2):
        path = tmp_path / f"{seed}.parquet"
        columns = ["x0", "x1", "x2", "action", "reward", "propensity"]
        plain = {"write_statistics": False, "compression": "none", "use_dictionary": False}
        pq.write_table(day(seed).select(columns), path, **plain)
        states.append(tmp_path / f"{seed}.state")
        drs.evaluate(drs.Log(path, **CONTEXT), TWO, state=states[-1])
    one, two = (State.of(path).marks[0] for path in states)
    assert (one.digest, one.size) == (two.digest, two.size)
    assert drs.merge(states).n == 140


def test_functions_have_a_name_or_nobody_can_vouch_for_them(tmp_path):
    def other(X):
        return halves(X)[:, ::-1]

    log = {"actions": 4}
    plain = [state(tmp_path, f"plain{seed}", seed, {"f": halves}, log) for seed in range(2)]
    merged = drs.merge(plain)
    (finding,) = [finding for finding in merged.findings if finding.check == "identity"]
    assert (finding.level, finding.policy) == ("look", "f")
    assert "made of tests.helpers.days.halves" in finding.message
    assert not [finding for finding in drs.merge(plain[:1]).findings if finding.check == "identity"]
    named = [state(tmp_path, f"named{seed}", seed, {"f": P.named("v1", halves)}, log) for seed in range(2)]
    assert not [finding for finding in drs.merge(named).findings if finding.check == "identity"]
    with pytest.raises(drs.StateError, match=r"policy 'f' is .*halves.* in the first, and .*other"):
        drs.merge([plain[0], state(tmp_path, "other", 2, {"f": other}, log)])
    second = state(tmp_path, "v2", 2, {"f": P.named("v2", halves)}, log)
    with pytest.raises(drs.StateError, match="policy 'f' is named 'v1' in the first, and named 'v2' in the second"):
        drs.merge([named[0], second])
    mixed = {"f": P.Epsilon(P.named("v1", halves), 0.1)}
    assert drs.merge([state(tmp_path, f"mixed{seed}", seed, mixed, log) for seed in range(2)]).findings
    with pytest.raises(drs.PolicyError, match="the identity must be a word"):
        P.named(3, halves)


# What a state cannot hold is refused before the pass


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"model": drs.models.Ridge(), "crossfit": 3}, "models would be fitted on this log alone"),
        ({"interval": "anytime", "reward_range": (0, 1)}, "'anytime' intervals count rows"),
        ({"estimators": ["mine"]}, "estimator 'mine' is yours"),
        ({"estimators": ["dr-minvar"], "model": drs.models.Constant(0.5)}, "'dr-minvar' depend on all earlier rows"),
        ({"state": "/nowhere/at/all.state"}, "there is no folder '/nowhere/at'"),
        ({"state": 3}, "it must be the path of a file"),
        ({"state": "."}, "is a folder"),
    ],
)
def test_passes_without_a_lasting_state(tmp_path, options, wanted):
    log = drs.Log(day(0), **CONTEXT, propensities="mu")
    if options.get("estimators") == ["mine"]:
        own = drs.estimators.Estimator("mine", ("reward",), drs.estimators.IMPORTANCE, lambda s: s.mean[0])
        options = {"estimators": [own]}
    with pytest.raises(drs.StateError, match=wanted):
        drs.evaluate(log, TWO, **{"state": tmp_path / "x.state", **options})
    assert not list(tmp_path.iterdir())


def test_rows_that_would_be_others_in_a_longer_log(tmp_path):
    log = drs.Log(day(0), **CONTEXT)
    path = tmp_path / "x.state"
    with pytest.raises(drs.StateError, match="a split by row numbers has other rows in a longer log"):
        drs.evaluate(log.split(0.5)[0], TWO, state=path)
    with pytest.raises(drs.StateError, match="the rows before a certain one"):
        drs.evaluate(log.rows_before(30), TWO, state=path)
    drs.evaluate(log.split(0.5, cluster="user")[0], TWO, state=path)
    table = day(0)
    rewards = pa.array(np.random.default_rng(0).random(70) + 1e7)
    far = table.set_column(table.schema.get_field_index("reward"), "reward", rewards)
    with pytest.raises(drs.StateError, match=r"rewards in 'reward' are about 1e\+07, with a spread"):
        drs.evaluate(drs.Log(far, **CONTEXT), TWO, state=path)


def test_balanced_weights_depend_on_all_logs(tmp_path):
    table = day(0).append_column("p_a", day(0)["propensity"]).append_column("p_b", day(0)["propensity"])
    log = drs.Log(table, **CONTEXT, logger="who", logger_propensities={"a": "p_a", "b": "p_b"})
    with pytest.raises(drs.StateError, match="'balanced-ips' depend on the shares of loggers in all logs"):
        drs.evaluate(log, TWO, estimators=["balanced-ips"], state=tmp_path / "x.state")


# Files that are damaged, or not ours


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The bytes of a small state."""
    folder = tmp_path_factory.mktemp("small")
    options = {"estimators": ["ips"], "by": "country", "cluster": "user"}
    return state(folder, policies={"one": P.Constant(1)}, **options).read_bytes()


def test_any_flipped_bit_is_refused_or_changes_nothing(small):
    """Nothing is made of the dates of a zip file, and other fields of it."""
    wanted, refused = contents(drs.merge(small)), 0
    for place in range(0, len(small), 97 if PLAIN else 7):
        damaged = bytearray(small)
        damaged[place] ^= 1 << place % 8
        try:
            assert contents(drs.merge(bytes(damaged))) == wanted
        except drs.StateError:
            refused += 1
    assert refused > 0.8 * len(range(0, len(small), 97 if PLAIN else 7))


def test_any_cut_is_refused(small):
    for length in [*range(60), *range(60, len(small), 211)]:
        with pytest.raises(drs.StateError, match="is damaged"):
            drs.merge(small[:length])


def of_form(words):
    return words["identity"]["rewards"]["reward"]["form"]


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (lambda words, found: words.update(schema=99), "with schema 99 of states, and this drstream reads 4: make it"),
        (lambda words, found: words.update(kind="a replay"), "holds 'a replay', not 'evaluation'"),
        (lambda words, found: words.update(kind=None), "holds None, not 'evaluation'"),
        (lambda words, found: words.pop("sums"), "'sums' does not fit"),
        (lambda words, found: words.update(sums={"dict": [["units", 3], ["buckets", []]]}), "does not fit"),
        (lambda words, found: words.update(others=3), "does not fit"),
        (lambda words, found: found.popitem(), "does not fit"),
        (lambda words, found: found.update({"units.sums.0.whole": found["units.sums.0.whole"][:, 1:]}), "does not fit"),
        (lambda words, found: found.update({"units.sums.0.whole": np.zeros((1, 4), int)}), "does not fit"),
        (lambda words, found: found.update({"units.sums.0.used": np.array([10**12])}), "does not fit"),
        (lambda words, found: found.update({"units.sums.0.lengths": np.array([-1])}), "does not fit"),
        (lambda words, found: found.update({"buckets.0.bucket.rows": np.array([5000])}), "does not fit"),
        (lambda words, found: found["buckets.0.bucket.records"][:, 2].fill(-1e300), "a weight below 0 does not fit"),
        (lambda words, found: found.update({"more": np.zeros(3)}), "array 'more' does not fit"),
        (lambda words, found: words["identity"]["rewards"]["reward"].update(estimators=["none"]), "does not fit"),
        (lambda words, found: words["identity"]["rewards"]["reward"].update(labels=10**12), "does not fit"),
        (lambda words, found: of_form(words).update(policies=7), "does not fit"),
        (lambda words, found: of_form(words).update(policies=10**12), "does not fit"),
        (lambda words, found: of_form(words).update(policies="x"), "does not fit"),
        (lambda words, found: of_form(words).update(actions=10**12), "does not fit"),
        (lambda words, found: of_form(words).update(columns=["weight"] * 3), "does not fit"),
    ],
)
def test_a_file_that_was_made_up_is_refused(small, change, wanted):
    words, found = arrays.read(io.BytesIO(small))
    del words["sha256"]
    change(words, found)
    with pytest.raises(drs.StateError, match=wanted):
        drs.merge(arrays.to_bytes("", words, found))


def test_a_state_of_an_earlier_version_says_what_to_do(tmp_path):
    text = b'{"schema":1,"kind":"evaluation","version":"0.9.1","identity":{}}'
    for path in (tmp_path / "old.state", tmp_path / "old.ckpt"):
        path.write_bytes(b"drstate\n" + len(text).to_bytes(8, "little") + text + bytes(32))
    wanted = r"old.\w+ was written by drstream 0.9.1, with schema 1 of states, and this drstream reads 4: make it again"
    with pytest.raises(drs.StateError, match=wanted):
        drs.merge(tmp_path / "old.state")
    with pytest.raises(drs.StateError, match=wanted):
        drs.evaluate(drs.Log(day(0), **CONTEXT), TWO, checkpoint=tmp_path / "old.ckpt")


def test_other_files_are_refused(tmp_path):
    (tmp_path / "log.json").write_text(json.dumps({"schema": 1}))
    for source, wanted in (
        (tmp_path / "log.json", "is not a state that drstream wrote"),
        (tmp_path / "none.state", "no such file"),
        (tmp_path, "cannot read"),
        ([3], "an? int is not a state"),
        ([], "give a state"),
    ):
        with pytest.raises(drs.StateError, match=wanted):
            drs.merge(source)


def test_a_state_that_cannot_be_written_leaves_nothing(tmp_path):
    tmp_path.chmod(0o500)
    try:
        if not _writable(tmp_path):
            with pytest.raises(drs.StateError, match="cannot write"):
                drs.evaluate(drs.Log(day(0), **CONTEXT), TWO, state=tmp_path / "x.state")
    finally:
        tmp_path.chmod(0o700)
    assert not list(tmp_path.iterdir())


def _writable(folder):
    try:
        (folder / "try").touch()
    except OSError:
        return False
    (folder / "try").unlink()
    return True
