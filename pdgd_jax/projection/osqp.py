r"""The projection by jaxopt's `BoxOSQP`, a general QP solver.

Each cone is lifted: with $d \ge 0$ and $d(x') \ge q(x') - \bar P(x') s$, its constraint is
$\sum_{x'} d(x') \le \tfrac{\epsilon}{2} s$. The quadratic program over $(q, d)$ is matrix-free.

For comparison, and for whoever trusts a known solver more. It is slower than `newton.py` by orders
of magnitude, and 1e-6 is about what it reaches. jaxopt is no longer maintained.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxopt import BoxOSQP
from jaxtyping import Array

from pdgd_jax.confidence import ConfidenceSet
from pdgd_jax.layers import Layers
from pdgd_jax.projection.base import ProjectionResult, Solver
from pdgd_jax.projection.problem import Problem, conclude, entries_first, entries_last, single_lane

__all__ = ["solver"]

MAX_ITERATIONS = 20_000


class Rows(NamedTuple):
    """One entry for each constraint of the lifted program; also the bounds and the multipliers."""

    flow: Array  # [L, S], F q
    occupancy: Array  # [L, S, A, S], q
    excess: Array  # [L, S, A, S], q - P s - d
    deviation: Array  # [L, S, A, S], d
    budget: Array  # [L, S, A], sum d - (eps/2) s


def _quadratic(_: Any, unknowns: tuple[Array, Array]) -> tuple[Array, Array]:
    occupancy, deviation = unknowns
    return occupancy, jnp.zeros_like(deviation)


def _rows(problem: Problem, unknowns: tuple[Array, Array]) -> Rows:
    occupancy, deviation = unknowns
    mass = occupancy.sum(-1)
    inflow = occupancy.sum((1, 2))
    entered = jnp.concatenate([jnp.zeros_like(inflow[:1]), inflow[:-1]])
    return Rows(
        flow=occupancy.sum((2, 3)) - entered,
        occupancy=occupancy,
        excess=occupancy - entries_last(problem.center)[..., 0] * mass[..., None] - deviation,
        deviation=deviation,
        budget=deviation.sum(-1) - problem.half_radius[..., 0] * mass,
    )


def _bounds(problem: Problem) -> tuple[Rows, Rows]:
    conserved, present = problem.conserved[..., 0] > 0, entries_last(problem.present)[..., 0]
    source = jnp.zeros_like(problem.conserved[..., 0]).at[0, 0].set(1)
    zeros = jnp.zeros_like(entries_last(problem.center)[..., 0])
    unbounded = jnp.where(present, jnp.inf, zeros)
    nothing = jnp.zeros_like(problem.half_radius[..., 0])
    low = Rows(
        jnp.where(conserved, source, -jnp.inf), zeros, zeros - jnp.inf, zeros, nothing - jnp.inf
    )
    high = Rows(jnp.where(conserved, source, jnp.inf), unbounded, zeros, unbounded, nothing)
    return low, high


def init(layers: Layers, dtype: Any) -> tuple[tuple[Array, Array], Rows, Rows]:
    """The unknowns, their constraints and the multipliers, all zero."""
    L, S, A = layers.shape
    zeros = jnp.zeros((L, S, A, S), dtype)
    rows = Rows(jnp.zeros((L, S), dtype), zeros, zeros, zeros, jnp.zeros((L, S, A), dtype))
    return (zeros, zeros), rows, rows


def solve(
    layers: Layers, target: Array, confidence: ConfidenceSet, warm_start: Any, tolerance: Any
) -> ProjectionResult:
    """Run `BoxOSQP` from the warm start."""
    problem = single_lane(layers, target, confidence)
    unknowns, rows, multipliers = warm_start
    method = BoxOSQP(
        matvec_Q=_quadratic,
        matvec_A=_rows,
        check_primal_dual_infeasability=False,  # a projection on a set that is not empty
        maxiter=MAX_ITERATIONS,
        tol=tolerance / 50,  # ours also counts what its multipliers are off, which is far more
        implicit_diff=False,
        unroll=False,
    )
    linear = entries_last(jnp.where(problem.present, -problem.target, 0))[..., 0]
    bounds = _bounds(problem)
    start = method.init_params(unknowns, (None, (linear, jnp.zeros_like(linear))), problem, bounds)
    start = start._replace(primal=(unknowns, rows), dual_eq=multipliers)
    solution, state = method.run(start, (None, (linear, jnp.zeros_like(linear))), problem, bounds)
    occupancy = solution.primal[0][0]
    carried = (solution.primal[0], solution.primal[1], solution.dual_eq)
    # A run that went astray must not poison the next one.
    fine = jnp.all(jnp.stack([jnp.isfinite(x).all() for x in jax.tree.leaves(carried)]))
    carried = jax.tree.map(lambda x: jnp.where(fine, x, 0), carried)
    return conclude(
        problem,
        entries_first(occupancy[..., None]),
        -solution.dual_eq.flow[..., None],
        carried,
        state.iter_num,
        tolerance,
    )


solver = Solver(init, solve, tolerance=(1e-3, 1e-6))
