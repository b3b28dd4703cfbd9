"""The logged action of an event, and the propensities of all actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from drstream.errors import parameter
from drstream.kernels.checks import first_outside
from drstream.log.bad_rows import BadRowsError, whole
from drstream.log.fields import Field, rewards
from drstream.log.labels import describe_labels, encode
from drstream.log.propensities import AllPropensities
from drstream.log.spec import Needs, Spec


@dataclass(frozen=True)
class Action:
    """The index of the logged action among the labels."""

    column: str
    labels: Sequence[Any]

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def read(self, batch: pa.RecordBatch, known: Mapping[str, Any]) -> dict[str, Any]:
        found = np.ascontiguousarray(encode(whole(batch, self.column, "action is null"), self.labels))
        if first_outside(found, len(self.labels)) >= 0:
            bad = (found < 0) | (found >= len(self.labels))
            hint = f"The log has {describe_labels(self.labels)}: pass all labels with {parameter('actions')}. "
            raise BadRowsError("action is not among the labels", (self.column,), bad, hint=hint)
        return {"action": found}


def action(spec: Spec, needs: Needs) -> list[Field]:
    """How to read actions, if anybody needs them."""
    column = spec.roles.action
    return [Action(column, spec.labels)] if needs.action and column is not None else []


def of_all_actions(spec: Spec, needs: Needs) -> list[Field]:
    """How to read the propensities of all actions, if anybody needs them."""
    roles = spec.roles
    return [AllPropensities(roles.propensities, len(spec.labels), roles.propensity)] if needs.propensities else []


def fields(spec: Spec, needs: Needs) -> list[Field]:
    """How to read the events of a log whose events share one set of actions."""
    return [*rewards(spec), *action(spec, needs), *of_all_actions(spec, needs)]
