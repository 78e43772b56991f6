r"""UC-O-GDPS: projected online gradient descent over occupancies with unknown transitions.

It is the primal player of PDGD-OPS, and by itself a learner for adversarial MDPs. In each episode
it counts its visits, begins a new epoch with a new confidence set if a count has doubled, and takes
a gradient step:

$$\hat q_{t+1} = \Pi_{\Delta(\mathcal P_i)}(\hat q_t - \eta_t \ell_t), \qquad
\eta_t = \frac{1}{\bar\ell_t C \sqrt T}, \qquad
\bar\ell_t = \max_{\tau \le t} \|\ell_\tau\|_\infty.$$

Reference:
  Germano, Stradi, Genalti, Castiglioni, Marchesi and Gatti (2023), A Best-of-Both-Worlds Algorithm
  for Constrained MDPs with Long-Term Constraints.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from pdgd_jax._internal.pytree import as_array
from pdgd_jax.learners._base import Learner, Setting, check_setting
from pdgd_jax.learners._rates import RatesLike, rates_of
from pdgd_jax.learners.primal_dual import _players as players
from pdgd_jax.learners.primal_dual import _primal as primal
from pdgd_jax.learners.primal_dual._mirrors import Euclidean
from pdgd_jax.learners.primal_dual._transitions import Estimated
from pdgd_jax.models import Layers, Outcome
from pdgd_jax.projection import Solver, solver_of

__all__ = ["uc_o_gdps"]


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
    config = primal.Config(
        layers,
        Estimated(T, delta, scale),
        primal.Normalised(constants.primal, T),
        mirror=Euclidean(solver),
    )
    setting = Setting(layers, delta, constants, scale, as_array(num_episodes, jnp.int32))
    return players.alone(config, setting, loss)
