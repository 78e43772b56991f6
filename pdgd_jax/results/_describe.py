"""What an instance is, in numbers."""

from typing import Any

import numpy as np

from pdgd_jax import oracle, theory
from pdgd_jax.models import CMDP
from pdgd_jax.processes import StochasticProcess, foresight


def describe(cmdp: CMDP, num_episodes: int) -> dict[str, Any]:
    """An instance as `pdgd solve` shows it: sizes, optimum, margin, and what T asks for.

    Args:
      cmdp: the instance.
      num_episodes: T, for adversarial averages and the paper's condition on rho.

    Returns:
      Plain numbers by name, ready for JSON; None where something is not known.

    Example:
      >>> from pdgd_jax import describe, make
      >>> facts = describe(make("two-phase", num_episodes=100), 100)
      >>> facts["layers"], facts["constraints"], facts["feasible"]
      (1, 1, True)
    """
    average = oracle.hindsight(cmdp, num_episodes)
    best = oracle.optimum(cmdp.mdp, average.reward, average.constraints)
    free = oracle.optimum(cmdp.mdp, average.reward)
    rho, exact, reason = _rho_or_reason(cmdp, num_episodes)
    violation = np.tensordot(np.asarray(average.constraints), free.occupancy.sum(-1), axes=3)
    sizes = cmdp.layers.sizes
    L, m = len(sizes) - 1, cmdp.num_constraints
    units = cmdp.units
    environment = units and {
        "opt": units.to_environment(best.value) if best.feasible else None,
        "unconstrained_opt": units.to_environment(free.value),
    }
    return {
        "layers": L,
        "sizes": sizes,
        "states": sum(sizes),
        "actions": int(np.asarray(cmdp.layers.action_mask).sum(-1).max()),
        "constraints": m,
        "rewards_process": process_name(cmdp.rewards),
        "constraints_process": process_name(cmdp.constraints),
        "feasible": best.feasible,
        "opt": best.value if best.feasible else None,
        "multipliers": best.multipliers.tolist() if best.feasible else None,
        "unconstrained_opt": free.value,
        "unconstrained_violation": violation.tolist(),
        "environment": environment,
        "opt_is_of_one_draw": not _foreseen(cmdp),
        "rho": rho,
        "rho_exact": exact,
        "rho_reason": reason,
        "num_episodes": num_episodes,
        "required_rho": theory.required_margin(L, m, num_episodes),
        "condition_holds": _condition(rho, exact, L, m, num_episodes),
        "episodes_for_condition": theory.episodes_for_margin(rho, L, m) if exact and rho else None,
    }


def _condition(
    rho: float | None, exact: bool, num_layers: int, num_constraints: int, num_episodes: int
) -> bool | None:
    """Whether the condition on rho holds; None where a lower bound of rho does not tell."""
    if rho is None:
        return None
    holds = theory.slater_condition_holds(rho, num_layers, num_constraints, num_episodes)
    return holds if holds or exact else None


def _foreseen(cmdp: CMDP) -> bool:
    """Whether what adversaries show is known beforehand, and with it the optimum of a run."""
    shape, dtype = cmdp.layers.shape, cmdp.mdp.transition.dtype
    adversaries = [
        process
        for process in (cmdp.rewards, cmdp.constraints)
        if not isinstance(process, StochasticProcess)
    ]
    return all(foresight(process, shape, dtype).known for process in adversaries)


def _rho_or_reason(cmdp: CMDP, num_episodes: int) -> tuple[float | None, bool, str]:
    """The margin, whether it is exact, and why it is not known or not exact."""
    try:
        margin = oracle.slater_margin(cmdp.mdp, cmdp.constraints, num_episodes)
    except NotImplementedError as error:
        return None, False, f"unknown, as {str(error).rstrip('.')}; give it a method extremes()"
    reason = "" if margin.exact else "a bound: what is shown depends on the run"
    return margin.rho, margin.exact, reason


def process_name(process: Any) -> str:
    """As in `Bernoulli (stochastic)`."""
    kind = "stochastic" if isinstance(process, StochasticProcess) else "adversarial"
    return f"{type(process).__name__} ({kind})"
