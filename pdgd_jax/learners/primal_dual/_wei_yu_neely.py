r"""The algorithm of Wei, Yu and Neely for online MDPs with constraints and known transitions.

Full information, adversarial rewards, constraints drawn from one distribution. It needs no $\rho$.
With virtual queues $Q$ and over pairs,

$$q_{t+1} = \Pi_{\Delta(P)}\Big(q_t - \frac{-V r_t + \sum_i Q_i(t) G_{t,i}}{2 \alpha}\Big), \qquad
Q(t+1) = [Q(t) + G_t^\top q_{t+1}]_+.$$

The queues see the *new* occupancy and the *old* constraints. As multipliers $\lambda = Q / V$: a
gradient step of size $V / (2 \alpha)$, a dual step of size $1 / V$, and no ceiling.

An episode here is a slot of their continuing MDPs, and each occupancy is attained at once: their
terms of mixing times vanish.

Reference:
  Wei, Yu and Neely (2018), Online Learning in Weakly Coupled Markov Decision Processes: A
  Convergence Time Study. Its constants are not certain here: they are settings. Nor is it certain
  that the queues see the new occupancy.
"""

import math

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from pdgd_jax._internal.pytree import as_array
from pdgd_jax.learners._base import Learner, Setting, check_setting
from pdgd_jax.learners.primal_dual import _dual as dual
from pdgd_jax.learners.primal_dual import _players as players
from pdgd_jax.learners.primal_dual import _primal as primal
from pdgd_jax.learners.primal_dual._constants import constant, sizes_of
from pdgd_jax.learners.primal_dual._mirrors import Euclidean
from pdgd_jax.learners.primal_dual._transitions import Given
from pdgd_jax.models import LayeredMDP

__all__ = ["queued", "wei_yu_neely"]


def queued(
    mdp: LayeredMDP,
    num_constraints: int,
    num_episodes: ArrayLike,
    V: Float[Array, ""],
    alpha: Float[Array, ""],
    window: Float[Array, ""],
) -> Learner:
    """Projected gradient descent over pairs with virtual queues, for any constants.

    `window` is that of the benchmark that it competes with against adversarial constraints; NaN if
    it promises nothing there.
    """
    player = primal.Config(
        mdp.layers, Given(mdp.transition), primal.Constant(V / (2 * alpha)), mirror=Euclidean()
    )
    config = players.Config(player, 1 / V, dual.Orthant(), num_constraints, looks_ahead=True)
    setting = Setting(
        mdp.layers,
        num_episodes=as_array(num_episodes, jnp.int32),
        num_constraints=num_constraints,
        constants={"V": V, "alpha": alpha, "window": window},
        kind="queues",
    )
    return players.together(config, setting)


def wei_yu_neely(
    mdp: LayeredMDP,
    num_constraints: int,
    num_episodes: ArrayLike,
    *,
    V: ArrayLike | None = None,
    alpha: ArrayLike | None = None,
) -> Learner:
    r"""The algorithm of Wei, Yu and Neely as a learner for `run`.

    Args:
      mdp: the states, the actions and the true transitions, `cmdp.mdp`.
      num_constraints: $m$.
      num_episodes: $T$; may be traced, as all numbers.
      V: the weight of the loss against the queues; by default $\sqrt T$. Not certain.
      alpha: the weight of the distance; by default $T$. Not certain.

    Returns:
      A learner whose multipliers are $Q / V$.

    Raises:
      ValueError: if a number is invalid.

    Example:
      >>> from pdgd_jax import make
      >>> from pdgd_jax.learners import wei_yu_neely
      >>> cmdp = make("random")
      >>> learner = wei_yu_neely(cmdp.mdp, cmdp.num_constraints, num_episodes=10_000)
      >>> int(learner.setting.num_episodes)   # run(key, cmdp, learner, 10_000) plays it
      10000
    """
    check_setting(num_episodes, num_constraints=num_constraints)
    xp, _, _, _, T = sizes_of(mdp.layers, num_episodes)
    V = constant("V", V, lambda: xp.sqrt(T))
    alpha = constant("alpha", alpha, lambda: T)
    no_window = as_array(math.nan, float)
    return queued(mdp, num_constraints, num_episodes, V, alpha, no_window)
