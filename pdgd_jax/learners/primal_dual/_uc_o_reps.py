r"""UC-O-REPS: entropic mirror descent over occupancies with unknown transitions.

Full information, adversarial losses, no constraints. In each episode it counts its visits, begins a
new epoch with a new confidence set if a count has doubled, and takes a multiplicative step:

$$\hat q_{t+1} = \arg\min_{q \in \Delta(\mathcal P_i)} D(q \,\|\, \hat q_t e^{-\eta \ell_t}),
\qquad \ell_t = -r_t.$$

It is UC-O-GDPS with the relative entropy in place of the Euclidean distance, and promises nothing
about intervals: entries of $\hat q_t$ become exponentially small.

Reference:
  Rosenberg and Mansour (2019), Online Convex Optimization in Adversarial Markov Decision Processes.
  The projection solves their Equation 4; their dual, Equation 5, belongs to another set.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from pdgd_jax._internal.pytree import as_array
from pdgd_jax.learners._base import Learner, Setting, check_setting
from pdgd_jax.learners.primal_dual import _players as players
from pdgd_jax.learners.primal_dual import _primal as primal
from pdgd_jax.learners.primal_dual._constants import constant, sizes_of
from pdgd_jax.learners.primal_dual._mirrors import Entropic
from pdgd_jax.learners.primal_dual._transitions import Estimated
from pdgd_jax.models import Layers, Outcome

__all__ = ["uc_o_reps"]


def uc_o_reps(
    layers: Layers,
    num_episodes: ArrayLike,
    *,
    delta: ArrayLike = 0.05,
    confidence_scale: ArrayLike = 1.0,
    eta: ArrayLike | None = None,
    loss: Callable[[Outcome], Float[Array, "layers states actions"]] | None = None,
) -> Learner:
    r"""UC-O-REPS, a learner for adversarial MDPs without constraints.

    Args:
      layers: the states and actions, `cmdp.layers`.
      num_episodes: $T$; may be traced, as all numbers.
      delta: the confidence parameter.
      confidence_scale: the factor of the radius.
      eta: the step size; by default the paper's $\sqrt{\ln(|X|^2 |A| / L^2) / T}$.
      loss: computes the loss of an episode from its outcome; minus the reward by default.

    Returns:
      A learner that ignores constraints.

    Raises:
      ValueError: if a number is invalid.

    Example:
      >>> import jax
      >>> from pdgd_jax import make
      >>> from pdgd_jax.learners import uc_o_reps
      >>> cmdp = make("random", rewards="phases")
      >>> learner = uc_o_reps(cmdp.layers, num_episodes=200)   # for run(key, cmdp, learner, 200)
      >>> [round(p, 3) for p in learner.policy(learner.init(jax.random.key(0)))[0, 0].tolist()]
      [0.333, 0.333, 0.333]
    """
    check_setting(num_episodes, delta, confidence_scale)
    xp, L, X, A, T = sizes_of(layers, num_episodes)
    delta, scale = as_array(delta, float), as_array(confidence_scale, float)
    eta = constant("eta", eta, lambda: xp.sqrt(xp.log(X**2 * A / L**2) / T))
    config = primal.Config(
        layers,
        Estimated(as_array(num_episodes, float), delta, scale),
        primal.Constant(eta),
        mirror=Entropic(),
    )
    setting = Setting(
        layers,
        delta,
        None,
        scale,
        as_array(num_episodes, jnp.int32),
        constants={"step": eta},
        kind="uc-o-reps" if loss is None else "",
    )
    return players.alone(config, setting, loss)
