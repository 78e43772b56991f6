"""The quantities of the paper's theorems, one function each."""

import math

__all__ = ["episodes_for_margin", "required_margin", "slater_condition_holds"]


def required_margin(num_layers: int, num_constraints: int, num_episodes: int) -> float:
    r"""The least margin for which the $\sqrt T$ guarantees hold, $T^{-1/8} L \sqrt{20 m}$.

    Since $\rho \le L$, no instance meets it before $T = (20 m)^4$ episodes: 160,000 for m = 1.

    Args:
      num_layers: $L$.
      num_constraints: $m$.
      num_episodes: $T$.

    Reference:
      The paper's condition on $\rho$ (Section 2.5, "Feasibility Parameter").
    """
    return num_layers * math.sqrt(20 * num_constraints) * num_episodes ** (-1 / 8)


def slater_condition_holds(
    rho: float, num_layers: int, num_constraints: int, num_episodes: int
) -> bool:
    r"""Whether $\rho \ge T^{-1/8} L \sqrt{20 m}$."""
    return rho >= required_margin(num_layers, num_constraints, num_episodes)


def episodes_for_margin(rho: float, num_layers: int, num_constraints: int) -> float | None:
    r"""The horizon from which the condition holds, $(L \sqrt{20 m} / \rho)^8$; None if never."""
    if rho <= 0:
        return None
    return (num_layers * math.sqrt(20 * num_constraints) / rho) ** 8
