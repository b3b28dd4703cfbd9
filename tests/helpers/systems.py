"""Files of other systems, and naive readers of them, a line and a byte at a time."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

from drstream.converting.events import LineSource

GOLDEN = 0x9E3779B97F4A7C15


def naive_index(name, bits):
    """FNV-1a of the bytes, times the golden ratio, upper bits."""
    found = 0xCBF29CE484222325
    for byte in name.encode():
        found = (found ^ byte) * 0x100000001B3 % 2**64
    return found * GOLDEN % 2**64 >> (64 - bits)


def events(rows=300, actions=3, seed=0):
    """Events of a random logger: action from 0, cost, probabilities of all actions, two features."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(rows):
        p = rng.dirichlet(np.ones(actions) * 2).round(6)
        p[-1] = 1 - p[:-1].sum()
        action, x = int(rng.choice(actions, p=p)), rng.normal(size=2).round(3)
        found.append((action, round(x[0] * (action - 1) + rng.normal(), 5), p, x))
    return found


def vw_lines(found, before=""):
    return [f"{before}{a + 1}:{c}:{p[a]:.6f} |user x:{x[0]} y:{x[1]} new" for a, c, p, x in found]


def dsjson_lines(found, candidates=True, **more):
    lines = []
    for k, (a, c, p, x) in enumerate(found):
        order = [a, *(other for other in range(len(p)) if other != a)]
        event = {
            "_label_cost": c,
            "_label_probability": float(p[a].round(6)),
            "_label_Action": a + 1,
            "_labelIndex": a,
            "Timestamp": "2026-11-15T17:09:31.8350000Z",
            "Version": "1",
            "EventId": f"e{k}",
            "a": [place + 1 for place in order],
            "c": {"user": {"x": x[0], "y": x[1]}},
            "p": [float(p[place].round(6)) for place in order],
            **more,
        }
        if candidates:
            event["c"]["_multi"] = [{"item": {"id": str(k), "size": k + 0.5}} for k in range(len(p))]
        lines.append(json.dumps(event))
    return lines


def write(path, lines):
    path.write_text("\n".join(lines) + "\n")
    return path


def read_lines(syntax, data, bits=18, skip=False):
    """The rows of a text as a table, the number of the line of each, and the source."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.txt"
        path.write_bytes(data)
        source = LineSource([str(path)], "log.txt", syntax, bits, skip)
        parts = list(source.parts(source.schema.names))
    return pa.concat_tables([part.table for part in parts]), [int(k) for part in parts for k in part.lines], source
