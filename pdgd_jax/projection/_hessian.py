r"""The Hessian $F J F^\top + d I$ of the dual, block tridiagonal over the layers."""

from itertools import pairwise
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from pdgd_jax.projection._cone import ConePieces, positive_part
from pdgd_jax.projection._layout import Cones, is_wide, per_state, split
from pdgd_jax.projection._problem import entries_sum, per_lane
from pdgd_jax.projection._wide import solve_wide
from pdgd_jax.projection._xla import fence

__all__ = ["Hessian", "divide", "hessian_of", "outer_sums", "solve_system"]

# The most pairs in one loop of `_outer_sum`: with more, the compiler no longer vectorises it. And
# the largest number of loops, since the program grows with every loop.
PAIRS_AT_ONCE = 50
MOST_LOOPS = 2


class Hessian(NamedTuple):
    """The blocks of the matrix."""

    own: Array  # [L, S, B], what the pairs of a layer add to its diagonal
    into: Array  # [L-1, S, S, B], what they add to the diagonal block of the next layer
    root: Array  # [S, B], the block between the first layer, which is a single state, and the next
    across: Array  # [L-2, S, S, B], the blocks between the inner layers and the next


def _outer_sum(scaled: Array, weight: Array, block: Array) -> Array:
    r"""$\sum J$ over the pairs without its diagonal part, `[S', pairs, n] -> [S', S', n]`.

    It is one loop over contiguous layers and lanes. A matrix product for each layer would take
    twice as long, in single precision four times as long.
    """
    total: Any = sum(
        scaled[:, None, i] * weight[None, :, i]
        - positive_part(block[:, None, i] * block[None, :, i])
        for i in range(weight.shape[1])
    )
    return total


def _outer_products(scaled: Array, weight: Array, block: Array) -> Array:
    """`_outer_sum` as matrix products."""

    def product(left: Array, right: Array) -> Array:
        return jnp.einsum("ipn,jpn->ijn", left, right, precision=lax.Precision.HIGHEST)

    up = positive_part(block)
    down = block - up
    return product(scaled, weight) - product(up, up) - product(down, down)


