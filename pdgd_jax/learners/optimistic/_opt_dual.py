r"""OptDual-CMDP: one optimistic plan for each episode, against multipliers.

As OptCMDP, but the constraints are priced:

$$(\pi_k, P_k) \in \arg\min_{\pi, P \in \mathcal P_k}
V^\pi\Big(\tilde c + \sum_i \lambda_{k,i} \tilde d_i; P\Big),$$

$$\lambda_{k+1} = \Big[\lambda_k + \tfrac{1}{t_\lambda}
(\tilde d^\top q^{P_k,\pi_k} - \alpha)\Big]_+, \qquad t_\lambda = \sqrt{L^2 m K / \rho_d^2},$$

from $\lambda_1 = 0$. Here $\rho_d$ bounds the optimal *multiplier* of the losses, and is
$2 L / \rho$ for a margin $\rho$ of the constraints: it grows when the problem gets harder.

Reference:
  Efroni, Mannor and Pirotta (2020), Exploration-Exploitation in Constrained MDPs, arXiv 2003.02189.
  The constants are probable: `dual_step` and `confidence_scale` change them.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax.tree_util import Partial
from jaxtyping import Array, ArrayLike, Float

from pdgd_jax._internal.pytree import pytree, static
from pdgd_jax._internal.typing import MaybeKey, Pairs
from pdgd_jax.learners._base import Info, Learner
from pdgd_jax.learners.optimistic._estimates import (
    Estimates,
    Optimism,
    no_estimates,
    observe,
    posed,
)
from pdgd_jax.learners.primal_dual import constant, sizes_of
from pdgd_jax.models import Layers, Outcome, Trajectory
from pdgd_jax.planning import best_response

__all__ = ["opt_dual"]


@pytree
class Config:
    r"""What the learner knows.

    Attributes:
      optimism: the radii.
      dual_step: $1 / t_\lambda$.
      num_constraints: m.
    """

    optimism: Optimism
    dual_step: Float[Array, ""]
    num_constraints: int = static()


class State(NamedTuple):
    r"""The learner between episodes.

    Attributes:
      estimates: of all episodes so far.
      policy: `[L, S, A]`, to play next.
      excess: `[m]`, $\tilde d^\top q - \alpha$ of the plan.
      multipliers: `[m]`, $\lambda$, of the losses.
      value: of the plan, in losses priced by the multipliers.
    """

    estimates: Estimates
    policy: Pairs
    excess: Float[Array, " m"]
    multipliers: Float[Array, " m"]
    value: Float[Array, ""]


def _plan(config: Config, estimates: Estimates, multipliers: Array) -> State:
    optimism = config.optimism
    losses = optimism.means(estimates) - optimism.of_losses(estimates)[None]
    priced = losses[0] + (multipliers[:, None, None, None] * losses[1:]).sum(0)
    box = optimism.box(estimates)
    plan = best_response(optimism.layers, priced, box, minimise=True)
    pairs = optimism.layers.to_pairs(plan.occupancy)
    excess = (losses[1:] * pairs[None]).sum((1, 2, 3)) - optimism.threshold()
    return State(estimates, plan.policy, excess, multipliers, plan.value)


def _init(config: Config, key: MaybeKey) -> State:
    del key
    dtype, m = config.optimism.scale.dtype, config.num_constraints
    estimates = no_estimates(config.optimism.layers, m, dtype)
    return _plan(config, estimates, jnp.zeros(m, dtype))


def _policy(config: Config, state: State) -> Array:
    del config
    return state.policy


def _update(
    config: Config, state: State, trajectory: Trajectory, outcome: Outcome
) -> tuple[State, Info]:
    estimates = observe(config.optimism.layers, state.estimates, trajectory, outcome)
    multipliers = jnp.maximum(state.multipliers + config.dual_step * state.excess, 0)
    new = _plan(config, estimates, multipliers)
    # A price of d is worth half of it in G.
    return new, Info(multipliers=state.multipliers / 2, next_multipliers=multipliers / 2)


def opt_dual(
    layers: Layers,
    num_constraints: int,
    num_episodes: ArrayLike,
    *,
    rho: ArrayLike,
    delta: ArrayLike = 0.05,
    confidence_scale: ArrayLike = 1.0,
    dual_step: ArrayLike | None = None,
) -> Learner:
    r"""OptDual-CMDP as a learner for `run`.

    Args:
      layers: the states and actions, `cmdp.layers`.
      num_constraints: $m$.
      num_episodes: $K$; may be traced, as all numbers.
      rho: the margin of the constraints, `oracle.slater_margin`; the multipliers are expected below
        $2 L / \rho$.
      delta: the confidence parameter.
      confidence_scale: a factor of all radii; 1 is the paper's.
      dual_step: $1 / t_\lambda$; the paper's by default.

    Returns:
      A learner with bandit feedback, whose multipliers are those of $G$.

    Raises:
      ValueError: if a number is invalid.

    Example:
      >>> from pdgd_jax import make
      >>> from pdgd_jax.learners import opt_dual
      >>> cmdp = make("random")
      >>> learner = opt_dual(cmdp.layers, cmdp.num_constraints, 1_000, rho=0.5)
      >>> learner.setting.feedback
      'bandit'
    """
    optimism, setting = posed(layers, num_constraints, num_episodes, delta, confidence_scale)
    xp, L, _, _, K = sizes_of(layers, num_episodes)
    rho = constant("rho", rho, lambda: 1.0)
    bound = 2 * L / rho
    step = constant("dual_step", dual_step, lambda: bound / xp.sqrt(L**2 * num_constraints * K))
    config = Config(optimism, step, num_constraints)
    return Learner(
        Partial(_init, config), Partial(_policy, config), Partial(_update, config), setting
    )
