"""All parts of the study, in the order of the page."""

from __future__ import annotations

from scripts.studies.reliability import days, files, scarcity, signals, storage, workers
from scripts.studies.reliability.record import Part

PARTS = {
    part.name: part
    for part in (
        Part(
            "files",
            "Broken files",
            "Files are cut, bytes and bits of pages, headers and footers are changed, huge sizes are declared, "
            "archives are written anew with checksums that are right and contents that are not. A reader must "
            "give the right number or an error in plain words, in a process with limited memory and time. A "
            "column of odd but valid type stands in each role.",
            files.run_broken,
            cases=5_100,
            piece=300,
        ),
        Part(
            "changes",
            "Files that change while they are read",
            "A file is replaced by another of equal layout, overwritten, truncated at a random byte or deleted, "
            "while one or two threads evaluate it. The same bits are possible: what is changed last may have been"
            " read already.",
            files.run_changes,
            cases=160,
            piece=40,
        ),
        Part(
            "s3",
            "Object storage",
            "A log in three files on a real server of S3, that of moto, on loopback. A proxy breaks answers: "
            "errors 500 and 503, connections that are reset, bodies that end early. One to three threads read.",
            storage.run,
            cases=200,
            piece=20,
            needs=("moto",),
        ),
        Part(
            "processes",
            "Worker processes",
            "One of two worker processes is killed with SIGKILL while it works on a part, at ten places in the log.",
            workers.run_processes,
            cases=10,
            piece=10,
        ),
        Part(
            "dask",
            "Dask",
            "A cluster with two worker processes. One is killed with SIGKILL while it works on a part, at ten "
            "places in the log.",
            workers.run_dask,
            cases=10,
            piece=10,
            needs=("distributed",),
        ),
        Part(
            "spark",
            "Spark",
            "A session in local mode. A task fails on purpose, once or twice, and Spark does it again.",
            workers.run_spark,
            cases=8,
            piece=8,
            needs=("pyspark",),
        ),
        Part(
            "signals",
            "Ctrl-C and SIGTERM",
            "A signal at any moment of a command, from its start to its end. It must end soon, with one line and "
            "exit code 130 or 143, and leave no half-written file and no process. The same bits mean that it was "
            "complete already. Before the first line of drstream runs, the answer is Python's own.",
            signals.run,
            cases=40,
            piece=10,
        ),
        Part(
            "disk",
            "A full disk",
            "The system refuses to write beyond some byte of a file, at twenty places of each. There must be an "
            "error that names the file, and what was there before must stay.",
            scarcity.run_disk,
            cases=200,
            piece=50,
        ),
        Part(
            "open_files",
            "Too many open files",
            "The process may open no more files, or up to eleven. An error must say how to raise the limit.",
            scarcity.run_open_files,
            cases=36,
            piece=36,
        ),
        Part(
            "states",
            "Daily states",
            "A state is written for each of 30 days. Each window of 7 days is merged, and compared with one pass "
            "over its files: estimates, intervals, paired differences, segments and findings.",
            days.run,
            cases=days.DAYS - days.WINDOW + 1,
            piece=6,
        ),
    )
}
