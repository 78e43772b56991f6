r"""PDGD-OPS: primal-dual gradient descent online policy search.

A primal player (UC-O-GDPS) descends on the Lagrangian loss $\ell_t = G_t \lambda_t - r_t$ over
occupancies, and a dual player (OGD) ascends on $\lambda^\top G_t^\top \hat q_t$ over multipliers.
It is a best-of-both-worlds algorithm: it need not know whether rewards and constraints are
stochastic or adversarial, nor the margin $\rho$.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import optax
from jax.tree_util import Partial
from jaxtyping import Array, ArrayLike, Float

from pdgd_jax._internal.pytree import as_array, pytree, static
from pdgd_jax._internal.typing import MaybeKey
from pdgd_jax.learners._base import Info, Learner, Setting, check_setting
from pdgd_jax.learners._rates import RatesLike, rates_of
from pdgd_jax.learners.primal_dual import _dual as dual
from pdgd_jax.learners.primal_dual._uc_o_gdps import Config as PrimalConfig
from pdgd_jax.learners.primal_dual._uc_o_gdps import State as PrimalState
from pdgd_jax.learners.primal_dual._uc_o_gdps import init as init_primal
from pdgd_jax.learners.primal_dual._uc_o_gdps import policy as primal_policy
from pdgd_jax.learners.primal_dual._uc_o_gdps import update as update_primal
from pdgd_jax.models import Layers, Outcome, Trajectory
from pdgd_jax.projection import Solver, solver_of

__all__ = ["Config", "State", "init", "pdgd_ops", "policy", "update"]


@pytree
class Config:
    """The settings; every number may be traced.

    Attributes:
      primal: the settings of UC-O-GDPS.
      dual_step: the step size eta of the dual player.
      num_constraints: m.
      dual_optimizer: turns the step size into the dual player's optax transformation.
    """

    primal: PrimalConfig
    dual_step: Float[Array, ""]
    num_constraints: int = static()
    dual_optimizer: Callable[[ArrayLike], optax.GradientTransformation] = static(default=optax.sgd)


class State(NamedTuple):
    """The state between episodes.

    Attributes:
      primal: the state of UC-O-GDPS.
      dual: the multipliers.
    """

    primal: PrimalState
    dual: dual.State


def init(config: Config, key: MaybeKey) -> State:
    r"""$\hat q_1$ uniform, $\lambda_1 = 0$."""
    del key  # nothing is random
    optimizer = config.dual_optimizer(config.dual_step)
    multipliers = dual.init(optimizer, config.num_constraints, config.dual_step.dtype)
    return State(init_primal(config.primal), multipliers)


def policy(config: Config, state: State) -> Float[Array, "layers states actions"]:
    r"""$\pi^{\hat q_t}$."""
    return primal_policy(config.primal, state.primal)


def update(
    config: Config, state: State, trajectory: Trajectory, outcome: Outcome
) -> tuple[State, Info]:
    """One episode of both players.

    Reference:
      The paper's Algorithm PDGD-OPS, the body of its loop.
    """
    before, multipliers = state.primal, state.dual.multipliers
    penalty = (multipliers[:, None, None, None] * outcome.constraints).sum(0)
    loss = penalty - outcome.reward
    primal, projection = update_primal(config.primal, before, trajectory, loss)
    following = dual.update(
        config.dual_optimizer(config.dual_step),
        state.dual,
        outcome,
        config.primal.layers.to_pairs(before.occupancy),
        config.primal.num_episodes,
    )
    info = Info(
        occupancy=before.occupancy,
        confidence=before.confidence,
        multipliers=multipliers,
        next_multipliers=following.multipliers,
        loss=loss,
        epoch=primal.visits.epoch,
        projection=projection,
    )
    return State(primal, following), info


def pdgd_ops(
    layers: Layers,
    num_constraints: int,
    num_episodes: ArrayLike,
    *,
    delta: ArrayLike = 0.05,
    rates: RatesLike = "tuned",
    confidence_scale: ArrayLike = 1.0,
    solver: str | Solver = "newton",
    dual_optimizer: Callable[[ArrayLike], optax.GradientTransformation] = optax.sgd,
) -> Learner:
    r"""PDGD-OPS as a learner for `run`.

    Args:
      layers: the states and actions, `cmdp.layers`.
      num_constraints: $m$.
      num_episodes: $T$; step sizes, radii and the box of the multipliers depend on it.
      delta: the confidence parameter.
      rates: "tuned" to use the algorithm, "theory" to check the theorems (it barely moves the
        multipliers before millions of episodes), or a pair $(C, \eta)$; see `learners.rates_of`.
      confidence_scale: the factor of the paper's radius; 1 is the paper's, experiments often use
        less.
      solver: the solver of the projection: "newton", "osqp", "projected_gradient" or a `Solver`.
      dual_optimizer: turns the dual step size into an optax transformation.

    Returns:
      A learner, which is a pytree: `num_episodes`, `delta`, `rates` and `confidence_scale` are
      leaves and may be traced, so that a sweep over them is a `vmap`.

    Raises:
      ValueError: if a number is invalid, or the rates or the solver are unknown.

    Example:
      >>> from pdgd_jax import make, pdgd_ops
      >>> cmdp = make("random")
      >>> learner = pdgd_ops(cmdp.layers, cmdp.num_constraints, num_episodes=10_000)
      >>> C, eta = learner.setting.rates   # run(key, cmdp, learner, 10_000) plays it
      >>> round(float(C), 3), round(float(eta), 5)
      (3.873, 0.0025)

    Reference:
      The paper's Algorithm PDGD-OPS.
    """
    check_setting(num_episodes, delta, confidence_scale, num_constraints)
    solver_of(solver)
    delta, scale = as_array(delta, float), as_array(confidence_scale, float)
    constants = rates_of(rates, layers, num_constraints, num_episodes, delta)
    T = as_array(num_episodes, float)
    primal = PrimalConfig(layers, constants.primal, delta, scale, T, solver)
    config = Config(primal, constants.dual, num_constraints, dual_optimizer)
    # Bounds are known only for plain gradient descent.
    known = constants if dual_optimizer is optax.sgd else None
    return Learner(
        init=Partial(init, config),
        policy=Partial(policy, config),
        update=Partial(update, config),
        setting=Setting(
            layers, delta, known, scale, as_array(num_episodes, jnp.int32), num_constraints
        ),
    )
