r"""The projection by jaxopt's `ProjectedGradient`, on the dual.

The dual $f(y) = \tfrac12 \|\Pi_K(v + F^\top y)\|^2 - b^\top y$ is convex with
$\nabla f = F\,\Pi_K(v + F^\top y) - b$, and is minimised over the potentials of the states in which
flow is conserved: the projection on them sets the others to zero. Scaled by the degree of each
state its gradient is Lipschitz with constant 1, so that no line search is needed.

First-order, accelerated, and slow: thousands of steps where Newton takes five. jaxopt is no longer
maintained.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxopt import ProjectedGradient
from jaxtyping import Array

from pdgd_jax.confidence import ConfidenceSet
from pdgd_jax.layers import Layers
from pdgd_jax.projection.base import ProjectionResult, Solver
from pdgd_jax.projection.cone import project_cone
from pdgd_jax.projection.problem import (
    Problem,
    conclude,
    flow_excess,
    outflow_and_inflow,
    point_at,
    single_lane,
)

__all__ = ["solver"]

MAX_ITERATIONS = 50_000
ITERATIONS_PER_RUN = 2_000


def init(layers: Layers, dtype: Any) -> Array:
    """No potential."""
    L, S, _ = layers.shape
    return jnp.zeros((L, S), dtype)


def solve(
    layers: Layers, target: Array, confidence: ConfidenceSet, warm_start: Any, tolerance: Any
) -> ProjectionResult:
    """Run accelerated projected gradient from the warm start."""
    problem = single_lane(layers, target, confidence)
    _, S, A = layers.shape
    leaving, entering = outflow_and_inflow(problem.present.astype(target.dtype))
    degree = leaving.at[1:].add(entering[:-1])[..., 0]
    # |F^T D z|^2 <= 2 sum_x degree(x) D(x)^2 z(x)^2 = |z|^2.
    scale = 1 / jnp.sqrt(2 * jnp.maximum(degree, 1))

    def value_and_gradient(scaled: Array, problem: Problem) -> tuple[Array, Array]:
        potential = (scaled * scale)[..., None]
        occupancy = _occupancy(problem, potential)
        value = (occupancy**2).sum() / 2 - potential[0, 0, 0]
        excess = flow_excess(problem, *outflow_and_inflow(occupancy))
        return value, excess[..., 0] * scale

    method = ProjectedGradient(
        fun=value_and_gradient,
        projection=lambda scaled, conserved: scaled * conserved,
        value_and_grad=True,
        stepsize=1.0,
        maxiter=ITERATIONS_PER_RUN,
        # It measures the scaled gradient: no entry of `scale` is below this root.
        tol=tolerance / (4 * S * A) ** 0.5,
        acceleration=True,
        implicit_diff=False,
        unroll=False,
    )
    conserved = problem.conserved[..., 0]

    # It looks at the point from which it extrapolates, not at the one that it returns, and its
    # momentum may circle around the solution: run it again from where it stopped until the
    # gradient itself is small.
    def unfinished(carry: tuple[Array, Array, Array]) -> Array:
        _, steepest, iterations = carry
        return (steepest > tolerance / 2) & (iterations < MAX_ITERATIONS)

    def run(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        scaled, _, iterations = carry
        scaled, state = method.run(scaled, conserved, problem)
        _, gradient = value_and_gradient(scaled, problem)
        return scaled, jnp.abs(gradient / scale).max(), iterations + state.iter_num

    start = warm_start / scale * conserved
    first = (start, jnp.asarray(jnp.inf, target.dtype), jnp.zeros((), jnp.int32))
    scaled, _, iterations = jax.lax.while_loop(unfinished, run, first)
    potential = scaled * scale
    potential = jnp.where(jnp.isfinite(potential), potential, 0)
    occupancy = _occupancy(problem, potential[..., None])
    return conclude(problem, occupancy, potential[..., None], potential, iterations, tolerance)


def _occupancy(problem: Problem, potential: Array) -> Array:
    point = point_at(problem, potential)
    unknown = jnp.zeros_like(problem.half_radius)
    return project_cone(point, problem.center, problem.half_radius, unknown).occupancy


solver = Solver(init, solve, tolerance=(1e-3, 1e-6))
