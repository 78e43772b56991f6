"""Sums over many episodes that stay accurate in any precision."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, DTypeLike, Float

from pdgd_jax._internal.typing import NDArray

__all__ = ["Compensated"]


class Compensated(NamedTuple):
    """A running sum with its rounding error (Kahan summation).

    A float32 that counts ones stops at 2^24. With the rounding error carried along, a sum of any
    length is right to a few units in the last place.

    Attributes:
      value: the sum.
      lost: the rounding error: `value` is this much too large.
    """

    value: Float[Array, "*shape"]
    lost: Float[Array, "*shape"]

    @classmethod
    def zeros(cls, shape: int | tuple[int, ...], dtype: DTypeLike) -> "Compensated":
        """Empty sums."""
        return cls(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype))

    def add(self, terms: Float[Array, "*shape"]) -> "Compensated":
        """Add one term to each sum."""
        step = terms - self.lost
        value = self.value + step
        return Compensated(value, (value - self.value) - step)

    def total(self) -> NDArray:
        """The sums on the host in float64, with more digits than `value` alone holds."""
        return np.asarray(self.value, np.float64) - np.asarray(self.lost, np.float64)
