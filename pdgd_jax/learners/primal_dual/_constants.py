"""Constants of a learner: those of a paper, or the caller's."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from pdgd_jax._internal.checks import is_positive
from pdgd_jax._internal.pytree import as_array, is_concrete, numpy_for
from pdgd_jax.models import Layers

__all__ = ["Sizes", "constant", "sizes_of"]


class Sizes(NamedTuple):
    """The sizes of a problem as floating point numbers, and what to compute with."""

    xp: Any  # NumPy where the host knows all sizes, else `jax.numpy`
    L: Any  # the number of layers
    X: Any  # of all states, the first and the last included
    A: Any  # of actions
    T: Any  # of episodes


def sizes_of(layers: Layers, num_episodes: ArrayLike) -> Sizes:
    """The sizes that constants depend on; padding does not count."""
    xp, dtype = numpy_for(*jax.tree.leaves(layers), num_episodes), jnp.result_type(float)
    sizes = layers.num_layers, layers.num_states, layers.num_actions, num_episodes
    return Sizes(xp, *(xp.asarray(size, dtype) for size in sizes))


def constant(
    name: str, given: ArrayLike | None, paper: Callable[[], Any], *, is_share: bool = False
) -> Float[Array, ""]:
    """The caller's constant, or that of the paper if there is none.

    Args:
      name: of the setting.
      given: may be traced.
      paper: computes the default.
      is_share: whether it lies from 0 to 1, without 1; otherwise it must be positive.

    Raises:
      ValueError: if the caller's constant is out of its range.
    """
    if given is None:
        return as_array(paper(), float)
    if is_concrete(given):
        values = np.asarray(given)
        fine = np.all((values >= 0) & (values < 1)) if is_share else is_positive(given)
        if not fine:
            must = "at least 0 and below 1" if is_share else "positive and finite"
            raise ValueError(f"{name} must be {must}; got {given!r}.")
    return as_array(given, float)
