"""Best responses over a set of transitions, and the extreme evaluation of a policy."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from pdgd_jax._internal.typing import Number, Pairs, Triples
from pdgd_jax.models import Layers
from pdgd_jax.planning._checks import check_plan
from pdgd_jax.planning._model import Model, TransitionSet

__all__ = ["Plan", "best_response", "extreme_evaluation", "respond"]


class Plan(NamedTuple):
    r"""A policy together with the transitions of a set that suit it best, or least.

    Attributes:
      value: $R^\top q$.
      occupancy: over the triples, $q = q^{P,\pi}$.
      policy: `[L, S, A]`, $\pi$.
      transition: over the triples, $P$, a member of the set.
      state_values: `[L, S]`, $V(x)$: what is earned from a state on.
    """

    value: Number
    occupancy: Triples
    policy: Pairs
    transition: Triples
    state_values: Float[Array, "layers states"]


def best_response(
    layers: Layers, reward: Pairs, confidence: TransitionSet, *, minimise: bool = False
) -> Plan:
    r"""Find the policy and the transitions of a set that earn the most: optimistic planning.

    $\max_{q \in \Delta(\mathcal P)} R^\top q$, where $\Delta(\mathcal P)$ are the occupancies whose
    transitions lie in the set. One scan from the last layer to the first:

    $$Q(x,a) = R(x,a) + \max_{P \in \mathcal P(x,a)} P^\top V, \qquad V(x) = \max_a Q(x,a).$$

    The inner maximum has a closed form for an L1 ball and for a box. Of equal actions, and of equal
    next states, the first is chosen. A layer takes of the order of $S^3 A$ operations.

    Args:
      layers: the states and actions.
      reward: `[L, S, A]`, $R$, of any size and sign; only the entries of the layers count.
      confidence: the set $\mathcal P$: a `ConfidenceSet`, a `BoxSet` or `KnownTransitions`.
      minimise: find the least instead, over policies and transitions.

    Returns:
      The plan. Its occupancy is an extreme point of $\Delta(\mathcal P)$. If the reward is NaN
      where it matters, so are the value, the occupancy and the policy.

    Raises:
      ValueError: if a shape is wrong, the set is of another kind, or a row is no distribution.

    Example:
      >>> import jax.numpy as jnp
      >>> from pdgd_jax import ConfidenceSet, make, planning
      >>> cmdp = make("random")
      >>> ball = ConfidenceSet(cmdp.mdp.transition, jnp.full(cmdp.layers.shape, 0.2))
      >>> reward = cmdp.rewards.mean()
      >>> hope = planning.best_response(cmdp.layers, reward, ball).value
      >>> known = ConfidenceSet(cmdp.mdp.transition, jnp.zeros(cmdp.layers.shape))
      >>> bool(hope > planning.best_response(cmdp.layers, reward, known).value)
      True

    Reference:
      T. Jaksch, R. Ortner, P. Auer, *Near-optimal regret bounds for reinforcement learning*, JMLR
      2010, for the ball; C. Jin et al., ICML 2020, for the box.
    """
    check_plan(layers, confidence, reward=(reward, layers.shape))
    model, sign = Model.of(layers, confidence), -1 if minimise else 1
    return _signed(sign, respond(model, sign * jnp.asarray(reward)))


def extreme_evaluation(
    layers: Layers,
    policy: Pairs,
    reward: Pairs,
    confidence: TransitionSet,
    *,
    minimise: bool = False,
) -> Plan:
    r"""Find the transitions of a set under which a policy earns the most, or the least.

    $\max_{P \in \mathcal P} R^\top q^{P,\pi}$: the scan of `best_response`, in which the state's
    value is $V(x) = \sum_a \pi(a|x) Q(x,a)$.

    Args:
      layers: the states and actions.
      policy: `[L, S, A]`, $\pi$.
      reward: `[L, S, A]`, $R$.
      confidence: the set.
      minimise: find the least instead.

    Returns:
      The plan, with the policy that was given.

    Raises:
      ValueError: as in `best_response`.

    Example:
      >>> import jax.numpy as jnp
      >>> from pdgd_jax import ConfidenceSet, make, planning
      >>> cmdp = make("random")
      >>> ball = ConfidenceSet(cmdp.mdp.transition, jnp.full(cmdp.layers.shape, 0.2))
      >>> given = cmdp.layers, cmdp.layers.uniform_policy(), cmdp.rewards.mean(), ball
      >>> most = planning.extreme_evaluation(*given).value
      >>> least = planning.extreme_evaluation(*given, minimise=True).value
      >>> bool(least < most)
      True
    """
    check_plan(layers, confidence, reward=(reward, layers.shape), policy=(policy, layers.shape))
    model, sign = Model.of(layers, confidence), -1 if minimise else 1
    return _signed(sign, respond(model, sign * jnp.asarray(reward), jnp.asarray(policy)))


def _signed(sign: int, plan: Plan) -> Plan:
    """The plan for the reward times the sign; NaN wherever a number may depend on a NaN."""
    lost = jnp.isnan(plan.value)
    occupancy, policy, transition = (
        jnp.where(lost & (x != 0), jnp.nan, x)
        for x in (plan.occupancy, plan.policy, plan.transition)
    )
    return Plan(sign * plan.value, occupancy, policy, transition, sign * plan.state_values)


def respond(model: Model, reward: Array, policy: Array | None = None) -> Plan:
    """The best plan, or the best transitions for a policy; without checks."""
    dtype = jnp.result_type(reward, *jax.tree.leaves(model.allowed))
    reward = jnp.where(model.actions, reward, 0).astype(dtype)

    def backward(
        values: Array, layer: tuple[Model, Array, Array | None]
    ) -> tuple[Array, tuple[Array, Array, Array]]:
        here, reward_k, given = layer
        transition = here.best_transition(values)
        earned = reward_k + here.expected(transition, values)  # [S, A]
        if given is None:
            earned = jnp.where(here.actions, earned, -jnp.inf)
            played = jax.nn.one_hot(jnp.argmax(earned, -1), earned.shape[-1], dtype=dtype)
            played = jnp.where(here.actions, played, 0)
            values = jnp.where(here.actions.any(-1), earned.max(-1), 0)
        else:
            played = jnp.where(here.actions, given, 0)
            values = jnp.where(here.actions, played * earned, 0).sum(-1)
        return values, (transition, played, values)

    def forward(mass: Array, layer: tuple[Model, Array, Array]) -> tuple[Array, Array]:
        here, transition, played = layer
        flow = here.flow(mass, played, transition)
        return here.into_next(flow), flow

    policy = None if policy is None else policy.astype(dtype)
    end = jnp.zeros(model.actions.shape[1], dtype)
    _, (transition, played, values) = jax.lax.scan(
        backward, end, (model, reward, policy), reverse=True
    )
    _, occupancy = jax.lax.scan(forward, end.at[0].set(1), (model, transition, played))
    return Plan(values[0, 0], occupancy, played, transition, values)
