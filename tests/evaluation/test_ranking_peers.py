"""Rankings: the numbers of Open Bandit Pipeline's slate estimators on its own synthetic slates.

It pins old versions of its dependencies. DRSTREAM_BENCH_OBP names a Python that can import it.
"""

import json
import os
import subprocess

import numpy as np
import pyarrow as pa
import pytest

import drstream as drs
from tests.helpers.places import ROOT
from tests.helpers.rankings import NEW, ROLES

PYTHON = os.environ.get("DRSTREAM_BENCH_OBP")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON, reason="DRSTREAM_BENCH_OBP names no Python with Open Bandit Pipeline"),
]
MARGINAL = ("iips", "sniips")


def conditional(cascade):
    """Given the items above, from those of all items down to a position."""
    return cascade / np.column_stack([np.ones(len(cascade)), cascade[:, :-1]])


def log_of(arrays, propensity, policy, positions):
    columns = {"items": arrays["action"], "r": arrays["reward"].astype(float), "p": propensity, "new": policy}
    columns |= {name: arrays[name] for name in ("q", "q_new")}
    lists = {
        name: pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(values).reshape(-1)), 3)
        for name, values in columns.items()
    }
    return drs.Log(pa.table(lists), **ROLES, positions=positions)


@pytest.mark.parametrize("factorizable", ["yes", "no"])
def test_open_bandit_pipelines_numbers(factorizable, tmp_path):
    path = tmp_path / "slates.npz"
    program = [PYTHON, str(ROOT / "tests" / "helpers" / "open_bandit_slates.py"), str(path), factorizable]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    wanted, arrays = json.loads(done.stdout.splitlines()[-1]), np.load(path)
    both = "independent" if factorizable == "yes" else None
    at_position = arrays["pscore_item_position"], arrays["new_pscore_item_position"], both or "marginal"
    given_above = (
        conditional(arrays["pscore_cascade"]),
        conditional(arrays["new_pscore_cascade"]),
        both or "conditional",
    )
    model = drs.models.Positions("q", "q_new")
    assert set(wanted) == {"ips", "snips", "iips", "sniips", "rips", "snrips", "cascade-dr"}
    for about, names in ((at_position, MARGINAL), (given_above, sorted(set(wanted) - set(MARGINAL)))):
        result = drs.evaluate(log_of(arrays, *about), NEW, model, list(names))
        for name in names:
            assert result[name].value == pytest.approx(wanted[name], rel=1e-10), name
