"""What a batch of projections by Newton's method is given, and the types of what it returns."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from pdgd_jax.models import Layers
from pdgd_jax.projection._api import ProjectionInfo, ProjectionResult
from pdgd_jax.projection._batching import types_of
from pdgd_jax.projection._confidence import ConfidenceSet
from pdgd_jax.projection.newton._start import WarmStart

__all__ = ["Lanes", "result_types"]


class Lanes(NamedTuple):
    """The arguments of a batch of projections: every array has an additional axis for the lanes."""

    layers: Layers
    target: Array
    confidence: ConfidenceSet
    warm_start: WarmStart
    tolerance: Array
    support: Array | None = None  # of dense arrays, the triples that can happen; None if all can


def result_types(lanes: Lanes) -> ProjectionResult:
    """The types of the results of a batch."""
    like = types_of(lanes)
    info = ProjectionInfo(
        residual=like.of_lane(like.target.dtype),
        iterations=like.of_lane(jnp.int32),
        converged=like.of_lane(bool),
    )
    return ProjectionResult(occupancy=like.target, warm_start=like.warm_start, info=info)
