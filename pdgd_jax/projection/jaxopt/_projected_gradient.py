r"""The projection by jaxopt's `ProjectedGradient`, on the dual.

The dual $f(y) = \tfrac12 \|\Pi_K(v + F^\top y)\|^2 - b^\top y$ is convex with
$\nabla f = F\,\Pi_K(v + F^\top y) - b$. It is minimised over the potentials of the states in which
flow is conserved: the projection sets all other potentials to zero. A projection onto a cone is
nonexpansive, so that the gradient is Lipschitz with constant 1 in the metric of $F F^\top$, the
Laplacian of the network. The gradient in this metric, $(F F^\top)^{-1} \nabla f$, needs no line
search.

`solver` polishes the result of jaxopt (see `_polish.py`), `bare` does not. The method is
first-order and accelerated, but slow: it takes hundreds to thousands of steps where Newton's method
takes five. jaxopt is no longer maintained.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxopt import ProjectedGradient
from jaxtyping import Array, ArrayLike, DTypeLike, PyTree

from pdgd_jax.models import Layers
from pdgd_jax.projection._api import ProjectionResult
from pdgd_jax.projection._confidence import ConfidenceSet
from pdgd_jax.projection._problem import Problem, flow_excess, outflow_and_inflow, single_lane
from pdgd_jax.projection.jaxopt._blocks import inverse_of
from pdgd_jax.projection.jaxopt._polish import (
    Point,
    occupancy_at,
    polished_and_bare,
    solve_in_rounds,
)

__all__ = ["bare", "solver"]

MAX_ITERATIONS = 50_000
ITERATIONS = 25  # in one round


class WarmStart(NamedTuple):
    """The solution of an earlier projection."""

    potential: Array  # [L, S]
    mass: Array  # [L, S, A], 0 where it is not known


def init(layers: Layers, dtype: DTypeLike) -> WarmStart:
    """Zero potentials and unknown masses."""
    L, S, A = layers.shape
    return WarmStart(jnp.zeros((L, S), dtype), jnp.zeros((L, S, A), dtype))


def _metric(problem: Problem) -> Array:
    r"""$(F F^\top)^{-1}$, `[L S, L S]`; entries of fixed potentials are arbitrary.

    $F F^\top$ has the degrees of the states on its diagonal. Off the diagonal it has minus the
    number of actions that lead from one state to the other.
    """
    conserved = problem.conserved[..., 0]
    present = problem.present.astype(conserved.dtype)
    leaving, entering = outflow_and_inflow(present)
    degree = leaving.at[1:].add(entering[:-1])[..., 0]
    degree = jnp.where(conserved > 0, degree, 1)
    ahead = jnp.concatenate([conserved[1:], jnp.zeros_like(conserved[:1])])
    edges = present[..., 0].sum(3).transpose(1, 2, 0)  # [L, S, S'], one for each action
    state = jnp.eye(conserved.shape[1], dtype=conserved.dtype)[None]
    return inverse_of(state * degree[:, None], -edges * ahead[:, None])


def _method(metric: Array) -> ProjectedGradient:
    # The masses of one evaluation are the guess of the next, which saves work in the cones.
    def value_and_gradient(
        potential: Array, problem: Problem, guess: Array
    ) -> tuple[tuple[Array, Array], Array]:
        occupancy = occupancy_at(problem, potential, guess)
        value = (occupancy**2).sum() / 2 - potential[0, 0, 0]
        excess = flow_excess(problem, *outflow_and_inflow(occupancy))
        gradient = (metric @ excess.reshape(-1)).reshape(excess.shape)
        return (value, occupancy.sum(0)), gradient

    return ProjectedGradient(
        fun=value_and_gradient,
        projection=lambda potential, conserved: potential * conserved,
        value_and_grad=True,
        has_aux=True,
        stepsize=1.0,
        acceleration=True,
        implicit_diff=False,
    )


def solve(
    layers: Layers,
    target: Array,
    confidence: ConfidenceSet,
    warm_start: WarmStart,
    tolerance: ArrayLike,
    *,
    polished: bool,
) -> ProjectionResult:
    """Run accelerated projected gradient from the warm start."""
    problem = single_lane(layers, target, confidence)
    conserved, method = problem.conserved, _method(_metric(problem))

    def update(_: object, step: tuple[Array, PyTree]) -> tuple[Array, PyTree]:
        potential, state = step
        return tuple(method.update(potential, state, conserved, problem, state.aux))

    def run(carry: tuple[Array, PyTree]) -> tuple[tuple[Array, PyTree], Array, Array]:
        potential, state = carry
        # Momentum overshoots and then oscillates around the solution, so it is reset after 1, 2,
        # 4, ... rounds.
        rounds = state.iter_num // ITERATIONS
        anew = (rounds & (rounds - 1)) == 0
        state = state._replace(
            t=jnp.where(anew, 1, state.t), velocity=jnp.where(anew, potential, state.velocity)
        )
        potential, state = lax.fori_loop(0, ITERATIONS, update, (potential, state))
        occupancy = occupancy_at(problem, potential, state.aux)
        return (potential, state), occupancy, potential

    def after(carry: PyTree, point: Point, exact: Array) -> WarmStart:
        del carry, exact
        return WarmStart(point.potential[..., 0], point.occupancy.sum(0)[..., 0])

    potential, mass = (x[..., None] for x in warm_start)
    state = method.init_state(potential * conserved, conserved, problem, mass)
    start = potential * conserved, state._replace(t=jnp.ones((), target.dtype), aux=mass)
    return solve_in_rounds(
        problem,
        run,
        start,
        after,
        iterations=ITERATIONS,
        max_iterations=MAX_ITERATIONS,
        tolerance=tolerance,
        polished=polished,
    )


solver, bare = polished_and_bare(init, solve)
