"""Successor lists of a user, checked and laid out in padded arrays, on the host."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array

from pdgd_jax._internal.checks import first_place, place
from pdgd_jax._internal.pytree import as_array
from pdgd_jax._internal.typing import NDArray
from pdgd_jax.models._groups import Groups, choose_groups
from pdgd_jax.models._successors import Edges, Successors

__all__ = ["build", "check_lists", "rectangular"]


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
