"""Loop-free MDPs."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Array, Float

from pdgd_jax._internal.checks import check_sums, first_place, place, rounding_of_sums
from pdgd_jax._internal.pytree import as_float, is_concrete, pytree
from pdgd_jax._internal.typing import NDArray
from pdgd_jax.models._layers import Layers

__all__ = ["LayeredMDP"]


@pytree
class LayeredMDP:
    r"""A loop-free MDP: layers, and the transition function $P(x' \mid x, a)$.

    Args:
      layers: the states and actions.
      transition: `[L, S, A, S]`, or `[L, M]` in the layout of layers with successor lists (see
        `Layers.pack`); each row of a valid $(x, a)$ is a distribution over the states of the next
        layer, and everything else is exactly 0.

    Raises:
      ValueError: if `transition` is not of this form; the error names layer, state and action.

    Example:
      >>> import numpy as np
      >>> layers = Layers.from_sizes((1, 2, 1), num_actions=2)
      >>> P = np.zeros((2, 2, 2, 2))
      >>> P[0, 0] = [[0.9, 0.1], [0.2, 0.8]]   # from the first state: action 0, action 1
      >>> P[1, :, :, 0] = 1.0                  # the last step leads to the single last state
      >>> LayeredMDP(layers, P)
      LayeredMDP(sizes=(1, 2, 1), num_actions=2)
    """

    layers: Layers
    transition: Float[Array, "..."]

    def __post_init__(self) -> None:
        shape = self.layers.triple_shape
        if np.shape(self.transition) != shape:
            axes = "[L, S, A, S]" if len(shape) == 4 else "[L, M]"
            raise ValueError(
                f"transition must have the shape {axes} = {shape} of its layers; "
                f"got {np.shape(self.transition)}."
            )
        if is_concrete(self.transition, self.layers.action_mask, self.layers.state_mask):
            check_distributions(np.asarray(self.transition), self.layers, "P")
        object.__setattr__(self, "transition", as_float(self.transition))

    def pad_to(self, shape: tuple[int, int, int], like: Sequence[Layers] = ()) -> "LayeredMDP":
        """The same MDP inside a larger padded `(L, S, A)`; `like` as in `Layers.pad_to`."""
        layers = self.layers.pad_to(shape, like)
        return LayeredMDP(layers, layers.moved(self.layers, self.transition))

    def __repr__(self) -> str:
        return f"{type(self).__name__}{str(self.layers).removeprefix('Layers')}"


def check_distributions(transition: NDArray, layers: Layers, name: str) -> None:
    """Raise a `ValueError` unless each valid row of `transition` is a distribution."""

    def refuse(wrong: NDArray, complaint: str) -> None:
        where = first_place(wrong)
        if where is not None:
            what = complaint.format(value=transition[where])
            at = place(layers.triple_at(where))
            raise ValueError(f"{name} of {at} of layer {where[0] + 1} {what}.")

    refuse(~np.isfinite(transition), "is {value}, not a finite number")
    refuse(transition < 0, "is {value:.6g}; a probability is not negative")
    refuse(
        (transition != 0) & ~layers.possible(),
        "is {value:.6g}, but that is not a step from a valid state and action to a state of the "
        "next layer; it must be exactly 0",
    )
    must = "it must sum to 1 over the states of the next layer"
    rows = layers.rows_on_host(transition)
    actions = np.asarray(layers.action_mask)
    check_sums(f"{name}(.|x,a)", rows, rounding_of_sums(transition), actions, must=must)
