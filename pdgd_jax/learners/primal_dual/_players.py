r"""A primal and a dual player on the Lagrangian: the loop that most learners of this room share.

The primal player descends on $\ell_t = G_t \lambda_t - r_t$ over occupancies, and the dual player
ascends on $\lambda^\top G_t^\top \hat q$ over multipliers. A learner is a choice of both.
"""

from collections.abc import Callable
from typing import NamedTuple

import optax
from jax.tree_util import Partial
from jaxtyping import Array, ArrayLike, Float

from pdgd_jax._internal.pytree import pytree, static
from pdgd_jax._internal.typing import MaybeKey
from pdgd_jax.learners._base import Info, Learner, Setting
from pdgd_jax.learners.primal_dual import _dual as dual
from pdgd_jax.learners.primal_dual import _primal as primal
from pdgd_jax.models import Outcome, Trajectory

__all__ = ["Config", "State", "alone", "init", "policy", "together", "update"]


@pytree
class Config:
    """The settings; every number may be traced.

    Attributes:
      primal: the primal player.
      dual_step: the step size of the dual player.
      region: where the multipliers are.
      num_constraints: m.
      dual_optimizer: turns the step size into the dual player's optax transformation.
      looks_ahead: whether the dual player sees the primal player's next occupancy.
    """

    primal: primal.Config
    dual_step: Float[Array, ""]
    region: dual.Region
    num_constraints: int = static()
    dual_optimizer: Callable[[ArrayLike], optax.GradientTransformation] = static(default=optax.sgd)
    looks_ahead: bool = static(default=False)


class State(NamedTuple):
    """The state between episodes.

    Attributes:
      primal: the state of the primal player.
      dual: the multipliers.
    """

    primal: primal.State
    dual: dual.State


def init(config: Config, key: MaybeKey) -> State:
    r"""$\hat q_1$ of the primal player, $\lambda_1 = 0$."""
    del key  # nothing is random
    optimizer = config.dual_optimizer(config.dual_step)
    multipliers = dual.init(optimizer, config.num_constraints, config.dual_step.dtype)
    return State(primal.init(config.primal), multipliers)


def policy(config: Config, state: State) -> Float[Array, "layers states actions"]:
    r"""$\pi^{\hat q_t}$."""
    return primal.policy(config.primal, state.primal)


def update(
    config: Config, state: State, trajectory: Trajectory, outcome: Outcome
) -> tuple[State, Info]:
    """One episode of both players."""
    before, multipliers = state.primal, state.dual.multipliers
    penalty = (multipliers[:, None, None, None] * outcome.constraints).sum(0)
    loss = penalty - outcome.reward
    after, projection = primal.update(config.primal, before, trajectory, loss)
    seen = after if config.looks_ahead else before
    following = dual.update(
        config.dual_optimizer(config.dual_step),
        state.dual,
        outcome,
        config.primal.layers.to_pairs(seen.occupancy),
        config.region,
    )
    info = Info(
        occupancy=before.occupancy,
        confidence=before.confidence,
        multipliers=multipliers,
        next_multipliers=following.multipliers,
        loss=loss,
        epoch=None if after.visits is None else after.visits.epoch,
        projection=projection,
        next_occupancy=after.occupancy if config.looks_ahead else None,
    )
    return State(after, following), info


def together(config: Config, setting: Setting) -> Learner:
    """The learner of both players."""
    return Learner(Partial(init, config), Partial(policy, config), Partial(update, config), setting)


def _init_alone(config: primal.Config, key: MaybeKey) -> primal.State:
    del key
    return primal.init(config)


def _update_alone(
    config: primal.Config,
    loss_of: Callable[[Outcome], Array],
    state: primal.State,
    trajectory: Trajectory,
    outcome: Outcome,
) -> tuple[primal.State, Info]:
    loss = loss_of(outcome)
    following, projection = primal.update(config, state, trajectory, loss)
    info = Info(
        occupancy=state.occupancy,
        confidence=state.confidence,
        loss=loss,
        epoch=None if following.visits is None else following.visits.epoch,
        projection=projection,
    )
    return following, info


def _minus_reward(outcome: Outcome) -> Array:
    return -outcome.reward


def alone(
    config: primal.Config, setting: Setting, loss: Callable[[Outcome], Array] | None = None
) -> Learner:
    """The learner of the primal player, which ignores constraints unless its loss has them."""
    return Learner(
        init=Partial(_init_alone, config),
        policy=Partial(primal.policy, config),
        update=Partial(_update_alone, config, Partial(loss or _minus_reward)),
        setting=setting,
    )
