r"""A learner to copy: always Config, State, init, policy, update, and then its constructor.

It plays actions in proportion to exp(step * what they have paid), at the prices of the constraints:
$w_{t+1} = w_t + r_t - \lambda_t^\top G_t$, $\lambda_{t+1} = [\lambda_t + \eta\, G_t^\top q_t]_+$.
Say here what yours does, with its recursion and where it comes from.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax.tree_util import Partial
from jaxtyping import Array, Float

from pdgd_jax import Layers, Learner, register_learner
from pdgd_jax.learners import Info, Setting


class Config(NamedTuple):
    """The settings, all arrays: another step size does not recompile, and may be a `vmap`."""

    layers: Layers
    step_size: Float[Array, ""]


class State(NamedTuple):
    """What the next episode needs, and nothing else."""

    scores: Float[Array, "layers states actions"]
    multipliers: Float[Array, " m"]


def init(config, start, key):
    """Before the first episode; `key` is for those that start at random."""
    del config, key
    return start


def policy(config, state):
    """What to play, `[L, S, A]`: a distribution in every state, 0 for actions that do not exist."""
    scores = jnp.where(config.layers.action_mask, config.step_size * state.scores, -jnp.inf)
    best = jnp.max(scores, -1, keepdims=True, initial=-1e30)  # padded states have no action
    weights = jnp.exp(scores - best)
    total = weights.sum(-1, keepdims=True)
    return jnp.where(total > 0, weights / jnp.where(total > 0, total, 1), 0)


def update(config, state, trajectory, outcome):
    """After an episode: `outcome.reward` is `[L, S, A]`, `outcome.constraints` `[m, L, S, A]`."""
    layer = jnp.arange(trajectory.actions.shape[0])
    walked = layer, trajectory.states[:-1], trajectory.actions
    paid = outcome.constraints[(slice(None), *walked)].sum(-1)  # [m]
    prices = state.multipliers
    following = jnp.maximum(prices + config.step_size * paid, 0)
    value = outcome.reward - jnp.tensordot(prices, outcome.constraints, axes=1)
    info = Info(multipliers=prices, next_multipliers=following)
    return State(state.scores + value, following), info


def my_learner(cmdp, num_episodes, *, step_size: float = 0.05):
    """Play what has paid, at the prices of the constraints.

    Args:
      cmdp: what it is going to play.
      num_episodes: for how long.
      step_size: of scores and prices.
    """
    del num_episodes  # for those whose step sizes depend on it
    config = Config(cmdp.layers, jnp.asarray(step_size, float))
    start = State(jnp.zeros(cmdp.layers.shape), jnp.zeros(cmdp.num_constraints))
    return Learner(
        init=Partial(init, config, start),
        policy=Partial(policy, config),
        update=Partial(update, config),
        setting=Setting(cmdp.layers, num_constraints=cmdp.num_constraints),
    )


register_learner("my-learner", my_learner)
