"""The globalised loop, for lanes in which local steps do not reach the solution."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from pdgd_jax.projection._problem import per_lane
from pdgd_jax.projection.newton._acceptance import measured
from pdgd_jax.projection.newton._iteration import (
    Found,
    Guess,
    Iterate,
    evaluate,
    newton_step,
    select,
    unevaluated,
)
from pdgd_jax.projection.newton._linesearch import Search, Step, judged
from pdgd_jax.projection.newton._options import NewtonOptions
from pdgd_jax.projection.newton._rays import AnyCones, AnyProblem
from pdgd_jax.projection.newton._start import cast

__all__ = ["from_start", "in_double"]


def _globalised(
    options: NewtonOptions,
    problem: AnyProblem,
    tolerance: Array,
    lanes: Array,
    before: Found,
    guess: Array,
) -> Found:
    """Newton's method on the dual with open states and exact cones, in these lanes.

    Each step begins at `before.start` or where the last one ended, and `guess` is one of the
    direction of the first. States are opened by no more than the residual there allows, or a start
    near the solution would lose it.
    """
    cones = problem.cones()

    def running(iterate: Iterate) -> Array:
        steps = iterate.iterations - before.iterations
        return lanes & (iterate.residual > tolerance) & (steps < options.global_steps)

    def step(search: Search) -> Search:
        iterate = search.iterate
        moving = running(iterate)
        full = newton_step(cones, iterate, tolerance, search.direction)
        change = per_lane(search.length, 3) * full.potential
        taken = Step(change, slope=(iterate.gradient * change).sum((0, 1)))
        potential = iterate.start.potential + change
        known = jnp.where(jnp.isfinite(iterate.residual), iterate.residual, before.residual)
        margin = cones.margin(known, options.opened)
        # The masses at the end of the step, if the pieces stay the same and no state is opened.
        share = jnp.tile(search.length, full.mass.size // search.length.size)
        mass = iterate.pieces.mass + share * (full.mass - iterate.pieces.mass)
        point = Guess(problem.opened(potential, margin), mass)
        moved = select(moving, point, iterate.start)
        trial = evaluate(options, cones, moved, iterate.iterations + moving, exact=True)
        return judged(search._replace(direction=full.potential), taken, trial, moving)

    first = unevaluated(cones, before.start, before.iterations)
    search = Search(
        iterate=first,
        value=jnp.full_like(tolerance, jnp.inf),  # so that the first evaluation counts as descent
        least=first.residual,
        length=jnp.ones_like(tolerance),
        direction=guess,
    )
    search = lax.while_loop(lambda search: running(search.iterate).any(), step, search)
    return Found.of(search.iterate)


def from_start(
    options: NewtonOptions, problem: AnyProblem, goal: Array, start: Guess, change: Array
) -> Found:
    """Globalised steps from a start that is near the solution, with its potentials moved.

    The first one is expected along `change`.
    """
    base = start.potential
    shifted = problem.shifted(base)
    guess = start._replace(potential=jnp.zeros_like(base))
    none = jnp.zeros_like(goal, jnp.int32)
    before = Found.of(unevaluated(shifted.cones(), guess, none))._replace(residual=goal)
    found = _globalised(options, shifted, goal, problem.sound, before, change)
    return found._replace(start=found.start._replace(potential=base + found.start.potential))


class _Rounds(NamedTuple):
    """The carry of `_from_anywhere`."""

    found: Found
    base: Array  # [L, S, B], the potentials that have moved into the target
    number: Array  # [], of rounds so far


def _from_anywhere(
    options: NewtonOptions, problem: AnyProblem, goal: Array, local: Found, lanes: Array
) -> Found:
    r"""Globalised steps in these lanes from a cold start; the results of other lanes are undefined.

    Every round but the first begins where the last one ended, with the potentials moved into the
    target. Adding $F^\top y$ to the target does not change the projection, since $F q = b$ is
    fixed. The remaining potentials and the dual are small, and so is their rounding error.
    """

    def undone(rounds: _Rounds) -> Array:
        return ~(rounds.found.within(goal) | ~lanes).all() & (rounds.number < options.rounds)

    def solve_round(rounds: _Rounds) -> _Rounds:
        before = rounds.found
        base = rounds.base + before.start.potential
        shifted = problem.shifted(base)
        start = before.start._replace(potential=jnp.zeros_like(base))
        loose = jnp.where(rounds.number == 0, options.hand_over * goal, goal)
        moving = lanes & ~((rounds.number > 1) & before.within(goal))
        before_round, none = before._replace(start=start), jnp.zeros_like(base)
        found = _globalised(options, shifted, loose, moving, before_round, none)
        return _Rounds(select(moving, found, before), base, rounds.number + 1)

    cold = jax.tree.map(jnp.zeros_like, local.start)
    endless = jnp.full_like(goal, jnp.inf)
    first = _Rounds(
        found=local._replace(start=cold, residual=endless, rounding=endless),
        base=jnp.zeros_like(cold.potential),
        number=jnp.zeros((), jnp.int32),
    )
    rounds = lax.while_loop(undone, solve_round, first)
    potential = rounds.base + rounds.found.start.potential
    return rounds.found._replace(start=rounds.found.start._replace(potential=potential))


def in_double(
    options: NewtonOptions,
    problem: AnyProblem,
    cones: AnyCones,
    goal: Array,
    local: Found,
    lanes: Array,
) -> Found:
    """Globalised steps in double precision, even if the caller has not enabled it.

    In single precision, rounding stops the line search long before the end. The loop runs rarely
    enough for accelerators on which double precision is slow.

    Args:
      options: the options of the solver.
      problem: the batch.
      cones: the same batch in the other layout.
      goal: `[B]`, the residual to reach.
      local: the result of the local loop; the other lanes keep it.
      lanes: `[B]`, the lanes to solve.
    """
    if goal.dtype == jnp.float64:
        return select(lanes, _from_anywhere(options, problem, goal, local, lanes), local)
    with jax.enable_x64(True):
        wide, wide_goal, wide_local = cast((problem, goal, local), jnp.float64)
        # Normalise again in double precision; without it the loop does not converge.
        wide = wide.normalised()
        # Rounding the result to single precision increases its residual.
        found = _from_anywhere(options, wide, wide_goal / 10, wide_local, lanes)
    return select(lanes, measured(cones, cast(found, goal.dtype)), local)
