"""Tools that the instances share: budgets as constraints, and checks of options."""

import numpy as np
from jaxtyping import ArrayLike

from pdgd_jax._internal.memory import check_memory
from pdgd_jax._internal.typing import NDArray
from pdgd_jax.models import LayeredMDP

__all__ = ["at_most", "check_size"]


def check_size(
    layers: int, states: int, actions: int, constraints: int = 1, successors: int | None = None
) -> None:
    """Raise, before anything is built, if an instance does not fit into memory.

    Args:
      layers: in which decisions are taken.
      states: of a layer, at most.
      actions: of a state.
      constraints: m.
      successors: of a pair, at most, if the support is known; None if every state can follow.
    """
    # Four arrays of the size of the transitions exist at once, or eight of the size of the lists,
    # and six like the constraints.
    entries = 4 * states if successors is None else 8 * successors
    needed = 8 * layers * states * actions * (entries + 6 * constraints)
    check_memory(
        f"an instance of {layers:,} layers with up to {states:,} states and {actions:,} actions",
        needed,
    )


def at_most(mdp: LayeredMDP, cost: ArrayLike, budget: float, name: str = "budget") -> NDArray:
    r"""The constraint "an episode costs at most `budget` on average", `[L, S, A]`.

    Every layer carries unit mass, so that $g = c - b/L$ has $g^\top q = c^\top q - b$.

    Args:
      mdp: the MDP.
      cost: `[L, S, A]`, in [0, 1].
      budget: $b$, in [0, L].
      name: the name of the option, for errors.
    """
    mask = np.asarray(mdp.layers.action_mask)
    num_layers = len(mdp.layers.sizes) - 1
    if not 0 <= budget <= num_layers:
        raise ValueError(
            f"the {name} of an episode of {num_layers} steps lies in [0, {num_layers}]; "
            f"got {budget}."
        )
    return np.where(mask, np.asarray(cost, np.float64) - budget / num_layers, 0.0)
