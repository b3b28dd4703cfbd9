"""Reward models that are linear in the context, perhaps with a link function: coef_ (K, d) and intercept_ (K)."""

from __future__ import annotations

from typing import Any, Self

from drstream.buffers import Weights
from drstream.kernels.observe import IDENTITY
from drstream.kernels.scores import add_column
from drstream.log import Events, Log
from drstream.models.base import CandidateModel, RewardModel
from drstream.models.candidates import SharedModel
from drstream.models.meeting import by_name
from drstream.models.trained import Trained, check_width
from drstream.policies.base import older
from drstream.shared import SharedWeights
from drstream.types import Floats


class LinearModel(Trained, RewardModel):
    """A reward model that predicts link(coef_ @ x + intercept_)."""

    linked = IDENTITY  # what `link` is, for kernels
    single = True
    coef_: Floats
    intercept_: Floats
    products: Weights  # set by bind

    def link(self, scores: Floats) -> None:
        """Turn scores into predictions, in place."""

    @property
    def spoilt_by_contexts(self) -> bool:  # type: ignore[override]
        """NaN and infinite numbers stay so in products and sums, also with weights of 0. A link may hide them."""
        kind = type(self)
        return self.single and kind.link is LinearModel.link and kind.fill_tiles is LinearModel.fill_tiles

    @property
    def ranking(self) -> tuple[Floats, Floats] | None:  # type: ignore[override]
        """Weights and intercepts of the scores, which the links of this package keep in their order."""
        known = self.fitted and not older(type(self), "linked", "link", "fill", "predict")
        return (self.coef_, self.intercept_) if known else None

    def predict(self, X: Any) -> Floats:
        """Return r̂(x, a) as (n, K), for contexts (n, d): an array, or a sparse array of SciPy.

        A model that was fitted on candidates takes rows [x, z], with all products x_i z_j if it has interactions, and
        returns (n, 1).
        """
        self.require_fit()
        check_width(X, self.row_width)
        out = Weights(self.coef_).of(X) + self.intercept_
        self.link(out)
        return out

    @by_name
    def bind(self, log: Log) -> Self:
        self.check_fits(log)
        log.contexts.refuse_nan(f"the {self.role} {type(self).__name__}", self.error)
        bound: Self = super().bind(log)  # type: ignore[assignment]
        bound.products = Weights(self.coef_)
        bound.single = not older(type(self), "fill_tiles", "fill")
        return bound

    @by_name
    def for_candidates(self, log: Log) -> CandidateModel:
        self.check_fits(log)
        log.contexts.refuse_nan(f"the {self.role} {type(self).__name__}", self.error)
        assert self.pairs_ is not None
        return SharedModel(SharedWeights.of(self.coef_[0], float(self.intercept_[0]), self.pairs_), self.linked)

    def fill(self, block: Events, out: Floats) -> None:
        self.products.fill(block, out)
        add_column(out, self.intercept_)
        self.link(out)

    def fill_tiles(self, block: Events, contexts: Any, out: Floats, single: bool) -> None:
        if older(type(self), "fill_tiles", "fill"):
            super().fill_tiles(block, contexts, out, single)
            return
        self.products.fill_tiles(contexts, self.intercept_, out, single)
        self.link(out)
