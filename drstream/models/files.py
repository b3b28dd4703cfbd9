"""Models that can be read from a file."""

from drstream.errors import ModelError
from drstream.models.adapters import from_sklearn
from drstream.models.logistic import Logistic
from drstream.models.propensity import Propensity, SklearnPropensity
from drstream.models.ridge import Ridge
from drstream.storage import Shelf

_KINDS = {kind.__name__: kind for kind in (Ridge, Logistic, Propensity, from_sklearn, SklearnPropensity)}
load = Shelf("model", _KINDS, ModelError, "Fit the model again").load
