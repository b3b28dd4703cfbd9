"""What an audit returns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from drstream.errors import printable
from drstream.findings import LEVELS, OK, Finding, worst
from drstream.results import plain, schema_name, stamped
from drstream.views import Reported


class Audit(Reported):
    """What an audit found in a log.

    level     The worst level of the findings: "ok", "look" or "stop".
    findings  One for each check, also where all is well.
    rows      Number of rows, after filters and splits.
    actions   Arrow table with a row for each action: action, count, share, and the mean of 1{a}/p (mean_inverse) with
              its standard error and its z-score against 1.
    blocks    Arrow table with a row for each block of time; None without a column of times.
    bad       For each reason why rows cannot be used, their count, and file, row group, row and value of the first.
    provenance
              What the audit was made from: version, log, filter, parameters.
    """

    def __init__(
        self,
        name: str,
        rows: int,
        findings: Sequence[Finding],
        actions: pa.Table,
        blocks: pa.Table | None,
        bad: dict[str, dict[str, Any]],
        provenance: dict[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.rows = rows
        self.findings = list(findings)
        self.provenance = provenance or {}
        self.actions = stamped(actions, self.provenance)
        self.blocks = None if blocks is None else stamped(blocks, self.provenance)
        self.bad = bad

    @property
    def level(self) -> str:
        """The worst level of all findings: "ok", "look" or "stop"."""
        return worst(self.findings)

    def __getitem__(self, check: str) -> Finding:
        """The finding of a check, e.g. audit["rounded_propensities"]."""
        found = {finding.check: finding for finding in self.findings}
        if check not in found:
            raise KeyError(f"no check {check!r} was made: there are {', '.join(found)}")
        return found[check]

    def ordered(self) -> list[Finding]:
        """The findings, the worst first."""
        return sorted(self.findings, key=lambda finding: -LEVELS.index(finding.level))

    def to_dict(self) -> dict[str, Any]:
        """The audit as a dictionary, as in JSON."""
        return plain(
            {
                "schema": schema_name("audit"),
                "log": self.name,
                "rows": self.rows,
                "level": self.level,
                "findings": [finding.to_dict() for finding in self.findings],
                "bad": self.bad,
                "actions": self.actions.to_pylist(),
                "blocks": None if self.blocks is None else self.blocks.to_pylist(),
                "provenance": self.provenance,
            }
        )

    def to_json(self, indent: int | None = 2) -> str:
        """The audit as JSON. Undefined values are null."""
        return json.dumps(self.to_dict(), indent=indent)

    @property
    def headline(self) -> str:
        actions = f", {self.actions.num_rows:,} actions" if self.actions.num_rows else ""  # none: candidates
        return f"{self.level}; {self.rows:,} rows{actions}"

    @printable
    def __repr__(self) -> str:
        lines = [f"Audit of {self.name}: {self.headline}"]
        lines += [f"  {finding.level:<4}  {finding.message}" for finding in self.ordered() if finding.level != OK]
        fine = [finding.check for finding in self.findings if finding.level == OK]
        return "\n".join([*lines, *([f"  ok    {', '.join(fine)}"] if fine else [])])
