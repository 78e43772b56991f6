r"""UC-O-GDPS: projected online gradient descent over occupancies with unknown transitions.

It is the primal player of PDGD-OPS, and by itself a learner for adversarial MDPs. In each episode
it counts its visits, begins a new epoch with a new confidence set if a count has doubled, and takes
a gradient step:

$$\hat q_{t+1} = \Pi_{\Delta(\mathcal P_i)}(\hat q_t - \eta_t \ell_t), \qquad
\eta_t = \frac{1}{\bar\ell_t C \sqrt T}, \qquad
\bar\ell_t = \max_{\tau \le t} \|\ell_\tau\|_\infty.$$
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.tree_util import Partial
from jaxtyping import Array, ArrayLike, Float, PyTree

from pdgd_jax._internal.pytree import as_array, pytree, static
from pdgd_jax._internal.typing import MaybeKey
from pdgd_jax.learners._base import Info, Learner, Setting, check_setting
from pdgd_jax.learners._rates import RatesLike, rates_of
from pdgd_jax.learners._visits import Visits, count, estimate, no_visits
from pdgd_jax.models import LayeredMDP, Layers, Outcome, Trajectory, occupancy_of, policy_of
from pdgd_jax.projection import (
    ConfidenceSet,
    ProjectionInfo,
    Solver,
    cold_start,
    project,
    solver_of,
)

__all__ = ["Config", "State", "init", "policy", "uc_o_gdps", "update"]


@pytree
class Config:
    """The settings of the primal player; every number may be traced.

    Attributes:
      layers: the states and actions.
      constant: C of the step size.
      delta: the confidence parameter.
      confidence_scale: the factor of the paper's radius.
      num_episodes: T.
      solver: the solver of the projection.
    """

    layers: Layers
    constant: Float[Array, ""]
    delta: Float[Array, ""]
    confidence_scale: Float[Array, ""]
    num_episodes: Float[Array, ""]
    solver: str | Solver = static(default="newton")


class State(NamedTuple):
    r"""The state between episodes.

    Attributes:
      occupancy: over the triples, $\hat q_t$.
      confidence: $\mathcal P_i$, onto which $\hat q_t$ was projected.
      visits: the counters.
      largest_loss: $\bar\ell_{t-1}$.
      warm_start: the warm start of the projection.
    """

    occupancy: Float[Array, "layers *triples"]
    confidence: ConfidenceSet
    visits: Visits
    largest_loss: Float[Array, ""]
    warm_start: PyTree


def _estimate(config: Config, visits: Visits) -> ConfidenceSet:
    return estimate(
        config.layers,
        visits,
        num_episodes=config.num_episodes,
        delta=config.delta,
        scale=config.confidence_scale,
    )


def init(config: Config) -> State:
    r"""Every transition is possible, and $\hat q_1$ is that of the uniform policy and transitions.

    Without successor lists it is uniform over each layer's triples, as in the paper.
    """
    layers, dtype = config.layers, config.constant.dtype
    visits = no_visits(layers)
    confidence = _estimate(config, visits)
    uniform = layers.uniform_policy(dtype)
    if layers.successors is None:
        share = 1 / jnp.maximum(layers.layer_sizes[:-1], 1).astype(dtype)[:, None, None]
        occupancy = (share * uniform)[..., None] * confidence.center
    else:
        occupancy = occupancy_of(LayeredMDP(layers, confidence.center), uniform)
    return State(
        occupancy=occupancy,
        confidence=confidence,
        visits=visits,
        largest_loss=jnp.zeros((), dtype),
        warm_start=cold_start(layers, config.solver, dtype),
    )


def policy(config: Config, state: State) -> Float[Array, "layers states actions"]:
    r"""$\pi^{\hat q_t}$, uniform in states without mass."""
    return policy_of(state.occupancy, config.layers)


def update(
    config: Config,
    state: State,
    trajectory: Trajectory,
    loss: Float[Array, "layers states actions"],
) -> tuple[State, ProjectionInfo]:
    """One update, for any loss.

    Args:
      config: the settings.
      state: the state during the episode.
      trajectory: the trajectory that was played.
      loss: `[L, S, A]`, of any size; 0 outside the masks.

    Returns:
      The next state, and how well its projection was solved.

    Reference:
      The paper's Algorithm UC-O-GDPS.UPDATE.
    """
    layers, dtype = config.layers, state.occupancy.dtype
    visits, begins = count(layers, state.visits, trajectory)
    confidence = jax.tree.map(
        lambda new, old: jnp.where(begins, new, old), _estimate(config, visits), state.confidence
    )
    loss = loss.astype(dtype)
    largest = jnp.maximum(state.largest_loss, jnp.abs(loss).max())
    inverse = largest * config.constant * jnp.sqrt(config.num_episodes.astype(dtype))
    step_size = jnp.where(largest > 0, 1 / jnp.where(largest > 0, inverse, 1), 0)
    result = project(
        layers,
        state.occupancy - step_size * layers.to_triples(loss),
        confidence,
        solver=config.solver,
        warm_start=state.warm_start,
    )
    following = State(result.occupancy, confidence, visits, largest, result.warm_start)
    return following, result.info


def uc_o_gdps(
    layers: Layers,
    num_episodes: ArrayLike,
    *,
    delta: ArrayLike = 0.05,
    rates: RatesLike = "tuned",
    confidence_scale: ArrayLike = 1.0,
    solver: str | Solver = "newton",
    loss: Callable[[Outcome], Float[Array, "layers states actions"]] | None = None,
) -> Learner:
    r"""The primal player alone: a learner for adversarial MDPs without constraints.

    Args:
      layers: the states and actions, `cmdp.layers`.
      num_episodes: $T$; may be traced.
      delta: the confidence parameter.
      rates: "theory", "tuned", or a pair whose first number is $C$.
      confidence_scale: the factor of the paper's radius.
      solver: the solver of the projection.
      loss: computes the loss of an episode from its outcome; minus the reward by default.

    Returns:
      A learner that ignores constraints.

    Raises:
      ValueError: if a number is invalid, or the rates or the solver are unknown.

    Example:
      >>> import jax
      >>> from pdgd_jax import make, uc_o_gdps
      >>> cmdp = make("random", rewards="phases")
      >>> learner = uc_o_gdps(cmdp.layers, num_episodes=200)   # for run(key, cmdp, learner, 200)
      >>> [round(p, 3) for p in learner.policy(learner.init(jax.random.key(0)))[0, 0].tolist()]
      [0.333, 0.333, 0.333]
    """
    check_setting(num_episodes, delta, confidence_scale)
    solver_of(solver)
    delta, scale = as_array(delta, float), as_array(confidence_scale, float)
    constants = rates_of(rates, layers, 1, num_episodes, delta)
    T = as_array(num_episodes, float)
    config = Config(layers, constants.primal, delta, scale, T, solver)
    return Learner(
        init=Partial(_init, config),
        policy=Partial(policy, config),
        update=Partial(_update, config, Partial(loss or _minus_reward)),
        setting=Setting(layers, delta, constants, scale, as_array(num_episodes, jnp.int32)),
    )


def _minus_reward(outcome: Outcome) -> Array:
    return -outcome.reward


def _init(config: Config, key: MaybeKey) -> State:
    del key
    return init(config)


def _update(
    config: Config,
    loss_of: Callable[[Outcome], Array],
    state: State,
    trajectory: Trajectory,
    outcome: Outcome,
) -> tuple[State, Info]:
    loss = loss_of(outcome)
    following, projection = update(config, state, trajectory, loss)
    info = Info(
        occupancy=state.occupancy,
        confidence=state.confidence,
        loss=loss,
        epoch=following.visits.epoch,
        projection=projection,
    )
    return following, info
