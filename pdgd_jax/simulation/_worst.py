"""The worst interval of a run, tracked while it is played."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, DTypeLike, Float

__all__ = ["Worst"]


class Worst(NamedTuple):
    r"""The largest sum over any interval of episodes so far (Kadane's algorithm).

    Attributes:
      ending: the largest sum over intervals that end now.
      lost: the rounding error of `ending`, as in `Compensated`.
      value: the largest sum over all intervals.
    """

    ending: Float[Array, " n"]
    lost: Float[Array, " n"]
    value: Float[Array, " n"]

    @classmethod
    def none(cls, number: int, dtype: DTypeLike) -> "Worst":
        """Before the first episode."""
        least = jnp.full(number, -jnp.inf, dtype)
        return cls(least, jnp.zeros(number, dtype), least)

    def add(
        self,
        terms: Float[Array, " n"],
        first: ArrayLike = 0.0,
        toll: Float[Array, ""] | float = 0.0,
    ) -> "Worst":
        """Add one episode.

        Args:
          terms: the terms of the episode.
          first: the initial value of an interval that begins with this episode.
          toll: subtracted from an interval that ends with this episode.
        """
        begins = self.ending < first
        before = jnp.where(begins, first, self.ending)
        step = terms - jnp.where(begins, 0, self.lost)
        ending = before + step
        lost = (ending - before) - step
        return Worst(ending, lost, jnp.maximum(self.value, ending - toll))
