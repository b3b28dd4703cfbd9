"""The command line as typed: in a process of its own, on a terminal, and with a mistake."""

import os
import pty
import subprocess
import sys

PROGRAM = [sys.executable, "-c", "from drstream.cli import main; main()"]


def drstream(*words, cwd=None, **options):
    return subprocess.run([*PROGRAM, *map(str, words)], capture_output=True, text=True, cwd=cwd, check=False, **options)


def fails(message, *words, cwd=None, code=2):
    """One line on standard error, nothing on standard output, no traceback."""
    done = drstream(*words, cwd=cwd)
    assert done.returncode == code, done.stderr
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    return done


def on_a_terminal(*words, cwd, columns):
    """Standard output, and what is shown on standard error, which is a terminal."""
    master, slave = pty.openpty()
    done = subprocess.run(
        [*PROGRAM, *words],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=slave,
        check=True,
        env={**os.environ, "COLUMNS": str(columns), "TERM": "xterm"},
    )
    os.close(slave)
    shown = b""
    try:
        while chunk := os.read(master, 4096):
            shown += chunk
    except OSError:  # Linux says so when the other end is closed
        pass
    os.close(master)
    return done.stdout, shown
