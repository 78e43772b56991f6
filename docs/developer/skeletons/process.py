"""A process to copy: an adversary that switches between two tables at random.

For a stochastic process derive from `StochasticProcess`, and write `mean` instead of `extremes`.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from pdgd_jax.processes import AdversarialProcess, Extremes, pytree


@pytree
class Fickle(AdversarialProcess):
    """The first table, until it flips to the second, and back.

    The fields are arrays, so that `stack`, `vmap` and sweeps see them.

    Args:
      first: `[L, S, A]` for a reward in [0, 1], `[m, L, S, A]` for constraints in [-1, 1].
      second: of the same shape.
      flip: the probability of a change after an episode.
    """

    first: Float[Array, "..."]
    second: Float[Array, "..."]
    flip: Float[Array, ""]

    def init(self, key):
        """The state before the first episode; leave this out if there is none."""
        del key
        return jnp.zeros((), bool)

    def draw(self, key, state, episode, policy):
        """The values of an episode and the next state; an adversary may use the policy."""
        del episode, policy
        values = jnp.where(state, self.second, self.first)
        return values, state ^ jax.random.bernoulli(key, self.flip)

    def extremes(self, episodes=None):
        """The worst values, so that the margin rho is known before a run. Optional."""
        del episodes
        return Extremes(jnp.stack([self.first, self.second]), exact=False)
