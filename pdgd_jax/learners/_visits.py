"""Visit counts, and the confidence sets estimated from them."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from pdgd_jax import theory
from pdgd_jax.models import Layers, Trajectory, visited
from pdgd_jax.projection import ConfidenceSet

__all__ = ["Visits", "count", "estimate", "no_visits"]


class Visits(NamedTuple):
    r"""How often each pair and each triple was visited, now and when the epoch began.

    Attributes:
      pairs: `[L, S, A]`, $N(x, a)$ up to now.
      triples: over the triples, $M(x' \mid x, a)$ up to now.
      pairs_at_start: `[L, S, A]`, $N(x, a)$ when the epoch began.
      epoch: $i$, from 1.
    """

    pairs: Int[Array, "layers states actions"]
    triples: Int[Array, "layers *triples"]
    pairs_at_start: Int[Array, "layers states actions"]
    epoch: Int[Array, ""]


def no_visits(layers: Layers) -> Visits:
    """The counters before the first episode, in epoch 1."""
    pairs, triples = (jnp.zeros(x, jnp.int32) for x in (layers.shape, layers.triple_shape))
    return Visits(pairs, triples, pairs, jnp.ones((), jnp.int32))


def count(layers: Layers, visits: Visits, trajectory: Trajectory) -> tuple[Visits, Bool[Array, ""]]:
    r"""Count an episode, and begin a new epoch if a visited pair has doubled.

    An epoch ends when $N(x_k, a_k) \ge \max\{1, 2 N_i(x_k, a_k)\}$ for a pair of the episode, where
    $N_i$ is its count when the epoch began.

    Args:
      layers: the states and actions; padding layers are not counted.
      visits: the counters before the episode.
      trajectory: the trajectory of the episode.

    Returns:
      The new counters, and whether an epoch begins.
    """
    pair = visited(layers, trajectory)
    there = trajectory.states[1:, None] == jnp.arange(layers.shape[1])[None]  # [L, S]
    triple = layers.to_triples(pair) & layers.at_next(there)
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

    A pair that was never visited allows every transition for any scale; its center is uniform. Call
    this when an epoch begins, so that `visits.pairs` are the counts at its start.
    """
    dtype = scale.dtype
    pairs = layers.to_triples(visits.pairs)
    sizes = jnp.maximum(layers.num_successors, 1)
    uniform = layers.triple_mask.astype(dtype) / jnp.maximum(layers.to_triples(sizes), 1).astype(
        dtype
    )
    center = jnp.where(pairs > 0, visits.triples.astype(dtype) / jnp.maximum(1, pairs), uniform)
    radius = scale * theory.radius(
        visits.pairs, sizes, layers.num_states, layers.num_actions, num_episodes, delta
    ).astype(dtype)
    radius = jnp.where(visits.pairs > 0, radius, jnp.maximum(radius, 2))
    return ConfidenceSet(center, jnp.where(layers.action_mask, radius, 0))
