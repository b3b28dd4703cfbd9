"""A real server of S3 on loopback, moto's, and a proxy before it that breaks answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq

import drstream as drs
from scripts.studies.reliability.record import ERROR, LOST, SAME, Case
from tests.helpers import s3
from tests.helpers.logs import world

DAYS, EACH, GROUP = 3, 300, 60
RATES = (0.02, 0.05, 0.1, 0.2)  # shares of requests that fail


def run(first: int, last: int, folder: Path) -> Iterator[Case]:
    files = folder / "s3"
    if not files.exists():
        files.mkdir()
        for day in range(DAYS):
            (files / f"day={day}").mkdir()
            pq.write_table(
                world(kinds=None).table(EACH, seed=day), files / f"day={day}" / "a.parquet", row_group_size=GROUP
            )
    wanted = numbers(str(files), 1)
    with s3.serving() as proxy:
        s3.upload(proxy, files)
        for number in range(first, last):
            yield one(number, proxy, wanted)


def one(number: int, proxy: s3.Proxy, wanted: object) -> Case:
    rate = RATES[number % len(RATES)]
    row = f"{rate:.0%} of requests fail"
    proxy.random.seed(number)
    proxy.rate = rate
    try:
        found = numbers(s3.uri(proxy, "logs"), 1 + number // len(RATES) % 3)
    except drs.LogError as error:
        return Case(row, ERROR) if "logs" in str(error) and "SECRET" not in str(error) else Case(row, LOST, str(error))
    except BaseException as error:
        return Case(row, LOST, f"{type(error).__name__}: {error}")
    finally:
        proxy.rate = 0.0
    return Case(row, SAME) if found == wanted else Case(row, LOST, f"{found} instead of {wanted}")


def numbers(source: str, threads: int) -> tuple[float, float, int]:
    result = drs.evaluate(drs.Log(source, context="x?"), drs.policies.Constant(1), estimators=["ips"], threads=threads)
    return result["ips"].value, result["ips"].low, result.n
