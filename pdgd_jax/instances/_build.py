"""What the instances share: budgets as constraints, and checks of options."""

from typing import Any

import numpy as np

from pdgd_jax.mdp import LayeredMDP

__all__ = ["at_most", "fraction", "whole_number"]


def at_most(mdp: LayeredMDP, cost: Any, budget: float) -> Any:
    r"""The constraint "an episode costs at most `budget` on average", `[L, S, A]`.

    Every layer carries the unit mass, so that $g = c - b/L$ has $g^\top q = c^\top q - b$.

    Args:
      mdp: the MDP.
      cost: `[L, S, A]`, in [0, 1].
      budget: $b$, in [0, L].
    """
    mask = np.asarray(mdp.layers.action_mask)
    num_layers = len(mdp.layers.sizes) - 1
    if not 0 <= budget <= num_layers:
        raise ValueError(
            f"the budget of an episode of {num_layers} steps lies in [0, {num_layers}]; "
            f"got {budget}."
        )
    return np.where(mask, np.asarray(cost, np.float64) - budget / num_layers, 0.0)


def fraction(name: str, value: float) -> float:
    """`value`, refused unless it is a probability."""
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must lie in [0, 1]; got {value}.")
    return float(value)


def whole_number(name: str, value: int, least: int) -> int:
    """`value`, refused unless it is a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} must be a whole number, at least {least}; got {value!r}.")
    return int(value)
