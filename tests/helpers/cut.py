"""Logs that are read in small record batches, which must change no bit of a result."""

import copy

import drstream as drs
from drstream.sources.open import open_source


def cut_log(source, *args, batch_size=None, **options):
    """Open a log that is read so many rows at a time; by default, as it comes."""
    return drs.Log(source if batch_size is None else cut(source, batch_size), *args, **options)


def cut(source, rows):
    """Open a source whose parts give record batches of so many rows."""
    opened = copy.copy(open_source(source))
    opened.parts = Parts(opened, rows)
    return opened


class Parts:
    def __init__(self, source, rows):
        self.source, self.rows = source, rows

    def __call__(self, *args, **options):
        for part in type(self.source).parts(self.source, *args, **options):
            part.batches = Batches(part, self.rows)
            yield part


class Batches:
    def __init__(self, part, rows):
        self.part, self.rows = part, rows

    def __call__(self, rows=None):
        for batch in type(self.part).batches(self.part):
            for start in range(0, batch.num_rows, self.rows):
                yield batch.slice(start, self.rows)
