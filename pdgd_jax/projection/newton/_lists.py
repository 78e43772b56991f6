r"""A batch of projections with successor lists: cones of the triples that can happen alone.

The rows of all layers lie side by side, one group of rows of the same width after the other. The
entries of a group are one array, entries first as in `_cone.py`: `[width, C_g B]` with the $C_g$
cones ordered by layer and row, each for all lanes. A number of each cone is `[C B]`, group after
group. Unlike in the dense layout, the last layer has no place of its own: its rows are half-lines
anyway.

What a cone and a state have in common are lookups: the potential of a cone's state and of its next
states, and the sums over the rows of a state and over the triples that enter it. The lists are
traced, and so are the indices; each lane may have other lists. Every lookup has an additional place
with 0, for whatever does not exist.
"""

from functools import reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from pdgd_jax._internal.typing import NDArray
from pdgd_jax.models import Groups, LayeredMDP, Layers, Successors, occupancy_of
from pdgd_jax.projection._cone import (
    ABSENT,
    ConePieces,
    classify,
    positive_part,
    project_cone,
    support_of,
)
from pdgd_jax.projection._confidence import ConfidenceSet
from pdgd_jax.projection._problem import entries_sum, exact_sum, per_lane
from pdgd_jax.projection._validity import LARGEST_TARGET
from pdgd_jax.projection._xla import fence

__all__ = [
    "EdgePlaces",
    "ListCones",
    "ListProblem",
    "Places",
    "and_zeros",
    "at",
    "entries_total",
    "half_lines",
    "joined",
    "sums_at",
]


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


class ListCones(NamedTuple):
    """A batch of problems, with the methods of `Cones`."""

    target: tuple[Array, ...]  # [width, C_g B] of each group, ABSENT where there is no variable
    center: tuple[Array, ...]  # [width, C_g B]
    half_radius: Array  # [C B]
    last: Array  # [S, 0, B]: see the module
    free: Array  # [L, S, B], 0 where the potential is fixed, else 1
    places: Places

    @property
    def lane_size(self) -> int:
        """The number of variables of a lane."""
        return sum(x.size for x in self.target) // self.free.shape[-1]

    def around(self, potential: Array) -> tuple[Array, tuple[Array, ...]]:
        """The potentials of each cone's state, `[C B]`, and of its next states."""
        # Nothing comes after the last layer.
        return fence(_around, potential, self.places.state, self.places.ahead)

    def split(self, per_cone: Array) -> list[Array]:
        """A number of each cone, by group, `[C B] -> [C_g B]`."""
        cuts = np.cumsum([x.shape[1] for x in self.target])[:-1]
        return jnp.split(per_cone, cuts)

    def spread(self, per_cone: Array) -> tuple[Array, ...]:
        """A number of each cone, shaped to broadcast against its entries."""
        return tuple(x[None] for x in self.split(per_cone))

    def totals(self, entries: tuple[Array, ...]) -> Array:
        """The sum over the entries of each cone, `[C B]`."""
        return jnp.concatenate([entries_total(x) for x in entries])

    def pieces(self, point: tuple[Array, ...], mass: Array, *, exact: bool) -> ConePieces:
        """The pieces of every cone: at the given masses, or where the masses are exact."""
        find = project_cone if exact else classify
        groups = [
            fence(half_lines, u) if len(u) == 1 else fence(find, u, p, h, s)
            for u, p, h, s in zip(
                point, self.center, self.split(self.half_radius), self.split(mass), strict=True
            )
        ]

        def joined(name: str) -> Array:
            return jnp.concatenate([getattr(group, name) for group in groups])

        return ConePieces(
            value=tuple(group.value for group in groups),
            weight=tuple(group.weight for group in groups),
            block=tuple(group.block for group in groups),
            gain=joined("gain"),
            mass=joined("mass"),
            mass_guess=joined("mass_guess"),
            rounding=joined("rounding"),
        )

    def outflow(self, mass: Array, last: Array) -> Array:
        """What leaves each state, `[L, S, B]`."""
        return fence(_outflow, mass, self.places.rows, self.free)

    def inflow(self, entries: tuple[Array, ...], last: Array) -> Array:
        """What enters each state of every layer but the first, `[L-1, S, B]`."""
        num_lanes = self.free.shape[-1]
        flat = fence(joined, entries, num_lanes=num_lanes)
        sums = fence(sums_at, flat, self.places.entering, num_lanes=num_lanes)
        return fence(at, sums, self.places.entered).reshape(-1, *self.free.shape[1:])

    def margin(self, residual: Array, share: float) -> Array:
        """The margin by which closed states are opened, `[B]` (see `_opening.py`)."""
        num_states = self.free.shape[1]
        return share / (num_states * len(self.places.rows)) * jnp.minimum(1, residual)


