"""Confidence sets over transition functions, and the visits they are estimated from."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from pdgd_jax import theory
from pdgd_jax._pytree import as_float, is_concrete, on_host, pytree
from pdgd_jax.layers import Layers
from pdgd_jax.occupancy import Trajectory, visited

__all__ = [
    "ConfidenceSet",
    "Visits",
    "contains",
    "count",
    "estimate",
    "no_visits",
]


@pytree
class ConfidenceSet:
    r"""The transition functions within an L1 distance of an estimate, pair by pair.

    $\mathcal P = \{\hat P : \|\hat P(\cdot \mid x,a) - \bar P(\cdot \mid x,a)\|_1 \le
    \epsilon(x,a) \;\; \forall (x,a)\}$. A radius of 0 is a known transition, one of 2 or more
    allows every transition.

    Args:
      center: `[L, S, A, S]`, $\bar P$; for every valid pair a distribution over the next layer.
      radius: `[L, S, A]`, $\epsilon \ge 0$.

    Raises:
      ValueError: if the shapes disagree, or a number cannot be a probability or a radius.

    Example:
      >>> from pdgd_jax import make
      >>> mdp = make("random").mdp
      >>> known = ConfidenceSet(mdp.transition, 0 * mdp.layers.uniform_policy())
      >>> known.center.shape, known.radius.shape
      ((4, 4, 3, 4), (4, 4, 3))
    """

    center: Float[Array, "*batch layers states actions states"]
    radius: Float[Array, "*batch layers states actions"]

    def __post_init__(self) -> None:
        center, radius = np.shape(self.center), np.shape(self.radius)
        if len(center) != 4 or center[:3] != radius or center[3] != center[1]:
            raise ValueError(
                "a confidence set has a center [L, S, A, S] and a radius [L, S, A]; got the shapes "
                f"{center} and {radius}."
            )
        if is_concrete(self.center, self.radius):
            _refuse_negative("center", on_host(self.center))
            _refuse_negative("radius", on_host(self.radius))
        object.__setattr__(self, "center", as_float(self.center))
        object.__setattr__(self, "radius", as_float(self.radius))


def _refuse_negative(name: str, values: np.ndarray) -> None:
    with np.errstate(invalid="ignore"):
        wrong = ~(values >= 0) | (np.isinf(values) if name == "center" else False)
    if wrong.any():
        where = tuple(int(i) for i in np.argwhere(wrong)[0])
        k, x, a = where[:3]
        what = "a probability" if name == "center" else "at least 0"
        raise ValueError(
            f"the {name} of layer {k}, state {x}, action {a} is {values[where]:.6g}; "
            f"it must be {what}."
        )


class Visits(NamedTuple):
    r"""How often each pair and each triple was visited, and since when an epoch lasts.

    Attributes:
      pairs: `[L, S, A]`, $N(x, a)$ up to now.
      triples: `[L, S, A, S]`, $M(x' \mid x, a)$ up to now.
      pairs_at_start: `[L, S, A]`, $N(x, a)$ when the epoch began.
      epoch: $i$, from 1.
    """

    pairs: Int[Array, "layers states actions"]
    triples: Int[Array, "layers states actions states"]
    pairs_at_start: Int[Array, "layers states actions"]
    epoch: Int[Array, ""]


def no_visits(layers: Layers) -> Visits:
    """Before the first episode, in epoch 1."""
    L, S, A = layers.shape
    pairs, triples = jnp.zeros((L, S, A), jnp.int32), jnp.zeros((L, S, A, S), jnp.int32)
    return Visits(pairs, triples, pairs, jnp.ones((), jnp.int32))


def count(layers: Layers, visits: Visits, trajectory: Trajectory) -> tuple[Visits, Bool[Array, ""]]:
    r"""Count an episode, and begin a new epoch if a visited pair has doubled.

    An epoch ends when $N(x_k, a_k) \ge \max\{1, 2 N_i(x_k, a_k)\}$ for a pair of the episode, $N_i$
    being its count when the epoch began.

    Args:
      layers: the states and actions; layers that only pad are not counted.
      visits: up to now.
      trajectory: of the episode.

    Returns:
      The visits, and whether an epoch begins.
    """
    pair = visited(layers, trajectory)
    there = trajectory.states[1:, None] == jnp.arange(layers.shape[1])[None]  # [L, S]
    triple = pair[..., None] & there[:, None, None]
    pairs = visits.pairs + pair
    start = visits.pairs_at_start
    begins = (pair & (pairs >= jnp.maximum(1, 2 * start))).any()
    counted = Visits(
        pairs=pairs,
        triples=visits.triples + triple,
        pairs_at_start=jnp.where(begins, pairs, start),
        epoch=visits.epoch + begins,
    )
    return counted, begins


def estimate(
    layers: Layers,
    visits: Visits,
    *,
    num_episodes: Float[Array, ""] | float,
    delta: Float[Array, ""],
    scale: Float[Array, ""],
) -> ConfidenceSet:
    r"""The confidence set of the visits, $\bar P = M / \max\{1, N\}$ and `scale` times $\epsilon$.

    A pair that was never visited allows every transition, whatever the scale; its center is
    uniform. To be evaluated when an epoch begins: `visits.pairs` are then those at its start.
    """
    dtype = scale.dtype
    pairs = visits.pairs[..., None]
    sizes = jnp.maximum(layers.layer_sizes[1:], 1)[:, None, None]  # [L, 1, 1]
    uniform = layers.triple_mask.astype(dtype) / sizes[..., None].astype(dtype)
    center = jnp.where(pairs > 0, visits.triples.astype(dtype) / jnp.maximum(1, pairs), uniform)
    radius = scale * theory.radius(
        visits.pairs, sizes, layers.num_states, layers.num_actions, num_episodes, delta
    ).astype(dtype)
    radius = jnp.where(visits.pairs > 0, radius, jnp.maximum(radius, 2))
    return ConfidenceSet(center, jnp.where(layers.action_mask, radius, 0))


def contains(
    confidence: ConfidenceSet, transition: Float[Array, "layers states actions states"]
) -> Bool[Array, ""]:
    r"""The event $P \in \mathcal P_i$, up to rounding."""
    distance = jnp.abs(transition - confidence.center).sum(-1)
    rounding = 8 * jnp.finfo(distance.dtype).eps
    return (distance <= confidence.radius + rounding).all()
