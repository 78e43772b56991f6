r"""UCPD: upper confidence primal-dual, the closest rival of PDGD-OPS.

Full information, unknown transitions, adversarial rewards, constraints drawn from one distribution.
It needs no $\rho$. With virtual queues $Q$ and the weights $V$ and $\alpha$,

$$\hat q_{t+1} = \arg\min_{q \in \Delta(\mathcal P_i)} \langle -V r_t + \textstyle\sum_i Q_i(t)
G_{t,i}, q \rangle + \alpha D(q \,\|\, \tilde q_t), \qquad
Q(t+1) = [Q(t) + G_t^\top \hat q_{t+1}]_+,$$

where $\tilde q_t$ mixes $\hat q_t$ with the uniform occupancy. The queues see the *new* occupancy
and the *old* constraints. As multipliers $\lambda = Q / V$: an entropic step of size $V / \alpha$,
a dual step of size $1 / V$, and no ceiling.

Reference:
  Qiu, Wei, Yang, Ye and Wang (2020), Upper Confidence Primal-Dual Reinforcement Learning for CMDP
  with Adversarial Loss. Its constants are not certain here: they are settings, and their defaults
  those that balance its bounds. Nor is it certain that it mixes before the step, and that the
  queues see the new occupancy.
"""

import jax.numpy as jnp
from jaxtyping import ArrayLike

from pdgd_jax._internal.pytree import as_array
from pdgd_jax.learners._base import Learner, Setting, check_setting
from pdgd_jax.learners.primal_dual import _dual as dual
from pdgd_jax.learners.primal_dual import _players as players
from pdgd_jax.learners.primal_dual import _primal as primal
from pdgd_jax.learners.primal_dual._constants import constant, sizes_of
from pdgd_jax.learners.primal_dual._mirrors import Entropic
from pdgd_jax.learners.primal_dual._transitions import Estimated
from pdgd_jax.models import Layers

__all__ = ["ucpd"]


def ucpd(
    layers: Layers,
    num_constraints: int,
    num_episodes: ArrayLike,
    *,
    delta: ArrayLike = 0.05,
    confidence_scale: ArrayLike = 1.0,
    V: ArrayLike | None = None,
    alpha: ArrayLike | None = None,
    mixing: ArrayLike | None = None,
) -> Learner:
    r"""UCPD as a learner for `run`.

    Args:
      layers: the states and actions, `cmdp.layers`.
      num_constraints: $m$.
      num_episodes: $T$; may be traced, as all numbers.
      delta: the confidence parameter. The radius has $\ln((T+1) |X| |A| / \delta)$. Its $T+1$ is
        not certain; $\delta$ times $1 + 1/T$ makes it $T$.
      confidence_scale: the factor of the radius.
      V: the weight of the loss against the queues; by default $L \sqrt T$. Not certain.
      alpha: the weight of the distance; by default $L T$. Not certain.
      mixing: the share of the uniform occupancy, below 1; by default $1 / T$. Not certain.

    Returns:
      A learner whose multipliers are $Q / V$.

    Raises:
      ValueError: if a number is invalid.

    Example:
      >>> from pdgd_jax import make
      >>> from pdgd_jax.learners import ucpd
      >>> cmdp = make("random")
      >>> learner = ucpd(cmdp.layers, cmdp.num_constraints, num_episodes=10_000)
      >>> int(learner.setting.num_episodes)   # run(key, cmdp, learner, 10_000) plays it
      10000
    """
    check_setting(num_episodes, delta, confidence_scale, num_constraints)
    xp, L, _, _, T = sizes_of(layers, num_episodes)
    delta, scale = as_array(delta, float), as_array(confidence_scale, float)
    V = constant("V", V, lambda: L * xp.sqrt(T))
    alpha = constant("alpha", alpha, lambda: L * T)
    mixing = constant("mixing", mixing, lambda: 1 / T, is_share=True)
    player = primal.Config(
        layers,
        Estimated(as_array(num_episodes, float) + 1, delta, scale),
        primal.Constant(V / alpha),
        mixing,
        mirror=Entropic(),
    )
    config = players.Config(player, 1 / V, dual.Orthant(), num_constraints, looks_ahead=True)
    episodes = as_array(num_episodes, jnp.int32)
    constants = {"V": V, "alpha": alpha, "mixing": mixing}
    setting = Setting(layers, delta, None, scale, episodes, num_constraints, constants, kind="ucpd")
    return players.together(config, setting)
