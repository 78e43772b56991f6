"""The kind of each cone, and its best mass, from sums over the entries of each piece.

A cone is slack if the ball does not bind, at its apex if the projection is zero, and tight
otherwise. `_cone` says how the pieces are found.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from pdgd_jax.projection._entries import larger
from pdgd_jax.projection._xla import fence

__all__ = ["OPEN", "TIGHT", "Common", "Cone", "Kept", "Moved", "PieceSums", "settle"]


class Moved(NamedTuple):
    """Sums over the entries that are raised, or over those that are lowered."""

    entries: Array  # how many
    point: Array
    center: Array


class Kept(NamedTuple):
    """Sums over the entries in the middle, and the excess of the slack piece."""

    center_point: Array
    center_square: Array
    excess: Array


class PieceSums(NamedTuple):
    """Sums over the entries of each piece, one number for each cone, `[...]`."""

    raised: Moved
    lowered: Moved  # entries and point: of those that stay positive
    middle: Kept


class Cone(NamedTuple):
    """What is known about each cone before its pieces are, `[...]`."""

    positive_count: Array
    positive_mass: Array
    half_radius: Array
    support: Array
    rounding: Array
    guess: Array


TIGHT, OPEN, APEX = 0.0, 1.0, 2.0


class Common(NamedTuple):
    """What the entries of a cone share: one number for each cone, `[...]`."""

    kind: Array  # TIGHT, OPEN where the ball does not bind, or APEX
    mean_u: Array  # q = u - mean + w s on the raised entries, and w and e there
    weight_u: Array
    block_u: Array
    mean_d: Array  # the same on the lowered entries
    weight_d: Array
    block_d: Array
    gain: Array
    mass: Array
    mass_guess: Array
    rounding: Array


def _settle(sums: PieceSums, cone: Cone) -> Common:
    """The kind of each cone and its best mass, from sums over the pieces."""
    up, down, middle = sums
    half_radius, rounding, guess = cone.half_radius, cone.rounding, cone.guess
    apex = ~(cone.support > rounding)
    slack = (middle.excess <= half_radius * cone.positive_mass) | (half_radius >= 1)
    per_u, per_d = 1 / jnp.maximum(up.entries, 1), 1 / jnp.maximum(down.entries, 1)
    weight_u = jnp.where(up.entries > 0, up.center + half_radius, 0) * per_u
    weight_d = jnp.where(down.entries > 0, down.center - half_radius, 0) * per_d
    mean_u, mean_d = up.point * per_u, down.point * per_d
    square = middle.center_square + up.entries * weight_u**2 + down.entries * weight_d**2
    tight_mass = (middle.center_point + weight_u * up.point + weight_d * down.point) / square
    # A mass below the bound of `classify`: this piece ends before the solution.
    tight_mass = larger(tight_mass, cone.support - rounding)
    # alpha < beta: the ball does not bind at this mass, although it does at the solution. The slack
    # piece leads back to it.
    gap = (mean_u - weight_u * guess) - (mean_d - weight_d * guess)
    crossed = (up.entries > 0) & (down.entries > 0) & (gap < -rounding)
    open_ = slack | crossed
    per_positive = 1 / jnp.maximum(cone.positive_count, 1)
    mass = jnp.where(apex, 0, jnp.where(open_, cone.positive_mass, tight_mass))
    return Common(
        kind=jnp.where(apex, APEX, jnp.where(open_, OPEN, TIGHT)).astype(mass.dtype),
        mean_u=jnp.where(open_, 0, mean_u),
        weight_u=jnp.where(open_, per_positive, weight_u),
        block_u=jnp.sqrt(jnp.where(open_, per_positive, per_u)),
        mean_d=mean_d,
        weight_d=weight_d,
        block_d=-jnp.sqrt(per_d),
        gain=jnp.where(apex, 0, jnp.where(open_, cone.positive_count, 1 / square)),
        mass=mass,
        mass_guess=jnp.where(apex | slack, mass, guess),
        rounding=jnp.where(cone.support < -rounding, 0, rounding),
    )


def settle(sums: PieceSums, cone: Cone) -> Common:
    """The kind and the best mass, computed once and not wherever they are used."""
    return fence(_settle, sums, cone)
