r"""The primal player: online mirror descent over the occupancies of a set of transitions.

$$\hat q_{t+1} = \arg\min_{q \in \Delta(\mathcal P_i)} \eta_t \, \ell_t^\top q
+ B(q, \tilde q_t), \qquad \tilde q_t = (1 - \gamma) \hat q_t + \gamma \bar q,$$

where $\mathcal P_i$ is the confidence set after the episode, or the true transitions, and $\bar q$
the occupancy of the uniform policy before the first one. A learner chooses the distance $B$
(`_mirrors.py`), the set (`_transitions.py`), the step size $\eta_t$ and the mixing weight
$\gamma$, which is 0 for most.
"""

from typing import NamedTuple, TypeAlias

import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from pdgd_jax._internal.pytree import pytree, static
from pdgd_jax._internal.typing import Triples
from pdgd_jax.learners._visits import Visits
from pdgd_jax.learners.primal_dual._mirrors import Entropic, Euclidean, Mirror, Point
from pdgd_jax.learners.primal_dual._transitions import Beliefs, Given, Transitions
from pdgd_jax.models import LayeredMDP, Layers, Trajectory, occupancy_of
from pdgd_jax.projection import ConfidenceSet, EntropicInfo, ProjectionInfo

__all__ = ["Config", "Constant", "Normalised", "State", "init", "policy", "update"]


@pytree
class Normalised:
    r"""$\eta_t = 1 / (\bar\ell_t C \sqrt T)$ with $\bar\ell_t$ the largest loss so far.

    Attributes:
      constant: $C$.
      num_episodes: $T$.
    """

    constant: Float[Array, ""]
    num_episodes: Float[Array, ""]

    def size(self, largest: Float[Array, ""]) -> Float[Array, ""]:
        """The step size; 0 while all losses were 0."""
        T = self.num_episodes.astype(largest.dtype)
        inverse = largest * self.constant * jnp.sqrt(T)
        return jnp.where(largest > 0, 1 / jnp.where(largest > 0, inverse, 1), 0)


@pytree
class Constant:
    r"""The same step $\eta$ in every episode.

    Attributes:
      eta: $\eta$.
    """

    eta: Float[Array, ""]

    def size(self, largest: Float[Array, ""]) -> Float[Array, ""]:
        """The step size."""
        return self.eta.astype(largest.dtype)


StepSize: TypeAlias = Normalised | Constant


@pytree
class Config:
    r"""The settings of a primal player; every number may be traced.

    Attributes:
      layers: the states and actions.
      transitions: estimated, or given.
      step_size: the rule of $\eta_t$.
      mixing: $\gamma$; None for none.
      mirror: the mirror map.
    """

    layers: Layers
    transitions: Transitions
    step_size: StepSize
    mixing: Float[Array, ""] | None = None
    mirror: Mirror = static(default=Euclidean())


class State(NamedTuple):
    r"""The state between episodes.

    Attributes:
      occupancy: over the triples, $\hat q_t$.
      confidence: $\mathcal P_i$, onto which $\hat q_t$ was projected.
      visits: the counters; None if transitions are known.
      largest_loss: $\bar\ell_{t-1}$.
      warm_start: the warm start of the projection.
      log_occupancy: $\ln \hat q_t$; None if the mirror map does not use it.
    """

    occupancy: Triples
    confidence: ConfidenceSet
    visits: Visits | None
    largest_loss: Float[Array, ""]
    warm_start: PyTree
    log_occupancy: Triples | None = None

    @property
    def point(self) -> Point:
        """Where the player is."""
        return Point(self.occupancy, self.log_occupancy)


def _uniform(config: Config, center: Triples) -> Triples:
    """The occupancy of the uniform policy.

    Estimated transitions are uniform: without successor lists, so are the triples of a layer.
    """
    layers, dtype = config.layers, center.dtype
    policy = layers.uniform_policy(dtype)
    if isinstance(config.transitions, Given) or layers.successors is not None:
        return occupancy_of(LayeredMDP(layers, center), policy)
    share = 1 / jnp.maximum(layers.layer_sizes[:-1], 1).astype(dtype)[:, None, None]
    return (share * policy)[..., None] * center


def init(config: Config) -> State:
    r"""The state before the first episode.

    $\hat q_1$ is that of the uniform policy. An entropic player that knows the transitions begins
    at the occupancy over pairs with the largest entropy instead, from which no other is far: the
    projection of uniform numbers, which are no occupancy.
    """
    layers, mirror = config.layers, config.mirror
    beliefs = config.transitions.start(layers)
    center = beliefs.confidence.center
    point, warm_start = mirror.at(_uniform(config, center)), mirror.cold(layers, center.dtype)
    if isinstance(config.transitions, Given) and isinstance(mirror, Entropic):
        zero = jnp.zeros((), center.dtype)
        numbers = mirror.at(layers.to_triples(layers.action_mask.astype(center.dtype)) * center)
        nothing = jnp.zeros(layers.shape, center.dtype)
        allowed = config.transitions.allowed(beliefs.confidence)
        point, warm_start, _ = mirror.step(layers, numbers, zero, nothing, allowed, warm_start)
    return State(
        occupancy=point.occupancy,
        confidence=beliefs.confidence,
        visits=beliefs.visits,
        largest_loss=jnp.zeros((), center.dtype),
        warm_start=warm_start,
        log_occupancy=point.log_occupancy,
    )


def policy(config: Config, state: State) -> Float[Array, "layers states actions"]:
    r"""$\pi^{\hat q_t}$, uniform in states without mass."""
    return config.mirror.policy(config.layers, state.point)


def update(
    config: Config,
    state: State,
    trajectory: Trajectory,
    loss: Float[Array, "layers states actions"],
) -> tuple[State, ProjectionInfo | EntropicInfo]:
    """One update, for any loss.

    Args:
      config: the settings.
      state: the state during the episode.
      trajectory: the trajectory that was played.
      loss: `[L, S, A]`, of any size; 0 outside the masks.

    Returns:
      The next state, and how well its projection was solved.
    """
    layers, mirror = config.layers, config.mirror
    beliefs = Beliefs(state.confidence, state.visits)
    confidence, visits = config.transitions.observe(layers, beliefs, trajectory)
    loss = loss.astype(state.occupancy.dtype)
    largest = jnp.maximum(state.largest_loss, jnp.abs(loss).max())
    point = state.point
    if config.mixing is not None:
        weight = config.mixing.astype(loss.dtype)
        start = config.transitions.start(layers).confidence
        point = mirror.mixed(point, _uniform(config, start.center), weight)
    step = mirror.step(
        layers,
        point,
        config.step_size.size(largest),
        loss,
        config.transitions.allowed(confidence),
        state.warm_start,
    )
    found = step.point
    following = State(
        found.occupancy, confidence, visits, largest, step.warm_start, found.log_occupancy
    )
    return following, step.info
