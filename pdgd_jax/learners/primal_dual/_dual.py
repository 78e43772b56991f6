r"""The dual player: online gradient ascent on the Lagrange multipliers, inside a box.

$$\lambda_{t+1} = \Pi_{[0, T^{1/4}]^m}(\lambda_t + \eta \, G_t^\top \hat q_t).$$

The step is an optax transformation followed by optax's projection onto a box, so that another
optimiser can replace plain gradient descent.
"""

from typing import NamedTuple

import jax.numpy as jnp
import optax
from jaxtyping import Array, DTypeLike, Float, PyTree

from pdgd_jax import theory
from pdgd_jax._internal.sums import Compensated
from pdgd_jax._internal.typing import Pairs, Triples
from pdgd_jax.models import Outcome, value_of

__all__ = ["State", "init", "update"]


class State(NamedTuple):
    r"""The state between episodes.

    Attributes:
      multipliers: `[m]`, $\lambda_t$.
      lost: `[m]`, their rounding error, as in `Compensated`: a step may be as small as a few units
        in the last place of a float32, and there is one in every episode.
      optimizer: the state of the optax transformation.
    """

    multipliers: Float[Array, " m"]
    lost: Float[Array, " m"]
    optimizer: PyTree


def init(optimizer: optax.GradientTransformation, num_constraints: int, dtype: DTypeLike) -> State:
    r"""$\lambda_1 = 0$."""
    multipliers = jnp.zeros(num_constraints, dtype)
    return State(multipliers, jnp.zeros_like(multipliers), optimizer.init(multipliers))


def update(
    optimizer: optax.GradientTransformation,
    state: State,
    outcome: Outcome,
    occupancy: Triples | Pairs,
    num_episodes: Float[Array, ""] | float,
) -> State:
    r"""One step against the loss $-\lambda^\top G_t^\top \hat q_t$.

    Args:
      optimizer: any optax transformation.
      state: with $\lambda_t$.
      outcome: with $G_t$.
      occupancy: $\hat q_t$, not $\hat q_{t+1}$; over the pairs, or over the triples of layers
        without successor lists.
      num_episodes: $T$, for the box.

    Reference:
      The paper's OGD.UPDATE, Equation "update:dual".
    """
    multipliers = state.multipliers
    gradient = -value_of(outcome.constraints, occupancy).astype(multipliers.dtype)
    steps, optimizer_state = optimizer.update(gradient, state.optimizer, multipliers)
    moved = Compensated(multipliers, state.lost).add(jnp.asarray(steps, multipliers.dtype))
    top = jnp.asarray(theory.multiplier_ceiling(num_episodes), multipliers.dtype)
    projected = jnp.asarray(optax.projections.projection_box(moved.value, 0.0, top))
    lost = jnp.where(projected == moved.value, moved.lost, 0)
    return State(projected, lost, optimizer_state)
