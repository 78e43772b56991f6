"""The inverse of a matrix that is block tridiagonal over the layers.

One call of LAPACK would do, but its threads wait for each other: on a machine with busy cores an
inverse of 32 rows takes 13 ms instead of 0.04 ms.
"""

from typing import Any

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

__all__ = ["inverse_of"]


def _divide(table: Array) -> Array:
    r"""$[M, R] \to M^{-1} R$, by Gauss-Jordan without pivoting, `[S, S + R] -> [S, R]`."""
    num_rows = table.shape[0]
    for i in range(num_rows):
        column, table = table[:, :1], table[:, 1:]
        row = table[i : i + 1] / column[i : i + 1]
        table = (table - column * row).at[i].set(row[0])
    return table


def inverse_of(own: Array, across: Array) -> Array:
    """The inverse of a positive definite matrix, by block elimination along the layers.

    Args:
      own: `[L, S, S]`, the blocks on the diagonal.
      across: `[L, S, S]`, those between a layer and the next; the last is not used.

    Returns:
      `[L S, L S]`.
    """
    num_layers, num_states, _ = own.shape
    size = num_layers * num_states
    right = jnp.eye(size, dtype=own.dtype).reshape(num_layers, num_states, size)

    def eliminate(carry: tuple[Array, Array], layer: tuple[Array, Array, Array]) -> Any:
        less, shift = carry
        block, after, unit = layer
        solved = _divide(jnp.concatenate([block - less, after, unit - shift], 1))
        product = after.T @ solved
        return (product[:, :num_states], product[:, num_states:]), solved

    def substitute(following: Array, solved: Array) -> tuple[Array, Array]:
        here = solved[:, num_states:] - solved[:, :num_states] @ following
        return here, here

    across = across.at[-1].set(0)
    nothing = jnp.zeros_like(own[0]), jnp.zeros_like(right[0])
    _, solved = lax.scan(eliminate, nothing, (own, across, right))
    _, rows = lax.scan(substitute, nothing[1], solved, reverse=True)
    return rows.reshape(size, size)
