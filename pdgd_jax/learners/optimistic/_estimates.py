r"""What optimistic learners with bandit feedback estimate, and how far it may be off.

They think in losses: $c = 1 - r$ and $d_i = (1 + G_i) / 2$, all in [0, 1], with the threshold
$\alpha = L / 2$. Every occupancy has mass 1 in each of the $L$ layers, so that
$d_i^\top q - \alpha = \tfrac12 G_i^\top q$ exactly: margins are half as large, and multipliers
twice. This is the only file that converts.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Int

from pdgd_jax import theory
from pdgd_jax._internal.pytree import as_array, pytree
from pdgd_jax._internal.sums import Compensated
from pdgd_jax.learners._base import Setting, check_setting
from pdgd_jax.models import Layers, Outcome, Trajectory, visited
from pdgd_jax.projection import BoxSet

__all__ = ["Estimates", "Optimism", "no_estimates", "observe", "posed"]


class Estimates(NamedTuple):
    """The counts and sums of all episodes so far.

    Attributes:
      pairs: `[L, S, A]`, N.
      triples: over the triples, M.
      losses: `[1 + m, L, S, A]`, the sums of c and of each d; a plain float32 would stop growing
        after 10^7 visits.
    """

    pairs: Int[Array, "layers states actions"]
    triples: Int[Array, "layers *triples"]
    losses: Compensated

    @property
    def dtype(self) -> jnp.dtype:
        """The precision of the sums."""
        return self.losses.value.dtype


def no_estimates(layers: Layers, num_constraints: int, dtype: jnp.dtype) -> Estimates:
    """Before the first episode."""
    pairs, triples = (jnp.zeros(x, jnp.int32) for x in (layers.shape, layers.triple_shape))
    losses = Compensated.zeros((1 + num_constraints, *layers.shape), dtype)
    return Estimates(pairs, triples, losses)


def observe(
    layers: Layers, estimates: Estimates, trajectory: Trajectory, outcome: Outcome
) -> Estimates:
    """Count an episode; of the outcome only what was visited is looked at."""
    pair = visited(layers, trajectory)
    there = trajectory.states[1:, None] == jnp.arange(layers.shape[1])[None]  # [L, S]
    triple = layers.to_triples(pair) & layers.at_next(there)
    losses = jnp.concatenate([1 - outcome.reward[None], (1 + outcome.constraints) / 2])
    seen = jnp.where(pair[None], losses, 0).astype(estimates.dtype)
    pairs, triples = estimates.pairs + pair, estimates.triples + triple
    return Estimates(pairs, triples, estimates.losses.add(seen))


@pytree
class Optimism:
    r"""The radii of Efroni et al. around the estimates.

    $$\beta^p = 2 \sqrt{\frac{\bar P (1 - \bar P) \ln(6 |X| |A| K / \delta)}{n}}
    + \frac{14 \ln(6 |X| |A| K / \delta)}{3 n}, \qquad
    \beta^l = \sqrt{\frac{2 \ln(6 |X| |A| K (m + 1) / \delta)}{n}}, \quad n = \max\{1, N\}.$$

    Attributes:
      layers: the states and actions.
      num_episodes: $K$.
      delta: $\delta$.
      scale: a factor of all radii; 1 is the paper's.
    """

    layers: Layers
    num_episodes: Float[Array, ""]
    delta: Float[Array, ""]
    scale: Float[Array, ""]

    def _logarithm(self, count: int) -> Array:
        sizes = self.layers.num_states * self.layers.num_actions
        return jnp.log(6 * sizes * count * (self.num_episodes / self.delta))

    def transition(self, estimates: Estimates) -> Array:
        r"""$\bar P$, uniform for a pair that was never visited."""
        layers, dtype = self.layers, estimates.dtype
        visits = layers.to_triples(estimates.pairs)
        sizes = layers.to_triples(jnp.broadcast_to(layers.num_successors, layers.shape))
        uniform = layers.triple_mask.astype(dtype) / jnp.maximum(sizes, 1).astype(dtype)
        return jnp.where(
            visits > 0, estimates.triples.astype(dtype) / jnp.maximum(1, visits), uniform
        )

    def around(self, estimates: Estimates) -> Array:
        r"""$\beta^p$, over the triples."""
        center = self.transition(estimates)
        visits = jnp.broadcast_to(self.layers.to_triples(estimates.pairs), center.shape)
        radius = theory.bernstein_radius(center, visits, self._logarithm(1), "efroni")
        return (self.scale * radius).astype(center.dtype)

    def box(self, estimates: Estimates) -> BoxSet:
        r"""The transitions within $\beta^p$; every one for a pair that was never visited."""
        center, radius = self.transition(estimates), self.around(estimates)
        unseen = self.layers.to_triples(estimates.pairs) == 0
        radius = jnp.where(unseen, 1, radius)
        present = self.layers.triple_mask
        lower, upper = jnp.maximum(center - radius, 0), jnp.minimum(center + radius, 1)
        return BoxSet(*(jnp.where(present, x, 0) for x in (lower, upper)))

    def means(self, estimates: Estimates) -> Array:
        r"""$\bar c$ and each $\bar d_i$, `[1 + m, L, S, A]`; 0 for a pair never visited."""
        return estimates.losses.value / jnp.maximum(1, estimates.pairs)[None]

    def of_losses(self, estimates: Estimates) -> Array:
        r"""$\beta^l$, `[L, S, A]`."""
        count = estimates.losses.value.shape[0]
        radius = theory.hoeffding_radius(estimates.pairs, self._logarithm(count))
        radius = jnp.where(self.layers.action_mask, self.scale * radius, 0)
        return radius.astype(estimates.dtype)

    def bonus(self, estimates: Estimates) -> Array:
        r"""$b(x,a) = \beta^l(x,a) + L \sum_{x'} \beta^p(x,a,x')$ makes $\bar P$ optimistic."""
        present = self.layers.triple_mask
        total = self.layers.to_pairs(jnp.where(present, self.around(estimates), 0))
        return self.of_losses(estimates) + self.layers.num_layers * total

    def threshold(self) -> Array:
        r"""$\alpha = L / 2$."""
        return self.layers.num_layers / 2


def posed(
    layers: Layers,
    num_constraints: int,
    num_episodes: ArrayLike,
    delta: ArrayLike,
    confidence_scale: ArrayLike,
) -> tuple[Optimism, Setting]:
    """The radii of a learner, and the problem that it is built for.

    Raises:
      ValueError: if a number is invalid.
    """
    check_setting(num_episodes, delta, confidence_scale, num_constraints)
    T, delta, scale = (as_array(x, float) for x in (num_episodes, delta, confidence_scale))
    setting = Setting(
        layers,
        delta=delta,
        confidence_scale=scale,
        num_episodes=as_array(num_episodes, jnp.int32),
        num_constraints=num_constraints,
        feedback="bandit",
    )
    return Optimism(layers, T, delta, scale), setting
