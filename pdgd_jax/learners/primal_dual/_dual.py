r"""The dual player: online gradient ascent on the Lagrange multipliers, inside a region.

$$\lambda_{t+1} = \Pi_{\mathcal D}(\lambda_t + \eta \, G_t^\top \hat q),$$

where $\hat q$ is $\hat q_t$ or, for learners with queues, $\hat q_{t+1}$. The step is an optax
transformation, so that another optimiser can replace plain gradient descent. A virtual queue $Q$ is
a multiplier: $\lambda = Q / V$ with the step $1 / V$ and no ceiling.
"""

from typing import NamedTuple, TypeAlias

import jax.numpy as jnp
import optax
from jaxtyping import Array, DTypeLike, Float, PyTree

from pdgd_jax import theory
from pdgd_jax._internal.pytree import pytree
from pdgd_jax._internal.sums import Compensated
from pdgd_jax._internal.typing import Pairs, Triples
from pdgd_jax.models import Outcome, value_of

__all__ = ["Ball", "Box", "Orthant", "Region", "State", "init", "update"]


@pytree
class Box:
    """No multiplier is above the fourth root of T.

    Attributes:
      num_episodes: $T$.
    """

    num_episodes: Float[Array, ""]

    def project(self, multipliers: Float[Array, " m"]) -> Float[Array, " m"]:
        """The nearest point of the region."""
        top = jnp.asarray(theory.multiplier_ceiling(self.num_episodes), multipliers.dtype)
        return jnp.asarray(optax.projections.projection_box(multipliers, 0.0, top))


@pytree
class Orthant:
    """Multipliers have no ceiling."""

    def project(self, multipliers: Float[Array, " m"]) -> Float[Array, " m"]:
        """The nearest point of the region."""
        return jnp.maximum(multipliers, 0)


@pytree
class Ball:
    r"""The multipliers' sum has a ceiling, $\{\lambda \ge 0 : \|\lambda\|_1 \le R\}$.

    Attributes:
      radius: $R$.
    """

    radius: Float[Array, ""]

    def project(self, multipliers: Float[Array, " m"]) -> Float[Array, " m"]:
        """The nearest point of the region."""
        radius = self.radius.astype(multipliers.dtype)
        inside = jnp.maximum(multipliers, 0)
        on_face = optax.projections.projection_simplex(multipliers, radius)
        return jnp.where(inside.sum() <= radius, inside, on_face)


Region: TypeAlias = Box | Orthant | Ball


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
    region: Region,
) -> State:
    r"""One step against the loss $-\lambda^\top G_t^\top \hat q$.

    Args:
      optimizer: any optax transformation.
      state: with $\lambda_t$.
      outcome: with $G_t$.
      occupancy: $\hat q$; over the pairs, or over the triples of layers without successor lists.
      region: $\mathcal D$.

    Reference:
      The paper's OGD.UPDATE, Equation "update:dual", with $\hat q_t$ and a box.
    """
    multipliers = state.multipliers
    gradient = -value_of(outcome.constraints, occupancy).astype(multipliers.dtype)
    steps, optimizer_state = optimizer.update(gradient, state.optimizer, multipliers)
    moved = Compensated(multipliers, state.lost).add(jnp.asarray(steps, multipliers.dtype))
    projected = region.project(moved.value)
    lost = jnp.where(projected == moved.value, moved.lost, 0)
    return State(projected, lost, optimizer_state)
