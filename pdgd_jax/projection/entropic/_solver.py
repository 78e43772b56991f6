"""The entropic projection of a batch of lanes."""

from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from pdgd_jax._internal.typing import Triples
from pdgd_jax.projection._batching import merging, types_of
from pdgd_jax.projection._cone import ABSENT
from pdgd_jax.projection._layout import MIN_LAYERS
from pdgd_jax.projection._problem import entries_last, per_lane
from pdgd_jax.projection._xla import fence
from pdgd_jax.projection.entropic._batch import Batch, EntropicStart, Lanes
from pdgd_jax.projection.entropic._constraints import LinearConstraints
from pdgd_jax.projection.entropic._evaluation import Point
from pdgd_jax.projection.entropic._forward import pushed_forward
from pdgd_jax.projection.entropic._loop import search
from pdgd_jax.projection.entropic._options import DEFAULT, EntropicOptions

__all__ = ["EntropicInfo", "EntropicResult", "solve"]


class EntropicInfo(NamedTuple):
    r"""How well an entropic projection was solved.

    Attributes:
      residual: the largest difference between inflow and outflow of a state before the last
        forward pass, relative to the larger of both, or of the linear constraints:
        $|\min(\lambda, c - G^\top q)|$.
      iterations: the number of steps.
      converged: whether the residual is within the tolerance, or within the rounding error of the
        logarithms if that is larger. If not, the occupancy is feasible but not the projection, or
        NaN.
      infeasible: whether no occupancy of the set satisfies the linear constraints, or vanishes
        where the target does. Never true together with `converged`.
    """

    residual: Float[Array, ""]
    iterations: Int[Array, ""]
    converged: Bool[Array, ""]
    infeasible: Bool[Array, ""]


class EntropicResult(NamedTuple):
    """The entropic projection.

    Attributes:
      occupancy: `[L, S, A, S]`, or `[L, M]` with successor lists, exactly 0 outside the masks.
      log_occupancy: its logarithm, which is exact where the occupancy itself is too small to be
        represented; minus infinity where it is 0.
      warm_start: the dual solution, a start for the next projection.
      info: how well it was solved.
    """

    occupancy: Triples
    log_occupancy: Triples
    warm_start: EntropicStart
    info: EntropicInfo


def _rounding(batch: Batch, start: Point) -> Array:
    """The relative error of masses whose logarithms have the size of the target, `[B]`."""
    num_lanes = batch.sound.size
    sizes = jnp.where(batch.target > ABSENT / 2, jnp.abs(batch.target), 0)
    largest = sizes.max(0).reshape(-1, num_lanes).max(0)
    return (
        4 * jnp.finfo(sizes.dtype).eps * jnp.maximum(largest, jnp.abs(start.potential).max((0, 1)))
    )


@partial(jax.jit, static_argnames="options")  # for its cache: `vmap` would trace it again
def _project_lanes(options: EntropicOptions, lanes: Lanes) -> EntropicResult:
    """Project all lanes; they are the first axis of every argument and result."""
    lanes_last = jax.tree.map(partial(jnp.moveaxis, source=0, destination=-1), lanes)
    batch = fence(Batch.of, lanes_last)
    potential, multipliers = jax.tree.map(
        lambda x: jnp.where(jnp.isfinite(x), x, 0), lanes_last.warm_start
    )
    start = Point(potential * batch.free, jnp.maximum(multipliers, 0))
    solvable = batch.sound & batch.possible
    goal = jnp.maximum(jnp.minimum(lanes_last.tolerance, 1), _rounding(batch, start))
    goal = jnp.where(solvable, goal, jnp.inf)
    end = search(options, batch, start, goal)
    pushed = fence(pushed_forward, end.found)
    occupancy = jax.tree.map(jnp.exp, pushed).assembled(batch, 0)
    logarithm = jax.tree.map(lambda x: jnp.where(x > ABSENT / 2, x, -jnp.inf), pushed)
    log_occupancy = logarithm.assembled(batch, -jnp.inf)
    lanes_first = partial(jnp.moveaxis, source=-1, destination=0)

    def returned(x: Array) -> Array:
        return lanes_first(entries_last(jnp.where(per_lane(solvable, 5), x, jnp.nan)))

    return EntropicResult(
        occupancy=returned(occupancy),
        log_occupancy=returned(log_occupancy),
        warm_start=EntropicStart(
            lanes_first(end.point.potential), lanes_first(end.point.multipliers)
        ),
        info=EntropicInfo(
            residual=jnp.where(solvable, end.residual, jnp.nan),
            iterations=end.iterations,
            converged=(end.residual <= goal) & solvable & ~end.infeasible,
            infeasible=end.infeasible | (batch.sound & ~batch.possible),
        ),
    )


def _types(lanes: Lanes) -> EntropicResult:
    """The types of the results of a batch."""
    like = types_of(lanes)
    info = EntropicInfo(
        residual=like.of_lane(like.target.dtype),
        iterations=like.of_lane(jnp.int32),
        converged=like.of_lane(bool),
        infeasible=like.of_lane(bool),
    )
    return EntropicResult(
        occupancy=like.target,
        log_occupancy=like.target,
        warm_start=like.warm_start,
        info=info,
    )


@cache  # one function per options: the cache of `jit` is keyed by the function
def _project_batch(options: EntropicOptions) -> Callable[[Lanes], EntropicResult]:
    return merging(partial(_project_lanes, options), options, _types)


def _pad(lane: Lanes, num_layers: int) -> Lanes:
    """The same with layers without actions at the end."""
    L, S, A = lane.layers.shape
    more = num_layers - L

    def longer(x: Array, axis: int = 0) -> Array:
        return jnp.pad(x, [(0, more if i == axis else 0) for i in range(x.ndim)])

    costs = longer(lane.constraints.costs, 1)
    return lane._replace(
        layers=lane.layers.pad_to((num_layers, S, A)),
        target=longer(lane.target),
        confidence=jax.tree.map(longer, lane.confidence),
        constraints=LinearConstraints(costs, lane.constraints.bounds),
        warm_start=lane.warm_start._replace(potential=longer(lane.warm_start.potential)),
        support=None if lane.support is None else longer(lane.support),
    )


def solve(lane: Lanes, options: EntropicOptions = DEFAULT) -> EntropicResult:
    """Project one target; under `vmap`, all lanes together."""
    L = lane.layers.shape[0]
    longer = lane if L >= MIN_LAYERS else _pad(lane, MIN_LAYERS)
    batch = jax.tree.map(lambda x: x[None], longer)
    result: EntropicResult = jax.tree.map(lambda x: x[0], _project_batch(options)(batch))
    if L >= MIN_LAYERS:
        return result
    potential = result.warm_start.potential[:L]
    return result._replace(
        occupancy=result.occupancy[:L],
        log_occupancy=result.log_occupancy[:L],
        warm_start=result.warm_start._replace(potential=potential),
    )
