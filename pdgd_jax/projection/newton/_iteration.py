"""Newton steps on the linear pieces, and the local loop of such steps."""

from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from pdgd_jax.projection._cone import ConePieces, classify, positive_part, project_cone
from pdgd_jax.projection._hessian import hessian_of, solve_system
from pdgd_jax.projection._layout import Cones, around, over_pairs, per_state
from pdgd_jax.projection._problem import entries_sum, per_lane
from pdgd_jax.projection._xla import fence
from pdgd_jax.projection.newton._options import NewtonOptions

__all__ = [
    "Found",
    "Guess",
    "Iterate",
    "evaluate",
    "excess_of",
    "local",
    "newton_point",
    "select",
    "unevaluated",
]

Tree = TypeVar("Tree")


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
    value: Array  # [S', C B]
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


def excess_of(cones: Cones, mass: Array, value: Array, last: Array) -> Array:
    """$F q - b$ from the masses and entries of the cones and the occupancy of the last layer."""
    outflow = per_state(mass, last)
    source = jnp.zeros_like(outflow[:1]).at[0, 0].set(1)
    entered = jnp.concatenate([source, fence(over_pairs, value, last)])
    return (outflow - entered) * cones.free


def evaluate(
    options: NewtonOptions, cones: Cones, start: Guess, iterations: Array, exact: bool = False
) -> Iterate:
    """The pieces, at a guess of the masses or exact, their excess flow, and the residual."""
    y = start.potential
    here, ahead = around(y, cones.last.shape[1])
    point = cones.target + here[None] - ahead
    if exact:
        pieces = fence(project_cone, point, cones.center, cones.half_radius, start.mass)
    else:
        pieces = fence(classify, point, cones.center, cones.half_radius, start.mass)
    last = positive_part(cones.last + y[-1][:, None])
    # By rounding, the mass differs a little from the sum of its entries.
    value = positive_part(pieces.value) if exact else pieces.value
    gradient = excess_of(cones, entries_sum(value) if exact else pieces.mass, value, last)
    moved = jnp.abs(pieces.mass - pieces.mass_guess).reshape(-1, y.shape[-1])
    residual = jnp.maximum(jnp.abs(gradient).max((0, 1)), moved.max(0))
    share = options.rounding * jnp.finfo(y.dtype).eps
    behind = jnp.where(pieces.rounding > 0, share * jnp.abs(here), 0)
    doubt = options.rounding / 2 * pieces.rounding + behind
    doubt_last = jnp.where(last > 0, share * jnp.abs(cones.last), 0)
    rounding = jnp.maximum(doubt.reshape(moved.shape).max(0), doubt_last.max((0, 1)))
    return Iterate(start, pieces, last, gradient, residual, rounding, iterations)


def unevaluated(cones: Cones, start: Guess, iterations: Array) -> Iterate:
    """An iterate before the first evaluation; a Newton step from here changes nothing.

    The loops begin with it and evaluate inside, so that the program contains the evaluation only
    once. It takes longer to compile than to run.
    """
    nothing = jnp.zeros_like(cones.target)
    none = jnp.zeros_like(cones.half_radius)
    endless = jnp.full_like(iterations, jnp.inf, cones.target.dtype)
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


def newton_point(cones: Cones, iterate: Iterate) -> Guess:
    """The solution of the linear system of the current pieces."""
    pieces, last = iterate.pieces, iterate.last
    damping = 1e-3 * jnp.minimum(1, iterate.residual)
    hessian = hessian_of(cones, pieces, last, damping)
    change = solve_system(hessian, -iterate.gradient)
    here, ahead = around(change, last.shape[1])
    mass = pieces.mass + pieces.gain * (here - entries_sum(pieces.weight * ahead))
    return Guess(iterate.start.potential + change, mass)


def select(lanes: Array, new: Tree, old: Tree) -> Tree:
    """`new` in these lanes and `old` in the others; the last axis of an array ends in lanes."""

    def pick(x: Array, y: Array) -> Array:
        each = jnp.tile(lanes, x.shape[-1] // lanes.size)
        return jnp.where(per_lane(each, x.ndim), x, y)

    return jax.tree.map(pick, new, old)


class _Local(NamedTuple):
    """The carry of `local`."""

    start: Guess  # of the next step
    found: Found  # by the last step


def local(options: NewtonOptions, cones: Cones, start: Guess, tolerance: Array) -> Found:
    """Newton steps on the pieces from `start`, until every lane is done or the steps run out."""

    def running(found: Found | Iterate) -> Array:
        return (found.residual > tolerance) & (found.iterations < options.local_steps)

    def step(carry: _Local) -> _Local:
        before = carry.found
        iterate = evaluate(options, cones, carry.start, before.iterations + running(before))
        lanes = running(iterate)

        def move() -> Guess:
            # A lane that is done keeps its point, and evaluates to the same result again.
            return select(lanes, newton_point(cones, iterate), iterate.start)

        start = lax.cond(lanes.any(), move, lambda: iterate.start)
        return _Local(start, Found.of(iterate))

    first = Found.of(unevaluated(cones, start, jnp.full_like(tolerance, -1, jnp.int32)))
    carry = _Local(start, first)
    return lax.while_loop(lambda carry: running(carry.found).any(), step, carry).found
