"""Sums over the entries of cones, one entry after the other, in few passes over memory.

Arrays are entries-first: `[S, ...]` for the entries of cones and `[...]` for one number per cone.
Every operation, sums over entries included, then runs contiguously over all cones of all lanes.
"""

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

__all__ = [
    "ABSENT",
    "WRITTEN_OUT",
    "Entries",
    "between",
    "larger",
    "one_where",
    "over_entries",
    "positive_part",
    "reduce_entries",
    "sum_entries",
]

# An array over the entries of cones, `[S, ...]`; with successor lists a tuple of them, one for each
# group of cones of the same width.
Entries: TypeAlias = Any

Sums = TypeVar("Sums", bound=tuple[Array, ...])
Maxima = TypeVar("Maxima", bound=tuple[Array, ...])

# The target of an entry that does not exist. Its projection is then exactly zero, without further
# masking.
ABSENT = -1e30

# Up to so many entries the comparisons are written out. One evaluation of 32 entries takes 2.4 ms
# written out and 3.2 ms as a loop, of 48 entries 9.6 and 8.5. If larger, the program grows with the
# entries; if smaller, middle layers are slower.
WRITTEN_OUT = 32

# How many entries such a loop takes at a time, written out. If larger, the program is longer; if
# smaller, the loop is started more often.
ENTRIES_AT_ONCE = 16


def reduce_entries(added: Sums, largest: Maxima) -> tuple[Sums, Maxima]:
    """Sums of some arrays over the entries and maxima of others, in one pass over memory.

    At least two in all: XLA's CPU backend passes a reduction of one array to a library, which takes
    many times as long for a few entries.
    """
    dtype = (*added, *largest)[0].dtype
    zero, lowest = jnp.zeros((), dtype), jnp.full((), -jnp.inf, dtype)

    def combine(left: Any, right: Any) -> Any:
        sums, maxima = zip(left, right, strict=True)
        return jax.tree.map(jnp.add, *sums), jax.tree.map(larger, *maxima)

    initial = jax.tree.map(lambda _: zero, added), jax.tree.map(lambda _: lowest, largest)
    return lax.reduce((added, largest), initial, combine, (0,))


def sum_entries(added: Sums) -> Sums:
    """Sums of some arrays over the entries, in one pass over memory."""
    return reduce_entries(added, ())[0]


def positive_part(x: Array) -> Array:
    """`max(x, 0)` with NaN mapped to 0: propagating NaN takes a third of the time of the sums."""
    return jnp.where(x > 0, x, 0)


def larger(x: Array, y: Array) -> Array:
    """The larger of two numbers, where neither is NaN."""
    return jnp.where(x > y, x, y)


def between(x: Array, upper: Array) -> Array:
    """`clip(x, 0, upper)` with NaN mapped to 0, as in `positive_part`."""
    x = positive_part(x)
    return jnp.where(x < upper, x, upper)


def _rows(array: Array) -> list[Array]:
    """The entries one by one, each `[1, ...]`."""
    return [array[i : i + 1] for i in range(array.shape[0])]


def over_entries(add: Callable[..., Sums], start: Sums, *arrays: tuple[Array, float]) -> Sums:
    """`add(sums, *entries)` for one entry after the other, each `[1, ...]`.

    Args:
      add: adds an entry to the sums.
      start: the sums before.
      *arrays: `[S, ...]`, each with its value at an entry that adds nothing.
    """

    def added(sums: Sums, *parts: Array) -> Sums:
        for entries in zip(*map(_rows, parts), strict=True):
            sums = add(sums, *entries)
        return sums

    num_entries = len(arrays[0][0])
    if num_entries <= WRITTEN_OUT:
        return added(start, *(array for array, _ in arrays))
    spare = -num_entries % ENTRIES_AT_ONCE
    whole = [
        jnp.pad(x, [(0, spare), *[(0, 0)] * (x.ndim - 1)], constant_values=nothing)
        for x, nothing in arrays
    ]

    def loop(i: Array, sums: Sums) -> Sums:
        first = i * ENTRIES_AT_ONCE
        parts = (lax.dynamic_slice_in_dim(x, first, ENTRIES_AT_ONCE) for x in whole)
        return added(sums, *parts)

    return lax.fori_loop(0, (num_entries + spare) // ENTRIES_AT_ONCE, loop, start)


def one_where(condition: Array, like: Array) -> Array:
    """1 or 0 instead of true or false: mixing bytes and floats prevents vectorisation."""
    return jnp.where(condition, jnp.ones_like(like), jnp.zeros_like(like))
