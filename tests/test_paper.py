"""The quick forms of the paper's experiments, on data of the same form; on the data itself where it is at hand."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scripts.experiments import classification, data
from scripts.experiments.trials import Setting
from tests.test_real_data import DATA

pytestmark = pytest.mark.jit_only  # experiments, not kernels
HERE = (DATA / "uci_ecoli.parquet").is_file()
FOLDERS = ["made", pytest.param("real", marks=pytest.mark.skipif(not HERE, reason=f"the data is not in {DATA}"))]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Classes of the size of the small sets: clouds that overlap, of features of different scale."""
    folder = tmp_path_factory.mktemp("data")
    for i, name in enumerate(classification.SMALL):
        _, classes, rows = data.UCI[name]
        rng = np.random.default_rng(i)
        y = np.concatenate([np.arange(classes), rng.integers(0, classes, rows - classes)])
        X = (rng.normal(size=(classes, 8))[y] + 0.8 * rng.normal(size=(rows, 8))) * np.logspace(-1, 1, 8) + 3
        table = pa.table({"x": data.rows(X.astype(np.float32)), "y": y.astype(np.int32)})
        pq.write_table(table, folder / f"uci_{name}.parquet")
    return folder


@pytest.fixture(params=FOLDERS)
def setting(request, made, tmp_path):
    return Setting(made if request.param == "made" else DATA, tmp_path, quick=True, workers=1)


def columns(path, *names):
    table = pq.read_table(path)
    assert table.schema.metadata[b"quick"] == b"True"
    return [table[name].to_numpy(zero_copy_only=False) for name in names]


def test_figure_1(setting):
    """IPS and DR are unbiased, DR has the smaller error, and DM the largest bias on most sets."""
    biased = []
    names = "data", "classifier", "estimator", "error", "truth"
    sets, form, estimator, error, truth = columns(classification.figure1(setting), *names)
    for name in classification.SMALL:
        mine = (sets == name) & (form == "standardised")
        off = {e: (error - truth)[mine & (estimator == e)] for e in np.unique(estimator)}
        assert {len(values) for values in off.values()} == {100}
        for unbiased in ("ips", "dr", "ips of losses"):
            assert abs(off[unbiased].mean()) < 4 * off[unbiased].std() / 10
        rmse = {e: np.sqrt((values**2).mean()) for e, values in off.items()}
        assert rmse["dr"] < rmse["ips"]
        biased.append(abs(off["dm"].mean()) > max(abs(off["dr"].mean()), abs(off["ips"].mean())))
    assert sum(biased) >= 3


def test_figure_2(setting):
    """Losses completed by DR make better policies than those completed by IPS."""
    sets, learner, losses, error = columns(classification.figure2(setting), "data", "learner", "losses", "error")
    mean = {
        (name, one, kind): error[(sets == name) & (learner == one) & (losses == kind)].mean()
        for name in classification.SMALL
        for one, kind in {*zip(learner.tolist(), losses.tolist(), strict=True)}
    }
    for one in ("dlm", "filter tree"):
        below = [mean[name, one, "dr"] < mean[name, one, "ips"] for name in classification.SMALL]
        assert sum(below) == len(below)
    assert np.mean([mean[name, "filter tree", "dr"] for name in classification.SMALL]) < 0.1 + np.mean(
        [mean[name, "offset tree", "logged"] for name in classification.SMALL]
    )


def test_repetitions_do_not_depend_on_the_number_of_workers(made, tmp_path):
    one, two = (
        pq.read_table(classification.figure1(Setting(made, tmp_path / str(workers), quick=True, workers=workers)))
        for workers in (1, 2)
    )
    assert one.equals(two)


def test_data_that_is_not_there(tmp_path, monkeypatch):
    def offline(*_, **__):
        raise OSError("no route")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", offline)
    with pytest.raises(data.MissingData, match=r"uci_ecoli.parquet is not in .*--data FOLDER.*DRSTREAM_DATA"):
        data.uci("ecoli", tmp_path)
    with pytest.raises(data.MissingData, match=r"obd_all.parquet is not in"):
        data.path(tmp_path, "obd_all.parquet")


def test_another_data_set_of_the_same_name(made, tmp_path):
    pq.write_table(pq.read_table(made / "uci_ecoli.parquet").slice(1), tmp_path / "uci_ecoli.parquet")
    with pytest.raises(data.MissingData, match="ecoli has 335 rows and 8 classes; the paper's has 336 and 8"):
        data.uci("ecoli", tmp_path)
