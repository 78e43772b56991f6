"""Random numbers that do not change when an instance is padded.

`jax.random.uniform(key, (L, S, A))` gives an entry a number that depends on S and A, so that a
padded instance would see other rewards than the plain one. Here the number of entry
`[i, l, s, a]` depends on the key and on `(i, l, s, a)` alone: the first three select a key, and
JAX's counter-based generator gives the a-th number of that key whatever the length asked for.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

__all__ = ["keys_for", "uniforms_for"]


def uniforms_for(key: Key[Array, ""], shape: tuple[int, ...], dtype: Any) -> Float[Array, "..."]:
    """Numbers in [0, 1) for an array `[L, S, A]` or `[m, L, S, A]`."""
    rows = _row_keys(key, shape)
    numbers = jax.vmap(lambda row: jax.random.uniform(row, shape[-1:], dtype))(rows)
    return numbers.reshape(shape)


def keys_for(key: Key[Array, ""], shape: tuple[int, ...]) -> Key[Array, "..."]:
    """A key for every entry of an array `[L, S, A]` or `[m, L, S, A]`."""
    rows = _row_keys(key, shape)
    actions = jnp.arange(shape[-1])
    keys = jax.vmap(jax.vmap(jax.random.fold_in, (None, 0)), (0, None))(rows, actions)
    return keys.reshape(shape)


def _row_keys(key: Key[Array, ""], shape: tuple[int, ...]) -> Key[Array, " rows"]:
    *leading, states, _ = shape
    # One number for (constraint, layer), another for the state: 65,536 of each fit.
    outer = jnp.arange(leading[-1])
    if len(leading) == 2:
        outer = (jnp.arange(leading[0])[:, None] * 65536 + outer[None, :]).reshape(-1)
    outer_keys = jax.vmap(jax.random.fold_in, (None, 0))(key, outer)
    nested = jax.vmap(jax.vmap(jax.random.fold_in, (None, 0)), (0, None))
    return nested(outer_keys, jnp.arange(states)).reshape(-1)
