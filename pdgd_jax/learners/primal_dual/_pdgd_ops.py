r"""PDGD-OPS: primal-dual gradient descent online policy search.

A primal player (UC-O-GDPS) descends on the Lagrangian loss $\ell_t = G_t \lambda_t - r_t$ over
occupancies, and a dual player (OGD) ascends on $\lambda^\top G_t^\top \hat q_t$ over multipliers.
It is a best-of-both-worlds algorithm: it need not know whether rewards and constraints are
stochastic or adversarial, nor the margin $\rho$.

Reference:
  Germano, Stradi, Genalti, Castiglioni, Marchesi and Gatti (2023), A Best-of-Both-Worlds Algorithm
  for Constrained MDPs with Long-Term Constraints.
"""

from collections.abc import Callable

import jax.numpy as jnp
import optax
from jaxtyping import ArrayLike

from pdgd_jax._internal.pytree import as_array
from pdgd_jax._internal.typing import Triples
from pdgd_jax.learners._base import Learner, Setting, check_setting
from pdgd_jax.learners._rates import RatesLike, rates_of
from pdgd_jax.learners.primal_dual import _dual as dual
from pdgd_jax.learners.primal_dual import _players as players
from pdgd_jax.learners.primal_dual import _primal as primal
from pdgd_jax.learners.primal_dual._mirrors import Euclidean
from pdgd_jax.learners.primal_dual._transitions import Estimated, Given
from pdgd_jax.models import Layers
from pdgd_jax.projection import Solver, solver_of

__all__ = ["pdgd_ops"]


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
    transition: Triples | None = None,
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
      transition: the true transitions, if it is to know them. It then projects over pairs. The step
        sizes stay the same, so that a comparison shows what it costs not to know them.

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
    player = primal.Config(
        layers,
        Estimated(T, delta, scale) if transition is None else Given(transition),
        primal.Normalised(constants.primal, T),
        mirror=Euclidean(solver),
    )
    config = players.Config(player, constants.dual, dual.Box(T), num_constraints, dual_optimizer)
    # Bounds are known only for plain gradient descent.
    known = constants if dual_optimizer is optax.sgd else None
    setting = Setting(
        layers,
        delta,
        known,
        scale,
        as_array(num_episodes, jnp.int32),
        num_constraints,
        kind="" if transition is None else "known",
    )
    return players.together(config, setting)
