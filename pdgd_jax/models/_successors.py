"""Successor lists: the next states that each pair can have, and arrays over these triples alone.

Without lists an array over the triples $(x, a, x')$ is `[L, S, A, S]`. With lists it is `[L, M]`:
for each layer the rows of its pairs one after the other, each as wide as the list of its pair, in
groups of one static width (`Groups`). Within a group everything is dense: `[L, rows, width]`.

The lists are leaves, and only the sizes of the groups are static: instances with other lists of the
same sizes share a compiled program, and `Layers.pad_to` brings lists to common ones.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from pdgd_jax._internal.checks import first_place, place
from pdgd_jax._internal.pytree import pytree, static
from pdgd_jax._internal.typing import NDArray
from pdgd_jax.models._groups import Groups

__all__ = [
    "Edges",
    "Successors",
    "at_next",
    "check_fit",
    "into_next",
    "to_pairs",
    "to_triples",
]


@pytree
class Successors:
    """The successors of every pair of every layer.

    Attributes:
      following: `[L, M]`, the next state of each triple; 0 where there is none.
      present: `[L, M]`, whether there is such a triple; rows that only pad have none.
      slot: `[L, M]`, its column in the list that the user gave.
      pair: `[L, rows]`, the pair $s A + a$ of each row; 0 of a row that only pads.
      row: `[L, S, A]`, the row of each pair; the number of rows if it has none.
      entering: `[L, E]`, the triples that lead to each state of the next layer, grouped likewise;
        M where there is none. Those that end the episode are not listed: all do.
      entered: `[L, S]`, the row of `entering` that each state has; their number if it has none, and
        one more for the state in which the episode ends.
      edges: the next states of each state, whatever the action; None for the lists of edges.
      groups: of the rows.
      entering_groups: of the rows of `entering`.
      widths: the widths of the lists that the user gave, by layer.
    """

    following: Int[Array, "*batch layers triples"]
    present: Bool[Array, "*batch layers triples"]
    slot: Int[Array, "*batch layers triples"]
    pair: Int[Array, "*batch layers rows"]
    row: Int[Array, "*batch layers states actions"]
    entering: Int[Array, "*batch layers entering"]
    entered: Int[Array, "*batch layers states"]
    edges: "Edges | None"
    groups: Groups = static()
    entering_groups: Groups = static()
    widths: tuple[int, ...] = static()

    # Every function takes the lists of all layers, or of one layer inside of a scan over them.

    def to_pairs(self, triples: Array) -> Array:
        """The sum over the successors of each pair, `[..., M] -> [..., S, A]`."""
        return _at(_and_zero(self.groups.sum(triples)), self.row)

    def to_triples(self, pairs: Array) -> Array:
        """The number of each pair at all of its triples, `[..., S, A] -> [..., M]`."""
        flat = pairs.reshape(*pairs.shape[:-2], -1)
        return self.groups.spread(_at(flat, self.pair))

    def at_next(self, states: Array) -> Array:
        """The number of the next state of each triple, `[..., S] -> [..., M]`."""
        return _at(states, self.following)

    def row_of(self, triples: Array, state: Array, action: Array) -> Array:
        """The entries of one pair in one layer, and 0 for the widths of other groups, `[K]`."""
        row, parts, start = self.row[state, action], [], 0
        for group in self.groups.split(triples):
            own = group[jnp.clip(row - start, 0, group.shape[0] - 1)]
            inside = (row >= start) & (row < start + group.shape[0])
            parts.append(jnp.where(inside, own, jnp.zeros_like(own)))
            start += group.shape[0]
        return jnp.concatenate(parts)

    def into_next(self, triples: Array) -> Array:
        """The sum over the triples that lead to each next state, `[..., M] -> [..., S]`."""
        arrived = self.entering_groups.sum(_at(_and_zero(triples), self.entering))
        total = jnp.where(self.present, triples, jnp.zeros_like(triples)).sum(-1, keepdims=True)
        return _at(jnp.concatenate([_and_zero(arrived), total], -1), self.entered)


@pytree
class Edges:
    """The next states that each state can have with some action.

    Attributes:
      lists: the lists of states with one action, which can lead wherever any action can.
      triple: `[L, A, N]`, the triple of each edge and action; M where the action cannot lead there.
    """

    lists: Successors
    triple: Int[Array, "*batch layers actions edges"]


# The same for either layout, of all layers or of one; `lists` are None without lists.


def to_pairs(lists: Successors | None, triples: Array) -> Array:
    """The sum over the next states, `[..., S, A]`."""
    return triples.sum(-1) if lists is None else lists.to_pairs(triples)


def to_triples(lists: Successors | None, pairs: Array) -> Array:
    """The number of each pair at its triples, to be multiplied with an array over the triples."""
    return pairs[..., None] if lists is None else lists.to_triples(pairs)


def at_next(lists: Successors | None, states: Array) -> Array:
    """The number of the next state at its triples, to be multiplied as well.

    Args:
      lists: the lists, or None.
      states: `[..., S]`, a number of each state of the next layers.
    """
    return states[..., None, None, :] if lists is None else lists.at_next(states)


def into_next(lists: Successors | None, triples: Array) -> Array:
    """The sum over the triples that lead to each state of the next layers, `[..., S]`."""
    return triples.sum((-3, -2)) if lists is None else lists.into_next(triples)


def _and_zero(array: Array) -> Array:
    """With a last entry of 0, for whatever has no other."""
    return jnp.concatenate([array, jnp.zeros_like(array[..., :1])], -1)


def _at(array: Array, index: Array) -> Array:
    """`array[..., index]`, where the other axes of both are the same."""
    flat = index.reshape(*array.shape[:-1], -1)
    found = jnp.take_along_axis(array, flat, -1, mode="clip")
    return found.reshape(index.shape)


def check_fit(lists: Successors, state_mask: NDArray, action_mask: NDArray) -> None:
    """Raise a `ValueError` unless the lists are those of layers with these masks."""
    row, present = np.asarray(lists.row), np.asarray(lists.present)
    if row.shape != action_mask.shape:
        raise ValueError(
            f"the successor lists are those of layers (L, S, A) = {row.shape}; the masks are of "
            f"{action_mask.shape}."
        )
    has_row = row < lists.groups.num_rows
    wrong = first_place(has_row != action_mask)
    if wrong is not None:
        kind = "has successors, but is not in" if has_row[wrong] else "has no successor, but is in"
        raise ValueError(f"{place(wrong)} {kind} the action mask.")
    following = np.asarray(lists.following)
    entry = first_place(present & ~np.take_along_axis(state_mask[1:], following, -1))
    if entry is not None:
        pair = int(lists.groups.spread_on_host(np.asarray(lists.pair))[entry])
        raise ValueError(
            f"a successor of {place((entry[0], *divmod(pair, row.shape[2])))} is "
            f"{following[entry]}, which is not in the state mask of layer {entry[0] + 1}."
        )