# Each lookup is a call of its own: fused with what made the numbers, it would compute them again
# for every place that looks them up.


def _around(
    potential: Array, state: Array, ahead: tuple[Array, ...]
) -> tuple[Array, tuple[Array, ...]]:
    flat = and_zeros(potential.reshape(-1), potential[0].size)
    return at(flat, state), tuple(at(flat, places) for places in ahead)


def _outflow(mass: Array, rows: Array, like: Array) -> Array:
    flat = and_zeros(mass, like.shape[-1])
    return entries_sum(at(flat, rows)).reshape(like.shape)


def joined(entries: tuple[Array, ...], num_lanes: int) -> Array:
    return and_zeros(jnp.concatenate([x.reshape(-1) for x in entries]), num_lanes)


def sums_at(flat: Array, places: tuple[Array, ...], num_lanes: int) -> Array:
    return and_zeros(jnp.concatenate([entries_total(at(flat, each)) for each in places]), num_lanes)


def at(array: Array, places: Array) -> Array:
    return array.at[places].get(mode="promise_in_bounds")


def and_zeros(array: Array, count: int) -> Array:
    return jnp.concatenate([array, jnp.zeros(count, array.dtype)])


def entries_total(entries: Array) -> Array:
    """The sum over the first axis as additions, which are one loop, of a few entries at a time."""
    while len(entries) > WRITTEN_OUT:
        spare = -len(entries) % WRITTEN_OUT
        whole = jnp.pad(entries, [(0, spare), (0, 0)])
        entries = entries_sum(whole.reshape(WRITTEN_OUT, -1, entries.shape[1]))
    return entries_sum(entries)


# So many entries are added at a time.
WRITTEN_OUT = 16


def half_lines(point: Array) -> ConePieces:
    """The pieces of cones with one entry, `[1, n]`: there is nothing to search."""
    own = point[0]
    mass = positive_part(own)
    rounding = 4 * jnp.finfo(point.dtype).eps * jnp.abs(own)
    return ConePieces(
        value=mass[None],
        weight=jnp.ones_like(point),
        block=jnp.zeros_like(point),
        gain=jnp.where(own > 0, jnp.ones_like(own), 0),
        mass=mass,
        mass_guess=mass,
        rounding=jnp.where(own < -rounding, 0, rounding),
    )


