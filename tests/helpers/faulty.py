"""A file system that fails now and then, at moments that a seed decides, like a network does."""

import io
import random
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.fs


class Faulty(pa.fs.FileSystemHandler):
    """Files of this computer. `rate` of all requests fail, by an error, a short read or a file that does not open."""

    def __init__(self, rate=0.0, seed=0, always=None):
        self.rate, self.always = rate, always
        self.random, self.lock = random.Random(seed), threading.Lock()
        self.local = pa.fs.LocalFileSystem()
        self.faults = self.requests = self.under_way = self.most = 0

    def __reduce__(self):
        return Faulty, (self.rate, self.random.randrange(1 << 30), self.always)

    def __eq__(self, other):
        return self is other

    __hash__ = object.__hash__

    def request(self, action, short=None):
        with self.lock:
            self.requests += 1
            fault = self.random.random()
            self.faults += fault < self.rate
            self.under_way += 1
            self.most = max(self.most, self.under_way)
        try:
            if self.always is not None:
                raise self.always
            if fault < self.rate:
                if short is not None and fault < self.rate / 3:
                    return short(action())
                raise (ConnectionResetError if fault < self.rate * 2 / 3 else TimeoutError)("injected")
            return action()
        finally:
            with self.lock:
                self.under_way -= 1

    def get_type_name(self):
        return "faulty"

    def normalize_path(self, path):
        return path

    def get_file_info(self, paths):
        return self.request(lambda: self.local.get_file_info(paths))

    def get_file_info_selector(self, selector):
        return self.request(lambda: self.local.get_file_info(selector))

    def open_input_file(self, path):
        return pa.PythonFile(self.request(lambda: FaultyFile(self, path)), mode="r")

    open_input_stream = open_input_file

    def refuse(self, *_, **__):
        raise NotImplementedError

    copy_file = create_dir = delete_dir = delete_dir_contents = delete_file = delete_root_dir_contents = refuse
    move = open_append_stream = open_output_stream = refuse


class FaultyFile:
    def __init__(self, handler, path):
        self.handler, self.file = handler, io.BytesIO(Path(path).read_bytes())

    def read(self, count=-1):
        at = self.file.tell()

        def half(data):
            self.file.seek(at + len(data) // 2)
            return data[: len(data) // 2]

        def again():
            self.file.seek(at)
            return self.file.read(count)

        return self.handler.request(again, short=half)

    def __getattr__(self, name):
        return getattr(self.file, name)
