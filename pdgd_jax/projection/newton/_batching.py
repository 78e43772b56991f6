"""Batches of projections: `vmap` of a batch is a larger batch, solved in groups of lanes.

Here the lanes of a batch are the *first* axis, as in `vmap`.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap
from jaxtyping import Array

from pdgd_jax.models import Layers
from pdgd_jax.projection._api import ProjectionResult
from pdgd_jax.projection._confidence import ConfidenceSet
from pdgd_jax.projection.newton._options import NewtonOptions
from pdgd_jax.projection.newton._start import WarmStart

__all__ = ["Lanes", "merging"]


class Lanes(NamedTuple):
    """The arguments of a batch of projections: every array has an additional axis for the lanes."""

    layers: Layers
    target: Array
    confidence: ConfidenceSet
    warm_start: WarmStart
    tolerance: Array


# A function that solves a batch. The functions below wrap one into another.
Batched = Callable[[Lanes], ProjectionResult]


def _in_groups(solve: Batched, variables_at_once: int, lanes: Lanes) -> ProjectionResult:
    num_lanes = lanes.tolerance.shape[0]
    size = max(1, variables_at_once // lanes.target[0].size)
    if num_lanes <= size:
        return solve(lanes)
    if size == 1:  # an axis of length 1 would cost a copy of all arrays

        def single(lane: Lanes) -> ProjectionResult:
            return jax.tree.map(lambda x: x[0], solve(jax.tree.map(lambda x: x[None], lane)))

        return lax.map(single, lanes)
    num_groups = -(-num_lanes // size)
    size = -(-num_lanes // num_groups)
    spare = num_groups * size - num_lanes  # lanes of the first group fill up the last group

    def grouped(x: Array) -> Array:
        return jnp.concatenate([x, x[:spare]]).reshape(num_groups, size, *x.shape[1:])

    results = lax.map(solve, jax.tree.map(grouped, lanes))
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:num_lanes], results)


def merging(solve: Batched, options: NewtonOptions) -> Batched:
    """`solve` in groups of lanes, such that `vmap` of a batch is a larger batch."""

    @custom_vmap
    def project_batch(lanes: Lanes) -> ProjectionResult:
        return lax.platform_dependent(
            lanes,
            cpu=partial(_in_groups, solve, options.variables_at_once_cpu),
            default=partial(_in_groups, solve, options.variables_at_once),
        )

    @project_batch.def_vmap
    def merge(
        axis_size: int, in_batched: Sequence[Lanes], lanes: Lanes
    ) -> tuple[ProjectionResult, ProjectionResult]:
        def widen(x: Array, batched: bool) -> Array:
            return x if batched else jnp.broadcast_to(x, (axis_size, *x.shape))

        [lanes_batched] = in_batched  # one entry for the single argument
        widened = jax.tree.map(widen, lanes, lanes_batched)
        merged = project_batch(jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), widened))
        result = jax.tree.map(lambda x: x.reshape(axis_size, -1, *x.shape[1:]), merged)
        return result, jax.tree.map(lambda _: True, result)

    return project_batch
