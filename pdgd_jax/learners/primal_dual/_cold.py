r"""COLD: cautious online learning with known transitions, against a benchmark of windows.

Full information, adversarial rewards *and* constraints. The update is that of Wei, Yu and Neely
(`_wei_yu_neely.py`) with other constants, $V \in (K, T)$ and $\alpha = \max\{T, V \sqrt T\}$. It
competes with policies that satisfy the constraints over every window of $K = T^{1-\varepsilon}$
episodes.

Reference:
  Liakopoulos, Destounis, Paschos, Spyropoulos and Mertikopoulos (2019), Cautious Regret
  Minimization: Online Optimization with Long-Term Budget Constraints. It has one constraint; sums
  over constraints are by analogy.
"""

import numpy as np
from jaxtyping import ArrayLike

from pdgd_jax._internal.pytree import as_array, is_concrete, numpy_for
from pdgd_jax.learners._base import Learner, check_setting
from pdgd_jax.learners.primal_dual._constants import constant, sizes_of
from pdgd_jax.learners.primal_dual._wei_yu_neely import queued
from pdgd_jax.models import LayeredMDP

__all__ = ["cold"]


def cold(
    mdp: LayeredMDP,
    num_constraints: int,
    num_episodes: ArrayLike,
    *,
    epsilon: ArrayLike = 0.5,
    V: ArrayLike | None = None,
    alpha: ArrayLike | None = None,
) -> Learner:
    r"""COLD as a learner for `run`.

    Args:
      mdp: the states, the actions and the true transitions, `cmdp.mdp`.
      num_constraints: $m$.
      num_episodes: $T$; may be traced, as all numbers.
      epsilon: $\varepsilon$ of the window $K = T^{1 - \varepsilon}$, between 0 and 1.
      V: the weight of the loss against the queues; by default $T^{1 - \varepsilon/2}$.
      alpha: the weight of the distance; by default $\max\{T, V \sqrt T\}$.

    Returns:
      A learner whose multipliers are $Q / V$.

    Raises:
      ValueError: if a number is invalid.

    Example:
      >>> from pdgd_jax import make
      >>> from pdgd_jax.learners import cold
      >>> cmdp = make("random")
      >>> learner = cold(cmdp.mdp, cmdp.num_constraints, num_episodes=10_000)
      >>> int(learner.setting.num_episodes)   # run(key, cmdp, learner, 10_000) plays it
      10000
    """
    check_setting(num_episodes, num_constraints=num_constraints)
    xp, _, _, _, T = sizes_of(mdp.layers, num_episodes)
    if is_concrete(epsilon) and not np.all((np.asarray(epsilon) > 0) & (np.asarray(epsilon) < 1)):
        raise ValueError(f"epsilon must lie strictly between 0 and 1; got {epsilon!r}.")
    share = as_array(epsilon, float)
    V = constant("V", V, lambda: T ** (1 - share / 2))
    alpha = constant("alpha", alpha, lambda: numpy_for(T, V).maximum(T, V * xp.sqrt(T)))
    window = as_array(T ** (1 - share), float)
    return queued(mdp, num_constraints, num_episodes, V, alpha, window)
