r"""OptCMDP: the linear program of an optimistic CMDP, in every episode.

Bandit feedback, unknown transitions, rewards and constraints stochastic and stationary. With the
losses and radii of `_estimates.py`, $\tilde c = \bar c - \beta^l$ and
$\tilde d_i = \bar d_i - \beta^l$, OptCMDP plays the policy of

$$\min_{z \in \Delta(\mathcal P)} \tilde c^\top z \quad\text{such that}\quad
\tilde d_i^\top z \le \alpha,$$

where $\mathcal P$ are the transitions within $\beta^p$ of the estimate. If nothing is feasible, it
plays the policy that violates the worst constraint the least.

Reference:
  Efroni, Mannor and Pirotta (2020), Exploration-Exploitation in Constrained MDPs, arXiv 2003.02189.
  The structure is certain, the constants of the radii are those of published code: `scale` changes
  them. The paper does not clip the optimistic losses to [0, 1], and neither does this.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax.tree_util import Partial
from jaxtyping import Array, ArrayLike, Bool, Float

from pdgd_jax._internal.pytree import pytree, static
from pdgd_jax._internal.typing import MaybeKey, Triples
from pdgd_jax.learners._base import Info, Learner
from pdgd_jax.learners.optimistic._estimates import (
    Estimates,
    Optimism,
    no_estimates,
    observe,
    posed,
)
from pdgd_jax.models import Layers, Outcome, Trajectory, policy_of
from pdgd_jax.planning import first_prices, plan_constrained
from pdgd_jax.projection import BoxSet, KnownTransitions

__all__ = ["opt_cmdp", "planner"]


@pytree
class Config:
    """What the learner knows.

    Attributes:
      optimism: the radii.
      num_constraints: m.
      bonus: whether the estimate itself is planned with, and a bonus.
    """

    optimism: Optimism
    num_constraints: int = static()
    bonus: bool = static()


class State(NamedTuple):
    r"""The learner between episodes.

    Attributes:
      estimates: of all episodes so far.
      occupancy: over the triples, $z$, whose policy is played next.
      value: $\tilde c^\top z$, the optimistic loss.
      multipliers: `[m]`, those of $G$.
      feasible: whether the program was.
      prices: where the next program starts.
    """

    estimates: Estimates
    occupancy: Triples
    value: Float[Array, ""]
    multipliers: Float[Array, " m"]
    feasible: Bool[Array, ""]
    prices: Float[Array, "m_and_1 m_and_1"]


def _plan(config: Config, estimates: Estimates, prices: Array) -> State:
    optimism = config.optimism
    layers = optimism.layers
    allowed: BoxSet | KnownTransitions
    if config.bonus:
        allowed = KnownTransitions(optimism.transition(estimates))
        less = optimism.bonus(estimates)
    else:
        allowed = optimism.box(estimates)
        less = optimism.of_losses(estimates)
    losses = optimism.means(estimates) - less[None]
    # One unit of mass in each layer: a threshold of L / 2 is 1/2 in every pair.
    costs = losses[1:] - 0.5
    plan = plan_constrained(layers, -losses[0], costs, allowed, start=prices)
    multipliers = jnp.where(plan.feasible, plan.multipliers / 2, 0)
    return State(estimates, plan.occupancy, -plan.value, multipliers, plan.feasible, plan.prices)


def _init(config: Config, key: MaybeKey) -> State:
    del key
    dtype = config.optimism.scale.dtype
    estimates = no_estimates(config.optimism.layers, config.num_constraints, dtype)
    return _plan(config, estimates, first_prices(config.num_constraints, dtype))


def _policy(config: Config, state: State) -> Array:
    return policy_of(state.occupancy, config.optimism.layers)


def _update(
    config: Config, state: State, trajectory: Trajectory, outcome: Outcome
) -> tuple[State, Info]:
    estimates = observe(config.optimism.layers, state.estimates, trajectory, outcome)
    new = _plan(config, estimates, state.prices)
    info = Info(
        occupancy=None if config.bonus else state.occupancy,
        multipliers=state.multipliers,
        next_multipliers=new.multipliers,
    )
    return new, info


def planner(
    layers: Layers,
    num_constraints: int,
    num_episodes: ArrayLike,
    delta: ArrayLike,
    confidence_scale: ArrayLike,
    bonus: bool,
) -> Learner:
    """OptCMDP, or with `bonus` OptCMDP-bonus."""
    optimism, setting = posed(layers, num_constraints, num_episodes, delta, confidence_scale)
    config = Config(optimism, num_constraints, bonus)
    return Learner(
        Partial(_init, config), Partial(_policy, config), Partial(_update, config), setting
    )


def opt_cmdp(
    layers: Layers,
    num_constraints: int,
    num_episodes: ArrayLike,
    *,
    delta: ArrayLike = 0.05,
    confidence_scale: ArrayLike = 1.0,
) -> Learner:
    r"""OptCMDP as a learner for `run`: an optimistic linear program in every episode.

    Args:
      layers: the states and actions, `cmdp.layers`.
      num_constraints: $m$.
      num_episodes: $K$; may be traced, as all numbers.
      delta: the confidence parameter.
      confidence_scale: a factor of all radii; 1 is the paper's.

    Returns:
      A learner with bandit feedback; its multipliers are those of the optimistic program.

    Raises:
      ValueError: if a number is invalid.

    Example:
      >>> import jax
      >>> from pdgd_jax import make, run
      >>> from pdgd_jax.learners import opt_cmdp
      >>> cmdp = make("random", sizes=(1, 2, 1))
      >>> learner = opt_cmdp(cmdp.layers, cmdp.num_constraints, 20)
      >>> run(jax.random.key(0), cmdp, learner, 20, checkpoints=2).reward.shape
      (2,)
    """
    return planner(layers, num_constraints, num_episodes, delta, confidence_scale, False)
