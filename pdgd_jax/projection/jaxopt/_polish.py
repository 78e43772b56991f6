r"""Exact last steps for approximate solvers, which OSQP calls polishing.

A first-order method is soon near the solution, and slow from there on. Its multipliers of the flow
are potentials $y$, and the cones at $v + F^\top y$ say which of the other constraints are active.
With these fixed the optimality conditions are linear. Solving them is one Newton step on the
potentials, which is exact if the active constraints were right. States without outflow are opened
first (see `_opening.py`): there the conditions would be singular, and the step much too long.

A polish takes three steps: it refines a solution, but does not search for one. If the steps do not
suffice, the solver continues and they are tried again later.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, ArrayLike, DTypeLike, PyTree

from pdgd_jax.models import Layers
from pdgd_jax.projection._api import ProjectionResult, Solver
from pdgd_jax.projection._cone import ABSENT, positive_part, project_cone
from pdgd_jax.projection._hessian import hessian_of, solve_system
from pdgd_jax.projection._layout import MIN_LAYERS, Cones, around, over_pairs, per_state
from pdgd_jax.projection._opening import margin_at, opened
from pdgd_jax.projection._problem import (
    Problem,
    conclude,
    densified,
    flow_excess,
    outflow_and_inflow,
    point_at,
    residual_of,
)

__all__ = ["Point", "occupancy_at", "polish", "polished_and_bare", "solve_in_rounds"]

# With two, a projection of 500 episodes of `streaming` took jaxopt 34 rounds; with three, two.
STEPS = 3


class Point(NamedTuple):
    """What a solver found, for a single lane."""

    occupancy: Array  # [S', L, S, A, 1]
    potential: Array  # [L, S, 1]
    residual: Array  # []


def occupancy_at(problem: Problem, potential: Array, mass: Array) -> Array:
    r"""$\Pi_K(v + F^\top y)$, `[S', L, S, A, 1]`, given a guess of its masses."""
    point = point_at(problem, potential)
    return project_cone(point, problem.center, problem.half_radius, mass).occupancy


def polish(problem: Problem, found: Point) -> Point:
    """The point after exact steps from the potentials of one that a solver found."""
    num_layers = len(found.potential)
    whole = _padded(problem)
    cones = Cones.of(whole)

    def step(carry: tuple[Array, Array, Array], _: None) -> tuple[tuple[Array, Array, Array], None]:
        potential, mass, residual = carry
        potential = opened(whole, potential, margin_at(residual, cones.last))
        here, ahead = around(potential, cones.last.shape[1])
        point = cones.target + here[None] - ahead
        pieces = project_cone(point, cones.center, cones.half_radius, mass)
        last = positive_part(cones.last + potential[-1][:, None])
        outflow = per_state(pieces.mass, last)
        source = jnp.zeros_like(outflow[:1]).at[0, 0].set(1)
        entered = jnp.concatenate([source, over_pairs(pieces.value, last)])
        gradient = (outflow - entered) * cones.free
        residual = jnp.abs(gradient).max((0, 1))
        # Leaves the step exact to the square of its residual.
        damping = 1e-3 * jnp.minimum(1, residual)
        change = solve_system(hessian_of(cones, pieces, last, damping), -gradient)
        return (potential + change, pieces.mass, residual), None

    missing = max(0, MIN_LAYERS - num_layers)
    start = jnp.pad(found.potential, [(0, missing), (0, 0), (0, 0)])
    carry = start, jnp.zeros_like(cones.half_radius), found.residual[None]
    potential = lax.scan(step, carry, length=STEPS)[0][0][:num_layers]
    occupancy = occupancy_at(problem, potential, found.occupancy.sum(0))
    excess = flow_excess(problem, *outflow_and_inflow(occupancy))
    return Point(occupancy, potential, jnp.abs(excess).max())


def _padded(problem: Problem) -> Problem:
    """The problem padded with layers without actions, if it has too few layers."""
    missing = max(0, MIN_LAYERS - problem.conserved.shape[0])

    def pad(array: Array, axis: int, value: float = 0) -> Array:
        widths = [(0, missing if i == axis else 0) for i in range(array.ndim)]
        return jnp.pad(array, widths, constant_values=value)

    return problem._replace(
        target=pad(problem.target, 1, ABSENT),
        center=pad(problem.center, 1),
        half_radius=pad(problem.half_radius, 0),
        conserved=pad(problem.conserved, 0),
    )


def polished_and_bare(
    init: Callable[[Layers, DTypeLike], PyTree], solve: Callable[..., ProjectionResult]
) -> tuple[Solver, Solver]:
    """The two solvers of a method: with the polish and without it."""
    tolerance = (1e-3, 1e-6)

    def method(polished: bool) -> Solver:
        return Solver(init, densified(partial(solve, polished=polished)), tolerance, True)

    return method(True), method(False)


class _Progress(NamedTuple):
    carry: PyTree
    found: Point  # by the solver
    best: Point  # with the polish, if that helped
    rounds: Array


def solve_in_rounds(
    problem: Problem,
    run: Callable[[PyTree], tuple[PyTree, Array, Array]],
    start: PyTree,
    warm_start: Callable[[PyTree, Point, Array], PyTree],
    *,
    iterations: int,
    max_iterations: int,
    tolerance: ArrayLike,
    polished: bool,
) -> ProjectionResult:
    """Repeat solver, polish and residual check until the residual is within the tolerance.

    Args:
      problem: a single lane.
      run: one round: `carry -> (carry, occupancy, potentials)`.
      start: the first carry.
      warm_start: `(carry, point, exact) -> warm_start`, for the next projection.
      iterations: the number of iterations in a round.
      max_iterations: when to give up.
      tolerance: on the residual of the returned point.
      polished: whether to polish.
    """
    most_rounds = -(-max_iterations // iterations)

    def unfinished(progress: _Progress) -> Array:
        wrong = ~(progress.best.residual <= tolerance)
        return wrong & problem.sound[0] & (progress.rounds < most_rounds)

    def one_round(progress: _Progress) -> _Progress:
        carry, occupancy, potential = run(progress.carry)
        potential = potential * problem.conserved
        occupancy = jnp.where(problem.present, jnp.maximum(occupancy, 0), 0)
        found = Point(occupancy, potential, residual_of(problem, occupancy, potential))
        best = found
        if polished:
            exact = polish(problem, found)
            better = exact.residual < found.residual
            best = jax.tree.map(lambda x, y: jnp.where(better, x, y), exact, found)
        return _Progress(carry, found, best, progress.rounds + 1)

    nothing = Point(
        jnp.zeros_like(problem.target),
        jnp.zeros_like(problem.conserved),
        jnp.full_like(problem.target, jnp.inf, shape=()),
    )
    first = _Progress(start, nothing, nothing, jnp.zeros((), jnp.int32))
    progress = lax.while_loop(unfinished, one_round, first)
    best = progress.best
    after = warm_start(progress.carry, best, best.residual <= tolerance)
    # A run that diverged must not spoil the next one.
    fine = jnp.all(jnp.stack([jnp.isfinite(x).all() for x in jax.tree.leaves(after)]))
    after = jax.tree.map(lambda x: jnp.where(fine, x, 0), after)
    result = conclude(
        problem, best.occupancy, best.potential, after, iterations * progress.rounds, tolerance
    )
    if not polished:
        return result
    before = jnp.where(problem.sound[0], progress.found.residual, jnp.nan)
    return result._replace(info=result.info._replace(residual_before_polish=before))
