"""Linear constraints on an occupancy, beside those of its set."""

import numpy as np
from jaxtyping import Array, Float

from pdgd_jax._internal.checks import first_place, place
from pdgd_jax._internal.pytree import as_float, is_concrete, pytree

__all__ = ["LinearConstraints"]


@pytree
class LinearConstraints:
    r"""The constraints $G^\top q \le c$.

    Args:
      costs: `[m, L, S, A]`, $G$; ignored outside the masks.
      bounds: `[m]`, $c$.

    Raises:
      ValueError: if the shapes disagree or a number is not finite.

    Example:
      >>> import jax.numpy as jnp
      >>> LinearConstraints(jnp.ones((2, 4, 4, 3)), jnp.zeros(2)).costs.shape
      (2, 4, 4, 3)
    """

    costs: Float[Array, "*batch constraints layers states actions"]
    bounds: Float[Array, "*batch constraints"]

    def __post_init__(self) -> None:
        costs, bounds = np.shape(self.costs), np.shape(self.bounds)
        if len(costs) != 4 or bounds != costs[:1]:
            raise ValueError(
                "linear constraints have costs [m, L, S, A] and bounds [m]; got the shapes "
                f"{costs} and {bounds}."
            )
        if is_concrete(self.costs, self.bounds):
            values, limits = np.asarray(self.costs), np.asarray(self.bounds)
            where = first_place(~np.isfinite(values))
            if where is not None:
                raise ValueError(
                    f"the cost {where[0]} of {place(where[1:])} is {values[where]}; "
                    "it must be finite."
                )
            where = first_place(~np.isfinite(limits))
            if where is not None:
                raise ValueError(f"bound {where[0]} is {limits[where]}; it must be finite.")
        object.__setattr__(self, "costs", as_float(self.costs))
        object.__setattr__(self, "bounds", as_float(self.bounds))
