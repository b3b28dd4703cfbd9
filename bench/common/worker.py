"""Runs a baseline in a process of its own: another commit of drstream, or a library with other dependencies."""

from __future__ import annotations

import json
import subprocess
from types import TracebackType
from typing import Any


class Worker:
    """A process that reads a line, runs once, and answers with a line of JSON. It starts with a first answer."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen(command, env=environment, text=True, **pipes)
        self.about = self._answer()

    def run(self) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write("run\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.communicate()
            raise RuntimeError(f"the process of a baseline ended with code {self._process.returncode}")
        return json.loads(line)

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()  # closes both pipes, and waits
