"""Where the numbers of rows, entries and edges of successor lists stand, and how they are grouped.

Rows and entries lie side by side as `_lists.py` says. An index of a layer becomes a place among all
of them, by arithmetic alone, so that lists may be traced.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from pdgd_jax._internal.typing import NDArray
from pdgd_jax.models import Groups, Successors

__all__ = ["EdgePlaces", "Places", "cones_of", "entries_of", "split", "split_rows"]


class EdgePlaces(NamedTuple):
    """What the edges between states have in common with states and triples (see `_edges.py`).

    The states with about as many edges form a group; n of them are those of all layers and lanes.
    """

    own: tuple[Array, ...]  # [n] of each group, the place of each state in the potentials
    ahead: tuple[Array, ...]  # [U, n], that of each next state
    entry: tuple[Array, ...]  # [A, U, n], the place of each action's triple among the entries
    cone: tuple[Array, ...]  # [A, n], that of its cone
    rows: Array  # [L S B], the place of each state among those of all groups
    entering: tuple[Array, ...]  # [width, n], the edges that lead to a state, grouped by number
    entered: Array  # [(L-1) S B], the place of each state among the sums over these


class Places(NamedTuple):
    """What the cones have in common with states."""

    state: Array  # [C B], the place of each cone's state in the potentials
    ahead: tuple[Array, ...]  # [width, C_g B], that of each next state
    rows: Array  # [A, L S B], the cones of each state
    entering: tuple[Array, ...]  # [width, n], the entries that lead to a state, grouped by number
    entered: Array  # [(L-1) S B], the place of each state among the sums over these
    edges: EdgePlaces

    @classmethod
    def of(cls, lists: Successors, num_states: int) -> "Places":
        """The places for the lists of a batch."""
        found = _places(lists, num_states)
        return cls(
            state=jnp.concatenate(found.state),
            ahead=found.ahead,
            rows=jnp.moveaxis(found.row, 2, 0).reshape(found.row.shape[2], -1),
            entering=found.entering,
            entered=found.entered,
            edges=_edge_places(lists, found.row),
        )


def split(groups: Groups, array: Array) -> list[Array]:
    """The entries of each group, `[L, M, B] -> [L, rows, width, B]`."""
    return [jnp.moveaxis(x, 0, -1) for x in groups.split(jnp.moveaxis(array, -1, 0))]


def entries_of(groups: Groups, array: Array) -> tuple[Array, ...]:
    """The entries of each group side by side, `[L, M, B] -> [width, L rows B]`."""
    parts = [jnp.moveaxis(x, 2, 0) for x in split(groups, array)]
    return tuple(x.reshape(len(x), -1) for x in parts)


def split_rows(groups: Groups, rows: Array) -> list[Array]:
    """The rows of each group, `[L, R, B] -> [L, rows, B]`."""
    return jnp.split(rows, np.cumsum([group.rows for group in groups])[:-1], axis=1)


def cones_of(groups: Groups, rows: Array) -> Array:
    """A number of each row side by side, `[L, R, B] -> [C B]`."""
    return jnp.concatenate([x.reshape(-1) for x in split_rows(groups, rows)])


class _Order(NamedTuple):
    """Where a row, or an entry, of layer l stands: at `base + l * stride` (times the lanes)."""

    base: NDArray
    stride: NDArray

    def places(self, index: Array) -> Array:
        """The places of `[L, ..., B]` rows or entries; past the end for the number of them."""
        num_layers, num_lanes = index.shape[0], index.shape[-1]
        layer = jnp.arange(num_layers).reshape(-1, *[1] * (index.ndim - 1))
        lane = jnp.arange(num_lanes).reshape(*[1] * (index.ndim - 1), -1)
        base, stride = (jnp.asarray(x, jnp.int32)[index] for x in self)
        return (base + layer.astype(jnp.int32) * stride) * num_lanes + lane.astype(jnp.int32)


def _order_of_rows(groups: Groups, num_layers: int) -> _Order:
    base, stride, start = [], [], 0
    for rows, _ in groups:
        base += [start + i for i in range(rows)]
        stride += [rows] * rows
        start += num_layers * rows
    # Two places of zeros: for no row, and for the state where the episode ends, which needs no sum.
    return _Order(np.array([*base, start, start]), np.array([*stride, 0, 0]))


def _order_ofentries_of(groups: Groups, num_layers: int) -> _Order:
    base, stride, start = [], [], 0
    for rows, width in groups:
        base += [start + j * num_layers * rows + i for i in range(rows) for j in range(width)]
        stride += [rows] * (rows * width)
        start += num_layers * rows * width
    return _Order(np.array([*base, start]), np.array([*stride, 0]))


class _Found(NamedTuple):
    """The places of rows and entries of lists, and of the states that belong to them."""

    state: list[Array]  # [L rows B] of each group, in the potentials
    ahead: tuple[Array, ...]  # [width, L rows B], in the potentials
    row: Array  # [L, S, A, B], among the rows
    entering: tuple[Array, ...]  # [width, n], among the entries
    entered: Array  # [(L-1) S B], among the sums over these


def _places(lists: Successors, num_states: int) -> _Found:
    num_layers, num_lanes = lists.pair.shape[0], lists.pair.shape[-1]
    num_actions = lists.row.shape[2]
    states = _Order(np.arange(num_states), np.full(num_states, num_states))
    own = states.places(lists.pair // num_actions)
    after = states.places(lists.following) + num_states * num_lanes
    entering = _order_ofentries_of(lists.groups, num_layers).places(lists.entering)[:-1]
    entered = _order_of_rows(lists.entering_groups, num_layers - 1).places(lists.entered[:-1])
    return _Found(
        state=[x.reshape(-1) for x in split_rows(lists.groups, own)],
        ahead=entries_of(lists.groups, after),
        row=_order_of_rows(lists.groups, num_layers).places(lists.row),
        entering=entries_of(lists.entering_groups, entering),
        entered=entered.reshape(-1),
    )


def _edge_places(lists: Successors, rows: Array) -> EdgePlaces:
    """The places of edges; `rows` are those of the pairs, `[L, S, A, B]`."""
    assert lists.edges is not None
    edges, triple = lists.edges.lists, lists.edges.triple  # [L, A, N, B]
    L, S, A, _ = rows.shape
    places = _places(edges, S)
    entry = _order_ofentries_of(lists.groups, L).places(triple)
    cone = jnp.take_along_axis(rows, edges.pair[:, :, None], 1)  # [L, R, A, B]

    def over_actions(parts: list[list[Array]]) -> tuple[Array, ...]:
        return tuple(jnp.stack(group) for group in zip(*parts, strict=True))

    return EdgePlaces(
        own=tuple(places.state),
        ahead=places.ahead,
        entry=over_actions([list(entries_of(edges.groups, entry[:, a])) for a in range(A)]),
        cone=over_actions(
            [[x.reshape(-1) for x in split_rows(edges.groups, cone[:, :, a])] for a in range(A)]
        ),
        rows=places.row.reshape(-1),
        entering=places.entering,
        entered=places.entered,
    )
