"""How good would another policy have been? Offline evaluation of policies from click logs, streamed.

Names are imported when they are first used, so that `import drstream` and `drstream --help` cost nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_WHERE = {
    "Log": "drstream.log",
    "Candidates": "drstream.log",
    "Hashed": "drstream.log",
    "Items": "drstream.log",
    "Sparse": "drstream.log",
    "evaluate": "drstream.evaluation.evaluate",
    "merge": "drstream.evaluation.states.merging",
    "partial": "drstream.evaluation.states.merging",
    "replay": "drstream.replaying.replay",
    "plan": "drstream.planning.plan",
    "convert": "drstream.converting.convert",
    "Conversion": "drstream.converting.result",
    "read_csv": "drstream.converting.readers",
    "read_json": "drstream.converting.readers",
    "read_vw": "drstream.converting.readers",
    "read_dsjson": "drstream.converting.readers",
    "read_obp": "drstream.converting.readers",
    "from_obp": "drstream.converting.obp",
    "uniforms": "drstream.sampling",
    "Estimate": "drstream.results",
    "Explain": "drstream.evaluation.explanation",
    "Explanation": "drstream.evaluation.explanation",
    "Evaluation": "drstream.evaluation.result",
    "Replay": "drstream.replaying.result",
    "Replays": "drstream.replaying.comparison",
    "Forecast": "drstream.planning.result",
    "Constants": "drstream.intervals.statistic",
    "DrstreamError": "drstream.errors",
    "LogError": "drstream.errors",
    "PolicyError": "drstream.errors",
    "ModelError": "drstream.errors",
    "NotEnoughEventsError": "drstream.errors",
    "DrstreamWarning": "drstream.errors",
    "State": "drstream.evaluation.states.state",
    "StateError": "drstream.errors",
    "Processes": "drstream.running.executors",
    "WorkerError": "drstream.errors",
    "estimators": "drstream.evaluation.estimators",
    "models": "drstream.models",
    "optimize": "drstream.optimize",
    "policies": "drstream.policies",
    "rankings": "drstream.evaluation.rankings",
    "spark": "drstream.spark",
    "synth": "drstream.synth",
}
_MODULES = ("estimators", "models", "optimize", "policies", "rankings", "spark", "synth")

__all__ = [
    "Candidates",
    "Constants",
    "Conversion",
    "DrstreamError",
    "DrstreamWarning",
    "Estimate",
    "Evaluation",
    "Explain",
    "Explanation",
    "Forecast",
    "Hashed",
    "Items",
    "Log",
    "LogError",
    "ModelError",
    "NotEnoughEventsError",
    "PolicyError",
    "Processes",
    "Replay",
    "Replays",
    "Sparse",
    "State",
    "StateError",
    "WorkerError",
    "convert",
    "estimators",
    "evaluate",
    "from_obp",
    "merge",
    "models",
    "optimize",
    "partial",
    "plan",
    "policies",
    "rankings",
    "read_csv",
    "read_dsjson",
    "read_json",
    "read_obp",
    "read_vw",
    "replay",
    "spark",
    "synth",
    "uniforms",
]

if TYPE_CHECKING:
    from drstream import models, optimize, policies, spark, synth
    from drstream.converting.convert import convert
    from drstream.converting.obp import from_obp
    from drstream.converting.readers import read_csv, read_dsjson, read_json, read_obp, read_vw
    from drstream.converting.result import Conversion
    from drstream.errors import (
        DrstreamError,
        DrstreamWarning,
        LogError,
        ModelError,
        NotEnoughEventsError,
        PolicyError,
        StateError,
        WorkerError,
    )
    from drstream.evaluation import estimators, rankings
    from drstream.evaluation.evaluate import evaluate
    from drstream.evaluation.explanation import Explain, Explanation
    from drstream.evaluation.result import Evaluation
    from drstream.evaluation.states.merging import merge, partial
    from drstream.evaluation.states.state import State
    from drstream.intervals.statistic import Constants
    from drstream.log import Candidates, Hashed, Items, Log, Sparse
    from drstream.planning.plan import plan
    from drstream.planning.result import Forecast
    from drstream.replaying.comparison import Replays
    from drstream.replaying.replay import replay
    from drstream.replaying.result import Replay
    from drstream.results import Estimate
    from drstream.running.executors import Processes
    from drstream.sampling import uniforms


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'drstream' has no attribute {name!r}")
    module = importlib.import_module(_WHERE[name])
    value = module if name in _MODULES else getattr(module, name)
    globals()[name] = value  # later lookups do not call this function
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
