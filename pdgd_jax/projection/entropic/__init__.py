"""The projection in relative entropy, for mirror descent with the entropy."""

from pdgd_jax.projection.entropic._api import project_entropic
from pdgd_jax.projection.entropic._batch import EntropicStart
from pdgd_jax.projection.entropic._constraints import LinearConstraints
from pdgd_jax.projection.entropic._options import EntropicOptions
from pdgd_jax.projection.entropic._solver import EntropicInfo, EntropicResult

__all__ = [
    "EntropicInfo",
    "EntropicOptions",
    "EntropicResult",
    "EntropicStart",
    "LinearConstraints",
    "project_entropic",
]
