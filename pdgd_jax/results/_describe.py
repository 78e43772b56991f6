"""Facts about an instance: sizes, optimum and margin."""

import dataclasses
from typing import Any

import numpy as np

from pdgd_jax import oracle, theory
from pdgd_jax.models import CMDP
from pdgd_jax.processes import StochasticProcess, foresight

__all__ = ["InstanceFacts", "describe", "process_name"]


@dataclasses.dataclass(frozen=True)
class InstanceFacts:
    """Facts about an instance in plain numbers; None if something is unknown.

    Attributes:
      layers: L.
      sizes: the number of states in each layer.
      states: the number of states in all layers.
      actions: the largest number of actions in a state.
      triples: the number of $(x, a, x')$: those that can happen if `support` is known, else all.
      support: "known" if the learner is told which these are, else "unknown".
      constraints: m.
      rewards_process: the process of the rewards, such as `Bernoulli (stochastic)`.
      constraints_process: the process of the constraints.
      feasible: whether some policy satisfies the constraints.
      opt: the best value of a policy that satisfies them.
      multipliers: optimal Lagrange multipliers.
      unconstrained_opt: the best value of any policy.
      unconstrained_violation: how much this policy violates each constraint per episode.
      environment: `opt` and `unconstrained_opt` in the units of the environment, if it has any.
      opt_is_of_one_draw: whether the rewards or constraints of another run would differ.
      rho: the margin.
      rho_exact: whether `rho` is the margin itself and not a lower bound.
      rho_reason: why it is unknown or not exact.
      num_episodes: T.
      required_rho: the margin that the paper requires at T.
      condition_holds: whether rho is large enough.
      episodes_for_condition: the T from which it is.
    """

    layers: int
    sizes: tuple[int, ...]
    states: int
    actions: int
    triples: int
    support: str
    constraints: int
    rewards_process: str
    constraints_process: str
    feasible: bool
    opt: float | None
    multipliers: list[float] | None
    unconstrained_opt: float
    unconstrained_violation: list[float]
    environment: dict[str, float | None] | None
    opt_is_of_one_draw: bool
    rho: float | None
    rho_exact: bool
    rho_reason: str
    num_episodes: int
    required_rho: float
    condition_holds: bool | None
    episodes_for_condition: float | None

    def as_dict(self) -> dict[str, Any]:
        """By name, ready for JSON."""
        return dataclasses.asdict(self)


def describe(cmdp: CMDP, num_episodes: int) -> InstanceFacts:
    """Describe an instance as `pdgd solve` does: sizes, optimum, margin, and the condition at T.

    Args:
      cmdp: the instance.
      num_episodes: T, for adversarial averages and the paper's condition on rho.

    Returns:
      Plain numbers; None if something is unknown.

    Example:
      >>> from pdgd_jax import describe, make
      >>> facts = describe(make("two-phase", num_episodes=100), 100)
      >>> facts.layers, facts.constraints, facts.feasible
      (1, 1, True)
    """
    average = oracle.hindsight(cmdp, num_episodes)
    best = oracle.optimum(cmdp.mdp, average.reward, average.constraints)
    free = oracle.optimum(cmdp.mdp, average.reward)
    rho, exact, reason = _rho_or_reason(cmdp, num_episodes)
    marginal = cmdp.layers.rows_on_host(free.occupancy).sum(-1)
    violation = np.tensordot(np.asarray(average.constraints), marginal, axes=3)
    sizes = cmdp.layers.sizes
    L, m = len(sizes) - 1, cmdp.num_constraints
    units = cmdp.units
    environment = units and {
        "opt": units.to_environment(best.value) if best.feasible else None,
        "unconstrained_opt": units.to_environment(free.value),
    }
    return InstanceFacts(
        layers=L,
        sizes=tuple(sizes),
        states=sum(sizes),
        actions=int(np.asarray(cmdp.layers.action_mask).sum(-1).max()),
        triples=int(cmdp.layers.num_triples),
        support="unknown" if cmdp.layers.successors is None else "known",
        constraints=m,
        rewards_process=process_name(cmdp.rewards),
        constraints_process=process_name(cmdp.constraints),
        feasible=best.feasible,
        opt=best.value if best.feasible else None,
        multipliers=best.multipliers.tolist() if best.feasible else None,
        unconstrained_opt=free.value,
        unconstrained_violation=violation.tolist(),
        environment=environment,
        opt_is_of_one_draw=not _foreseen(cmdp),
        rho=rho,
        rho_exact=exact,
        rho_reason=reason,
        num_episodes=num_episodes,
        required_rho=theory.required_margin(L, m, num_episodes),
        condition_holds=_condition(rho, exact, L, m, num_episodes),
        episodes_for_condition=theory.episodes_for_margin(rho, L, m) if exact and rho else None,
    )


def _condition(
    rho: float | None, exact: bool, num_layers: int, num_constraints: int, num_episodes: int
) -> bool | None:
    """Whether the condition on rho holds; None if a lower bound on rho does not decide it."""
    if rho is None:
        return None
    holds = theory.slater_condition_holds(rho, num_layers, num_constraints, num_episodes)
    return holds if holds or exact else None


def _foreseen(cmdp: CMDP) -> bool:
    """Whether adversaries, and with them the optimum of a run, are known beforehand."""
    shape, dtype = cmdp.layers.shape, cmdp.mdp.transition.dtype
    adversaries = [
        process
        for process in (cmdp.rewards, cmdp.constraints)
        if not isinstance(process, StochasticProcess)
    ]
    return all(foresight(process, shape, dtype).known for process in adversaries)


def _rho_or_reason(cmdp: CMDP, num_episodes: int) -> tuple[float | None, bool, str]:
    """The margin, whether it is exact, and why it is unknown or not exact."""
    try:
        margin = oracle.slater_margin(cmdp.mdp, cmdp.constraints, num_episodes)
    except NotImplementedError as error:
        return None, False, f"unknown, as {str(error).rstrip('.')}; give it a method extremes()"
    reason = "" if margin.exact else "a bound: what is shown depends on the run"
    return margin.rho, margin.exact, reason


def process_name(process: Any) -> str:
    """The name and kind of a process, such as `Bernoulli (stochastic)`."""
    kind = "stochastic" if isinstance(process, StochasticProcess) else "adversarial"
    return f"{type(process).__name__} ({kind})"
