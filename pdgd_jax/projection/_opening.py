r"""Closed states, where the Hessian of the dual is singular, and how to open them.

A state is closed if every cone of its pairs is at the apex. A small change of its potential then
does not change its outflow: the Hessian is singular, and a Newton step is much too long. Since
$\partial f / \partial y(x)$ is minus the inflow, raising the potential does not increase $f$ until
the state opens, and increases it little within the margin. If every state is open, the Hessian is
regular (unless margins are below rounding): a potential in its null space is a mean of potentials
of the next layer, and hence zero.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from pdgd_jax.projection._cone import ABSENT, support_of
from pdgd_jax.projection._problem import Problem, per_lane

__all__ = ["OPENED", "margin_at", "opened"]

# The default share of the residual that may leave a state because it was opened;
# `NewtonOptions.opened` gives the reason for this value.
OPENED = 0.01


class _Layer(NamedTuple):
    target: Array  # [S', S, A, B]
    center: Array  # [S', S, A, B]
    half_radius: Array  # [S, A, B]
    conserved: Array  # [S, B]
    potential: Array  # [S, B]


def margin_at(residual: Array, last: Array, share: float = OPENED) -> Array:
    """The margin by which states are opened, `[B]`, small enough that little leaves each of them.

    Args:
      residual: `[B]`.
      last: `[S, A, B]`, any array over the last layer; only its shape is used.
      share: the share of the residual that may leave a state because it was opened.
    """
    num_states, num_actions, _ = last.shape  # the next states and the actions of a state
    return share / (num_states * num_actions) * jnp.minimum(1, residual)


def opened(problem: Problem, potential: Array, margin: Array) -> Array:
    """The potentials `[L, S, B]`, raised in closed states until they are open by the margin."""

    def open_layer(after: Array, layer: _Layer) -> tuple[Array, Array]:
        usable = (layer.target > ABSENT / 2).any(0)
        target = layer.target - after[:, None, None]
        support = support_of(target, layer.center, layer.half_radius)
        opens = per_lane(margin, 2) - jnp.where(usable, support, ABSENT).max(1)
        closed = (layer.conserved > 0) & (layer.potential < opens)
        own = jnp.where(closed, opens, layer.potential)
        return own, own

    layers = _Layer(
        target=problem.target.swapaxes(0, 1),
        center=problem.center.swapaxes(0, 1),
        half_radius=problem.half_radius,
        conserved=problem.conserved,
        potential=potential,
    )
    return lax.scan(open_layer, jnp.zeros_like(potential[0]), layers, reverse=True)[1]
