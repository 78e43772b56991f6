"""Newton steps on the linear pieces, and the local loop of such steps."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from pdgd_jax.projection._cone import ConePieces, Entries, positive_part
from pdgd_jax.projection._problem import select
from pdgd_jax.projection.newton._options import NewtonOptions
from pdgd_jax.projection.newton._rays import AnyCones
from pdgd_jax.projection.newton._system import solve

__all__ = [
    "Found",
    "Guess",
    "Iterate",
    "evaluate",
    "excess_of",
    "local",
    "newton_point",
    "newton_step",
    "select",
    "unevaluated",
]

# Where the linear system is solved by iteration, up to this share of the residual: the steps are
# then nearly as many as with exact solutions. If larger, there are more steps; if smaller, each
# iterates for digits that the next step does not need.
INEXACT = 1e-3


class Guess(NamedTuple):
    """The point at which to find the pieces."""

    potential: Array  # [L, S, B]
    mass: Array  # [C B]


class Iterate(NamedTuple):
    """A guess and its evaluation."""

    start: Guess
    pieces: ConePieces
    last: Array  # [S, A, B], the occupancy of the last layer
    gradient: Array  # F q - b, [L, S, B]
    residual: Array  # [B]
    rounding: Array  # [B], the rounding error behind the residual
    iterations: Array  # [B]


class Found(NamedTuple):
    """The result of a loop: what is needed of an iterate afterwards; its pieces are large."""

    start: Guess
    gain: Array  # [C B]
    value: Entries
    last: Array
    residual: Array
    rounding: Array
    iterations: Array

    @classmethod
    def of(cls, iterate: Iterate) -> "Found":
        """The needed parts of an iterate."""
        pieces = iterate.pieces
        return cls(
            start=Guess(iterate.start.potential, pieces.mass),
            gain=pieces.gain,
            value=pieces.value,
            last=iterate.last,
            residual=iterate.residual,
            rounding=iterate.rounding,
            iterations=iterate.iterations,
        )

    def within(self, goal: Array) -> Array:
        """The lanes that are done: the residual and its rounding error are small enough."""
        return (self.residual <= goal) & (self.rounding <= goal)


def excess_of(cones: AnyCones, mass: Array, value: Entries, last: Array) -> Array:
    """$F q - b$ from the masses and entries of the cones and the occupancy of the last layer."""
    outflow = cones.outflow(mass, last)
    source = jnp.zeros_like(outflow[:1]).at[0, 0].set(1)
    entered = jnp.concatenate([source, cones.inflow(value, last)])
    return (outflow - entered) * cones.free


def evaluate(
    options: NewtonOptions, cones: AnyCones, start: Guess, iterations: Array, exact: bool = False
) -> Iterate:
    """The pieces, at a guess of the masses or exact, their excess flow, and the residual."""
    y = start.potential
    here, ahead = cones.around(y)
    point = jax.tree.map(_moved, cones.target, cones.spread(here), ahead)
    pieces = cones.pieces(point, start.mass, exact=exact)
    last = positive_part(cones.last + y[-1][:, None])
    # By rounding, the mass differs a little from the sum of its entries.
    value = jax.tree.map(positive_part, pieces.value) if exact else pieces.value
    gradient = excess_of(cones, cones.totals(value) if exact else pieces.mass, value, last)
    moved = jnp.abs(pieces.mass - pieces.mass_guess).reshape(-1, y.shape[-1])
    residual = jnp.maximum(jnp.abs(gradient).max((0, 1)), moved.max(0))
    share = options.rounding * jnp.finfo(y.dtype).eps
    behind = jnp.where(pieces.rounding > 0, share * jnp.abs(here), 0)
    doubt = options.rounding / 2 * pieces.rounding + behind
    doubt_last = jnp.where(last > 0, share * jnp.abs(cones.last), 0)
    rounding = jnp.maximum(doubt.reshape(moved.shape).max(0), doubt_last.max((0, 1), initial=0))
    return Iterate(start, pieces, last, gradient, residual, rounding, iterations)


def _moved(target: Array, here: Array, ahead: Array) -> Array:
    return target + here - ahead


def unevaluated(cones: AnyCones, start: Guess, iterations: Array) -> Iterate:
    """An iterate before the first evaluation; a Newton step from here changes nothing.

    The loops begin with it and evaluate inside, so that the program contains the evaluation only
    once. It takes longer to compile than to run.
    """
    nothing = jax.tree.map(jnp.zeros_like, cones.target)
    none = jnp.zeros_like(cones.half_radius)
    endless = jnp.full_like(iterations, jnp.inf, cones.free.dtype)
    return Iterate(
        start=start,
        pieces=ConePieces(
            value=nothing,
            weight=nothing,
            block=nothing,
            gain=none,
            mass=start.mass,
            mass_guess=start.mass,
            rounding=none,
        ),
        last=jnp.zeros_like(cones.last),
        gradient=jnp.zeros_like(cones.free),
        residual=endless,
        rounding=endless,
        iterations=iterations,
    )


def newton_step(cones: AnyCones, iterate: Iterate, goal: Array, guess: Array) -> Guess:
    """The change to the solution of the linear system of the current pieces, and its masses.

    Args:
      cones: the batch.
      iterate: where the step begins.
      goal: `[B]`, the residual to reach.
      guess: `[L, S, B]`, of the direction of the change, for a system that is solved by iteration.
    """
    accuracy = jnp.maximum(INEXACT * iterate.residual, goal / 4)
    pieces, last = iterate.pieces, iterate.last
    damping = 1e-3 * jnp.minimum(1, iterate.residual)
    change = solve(cones, pieces, last, damping, -iterate.gradient, guess, accuracy)
    here, ahead = cones.around(change)
    mean = cones.totals(jax.tree.map(jnp.multiply, pieces.weight, ahead))
    return Guess(change, pieces.mass + pieces.gain * (here - mean))


def newton_point(cones: AnyCones, iterate: Iterate, goal: Array) -> Guess:
    """The solution of the linear system of the current pieces; `goal` is the residual to reach."""
    potential = iterate.start.potential
    step = newton_step(cones, iterate, goal, jnp.zeros_like(potential))
    return step._replace(potential=potential + step.potential)


class _Local(NamedTuple):
    """The carry of `local`."""

    start: Guess  # of the next step
    found: Found  # by the last step


def local(options: NewtonOptions, cones: AnyCones, start: Guess, tolerance: Array) -> Found:
    """Newton steps on the pieces from `start`, until every lane is done or the steps run out."""

    def running(found: Found | Iterate) -> Array:
        return (found.residual > tolerance) & (found.iterations < options.local_steps)

    def step(carry: _Local) -> _Local:
        before = carry.found
        iterate = evaluate(options, cones, carry.start, before.iterations + running(before))
        lanes = running(iterate)

        def move() -> Guess:
            # A lane that is done keeps its point, and evaluates to the same result again.
            return select(lanes, newton_point(cones, iterate, tolerance), iterate.start)

        start = lax.cond(lanes.any(), move, lambda: iterate.start)
        return _Local(start, Found.of(iterate))

    first = Found.of(unevaluated(cones, start, jnp.full_like(tolerance, -1, jnp.int32)))
    carry = _Local(start, first)
    return lax.while_loop(lambda carry: running(carry.found).any(), step, carry).found
