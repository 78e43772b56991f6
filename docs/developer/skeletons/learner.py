r"""A learner to copy: always Config, State, init, policy, update, and then the constructor.

It plays actions with probabilities proportional to exp(step * score), where the scores are rewards
minus priced costs: $w_{t+1} = w_t + r_t - \lambda_t^\top G_t$,
$\lambda_{t+1} = [\lambda_t + \eta\, G_t^\top q_t]_+$.
Describe your learner here, with its recursion and a reference.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax.tree_util import Partial
from jaxtyping import Array, Float

from pdgd_jax import Layers, Learner, register_learner
from pdgd_jax.learners import Info, Setting, declares


class Config(NamedTuple):
    """The settings as arrays, so that a new step size does not recompile and can be a `vmap`."""

    layers: Layers
    step_size: Float[Array, ""]


class State(NamedTuple):
    """Only what the next episode needs."""

    scores: Float[Array, "layers states actions"]
    multipliers: Float[Array, " m"]


def init(config, start, key):
    """The state before the first episode; a learner with a random start uses `key`."""
    del config, key
    return start


def policy(config, state):
    """The policy `[L, S, A]`: a distribution in every state, 0 for actions that do not exist."""
    scores = jnp.where(config.layers.action_mask, config.step_size * state.scores, -jnp.inf)
    best = jnp.max(scores, -1, keepdims=True, initial=-1e30)  # padded states have no action
    weights = jnp.exp(scores - best)
    total = weights.sum(-1, keepdims=True)
    return jnp.where(total > 0, weights / jnp.where(total > 0, total, 1), 0)


def update(config, state, trajectory, outcome):
    """The next state; `outcome.reward` is `[L, S, A]`, `outcome.constraints` `[m, L, S, A]`."""
    layer = jnp.arange(trajectory.actions.shape[0])
    walked = layer, trajectory.states[:-1], trajectory.actions
    paid = outcome.constraints[(slice(None), *walked)].sum(-1)  # [m]
    prices = state.multipliers
    following = jnp.maximum(prices + config.step_size * paid, 0)
    value = outcome.reward - jnp.tensordot(prices, outcome.constraints, axes=1)
    info = Info(multipliers=prices, next_multipliers=following)
    return State(state.scores + value, following), info


@declares(knows=[], feedback="full")  # of transitions, rewards, constraints, rho and horizon
def my_learner(cmdp, num_episodes, *, step_size: float = 0.05):
    """Prefer actions with high rewards and low priced costs so far.

    Args:
      cmdp: the CMDP that it will play.
      num_episodes: T.
      step_size: the step size of scores and prices.
    """
    del num_episodes  # for learners whose step sizes depend on it
    config = Config(cmdp.layers, jnp.asarray(step_size, float))
    start = State(jnp.zeros(cmdp.layers.shape), jnp.zeros(cmdp.num_constraints))
    return Learner(
        init=Partial(init, config, start),
        policy=Partial(policy, config),
        update=Partial(update, config),
        setting=Setting(cmdp.layers, num_constraints=cmdp.num_constraints),
    )


register_learner("my-learner", my_learner)
