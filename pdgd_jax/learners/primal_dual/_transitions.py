"""What a player holds about the transitions: an estimate with a confidence set, or the truth."""

from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from pdgd_jax._internal.pytree import pytree
from pdgd_jax._internal.typing import Triples
from pdgd_jax.learners._visits import Visits, count, estimate, no_visits
from pdgd_jax.models import Layers, Trajectory
from pdgd_jax.projection import ConfidenceSet, KnownTransitions

__all__ = ["Beliefs", "Estimated", "Given", "Transitions"]


class Beliefs(NamedTuple):
    """The beliefs between episodes.

    Attributes:
      confidence: a set with the true transitions, likely or surely.
      visits: the counters behind it; None if the transitions are known.
    """

    confidence: ConfidenceSet
    visits: Visits | None


@pytree
class Estimated:
    r"""Transitions are estimated from visits, in epochs that double the count of a pair.

    Attributes:
      num_episodes: the number of episodes in the logarithm of the radius.
      delta: the confidence parameter.
      scale: the factor of the radius.
    """

    num_episodes: Float[Array, ""]
    delta: Float[Array, ""]
    scale: Float[Array, ""]

    def _set(self, layers: Layers, visits: Visits) -> ConfidenceSet:
        return estimate(
            layers, visits, num_episodes=self.num_episodes, delta=self.delta, scale=self.scale
        )

    def start(self, layers: Layers) -> Beliefs:
        """Every transition is possible."""
        visits = no_visits(layers)
        return Beliefs(self._set(layers, visits), visits)

    def observe(self, layers: Layers, beliefs: Beliefs, trajectory: Trajectory) -> Beliefs:
        """Count an episode; if an epoch begins, its set is estimated."""
        assert beliefs.visits is not None
        visits, begins = count(layers, beliefs.visits, trajectory)
        confidence = jax.tree.map(
            lambda new, old: jnp.where(begins, new, old),
            self._set(layers, visits),
            beliefs.confidence,
        )
        return Beliefs(confidence, visits)

    def allowed(self, confidence: ConfidenceSet) -> ConfidenceSet:
        """The set to project on."""
        return confidence


@pytree
class Given:
    """Transitions are known.

    Attributes:
      transition: over the triples, $P$.
    """

    transition: Triples

    def start(self, layers: Layers) -> Beliefs:
        """The truth."""
        radius = jnp.zeros(layers.shape, self.transition.dtype)
        return Beliefs(ConfidenceSet(self.transition, radius), None)

    def observe(self, layers: Layers, beliefs: Beliefs, trajectory: Trajectory) -> Beliefs:
        """Nothing is to be learnt."""
        del layers, trajectory
        return beliefs

    def allowed(self, confidence: ConfidenceSet) -> KnownTransitions:
        """The set to project on: distances are over pairs."""
        return KnownTransitions(confidence.center)


Transitions: TypeAlias = Estimated | Given
