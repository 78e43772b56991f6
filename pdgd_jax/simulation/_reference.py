"""What a run is measured against: comparators, means, and the terms of the bounds."""

import dataclasses
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, DTypeLike, Float

from pdgd_jax import theory
from pdgd_jax._internal.pytree import as_array, numpy_for, pytree
from pdgd_jax.learners import Setting
from pdgd_jax.models import CMDP
from pdgd_jax.processes import StochasticProcess

__all__ = ["FEASIBLE", "Comparators", "Reference", "dot", "reference"]

# An episode is feasible if no constraint exceeds this share of L, the largest cost of an episode:
# what a float32 can tell from 0.
FEASIBLE = 1e-6


@pytree
class Comparators:
    r"""What the players' interval regrets are measured against.

    Args:
      occupancies: `[n, ...]` over the triples, for the primal player. The paper's bounds apply to
        occupancies of the true MDP that are fixed before the run, such as $q^*$ and $q^\circ$ of an
        adversary that does not depend on chance or on policies.
      multipliers: `[d, m]`, for the dual player.
      opt: the optimum that the strong regret of an episode is against; by default NaN, and so is
        that regret.
    """

    occupancies: Float[Array, "n layers states actions states"] | Float[Array, "n layers triples"]
    multipliers: Float[Array, "d m"]
    opt: Float[Array, ""] = dataclasses.field(default_factory=lambda: as_array(math.nan, float))

    @classmethod
    def default(cls, cmdp: CMDP) -> "Comparators":
        """No occupancies, which need an oracle; the multipliers 0 and the unit vectors."""
        m, dtype = cmdp.num_constraints, cmdp.mdp.transition.dtype
        xp = numpy_for(cmdp.mdp.transition)
        units = xp.concatenate([xp.zeros((1, m), dtype), xp.eye(m, dtype=dtype)])
        return cls(as_array(xp.zeros((0, *cmdp.layers.triple_shape), dtype)), as_array(units))


class Reference(NamedTuple):
    """What every episode of a run is measured against; computed once before the first episode.

    Attributes:
      marginals: `[n, L, S, A]`, the marginals of the comparator occupancies.
      multipliers: `[d, m]`, the comparator multipliers.
      reward: `[L, S, A]`, the mean reward; None if rewards are adversarial.
      constraints: `[m, L, S, A]`, the mean constraints; None if constraints are adversarial.
      opt: the optimum that the strong regret is against; NaN if it is unknown.
      tolerance: the cost up to which an episode is feasible.
      mean_reward: `[n]`, the mean rewards of the comparators; None if rewards are adversarial.
      mean_costs: `[n, m]`, their mean costs; None if constraints are adversarial.
      pace: the terms of the bounds on interval regrets; None for a learner without bounds.
    """

    marginals: Float[Array, "n layers states actions"]
    multipliers: Float[Array, "d m"]
    reward: Float[Array, "layers states actions"] | None
    constraints: Float[Array, "m layers states actions"] | None
    opt: Float[Array, ""]
    tolerance: Float[Array, ""]
    mean_reward: Float[Array, " n"] | None
    mean_costs: Float[Array, "n m"] | None
    pace: theory.Pace | None


def reference(cmdp: CMDP, comparators: Comparators, setting: Setting | None) -> Reference:
    """What to measure a run against, for `update`."""
    dtype = cmdp.mdp.transition.dtype
    marginals = jax.vmap(cmdp.layers.to_pairs)(comparators.occupancies)
    mask = cmdp.layers.action_mask
    reward = constraints = mean_reward = mean_costs = None
    if isinstance(cmdp.rewards, StochasticProcess):
        reward = jnp.where(mask, cmdp.rewards.mean(), 0).astype(dtype)
        mean_reward = dot(reward[None], marginals)[0]
    if isinstance(cmdp.constraints, StochasticProcess):
        constraints = jnp.where(mask[None], cmdp.constraints.mean(), 0).astype(dtype)
        mean_costs = dot(constraints, marginals).T
    return Reference(
        marginals,
        comparators.multipliers,
        reward,
        constraints,
        comparators.opt.astype(dtype),
        FEASIBLE * cmdp.layers.num_layers.astype(dtype),
        mean_reward,
        mean_costs,
        _pace(setting, cmdp.num_constraints, dtype),
    )


def _pace(setting: Setting | None, num_constraints: int, dtype: DTypeLike) -> theory.Pace | None:
    if setting is None or setting.rates is None:
        return None
    if setting.num_episodes is None or setting.delta is None:
        return None
    layers, known = setting.layers, setting.knows_transitions
    dimension = layers.action_mask.sum() if known else layers.num_triples
    sizes = layers.num_layers, layers.num_states, layers.num_actions, dimension
    numbers = (*sizes, setting.num_episodes, setting.delta, *setting.rates)
    traced = (jnp.asarray(n, dtype) for n in numbers)
    pace = theory.pace(*traced, num_constraints=num_constraints, known=known)
    return theory.Pace(*(jnp.asarray(number, dtype) for number in pace))


def dot(values: Array, marginals: Array) -> Array:
    """The products of each table `[k, L, S, A]` with each marginal `[n, L, S, A]`, `[k, n]`."""
    # A sum, not a matrix product: the rounding of a product depends on the number of threads.
    return (values[:, None] * marginals[None]).sum((2, 3, 4))
