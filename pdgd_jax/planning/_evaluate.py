"""The evaluation of a policy, with bonuses and a truncation."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from pdgd_jax._internal.typing import Number, Pairs, Triples
from pdgd_jax.models import Layers
from pdgd_jax.planning._checks import check_plan
from pdgd_jax.planning._model import Model
from pdgd_jax.projection import KnownTransitions

__all__ = ["PolicyEvaluation", "evaluate"]


class PolicyEvaluation(NamedTuple):
    r"""What a policy is worth.

    Attributes:
      value: $V(x_0)$.
      state_values: `[L, S]`, $V(x)$.
      action_values: `[L, S, A]`, $Q(x,a)$.
    """

    value: Number
    state_values: Float[Array, "layers states"]
    action_values: Pairs


def evaluate(
    layers: Layers,
    policy: Pairs,
    reward: Pairs,
    transition: Triples,
    *,
    bonus: Pairs | None = None,
    lower: ArrayLike | None = None,
    upper: ArrayLike | None = None,
) -> PolicyEvaluation:
    r"""Evaluate a policy backwards, with a bonus, and truncated in every step.

    $$Q(x,a) = \operatorname{clip}\big(R(x,a) + b(x,a) + \sum_{x'} P(x'|x,a) V(x'),
    \ell_k, u_k\big), \qquad V(x) = \sum_a \pi(a|x) Q(x,a).$$

    An optimistic learner of rewards adds a bonus and truncates from above, at the number of
    decisions that are left; one of losses subtracts it and truncates at 0 from below.

    Args:
      layers: the states and actions.
      policy: `[L, S, A]`, $\pi$.
      reward: `[L, S, A]`, $R$. For several rewards or costs use `jax.vmap`.
      transition: over the triples, $P$.
      bonus: `[L, S, A]`, $b$; 0 by default, and negative for costs.
      lower: $\ell_k$, a number or one for each layer, `[L]`; None for no bound.
      upper: $u_k$, likewise.

    Returns:
      The values, exactly 0 outside of the masks.

    Raises:
      ValueError: if a shape is wrong or a row of the transitions is no distribution.

    Example:
      >>> from pdgd_jax import make, planning
      >>> cmdp = make("random")
      >>> policy, reward = cmdp.layers.uniform_policy(), cmdp.rewards.mean()
      >>> given = cmdp.layers, policy, reward, cmdp.mdp.transition
      >>> float(planning.evaluate(*given, upper=0.25).value) <= 0.25
      True

    Reference:
      L. Shani, Y. Efroni, A. Rosenberg, S. Mannor, *Optimistic policy optimization with bandit
      feedback*, ICML 2020, Algorithm 2.
    """
    known = KnownTransitions(transition)
    check_plan(layers, known, reward=(reward, layers.shape), policy=(policy, layers.shape))
    depth = layers.shape[0]
    bounds = [
        None if x is None else _per_layer(name, x, depth)
        for name, x in (("lower", lower), ("upper", upper))
    ]
    earned = jnp.asarray(reward)
    if bonus is not None:
        check_plan(layers, known, bonus=(bonus, layers.shape))
        earned = earned + jnp.asarray(bonus)
    dtype = jnp.result_type(earned, known.transition)
    played = jnp.where(layers.action_mask, policy, 0).astype(dtype)

    def backward(
        values: Array, layer: tuple[Model, Array, Array, list[Array | None]]
    ) -> tuple[Array, tuple[Array, Array]]:
        here, reward_k, policy_k, (low, high) = layer
        table = reward_k + here.expected(here.best_transition(values), values)
        table = jnp.where(here.actions, jnp.clip(table, low, high), 0)
        values = (policy_k * table).sum(-1)
        return values, (values, table)

    model = Model.of(layers, known)
    reward_k = jnp.where(layers.action_mask, earned, 0).astype(dtype)
    end = jnp.zeros(layers.shape[1], dtype)
    _, (values, table) = jax.lax.scan(
        backward, end, (model, reward_k, played, bounds), reverse=True
    )
    return PolicyEvaluation(values[0, 0], values, table)


def _per_layer(name: str, bound: ArrayLike, depth: int) -> Array:
    array = jnp.asarray(bound)
    if array.shape not in ((), (depth,)):
        raise ValueError(
            f"the {name} bound is one number, or one for each of the {depth} layers; got the shape "
            f"{array.shape}."
        )
    return jnp.broadcast_to(array, (depth,))
