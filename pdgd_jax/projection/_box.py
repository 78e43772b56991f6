"""Confidence sets with bounds on every transition probability."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from pdgd_jax._internal.checks import first_place, place
from pdgd_jax._internal.pytree import as_float, is_concrete, pytree

__all__ = ["BoxSet"]


@pytree
class BoxSet:
    r"""The transition functions between two bounds, entry by entry.

    $\mathcal P = \{\hat P : l(x' \mid x,a) \le \hat P(x' \mid x,a) \le u(x' \mid x,a) \;\;
    \forall (x,a,x')\}$, as Bernstein's inequality gives them. A pair needs $\sum_{x'} l \le 1 \le
    \sum_{x'} u$. `project_entropic` takes such a set.

    Args:
      lower: `[L, S, A, S]`, $l \ge 0$; `[L, M]` for layers with successor lists.
      upper: the same shape, $u \ge l$.

    Raises:
      ValueError: if the shapes disagree, a lower bound is negative, or above its upper bound.

    Example:
      >>> from pdgd_jax import make
      >>> P = make("random").mdp.transition
      >>> BoxSet(0.9 * P, 1.1 * P).lower.shape
      (4, 4, 3, 4)
    """

    lower: Float[Array, "..."]
    upper: Float[Array, "..."]

    def __post_init__(self) -> None:
        lower, upper = self.lower, self.upper
        if np.shape(lower) != np.shape(upper) or np.ndim(lower) not in (2, 4):
            raise ValueError(
                "a box has two bounds of the same shape, [L, S, A, S] or [L, M]; got the shapes "
                f"{np.shape(lower)} and {np.shape(upper)}."
            )
        if is_concrete(lower, upper):
            least, most = np.asarray(lower), np.asarray(upper)
            where = first_place(~((least >= 0) & (most >= least)))
            if where is not None:
                at = place(where) if least.ndim == 4 else f"layer {where[0]}, triple {where[1]}"
                raise ValueError(
                    f"the bounds of {at} are {least[where]:.6g} and {most[where]:.6g}; they must "
                    "be at least 0, and the lower one not above the upper one."
                )
        object.__setattr__(self, "lower", as_float(lower))
        object.__setattr__(self, "upper", as_float(upper))

    def contains(self, transition: Array) -> Array:
        """Whether a transition function lies in the set, up to rounding."""
        rounding = 8 * jnp.finfo(transition.dtype).eps
        inside = (transition >= self.lower - rounding) & (transition <= self.upper + rounding)
        return inside.all()