def outer_sums(scaled: Array, weight: Array, block: Array) -> Array:
    """The same for `[S', pairs, L, B]`, in a few loops or, for many pairs, as matrix products."""
    num_next, num_pairs, num_layers, num_lanes = weight.shape
    arrays = [x.reshape(num_next, num_pairs, -1) for x in (scaled, weight, block)]
    count = -(-num_pairs // PAIRS_AT_ONCE)
    total: Any
    if count == 1:
        total = _outer_sum(*arrays)
    elif count <= MOST_LOOPS:
        cuts = [i * num_pairs // count for i in range(count + 1)]
        parts = ([x[:, i:j] for x in arrays] for i, j in pairwise(cuts))
        total = sum(fence(_outer_sum, *part) for part in parts)
    else:
        total = _outer_products(*arrays)
    return total.reshape(num_next, num_next, num_layers, num_lanes)


class _PairSums(NamedTuple):
    """What the pairs of some layers with X states each add to the Hessian."""

    outer: Array  # [S', S', L, B]
    moving: Array  # [S', L, B], the number of pairs with the entry in a block
    across: Array  # [S', X, L, B], the entries between a state and the next states


def _pair_sums(weight: Array, block: Array, gain: Array, last: Array) -> list[_PairSums]:
    """What each block of layers adds."""
    sums = []
    blocks = zip(*(split(x, last) for x in (weight, block, gain)), strict=True)
    if is_wide(len(last)):
        return [_wide_pair_sums(*arrays) for arrays in blocks]
    for w, e, g in blocks:
        scaled = w * g[None]
        across = entries_sum(scaled.swapaxes(0, 1))
        scaled, w, e = (x.reshape(x.shape[0], -1, *x.shape[3:]) for x in (scaled, w, e))
        moving = entries_sum(jnp.where(e != 0, jnp.ones_like(e), 0).swapaxes(0, 1))
        sums.append(_PairSums(outer_sums(scaled, w, e), moving, across))
    return sums


def _wide_pair_sums(weight: Array, block: Array, gain: Array) -> _PairSums:
    """What a block of wide layers adds, from arrays `[S', A, X, L, B]`."""
    scaled = weight * gain[None]

    def by_layer(x: Array) -> Array:
        return jnp.moveaxis(x, (3, 4), (0, 1)).reshape(*x.shape[3:], len(x), -1)  # [L, B, S', p]

    def product(left: Array, right: Array) -> Array:
        return jnp.einsum("lbip,lbjp->lbij", left, right, precision=lax.Precision.HIGHEST)

    up = positive_part(block)
    factors = [by_layer(x) for x in (scaled, weight, up, block - up)]
    outer = product(*factors[:2]) - product(*factors[2:3] * 2) - product(*factors[3:] * 2)
    return _PairSums(
        outer=jnp.moveaxis(outer, (0, 1), (2, 3)),
        moving=jnp.where(block != 0, jnp.ones_like(block), 0).sum((1, 2)),
        across=scaled.sum(1),
    )


def hessian_of(cones: Cones, pieces: ConePieces, last: Array, damping: Array) -> Hessian:
    """The Hessian for these pieces and the occupancy `last` of the last layer."""
    free, ahead = cones.free, cones.free[1:]
    sums = fence(_pair_sums, pieces.weight, pieces.block, pieces.gain, last)
    outer = jnp.moveaxis(jnp.concatenate([x.outer for x in sums], 2), 2, 0)
    moving = jnp.concatenate([x.moving for x in sums], 1).swapaxes(0, 1)
    across = jnp.concatenate([x.across for x in sums[1:]], 2)
    eye = jnp.eye(moving.shape[1], dtype=moving.dtype)[None, ..., None]
    own = per_state(pieces.gain, jnp.where(last > 0, jnp.ones_like(last), 0))
    return Hessian(
        own=own * free + (1 - free) + per_lane(damping, 3),
        into=(outer + eye * moving[:, :, None]) * ahead[:, :, None] * ahead[:, None],
        root=-sums[0].across[:, 0, 0] * free[0, :1] * ahead[0],
        across=-across.swapaxes(0, 2) * free[1:-1, :, None] * free[2:, None],
    )


def divide(table: Array) -> Array:
    r"""$[M, R] \to M^{-1} R$, `[S, S + R, B] -> [S, R, B]`.

    Gauss-Jordan elimination without pivoting, unrolled over the states, so that every operation
    runs over contiguous lanes.
    """
    num_states = table.shape[0]
    is_pivot = jnp.eye(num_states, dtype=bool)[..., None]
    for i in range(num_states):
        column, table = table[:, :1], table[:, 1:]
        pivot_row = (table[i] / column[i])[None]
        table = jnp.where(is_pivot[i][:, None], pivot_row, table - column * pivot_row)
    return table


def solve_system(hessian: Hessian, right: Array) -> Array:
    """Solve the symmetric positive definite system by block elimination along the layers."""
    if is_wide(right.shape[1]):
        return solve_wide(*hessian, right)
    num_states = right.shape[1]
    is_pivot = jnp.eye(num_states, dtype=bool)[..., None]

    def eliminate(carry: tuple[Array, Array], layer: tuple[Array, Array, Array, Array]) -> Any:
        block, shift = carry
        own, into, across, rhs = layer
        block = block + jnp.where(is_pivot, own[:, None], 0)
        table = jnp.concatenate([block, across, (rhs - shift)[:, None]], 1)  # [S, 2S + 1, B]
        table = divide(table)  # block^-1 [across, rhs]
        product: Any = sum(across[i][:, None] * table[i][None] for i in range(num_states))
        return (into - product[:, :-1], product[:, -1]), table

    def substitute(after: Array, solved: Array) -> tuple[Array, Array]:
        here = solved[:, -1] - sum(solved[:, i] * after[i][None] for i in range(num_states))
        return here, here

    own, into, root, across = hessian
    slope = root / own[0, :1]
    start = into[0] - root[:, None] * slope[None], slope * right[0, :1]
    nothing = jnp.zeros_like(into[:1])
    layers = own[1:], jnp.concatenate([into[1:], nothing]), jnp.concatenate([across, nothing])
    _, solved = lax.scan(eliminate, start, (*layers, right[1:]))
    _, change = lax.scan(substitute, jnp.zeros_like(root), solved, reverse=True)
    first = right[0, 0] / own[0, 0] - (slope * change[0]).sum(0)
    return jnp.concatenate([jnp.zeros_like(right[:1]).at[0, 0].set(first), change])
