"""The offline optimum of thousands of CMDPs in one call, on the device."""

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from pdgd_jax._internal.memory import spare_bytes
from pdgd_jax.models import CMDP, LayeredMDP, Outcome, mean_outcome
from pdgd_jax.planning._constrained import plan_constrained
from pdgd_jax.projection import KnownTransitions

__all__ = ["Optima", "optimum"]

# Lanes wait for the slowest of them, and a CPU is fastest with what its caches hold.
_AT_ONCE = {"cpu": 32}
_AT_ONCE_ELSEWHERE = 1024


class Optima(NamedTuple):
    r"""The optima of CMDPs, with a leading axis for a stack; as `oracle.Optimum` on the device.

    Attributes:
      value: $\mathrm{OPT}_{r,G}$; minus infinity if no policy satisfies the constraints.
      occupancy: over the triples, an optimal $q^*$; NaN if infeasible.
      multipliers: `[..., m]`, optimal Lagrange multipliers, not negative; NaN if infeasible.
      gap: by how much the value may fall short of the optimum; NaN if infeasible.
      feasible: whether some policy satisfies the constraints.
    """

    value: Float[Array, "*instances"]
    occupancy: Float[Array, "..."]
    multipliers: Float[Array, "*instances m"]
    gap: Float[Array, "*instances"]
    feasible: Bool[Array, "*instances"]


def optimum(cmdp: CMDP, *, outcome: Outcome | None = None, max_bytes: int | None = None) -> Optima:
    r"""Solve $\mathrm{LP}_{r,G}$ for one CMDP or a stack of thousands, in one compiled call.

    `plan_constrained` with the true transitions, in as many lanes as help. `oracle.optimum`, the
    linear program on the host, stays the reference: it is exact in float64 whatever JAX is set to.

    Args:
      cmdp: one CMDP, or a `stack` of I of them.
      outcome: the rewards and constraints, with a leading axis for a stack; by default the means,
        which only stochastic processes have (see `oracle.hindsight` for others).
      max_bytes: a limit on the working memory; by default a quarter of the device's memory, or
        1 GiB if that is unknown.

    Returns:
      The optima.

    Raises:
      ValueError: if shapes disagree, or a process has no mean and no outcome is given.

    Example:
      >>> from pdgd_jax import make, oracle, planning, stack
      >>> from pdgd_jax.models import mean_outcome
      >>> cmdps = [make("random", seed=seed) for seed in range(20)]
      >>> found = planning.optimum(stack(cmdps))
      >>> host = oracle.optimum(cmdps[7].mdp, *mean_outcome(cmdps[7]))
      >>> bool(abs(found.value[7] - host.value) < 1e-4), bool(found.feasible.all())
      (True, True)
    """
    outcome = mean_outcome(cmdp) if outcome is None else outcome
    shape, stacked = cmdp.layers.shape, cmdp.layers.action_mask.ndim == 4
    leading = cmdp.layers.action_mask.shape[:1] if stacked else ()
    m = outcome.constraints.shape[-4] if outcome.constraints.ndim > 3 else 0
    for name, array, wanted in (
        ("rewards", outcome.reward, (*leading, *shape)),
        ("constraints", outcome.constraints, (*leading, m, *shape)),
    ):
        if array.shape != wanted:
            raise ValueError(f"the {name} must have the shape {wanted}; got {array.shape}.")
    if not stacked:
        return _solve((cmdp.mdp, outcome), at_once=None)
    triples = math.prod(cmdp.layers.triple_shape)
    working = 3 * (m + 2) * triples * cmdp.mdp.transition.dtype.itemsize
    fitting = (max_bytes or spare_bytes()) // working
    helpful = _AT_ONCE.get(jax.default_backend(), _AT_ONCE_ELSEWHERE)
    return _solve((cmdp.mdp, outcome), at_once=int(max(1, min(fitting, helpful, leading[0]))))


@partial(jax.jit, static_argnames="at_once")
def _solve(problems: tuple[LayeredMDP, Outcome], at_once: int | None) -> Optima:
    def one(problem: tuple[LayeredMDP, Outcome]) -> Optima:
        mdp, outcome = problem
        found = plan_constrained(
            mdp.layers, outcome.reward, outcome.constraints, KnownTransitions(mdp.transition)
        )
        fails = ~found.feasible & ~jnp.isnan(found.value)
        return Optima(
            jnp.where(fails, -jnp.inf, found.value),
            jnp.where(fails, jnp.nan, found.occupancy),
            jnp.where(fails, jnp.nan, found.multipliers),
            jnp.where(fails, jnp.nan, found.gap),
            found.feasible,
        )

    if at_once is None:
        return one(problems)
    solved: Optima = jax.lax.map(one, problems, batch_size=at_once)
    return solved
