"""Exact rewards and violations of thousands of policies in one compiled call."""

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from pdgd_jax._internal.memory import spare_bytes
from pdgd_jax.models._cmdp import CMDP, Outcome
from pdgd_jax.models._mdp import LayeredMDP
from pdgd_jax.models._occupancy import occupancy_of, value_of
from pdgd_jax.processes import Process, StochasticProcess

__all__ = ["PolicyValues", "evaluate_policies", "mean_outcome"]


class PolicyValues(NamedTuple):
    r"""The values of policies, with leading axes for the instances and the policies.

    Attributes:
      reward: `[..., N]`, $r^\top q$.
      violation: `[..., N, m]`, $G^\top q$.
      occupancy: `[..., N, L, S, A, S]`, or `[..., N, L, M]` with successor lists, $q$.
    """

    reward: Float[Array, "*instances policies"]
    violation: Float[Array, "*instances policies m"]
    occupancy: Float[Array, "..."]


def evaluate_policies(
    cmdp: CMDP,
    policies: Float[Array, "*instances policies layers states actions"],
    *,
    outcome: Outcome | None = None,
    max_bytes: int | None = None,
) -> PolicyValues:
    r"""The exact reward, violation and occupancy of many policies.

    Args:
      cmdp: one CMDP, or a `stack` of I of them.
      policies: `[N, L, S, A]`, played on every instance; or `[I, N, L, S, A]`, N per instance.
      outcome: the rewards and constraints to use, with a leading axis for a stack; by default the
        means, which only stochastic processes have (see `oracle.hindsight` for others).
      max_bytes: a limit on the working memory; by default a quarter of the device's memory, or
        1 GiB if that is unknown. Policies that do not fit at once are evaluated in batches, inside
        the same program.

    Returns:
      Their values.

    Raises:
      ValueError: if shapes disagree, or a process has no mean and no outcome is given.

    Example:
      >>> import jax
      >>> from pdgd_jax import evaluate_policies, make, stack
      >>> both = stack([make("random", seed=0), make("random", seed=1)])
      >>> weights = jax.random.uniform(jax.random.key(0), (500, *both.layers.shape))
      >>> policies = weights / weights.sum(-1, keepdims=True)
      >>> values = evaluate_policies(both, policies)
      >>> values.reward.shape, values.violation.shape
      ((2, 500), (2, 500, 1))
    """
    policies = jnp.asarray(policies)
    L, S, A = cmdp.layers.shape
    stacked = cmdp.layers.action_mask.ndim == 4
    instances = cmdp.layers.action_mask.shape[0] if stacked else 1
    own = policies.ndim == 5
    fits = policies.ndim == 4 or (own and stacked and policies.shape[0] == instances)
    if not fits or policies.shape[-3:] != (L, S, A):
        each = f", or ({instances}, N, {L}, {S}, {A})" if stacked else ""
        raise ValueError(
            f"policies must have the shape (N, {L}, {S}, {A}){each} of the CMDP; "
            f"got {policies.shape}."
        )
    if outcome is None:
        outcome = mean_outcome(cmdp)
    # Each policy needs memory for its occupancy, and about as much again to compute it.
    working = 3 * math.prod(cmdp.layers.triple_shape) * policies.dtype.itemsize * instances
    at_once = max(1, (max_bytes or spare_bytes()) // working)
    number = policies.shape[-4]
    values = partial(_values, at_once=int(min(at_once, number)))
    if stacked:
        values = jax.vmap(values, in_axes=(0, 0, 0 if own else None))
    found: PolicyValues = jax.jit(values)(cmdp.mdp, outcome, policies)
    return found


def _values(mdp: LayeredMDP, outcome: Outcome, policies: Array, *, at_once: int) -> PolicyValues:
    def one(policy: Array) -> PolicyValues:
        occupancy = occupancy_of(mdp, policy)
        pairs = mdp.layers.to_pairs(occupancy)
        reward, constraints = outcome
        return PolicyValues(value_of(reward, pairs), value_of(constraints, pairs), occupancy)

    found: PolicyValues = jax.lax.map(one, policies, batch_size=at_once)
    return found


def mean_outcome(cmdp: CMDP) -> Outcome:
    """The means of the rewards and the constraints of a CMDP, or of each in a `stack`.

    Raises:
      ValueError: if a process has no mean, because it is adversarial.

    Example:
      >>> from pdgd_jax import make, stack
      >>> mean_outcome(stack([make("random", seed=0), make("random", seed=1)])).constraints.shape
      (2, 1, 4, 4, 3)
    """

    def mean(name: str, process: Process) -> Array:
        if not isinstance(process, StochasticProcess):
            raise ValueError(
                f"the {name} are adversarial and have no mean; give the outcome to evaluate on, "
                "for example oracle.hindsight(cmdp, num_episodes)."
            )
        return process.mean()

    stacked = cmdp.layers.action_mask.ndim == 4
    means = tuple(
        (jax.vmap(partial(mean, name)) if stacked else partial(mean, name))(process)
        for name, process in (("rewards", cmdp.rewards), ("constraints", cmdp.constraints))
    )
    return Outcome(*means)
