"""A log on a real server of S3, with broken answers; and file systems of fsspec. Skipped if these are not installed."""

import pyarrow.parquet as pq
import pytest

import drstream as drs
from tests.helpers import s3
from tests.helpers.logs import world

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # those of packages that drstream does not use itself
]
WORLD = world(kinds=None)
DAYS, EACH, GROUP = 2, 100, 25


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("s3")
    for day in range(DAYS):
        (found / f"day={day}").mkdir()
        pq.write_table(WORLD.table(EACH, seed=day), found / f"day={day}" / "a.parquet", row_group_size=GROUP)
    return found


@pytest.fixture(scope="module")
def proxy(folder):
    pytest.importorskip("moto", reason="moto is not installed: pip install 'moto[s3,server]'")
    with s3.serving() as found:
        s3.upload(found, folder)
        yield found


def evaluate(source, **options):
    result = drs.evaluate(drs.Log(source, context="x?"), drs.policies.Constant(1), estimators=["ips"], **options)
    return result, (result["ips"].value, result["ips"].low, result.n)


@pytest.mark.parametrize("name", ["logs", "logs/day=*/a.parquet", "logs/**"])
def test_a_log_on_s3_gives_the_bits_of_local_files(folder, proxy, name):
    assert evaluate(s3.uri(proxy, name), threads=2)[1] == evaluate(str(folder), threads=1)[1]


@pytest.mark.parametrize("seed", range(5))
def test_broken_answers_change_no_bit(folder, proxy, seed):
    wanted = evaluate(str(folder), threads=1)[1]
    proxy.random.seed(seed)
    proxy.faults.clear()
    proxy.rate = 0.3
    try:
        found = evaluate(s3.uri(proxy, "logs"), threads=2)[1]
    finally:
        proxy.rate = 0.0
    assert found == wanted
    assert proxy.faults


def test_a_server_that_refuses_is_an_error_without_secrets(proxy, monkeypatch):
    monkeypatch.setattr(proxy, "kinds", ("403",))
    proxy.rate = 1.0
    try:
        with pytest.raises(drs.LogError) as error:
            drs.Log(s3.uri(proxy, "logs"))
    finally:
        proxy.rate = 0.0
    assert "SECRET" not in str(error.value)
    assert "403" in proxy.faults


def test_files_are_asked_together_when_a_log_is_opened(proxy):
    proxy.delay, proxy.most = 0.05, 0
    try:
        assert drs.Log(s3.uri(proxy, "logs"), context="x?").source_rows == DAYS * EACH
    finally:
        proxy.delay = 0.0
    assert proxy.most == DAYS  # all footers at a time


def test_a_file_of_the_same_size_that_takes_its_place_is_an_error(folder, proxy, tmp_path):
    whole = (folder / "day=0" / "a.parquet").read_bytes()
    (tmp_path / "day=0").mkdir()
    (tmp_path / "day=0" / "a.parquet").write_bytes(whole[:-20] + bytes([whole[-20] ^ 1]) + whole[-19:])
    log = drs.Log(s3.uri(proxy, "logs/day=0/a.parquet"), context="x?")
    assert log.source_rows == EACH
    s3.upload(proxy, tmp_path)
    try:
        with pytest.raises(drs.LogError, match=r"day=0/a.parquet changed while it was read: something wrote to it"):
            drs.evaluate(log, drs.policies.Constant(1), estimators=["ips"], threads=1)
    finally:
        s3.upload(proxy, folder)


def test_file_systems_of_fsspec(folder):
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed: pip install fsspec")
    memory = fsspec.filesystem("memory")
    for day in range(DAYS):
        memory.pipe(f"/logs/day={day}/a.parquet", (folder / f"day={day}" / "a.parquet").read_bytes())
    wanted = evaluate(str(folder), threads=1)[1]
    for name in ("memory://logs", "memory://logs/day=*/a.parquet"):
        assert evaluate(name, threads=2)[1] == wanted
    assert evaluate("memory://logs/day=1/a.parquet")[0].n == EACH
