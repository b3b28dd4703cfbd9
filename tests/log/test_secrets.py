"""What is printed or saved: no credentials, and no codes that a terminal obeys."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs
import pyarrow.parquet as pq
import pytest
from rich.console import Console

import drstream as drs
from drstream.cli import specs, tables
from drstream.cli.layout import open_console
from drstream.errors import DrstreamWarning, LogError, for_command_line, shown, without_secrets
from drstream.sources import open as opening

URI = "s3://KEY:SE/CRET@bucket/log.parquet?region=eu&secret_key=HIDDEN"
EVIL = "a\x1b[2J\x07\x9b31m\u202e"  # clears the screen, rings, turns red, turns the direction


def table(label: str = "yes") -> pa.Table:
    rows = 40
    return pa.table(
        {
            EVIL: np.arange(rows) * 1.0,
            "action": ["no", label] * (rows // 2),
            "reward": np.ones(rows),
            "propensity": [0.5] * rows,
        }
    )


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (URI, "s3://***@bucket/log.parquet?region=eu&secret_key=***"),
        ("gs://token@bucket/a", "gs://***@bucket/a"),
        ("https://h/a?X-Amz-Signature=abc&x=1", "https://h/a?X-Amz-Signature=***&x=1"),
        ("s3://bucket/a@b.parquet", "s3://bucket/a@b.parquet"),
        ("me@example.org", "me@example.org"),
    ],
)
def test_credentials_are_hidden(text: str, wanted: str) -> None:
    assert without_secrets(text) == wanted


def test_credentials_are_in_no_message() -> None:
    for message in (str(LogError(f"no {URI}")), for_command_line(LogError(URI).message), str(DrstreamWarning(URI))):
        assert "CRET" not in message
        assert "HIDDEN" not in message


def test_credentials_are_in_no_repr_result_or_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is a local file that pyarrow opens in the place of one in object storage."""
    path = tmp_path / "log.parquet"
    pq.write_table(table(), path)
    opened: list[str] = []
    here = pa.fs.LocalFileSystem(), [str(path)]
    monkeypatch.setattr(opening, "open_uris", lambda names: opened.extend(names) or here)
    log = drs.Log(URI, context=[EVIL])
    assert opened == [URI]
    model = drs.models.Ridge().fit(log)
    model.save(tmp_path / "model.npz")
    result = drs.evaluate(log, drs.policies.Uniform(), estimators=["ips"])
    saved = (tmp_path / "model.npz").read_bytes().decode("latin1").replace("\0", "")
    for text in (
        repr(log),
        repr(model),
        repr(result),
        result.to_json(),
        saved,
        json.dumps(result.provenance, default=str),
    ):
        assert "CRET" not in text
        assert "HIDDEN" not in text
    assert "s3://***@bucket" in repr(log)


def test_credentials_are_not_in_errors_of_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(uri: str, **named: Any) -> None:
        raise OSError(f"When opening {uri}: no such host")

    for message in ("Cannot parse URI", "no such host"):  # for there is a slash in it; and of what comes after
        with pytest.raises(LogError, match=message) as raised:
            drs.Log(URI)
        assert "CRET" not in str(raised.value)
        assert "HIDDEN" not in str(raised.value)
        monkeypatch.setattr(opening, "open_uris", lambda names: (pa.fs.LocalFileSystem(), list(names)))
        monkeypatch.setattr(ds, "dataset", fail)


# Escape codes


def safe(text: str) -> bool:
    return not set(text) & set("\x1b\x07\x9b\u202e")


def test_names_and_labels_from_data_are_safe_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    log = drs.Log(table(EVIL), context=[EVIL])
    result = drs.evaluate(log, {EVIL: drs.policies.Uniform()}, estimators=["ips"], by="action")
    texts = [repr(log), repr(result), repr(log.audit()), repr(log.describe()), repr(drs.models.Ridge().fit(log))]
    tables.show_head(log)
    tables.show(result)
    tables.show_audit(log.audit())
    texts += list(capsys.readouterr())
    assert all(map(safe, texts))
    assert r"\x1b[2J" in texts[0]
    with pytest.raises(LogError) as raised:
        drs.Log(table(), context=[EVIL + "?"])
    assert safe(str(raised.value))
    assert safe(for_command_line(raised.value.message))


def test_markup_in_data_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    open_console().print("[red]x[/red] [link=http://a]y[/link]", highlight=False)
    assert capsys.readouterr().out.strip() == "[red]x[/red] [link=http://a]y[/link]"
    assert isinstance(open_console(), Console)


def test_plain_text_is_shown_as_it_is() -> None:
    assert shown("süß\tw\nx 日本 🙂") == "süß\tw\nx 日本 🙂"


# python:MODULE:OBJECT


def test_the_current_folder_is_the_last_place_to_import_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that has the name of an installed module must not take its place."""
    (tmp_path / "own_policy.py").write_text("policy = 7\n")
    (tmp_path / "this.py").write_text("raise SystemExit('the wrong module')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", os.getcwd())])
    assert specs._python("own_policy:policy", LogError) == 7
    assert specs._python("this:d", LogError)["n"] == "a"  # the module of Python's own, which prints a poem
    assert sys.path[-1] == ""
