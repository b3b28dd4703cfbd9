"""The command line as typed: in a process of its own, on a terminal, and with a mistake.

A process takes 3 s of CPU time to load Arrow, all modules and all compiled kernels, and to end. So `drstream` forks
processes from a server that has loaded them, and they end without tidying up. Tests of signals, terminals, pipes and of
what a command imports start `PROGRAM` instead.
"""

import atexit
import functools
import json
import os
import pty
import socketserver
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path

from tests.helpers import schemas
from tests.helpers.places import ROOT

PROGRAM = [sys.executable, "-c", "from drstream.cli import main; main()"]
SERVER = """
import gc, importlib, json, os, pkgutil, sys, types, warnings
import pyarrow.dataset, pyarrow.parquet, rich.progress, rich.table
import drstream
from drstream.cli import main
from tests.helpers import kernels

kernels.compile_all()
for module in pkgutil.walk_packages(drstream.__path__, "drstream."):
    importlib.import_module(module.name)


def run(code):
    sys.path[0] = ""
    warnings.resetwarnings()
    warnings.simplefilter("error")
    sys.modules["__main__"] = page = types.ModuleType("__main__")
    exec(code, vars(page))


gc.freeze()  # else a child would copy all of it where it collects garbage
for line in sys.stdin:
    asked = json.loads(line)
    child = os.fork()
    if child == 0:
        os.chdir(asked["cwd"])
        os.environ.update(asked["settings"])
        for stream, path in ((0, os.devnull), (1, asked["out"]), (2, asked["err"])):
            os.dup2(os.open(path, os.O_RDWR), stream)
        sys.argv = ["drstream", *asked["words"]]
        try:
            code = main() if "code" not in asked else run(asked["code"])
        except SystemExit as stop:
            code = stop.code
        except BaseException:
            sys.excepthook(*sys.exc_info())
            code = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code or 0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@functools.cache
def server():
    env = {name: value for name, value in os.environ.items() if name != "COLUMNS"}  # readline may have set it
    command = [sys.executable, "-c", SERVER]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
    atexit.register(process.communicate)
    return process


def drstream(*words, cwd=None, env=None, **settings):
    """Run `drstream` with these words, and wait for its end. With an environment, it is not forked.

    JSON is compared with its schema, so each test with --json is a test of the schemas, too.

    settings  Variables of the environment that are added.
    """
    words = [str(word) for word in words]
    if env is not None:
        return subprocess.run([*PROGRAM, *words], capture_output=True, text=True, cwd=cwd, env=env, check=False)
    with tempfile.NamedTemporaryFile() as out, tempfile.NamedTemporaryFile() as err:
        asked = {"words": words, "cwd": str(cwd or Path.cwd()), "out": out.name, "err": err.name}
        asked["settings"] = {name: str(value) for name, value in settings.items()}
        print(json.dumps(asked), file=server().stdin, flush=True)
        code = int(server().stdout.readline())
        done = subprocess.CompletedProcess(["drstream", *words], code, out.read().decode(), err.read().decode())
    if "--json" in words and done.stdout:
        schemas.check(json.loads(done.stdout))
    return done


def python(code, cwd):
    """Run code in Python, with warnings as errors, and wait for its end. It is forked, as `drstream` is."""
    with tempfile.NamedTemporaryFile() as out, tempfile.NamedTemporaryFile() as err:
        asked = {"words": [], "settings": {}, "code": code, "cwd": str(cwd), "out": out.name, "err": err.name}
        print(json.dumps(asked), file=server().stdin, flush=True)
        ended = int(server().stdout.readline())
        return subprocess.CompletedProcess("python", ended, out.read().decode(), err.read().decode())


def fails(message, *words, cwd=None, code=2):
    """One line on standard error, nothing on standard output, no traceback."""
    done = drstream(*words, cwd=cwd)
    assert done.returncode == code, done.stderr
    said = " ".join(done.stderr.split())
    assert message in said, said
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    return done


def on_a_terminal(*words, cwd, columns, check=True):
    """Standard output, and what is shown on standard error, which is a terminal."""
    master, slave = pty.openpty()
    done = subprocess.run(
        [*PROGRAM, *words],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=slave,
        check=check,
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


PROXY = """#!{python} -ISs
import json, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
file = server.makefile("rw")
print(json.dumps([os.getcwd(), *sys.argv[1:]]), file=file, flush=True)
code, out, err = json.loads(file.readline())
sys.stdout.write(out)
sys.stderr.write(err)
sys.exit(code)
"""


@contextmanager
def program_in(folder):
    """Put a program `drstream` into a folder, for scripts, and give a PATH that finds it. It forks, as `drstream`."""
    folder.mkdir(exist_ok=True)
    address = str(folder / "socket")
    proxy = folder / "drstream"
    proxy.write_text(PROXY.format(python=sys.executable, address=address))
    proxy.chmod(0o755)

    class Answer(socketserver.StreamRequestHandler):
        def handle(self):
            cwd, *words = json.loads(self.rfile.readline())
            done = drstream(*words, cwd=cwd)
            self.wfile.write((json.dumps([done.returncode, done.stdout, done.stderr]) + "\n").encode())

    with socketserver.UnixStreamServer(address, Answer) as listener:
        thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield os.pathsep.join([str(folder), os.environ["PATH"]])
        finally:
            listener.shutdown()
            thread.join()
            Path(address).unlink()
