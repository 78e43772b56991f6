"""Successor lists: the next states that each pair can have, and arrays over these triples alone.

Without lists an array over the triples $(x, a, x')$ is `[L, S, A, S]`. With lists it is `[L, M]`:
for each layer the rows of its pairs one after the other, each as wide as the list of its pair. Rows
of similar width form a group of one static width, so that a few pairs with many successors do not
widen all other rows. Within a group everything is dense: `[L, rows, width]`.

The lists are leaves, and only the sizes of the groups are static: instances with other lists of the
same sizes share a compiled program, and `Layers.pad_to` brings lists to common ones.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from pdgd_jax._internal.checks import first_place, place
from pdgd_jax._internal.pytree import as_array, pytree, static
from pdgd_jax._internal.typing import NDArray

__all__ = [
    "Edges",
    "Groups",
    "Successors",
    "at_next",
    "build",
    "check_fit",
    "check_lists",
    "into_next",
    "rectangular",
    "to_pairs",
    "to_triples",
]

# How many widths the rows of one instance have at most: each has its own part of a program. So
# another group is only made if it saves this share of the entries.
MOST_GROUPS = 4
WORTH_A_GROUP = 1 / 8

Numbers = TypeVar("Numbers", Array, NDArray)


class Group(NamedTuple):
    """Rows of the same width in every layer."""

    rows: int
    width: int


class Groups(tuple[Group, ...]):
    """The groups of rows of each layer, by width."""

    __slots__ = ()

    @property
    def num_rows(self) -> int:
        """The rows of a layer."""
        return sum(group.rows for group in self)

    @property
    def num_entries(self) -> int:
        """The entries of a layer, `M`."""
        return sum(group.rows * group.width for group in self)

    def split(self, entries: Array) -> list[Array]:
        """The entries of each group, `[..., M] -> [..., rows, width]`."""
        parts, start = [], 0
        for rows, width in self:
            stop = start + rows * width
            parts.append(entries[..., start:stop].reshape(*entries.shape[:-1], rows, width))
            start = stop
        return parts

    def join(self, parts: Sequence[Array]) -> Array:
        """The entries of all groups, `[..., rows, width] -> [..., M]`."""
        return jnp.concatenate([x.reshape(*x.shape[:-2], -1) for x in parts], -1)

    def sum(self, entries: Array) -> Array:
        """The sum of each row, `[..., M] -> [..., rows]`."""
        return jnp.concatenate([x.sum(-1) for x in self.split(entries)], -1)

    def spread(self, rows: Array) -> Array:
        """The number of each row at all of its entries, `[..., rows] -> [..., M]`."""
        # A lookup, not a concatenation of broadcasts: XLA's CPU backend (jaxlib 0.10.2) fuses two
        # of those wrongly, and the sum of two such arrays pairs entries of different rows.
        return jnp.take(rows, self.spread_on_host(np.arange(self.num_rows)), axis=-1, mode="clip")

    def spread_on_host(self, rows: NDArray) -> NDArray:
        """The same with NumPy."""
        widths = np.repeat([width for _, width in self], [count for count, _ in self])
        return np.repeat(rows, widths, axis=-1)

    def united(self, other: "Groups") -> "Groups":
        """The smallest groups that have room for the rows of both."""
        widths = sorted({width for _, width in (*self, *other)})
        # For each width, how many rows are at least as wide.
        rows = [max(sum(r for r, w in x if w >= width) for x in (self, other)) for width in widths]
        groups = map(Group, (np.array(rows) - [*rows[1:], 0]).tolist(), widths)
        return Groups(group for group in groups if group.rows)

    def fewer(self) -> "Groups":
        """At most `MOST_GROUPS`, with room for all of these."""
        widths = [width for rows, width in self for _ in range(rows)]
        return choose_groups(np.array([widths], int))

    def first_entries(self) -> NDArray:
        """Where each row begins, `[rows]`."""
        widths = [width for rows, width in self for _ in range(rows)]
        return np.cumsum([0, *widths])[:-1].astype(np.int32)


def choose_groups(lengths: NDArray, most: int = MOST_GROUPS) -> Groups:
    """A few groups of rows with few entries in all that have room for the lists of each layer.

    A short list may stand in a wide row. So there are enough rows if, for each width, as many are
    wider as any layer has longer lists.

    Args:
      lengths: `[L, n]`, the lengths of the lists of each layer; 0 where there is none.
      most: the largest number of groups.

    Returns:
      The groups, by width.
    """
    widths = [0, *(int(width) for width in np.unique(lengths[lengths > 0]))]
    longer = [int((lengths > width).sum(1).max(initial=0)) for width in widths]
    # The fewest entries of the columns up to each width, with so many groups, and their widths. The
    # columns between two widths belong to all rows that are wider than the smaller one.
    impossible: tuple[int, tuple[int, ...]] = (2**62, ())
    best = [(0, impossible[1]), *[impossible] * (len(widths) - 1)]
    whole = [best[-1]]
    for _ in range(min(most, len(widths) - 1)):
        best = [
            min(
                (entries + longer[i] * (widths[j] - widths[i]), (*chosen, j))
                for i, (entries, chosen) in enumerate(best[:j])
            )
            if j
            else impossible
            for j in range(len(widths))
        ]
        whole.append(best[-1])
    fewest, chosen = whole[0]
    for entries, more in whole[1:]:
        if entries < (1 - WORTH_A_GROUP) * fewest:
            fewest, chosen = entries, more
    cuts = [0, *chosen]
    rows = [longer[i] for i in cuts]  # at least so wide; the last is 0
    groups = (Group(rows[i] - rows[i + 1], widths[cuts[i + 1]]) for i in range(len(chosen)))
    return Groups(group for group in groups if group.rows)


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
    """The number of the next state at each triple, likewise; `[..., S]` of the next layers."""
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


def check_lists(sizes: Sequence[int], lists: Sequence[NDArray]) -> None:
    """Raise a `ValueError` unless every list names different states of the next layer."""
    if len(lists) != len(sizes) - 1:
        raise ValueError(
            f"sizes {tuple(sizes)} have {len(sizes) - 1} decision layers; got successors of "
            f"{len(lists)}."
        )
    for layer, array in enumerate(lists):
        if array.dtype.kind not in "iu":
            raise ValueError(
                f"successors of layer {layer} are {array.dtype}; they must be whole numbers, the "
                "states of the next layer, and -1 where there is none."
            )
        actions = lists[0].shape[1] if lists[0].ndim == 3 else 1
        if array.ndim != 3 or array.shape[:2] != (sizes[layer], actions):
            raise ValueError(
                f"successors of layer {layer} must have the shape [X, A, K] = "
                f"({sizes[layer]}, {actions}, K); got {array.shape}."
            )
        wrong = first_place((array < -1) | (array >= sizes[layer + 1]))
        if wrong is not None:
            raise ValueError(
                f"a successor of {place((layer, *wrong[:2]))} is {array[wrong]}; layer "
                f"{layer + 1} has the states 0 to {sizes[layer + 1] - 1}, and -1 is none."
            )
        ordered = np.sort(array, -1)
        twice = first_place((ordered[..., 1:] == ordered[..., :-1]) & (ordered[..., 1:] >= 0))
        if twice is not None:
            state = ordered[..., 1:][twice]
            raise ValueError(
                f"the successors of {place((layer, *twice[:2]))} name state {state} twice."
            )


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


def rectangular(name: str, layer: int, array: Any) -> NDArray:
    """The array that was given for a layer; a `ValueError` if its rows differ in length."""
    try:
        return np.asarray(array)
    except ValueError:
        raise ValueError(
            f"{name} of layer {layer} must be one array [X, A, K]; got lists of different lengths, "
            "of which the shorter ones must be filled: successors with -1, numbers with 0."
        ) from None


class _Rows(NamedTuple):
    """The rows of one layer on the host: of each, its group, and how to fill it."""

    of: NDArray  # [n], the row of each list
    entries: NDArray  # [n, longest], where the entries of each list stand


def _rows_of(lengths: NDArray, groups: Groups) -> _Rows:
    """A row for each list of one layer, `[n]`: the longest lists have the widest rows."""
    real = np.argsort(-lengths, kind="stable")[: int((lengths > 0).sum())]
    of = np.full(len(lengths), groups.num_rows)
    of[real] = groups.num_rows - 1 - np.arange(len(real))  # groups are by width
    begin = np.append(groups.first_entries(), groups.num_entries)[of]
    return _Rows(of, begin[:, None] + np.arange(max(lengths.max(initial=0), 1)))


def build(
    lists: Sequence[NDArray], shape: tuple[int, int, int], like: Sequence[Successors] = ()
) -> Successors:
    """The lists in padded arrays.

    Args:
      lists: `[X_k, A, K_k]` of each decision layer, -1 where there is none.
      shape: `(L, S, A)`, padded.
      like: lists for which there must be room, too.
    """
    laid_out = _build(lists, shape, like)
    others = [other.edges.lists for other in like if other.edges is not None]
    edges = _build([_union(array) for array in lists], (*shape[:2], 1), others)
    return replace(laid_out, edges=Edges(edges, _triples_of(edges, laid_out, shape)))


def _build(
    lists: Sequence[NDArray], shape: tuple[int, int, int], like: Sequence[Successors]
) -> Successors:
    L, S, _ = shape
    lengths, degrees = np.zeros(shape, int), np.zeros((L, S), int)
    for layer, array in enumerate(lists):
        lengths[layer, : array.shape[0], : array.shape[1]] = (array >= 0).sum(-1)
        if layer < len(lists) - 1:
            degrees[layer] = np.bincount(array[array >= 0], minlength=S)
    widths = tuple(array.shape[2] for array in lists) + (0,) * (L - len(lists))
    groups, entering_groups = choose_groups(lengths.reshape(L, -1)), choose_groups(degrees)
    for other in like:
        groups = groups.united(other.groups)
        entering_groups = entering_groups.united(other.entering_groups)
        widths = tuple(map(max, widths, (*other.widths, *[0] * L)))
    return _laid_out(lists, lengths, degrees, groups.fewer(), entering_groups.fewer(), widths)


def _union(lists: NDArray) -> NDArray:
    """The next states of each state, `[X, A, K] -> [X, 1, U]`."""
    state = np.nonzero(lists >= 0)[0]
    found = np.unique(np.stack([state, lists[lists >= 0]]), axis=1)
    count = np.bincount(found[0], minlength=len(lists))
    union = np.full((len(lists), 1, max(count.max(initial=0), 1)), -1)
    number = np.arange(found.shape[1]) - np.searchsorted(found[0], found[0])
    union[found[0], 0, number] = found[1]
    return union


def _triples_of(edges: Successors, lists: Successors, shape: tuple[int, int, int]) -> Array:
    """`Edges.triple`: triples find their edge by state and next state."""
    L, _, A = shape
    triple = np.full((L, A, edges.groups.num_entries), lists.groups.num_entries, np.int32)
    pairs = lists.groups.spread_on_host(np.asarray(lists.pair))
    states = edges.groups.spread_on_host(np.asarray(edges.pair))
    S = edges.entered.shape[1]
    for k in range(L):
        edge = np.flatnonzero(np.asarray(edges.present[k]))
        name = states[k, edge] * S + np.asarray(edges.following)[k, edge]
        order = np.argsort(name)
        entry = np.flatnonzero(np.asarray(lists.present[k]))
        state, action = np.divmod(pairs[k, entry], A)
        own = state * S + np.asarray(lists.following)[k, entry]
        triple[k, action, edge[order[np.searchsorted(name[order], own)]]] = entry
    return as_array(triple)


def _laid_out(
    lists: Sequence[NDArray],
    lengths: NDArray,
    degrees: NDArray,
    groups: Groups,
    entering_groups: Groups,
    widths: tuple[int, ...],
) -> Successors:
    L, S, A = lengths.shape
    M, R, E = groups.num_entries, groups.num_rows, entering_groups.num_entries
    following, slot = np.zeros((2, L, M), np.int32)
    present = np.zeros((L, M), bool)
    pair, row = np.zeros((L, R), np.int32), np.full((L, S * A), R, np.int32)
    entering, entered = np.full((L, E), M, np.int32), np.zeros((L, S), np.int32)
    for k in range(L):
        rows = _rows_of(lengths[k].reshape(-1), groups)
        row[k] = rows.of
        real = np.flatnonzero(rows.of < R)
        pair[k, rows.of[real]] = real
        into = _rows_of(degrees[k], entering_groups)
        entered[k] = into.of
        if k >= len(lists):
            continue
        if k == len(lists) - 1:
            entered[k, 0] = entering_groups.num_rows + 1
        state, action, column = np.nonzero(lists[k] >= 0)
        which = state * A + action
        # The number of an entry among those of its pair: `nonzero` goes through them in order.
        begin = np.searchsorted(which, which)
        entry = rows.entries[which, np.arange(len(which)) - begin]
        target = lists[k][state, action, column]
        following[k, entry], slot[k, entry], present[k, entry] = target, column, True
        if k < len(lists) - 1:
            order = np.argsort(target, kind="stable")
            number = np.arange(len(order)) - np.searchsorted(target[order], target[order])
            entering[k, into.entries[target[order], number]] = entry[order]
    return Successors(
        following=as_array(following),
        present=as_array(present),
        slot=as_array(slot),
        pair=as_array(pair),
        row=as_array(row.reshape(L, S, A)),
        entering=as_array(entering),
        entered=as_array(entered),
        edges=None,
        groups=groups,
        entering_groups=entering_groups,
        widths=widths,
    )
