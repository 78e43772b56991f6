r"""O-REPS with full information: entropic mirror descent over the occupancies of known transitions.

$$q_{t+1} = \arg\min_{q \in \Delta(P)} D(q \,\|\, q_t e^{-\eta \ell_t}), \qquad \ell_t = -r_t.$$

Over triples with $q(x,a,x') = q(x,a) P(x' \mid x,a)$ the relative entropy is that over pairs: this
is UC-O-REPS whose confidence set holds the truth alone. With one layer it is Hedge.

Reference:
  Zimin and Neu (2013), Online Learning in Episodic Markovian Decision Processes by Relative Entropy
  Policy Search. That it begins at the occupancy with the largest entropy is not certain here.
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
from pdgd_jax.learners.primal_dual._transitions import Given
from pdgd_jax.models import LayeredMDP, Outcome

__all__ = ["o_reps"]


def o_reps(
    mdp: LayeredMDP,
    num_episodes: ArrayLike,
    *,
    eta: ArrayLike | None = None,
    loss: Callable[[Outcome], Float[Array, "layers states actions"]] | None = None,
) -> Learner:
    r"""O-REPS, a learner for adversarial MDPs with known transitions and without constraints.

    Args:
      mdp: the states, the actions and the true transitions, `cmdp.mdp`.
      num_episodes: $T$; may be traced.
      eta: the step size; by default $\sqrt{\ln(|X| |A| / L) / T}$, with which the paper's bound
        $2 L \sqrt{T \ln(|X| |A| / L)}$ holds. It may be traced. Not certain: the paper's own form
        was not at hand.
      loss: computes the loss of an episode from its outcome; minus the reward by default.

    Returns:
      A learner that ignores constraints.

    Raises:
      ValueError: if a number is invalid.

    Example:
      >>> import jax
      >>> from pdgd_jax import make
      >>> from pdgd_jax.learners import o_reps
      >>> cmdp = make("random", rewards="phases")
      >>> learner = o_reps(cmdp.mdp, num_episodes=200)   # for run(key, cmdp, learner, 200)
      >>> [round(p, 3) for p in learner.policy(learner.init(jax.random.key(0)))[0, 0].tolist()]
      [0.328, 0.291, 0.381]
    """
    check_setting(num_episodes)
    layers = mdp.layers
    xp, L, X, A, T = sizes_of(layers, num_episodes)
    eta = constant("eta", eta, lambda: xp.sqrt(xp.log(X * A / L) / T))
    config = primal.Config(layers, Given(mdp.transition), primal.Constant(eta), mirror=Entropic())
    setting = Setting(
        layers,
        num_episodes=as_array(num_episodes, jnp.int32),
        constants={"step": eta},
        kind="o-reps" if loss is None else "",
    )
    return players.alone(config, setting, loss)
