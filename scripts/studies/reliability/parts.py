"""All parts of the study."""

from __future__ import annotations

from scripts.studies.reliability import days, files, kills, scarcity, signals, storage, workers
from scripts.studies.reliability.record import Part

PARTS = {
    part.name: part
    for part in (
        Part("kills", "Kills", kills.run, cases=4 * kills.POINTS, piece=kills.POINTS),
        Part("files", "Broken files", files.run_broken, cases=5_100, piece=300, quick=12),
        Part("changes", "Files that change while they are read", files.run_changes, cases=160, piece=40, quick=8),
        Part("s3", "Object storage", storage.run, cases=200, piece=20, needs=("moto",)),
        Part("processes", "Worker processes", workers.run_processes, cases=10, quick=1),
        Part("dask", "Dask", workers.run_dask, cases=10, quick=1, needs=("distributed",)),
        Part("spark", "Spark", workers.run_spark, cases=8, piece=8, quick=1, needs=("pyspark",)),
        Part("signals", "Ctrl-C and SIGTERM", signals.run, cases=40, quick=1),
        Part("disk", "A full disk", scarcity.run_disk, cases=200, piece=50, quick=10),
        Part("open_files", "Too many open files", scarcity.run_open_files, cases=36, piece=36, quick=4),
        Part("states", "Daily states", days.run, cases=days.DAYS - days.WINDOW + 1, piece=6),
    )
}
