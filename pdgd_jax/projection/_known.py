"""Known transitions: the set with one member."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from pdgd_jax._internal.checks import first_place, place
from pdgd_jax._internal.pytree import as_float, is_concrete, pytree

__all__ = ["KnownTransitions"]


@pytree
class KnownTransitions:
    r"""The set that holds one transition function, $\mathcal P = \{P\}$.

    The same transitions as in a `ConfidenceSet` with all radii 0. `project` then measures distances
    over pairs instead of triples; `project_entropic` has less to do.

    Args:
      transition: `[L, S, A, S]`, $P$; `[L, M]` for layers with successor lists.

    Raises:
      ValueError: if the shape is wrong or a number cannot be a probability.

    Example:
      >>> from pdgd_jax import make
      >>> KnownTransitions(make("random").mdp.transition).transition.shape
      (4, 4, 3, 4)
    """

    transition: Float[Array, "..."]

    def __post_init__(self) -> None:
        if np.ndim(self.transition) not in (2, 4):
            raise ValueError(
                "transitions have the shape [L, S, A, S], or [L, M] with successor lists; got "
                f"{np.shape(self.transition)}."
            )
        if is_concrete(self.transition):
            values = np.asarray(self.transition)
            where = first_place(~((values >= 0) & np.isfinite(values)))
            if where is not None:
                at = place(where) if values.ndim == 4 else f"layer {where[0]}, triple {where[1]}"
                raise ValueError(
                    f"the transition of {at} is {values[where]:.6g}; it must be a probability."
                )
        object.__setattr__(self, "transition", as_float(self.transition))

    def contains(self, transition: Array) -> Array:
        """Whether a transition function is the known one, up to rounding."""
        rounding = 8 * jnp.finfo(transition.dtype).eps
        return (jnp.abs(transition - self.transition) <= rounding).all()
