"""Block elimination along wide layers, whose blocks are factorised by LAPACK."""

from typing import Any

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

__all__ = ["solve_wide"]


def solve_wide(own: Array, into: Array, root: Array, across: Array, right: Array) -> Array:
    """The solution `[L, S, B]` of the system of a `Hessian`, whose fields come first."""
    own, into, root, across, right = (
        jnp.moveaxis(x, -1, 0 if x.ndim < 3 else 1) for x in (own, into, root, across, right)
    )  # [..., B, S] or [..., B, S, S]
    eye = jnp.eye(root.shape[-1], dtype=root.dtype)[None]

    def eliminate(carry: tuple[Array, Array], layer: tuple[Array, Array, Array, Array]) -> Any:
        block, shift = carry
        own, into, across, rhs = layer
        factor = lax.linalg.cholesky(block + own[..., None] * eye, symmetrize_input=False)
        sides = jnp.concatenate([across, (rhs - shift)[..., None]], -1)  # [B, S, S + 1]
        half = lax.linalg.triangular_solve(factor, sides, left_side=True, lower=True)
        product = _product(half[..., :-1].swapaxes(-1, -2), half)
        return (into - product[..., :-1], product[..., -1]), (factor, half)

    def substitute(after: Array, solved: tuple[Array, Array]) -> tuple[Array, Array]:
        factor, half = solved
        rest = half[..., -1:] - _product(half[..., :-1], after[..., None])
        here = lax.linalg.triangular_solve(
            factor, rest, left_side=True, lower=True, transpose_a=True
        )[..., 0]
        return here, here

    slope = root / own[0, :, :1]
    start = into[0] - root[:, :, None] * slope[:, None], slope * right[0, :, :1]
    nothing = jnp.zeros_like(into[:1])
    layers = own[1:], jnp.concatenate([into[1:], nothing]), jnp.concatenate([across, nothing])
    _, solved = lax.scan(eliminate, start, (*layers, right[1:]))
    _, change = lax.scan(substitute, jnp.zeros_like(root), solved, reverse=True)
    first = (right[0, :, 0] / own[0, :, 0]) - (slope * change[0]).sum(-1)
    whole = jnp.concatenate([jnp.zeros_like(right[:1]).at[0, :, 0].set(first), change])
    return jnp.moveaxis(whole, 1, -1)


def _product(left: Array, right: Array) -> Array:
    return jnp.matmul(left, right, precision=lax.Precision.HIGHEST)