class ListProblem(NamedTuple):
    """A batch of valid projections, with the methods of `DenseProblem`; lanes last.

    Attributes:
      layers: the states, actions and lists of each lane.
      target: `[L, M, B]`, `ABSENT` where there is no variable.
      center: `[L, M, B]`, a distribution up to rounding, 0 where there is no variable.
      half_radius: `[L, S, A, B]`, at most 1.
      conserved: `[L, S, B]`, 1 in the states in which flow is conserved, else 0.
      sound: `[B]`, false if the input of the lane was invalid; such a lane is not solved.
      places: the indices of the cones, which follow from the lists.
    """

    layers: Layers
    target: Array
    center: Array
    half_radius: Array
    conserved: Array
    sound: Array
    places: "Places"

    @classmethod
    def of(cls, layers: Layers, target: Array, confidence: ConfidenceSet) -> "ListProblem":
        """The problem from the arguments of `project`, with a last axis for the lanes added."""
        center, radius, actions = confidence.center, confidence.radius, layers.action_mask
        lists = _lists_of(layers)
        present = lists.present
        total = _over_lanes(Successors.to_pairs, lists, jnp.where(present, center, 0))
        right = (jnp.abs(target) < LARGEST_TARGET) & (center >= 0)
        sensible = (radius >= 0) & (jnp.abs(total - 1) < 1e-3)
        sound = (sensible | ~actions).all((0, 1, 2)) & (right | ~present).all((0, 1))
        present &= per_lane(sound, 3)
        actions &= per_lane(sound, 4)
        return cls(
            layers=layers,
            target=jnp.where(present, target, ABSENT),
            center=jnp.where(present, center, 0),
            half_radius=jnp.where(actions, jnp.minimum(radius / 2, 1), 0),
            conserved=actions.any(2).astype(target.dtype),
            sound=sound,
            places=Places.of(lists, actions.shape[1]),
        ).normalised()

    @property
    def lists(self) -> Successors:
        """The successor lists of all lanes."""
        return _lists_of(self.layers)

    def cones(self) -> ListCones:
        """The cones side by side."""
        groups = self.lists.groups
        return ListCones(
            target=_entries(groups, self.target),
            center=_entries(groups, self.center),
            half_radius=_cones(groups, self._at_rows(self.half_radius)),
            last=self.conserved[0, :, None][:, :0],
            free=self.conserved,
            places=self.places,
        )

    def _at_rows(self, pairs: Array) -> Array:
        """The number of each row's pair, `[L, S, A, B] -> [L, R, B]`."""
        flat = pairs.reshape(len(pairs), -1, pairs.shape[-1])
        return jnp.take_along_axis(flat, self.lists.pair, 1)

    def opened(self, potential: Array, margin: Array) -> Array:
        """The potentials, raised in closed states until they are open by the margin."""
        lists, groups = self.lists, self.lists.groups
        _, S, B = potential.shape

        def by_layer(array: Array) -> list[Array]:  # [L, M, B] -> [L, width, rows, B]
            return [jnp.moveaxis(x, 2, 1) for x in _split(groups, array)]

        def open_layer(after: Array, layer: Any) -> tuple[Array, Array]:
            targets, centers, radii, followings, rows, free, own = layer
            supports = []
            for u, p, h, x in zip(targets, centers, radii, followings, strict=True):
                ahead = jnp.take_along_axis(after, x.reshape(-1, B), 0).reshape(x.shape)
                supports.append(u[0] - ahead[0] if len(u) == 1 else support_of(u - ahead, p, h))
            none = jnp.full_like(after[:1], ABSENT)
            flat = jnp.concatenate([*supports, none])  # [R + 1, B]
            usable = [jnp.take_along_axis(flat, rows[:, a], 0) for a in range(rows.shape[1])]
            opens = per_lane(margin, 2) - reduce(jnp.maximum, usable)
            own = jnp.where((free > 0) & (own < opens), opens, own)
            return own, own

        layers = (
            by_layer(self.target),
            by_layer(self.center),
            _split_rows(groups, self._at_rows(self.half_radius)),
            by_layer(lists.following),
            lists.row,
            self.conserved,
            potential,
        )
        return lax.scan(open_layer, jnp.zeros((S, B), potential.dtype), layers, reverse=True)[1]

    def shifted(self, potential: Array) -> "ListProblem":
        """The same problem with potentials moved into the target."""
        lists = self.lists
        A = self.half_radius.shape[2]
        state = jnp.take_along_axis(potential, lists.pair // A, 1)  # [L, R, B]
        here = jnp.moveaxis(lists.groups.spread(jnp.moveaxis(state, -1, 0)), 0, -1)
        following = jnp.concatenate([potential[1:], jnp.zeros_like(potential[:1])])
        ahead = jnp.take_along_axis(following, lists.following, 1)
        difference, small = exact_sum(here, -ahead)
        target, smaller = exact_sum(self.target, difference)
        target = target + (small + smaller)
        return self._replace(target=jnp.where(self.target > ABSENT / 2, target, ABSENT))

    def normalised(self) -> "ListProblem":
        """The same with centers that sum to one in the present precision."""
        total = _over_lanes(_row_totals, self.lists, self.center)
        return self._replace(center=self.center / jnp.where(total > 0, total, 1))

    def assembled(self, value: tuple[Array, ...], last: Array) -> Array:
        """The occupancy `[L, M, B]` of the cones' projections."""
        L, _, B = self.target.shape
        parts = []
        for (rows, width), x in zip(self.lists.groups, value, strict=True):
            part = jnp.moveaxis(x.reshape(width, L, rows, B), 0, 2)
            parts.append(part.reshape(L, rows * width, B))
        return jnp.where(self.target > ABSENT / 2, positive_part(jnp.concatenate(parts, 1)), 0)

    def feasible(self, occupancy: Array) -> Array:
        """A feasible occupancy near an infeasible one: see `feasible_point`."""

        def of_lane(layers: Layers, occupancy: Array, center: Array, half_radius: Array) -> Array:
            mass = layers.to_triples(layers.to_pairs(occupancy))
            transition = jnp.where(mass > 0, occupancy / jnp.where(mass > 0, mass, 1), center)
            away = transition - center
            distance, allowed = layers.to_pairs(jnp.abs(away)), 2 * half_radius
            over = distance > allowed
            share = jnp.where(over, allowed / jnp.where(distance > 0, distance, 1), 1)
            transition = center + layers.to_triples(share) * away
            pairs = layers.to_pairs(occupancy)
            total = pairs.sum(-1, keepdims=True)
            uniform = layers.uniform_policy(occupancy.dtype)
            policy = jnp.where(total > 0, pairs / jnp.where(total > 0, total, 1), uniform)
            return occupancy_of(LayeredMDP(layers, transition), policy)

        every = jax.tree.map(
            lambda x: jnp.moveaxis(x, -1, 0),
            (self.layers, occupancy, self.center, self.half_radius),
        )
        return jnp.moveaxis(jax.vmap(of_lane)(*every), 0, -1)

    def returned(self, occupancy: Array) -> Array:
        """The occupancy as it is returned, with the lanes last; NaN for invalid input."""
        return jnp.where(per_lane(self.sound, 3), occupancy, jnp.nan)


def _lists_of(layers: Layers) -> Successors:
    assert layers.successors is not None
    return layers.successors


def _over_lanes(function: Any, lists: Successors, array: Array) -> Array:
    """`function(lists, array)` of each lane, where both have the lanes last."""
    return jax.vmap(function, in_axes=-1, out_axes=-1)(lists, array)


def _row_totals(lists: Successors, entries: Array) -> Array:
    """The sum over the row of each entry, at the entry."""
    return lists.groups.spread(lists.groups.sum(entries))


def _split(groups: Groups, array: Array) -> list[Array]:
    """The entries of each group, `[L, M, B] -> [L, rows, width, B]`."""
    return [jnp.moveaxis(x, 0, -1) for x in groups.split(jnp.moveaxis(array, -1, 0))]


def _entries(groups: Groups, array: Array) -> tuple[Array, ...]:
    """The entries of each group side by side, `[L, M, B] -> [width, L rows B]`."""
    parts = [jnp.moveaxis(x, 2, 0) for x in _split(groups, array)]
    return tuple(x.reshape(len(x), -1) for x in parts)


def _split_rows(groups: Groups, rows: Array) -> list[Array]:
    """The rows of each group, `[L, R, B] -> [L, rows, B]`."""
    return jnp.split(rows, np.cumsum([group.rows for group in groups])[:-1], axis=1)


def _cones(groups: Groups, rows: Array) -> Array:
    """A number of each row side by side, `[L, R, B] -> [C B]`."""
    return jnp.concatenate([x.reshape(-1) for x in _split_rows(groups, rows)])


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
    # None, and where the episode ends, of which no sum is needed.
    return _Order(np.array([*base, start, start]), np.array([*stride, 0, 0]))


def _order_of_entries(groups: Groups, num_layers: int) -> _Order:
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
    entering = _order_of_entries(lists.groups, num_layers).places(lists.entering)[:-1]
    entered = _order_of_rows(lists.entering_groups, num_layers - 1).places(lists.entered[:-1])
    return _Found(
        state=[x.reshape(-1) for x in _split_rows(lists.groups, own)],
        ahead=_entries(lists.groups, after),
        row=_order_of_rows(lists.groups, num_layers).places(lists.row),
        entering=_entries(lists.entering_groups, entering),
        entered=entered.reshape(-1),
    )


def _edge_places(lists: Successors, rows: Array) -> EdgePlaces:
    """The places of edges; `rows` are those of the pairs, `[L, S, A, B]`."""
    assert lists.edges is not None
    edges, triple = lists.edges.lists, lists.edges.triple  # [L, A, N, B]
    L, S, A, _ = rows.shape
    places = _places(edges, S)
    entry = _order_of_entries(lists.groups, L).places(triple)
    cone = jnp.take_along_axis(rows, edges.pair[:, :, None], 1)  # [L, R, A, B]

    def over_actions(parts: list[list[Array]]) -> tuple[Array, ...]:
        return tuple(jnp.stack(group) for group in zip(*parts, strict=True))

    return EdgePlaces(
        own=tuple(places.state),
        ahead=places.ahead,
        entry=over_actions([list(_entries(edges.groups, entry[:, a])) for a in range(A)]),
        cone=over_actions(
            [[x.reshape(-1) for x in _split_rows(edges.groups, cone[:, :, a])] for a in range(A)]
        ),
        rows=places.row.reshape(-1),
        entering=places.entering,
        entered=places.entered,
    )
