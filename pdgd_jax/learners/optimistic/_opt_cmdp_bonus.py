r"""OptCMDP-bonus: the linear program of the estimated CMDP with bonuses, in every episode.

Bandit feedback, unknown transitions, rewards and constraints stochastic and stationary. As OptCMDP
(`_opt_cmdp.py`), but it plans with the estimated transitions themselves, and subtracts from all
losses the larger $b = \beta^l + L \sum_{x'} \beta^p$.

Reference:
  Efroni, Mannor and Pirotta (2020), Exploration-Exploitation in Constrained MDPs, arXiv 2003.02189.
  The structure is certain, the constants of the radii are those of published code: `scale` changes
  them.
"""

from jaxtyping import ArrayLike

from pdgd_jax.learners._base import Learner
from pdgd_jax.learners.optimistic._opt_cmdp import planner
from pdgd_jax.models import Layers

__all__ = ["opt_cmdp_bonus"]


def opt_cmdp_bonus(
    layers: Layers,
    num_constraints: int,
    num_episodes: ArrayLike,
    *,
    delta: ArrayLike = 0.05,
    confidence_scale: ArrayLike = 1.0,
) -> Learner:
    r"""OptCMDP-bonus as a learner for `run`: the estimated transitions, and larger bonuses.

    Args:
      layers: as in `opt_cmdp`, like all other arguments.
      num_constraints: $m$.
      num_episodes: $K$.
      delta: the confidence parameter.
      confidence_scale: a factor of all radii.

    Returns:
      A learner with bandit feedback.

    Raises:
      ValueError: if a number is invalid.
    """
    return planner(layers, num_constraints, num_episodes, delta, confidence_scale, True)
