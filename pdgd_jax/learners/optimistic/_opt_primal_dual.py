r"""OptPrimalDual-CMDP: a step of the policy and of the multipliers in every episode, no plan.

Backwards from $V_L = 0$, for $c$ and each $d_i$, with $b = \beta^l + L \sum_{x'} \beta^p$,

$$Q^l(x,a) = \max\Big\{0, \bar l(x,a) - b(x,a) + \sum_{x'} \bar P(x'|x,a) V^l(x')\Big\}, \qquad
V^l(x) = \sum_a \pi_k(a|x) Q^l(x,a),$$

$$\pi_{k+1}(a|x) \propto \pi_k(a|x)
\exp\Big(-t_K \big(Q^c + \sum_i \lambda_{k,i} Q^{d_i}\big)(x,a)\Big),$$

$$\lambda_{k+1} = \Pi_{[0, \rho_d]^m}\Big(\lambda_k + \tfrac{1}{t_\lambda} (V^d(x_0) - \alpha)\Big),
\qquad t_K = \sqrt{\frac{2 \ln |A|}{L^2 (1 + m \rho_d)^2 K}}, \qquad
t_\lambda = \sqrt{\frac{L^2 m K}{\rho_d^2}}.$$

The estimates are those from before the episode, and the dual step sees $\pi_k$, not $\pi_{k+1}$.
Here $\rho_d$ bounds the optimal *multiplier*, $2 L / \rho$ for a margin $\rho$. With the paper's
radii a pair never visited has a bonus of more than $L$, so that truncation gives 0. With
$\lambda = 0$ this is the optimistic policy optimisation of Shani et al. (2020).

Reference:
  Efroni, Mannor and Pirotta (2020), Exploration-Exploitation in Constrained MDPs, arXiv 2003.02189.
  The shape is certain, the constants are probable: settings change them.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.tree_util import Partial
from jaxtyping import Array, ArrayLike, Float

from pdgd_jax._internal.pytree import as_array, numpy_for, pytree, static
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
from pdgd_jax.planning import evaluate

__all__ = ["opt_primal_dual"]


@pytree
class Config:
    r"""What the learner knows.

    Attributes:
      optimism: the radii.
      step: $t_K$.
      dual_step: $1 / t_\lambda$.
      ceiling: $\rho_d$.
      num_constraints: m.
    """

    optimism: Optimism
    step: Float[Array, ""]
    dual_step: Float[Array, ""]
    ceiling: Float[Array, ""]
    num_constraints: int = static()


class State(NamedTuple):
    r"""The learner between episodes.

    Attributes:
      estimates: of all episodes so far.
      log_policy: `[L, S, A]`, $\ln \pi$; 0 where there is no action.
      multipliers: `[m]`, $\lambda$, of the losses.
    """

    estimates: Estimates
    log_policy: Pairs
    multipliers: Float[Array, " m"]


def _init(config: Config, key: MaybeKey) -> State:
    del key
    layers, dtype, m = config.optimism.layers, config.optimism.scale.dtype, config.num_constraints
    return State(
        no_estimates(layers, m, dtype),
        jnp.log(jnp.where(layers.action_mask, layers.uniform_policy(dtype), 1)),
        jnp.zeros(m, dtype),
    )


def _policy(config: Config, state: State) -> Array:
    return jnp.where(config.optimism.layers.action_mask, jnp.exp(state.log_policy), 0)


def _update(
    config: Config, state: State, trajectory: Trajectory, outcome: Outcome
) -> tuple[State, Info]:
    optimism, estimates = config.optimism, state.estimates
    layers, policy = optimism.layers, _policy(config, state)
    transition, less = optimism.transition(estimates), -optimism.bonus(estimates)
    found = jax.vmap(
        lambda loss: evaluate(layers, policy, loss, transition, bonus=less, lower=0.0)
    )(optimism.means(estimates))
    table = found.action_values  # [1 + m, L, S, A]
    priced = table[0] + (state.multipliers[:, None, None, None] * table[1:]).sum(0)
    raised = jnp.where(layers.action_mask, state.log_policy - config.step * priced, -jnp.inf)
    total = jax.nn.logsumexp(raised, axis=-1, keepdims=True)
    log_policy = jnp.where(layers.action_mask, raised - total, 0)
    excess = found.value[1:] - optimism.threshold()
    multipliers = jnp.clip(state.multipliers + config.dual_step * excess, 0, config.ceiling)
    new = State(observe(layers, estimates, trajectory, outcome), log_policy, multipliers)
    # A price of d is worth half of it in G.
    return new, Info(multipliers=state.multipliers / 2, next_multipliers=multipliers / 2)


def opt_primal_dual(
    layers: Layers,
    num_constraints: int,
    num_episodes: ArrayLike,
    *,
    rho: ArrayLike,
    delta: ArrayLike = 0.05,
    confidence_scale: ArrayLike = 1.0,
    step: ArrayLike | None = None,
    dual_step: ArrayLike | None = None,
    ceiling: ArrayLike | None = None,
) -> Learner:
    r"""OptPrimalDual-CMDP as a learner for `run`.

    Args:
      layers: the states and actions, `cmdp.layers`.
      num_constraints: $m$.
      num_episodes: $K$; may be traced, as all numbers.
      rho: the margin of the constraints, `oracle.slater_margin`.
      delta: the confidence parameter.
      confidence_scale: a factor of all radii; 1 is the paper's.
      step: $t_K$; the paper's by default.
      dual_step: $1 / t_\lambda$; the paper's by default.
      ceiling: the largest multiplier of a loss; $\rho_d = 2 L / \rho$ by default, infinity for the
        variant of published code.

    Returns:
      A learner with bandit feedback, whose multipliers are those of $G$.

    Raises:
      ValueError: if a number is invalid.

    Example:
      >>> import jax
      >>> from pdgd_jax import make, run
      >>> from pdgd_jax.learners import opt_primal_dual
      >>> cmdp = make("random")
      >>> learner = opt_primal_dual(cmdp.layers, cmdp.num_constraints, 100, rho=0.5)
      >>> run(jax.random.key(0), cmdp, learner, 100, checkpoints=2).reward.shape
      (2,)
    """
    optimism, setting = posed(layers, num_constraints, num_episodes, delta, confidence_scale)
    _, L, _, A, K = sizes_of(layers, num_episodes)
    m = num_constraints
    bound = 2 * L / constant("rho", rho, lambda: 1.0)
    xp = numpy_for(K, bound)
    step = constant(
        "step", step, lambda: xp.sqrt(2 * xp.log(A) / (L**2 * (1 + m * bound) ** 2 * K))
    )
    dual_step = constant("dual_step", dual_step, lambda: bound / xp.sqrt(L**2 * m * K))
    ceiling = as_array(bound if ceiling is None else ceiling, float)
    config = Config(optimism, step, dual_step, ceiling, m)
    return Learner(
        Partial(_init, config), Partial(_policy, config), Partial(_update, config), setting
    )
