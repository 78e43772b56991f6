r"""A batch of projections with successor lists: cones of the triples that can happen alone.

The rows of all layers lie side by side, one group of rows of the same width after the other. The
entries of a group are one array, entries first as in `_cone.py`: `[width, C_g B]` with the $C_g$
cones ordered by layer and row, each for all lanes. A number of each cone is `[C B]`, group after
group. Unlike in the dense layout, the last layer has no place of its own: its rows are half-lines
anyway.

What a cone and a state have in common are lookups: the potential of a cone's state and of its next
states, and the sums over the rows of a state and over the triples that enter it. The lists are
traced, and so are the indices (`_places.py`); each lane may have other lists. Every lookup has an
additional place with 0, for whatever does not exist.
"""

from functools import reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from pdgd_jax.models import LayeredMDP, Layers, Successors, occupancy_of
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
from pdgd_jax.projection._validity import LARGEST_TARGET, LOOSE
from pdgd_jax.projection._xla import fence
from pdgd_jax.projection.newton._places import Places, cones_of, entries_of, split, split_rows

__all__ = [
    "ListCones",
    "ListProblem",
    "and_zeros",
    "at",
    "entries_total",
    "half_lines",
    "joined",
    "sums_at",
]


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


class _Layer(NamedTuple):
    """A layer of a problem, and potentials to open its states from; entries by group."""

    target: list[Array]  # [width, rows, B] each
    center: list[Array]  # [width, rows, B] each
    half_radius: list[Array]  # [rows, B] each
    following: list[Array]  # [width, rows, B] each, the next states
    rows: Array  # [S, A, B], the row of each pair
    conserved: Array  # [S, B]
    potential: Array  # [S, B]


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
    places: Places

    @classmethod
    def of(cls, layers: Layers, target: Array, confidence: ConfidenceSet) -> "ListProblem":
        """The problem from the arguments of `project`, with a last axis for the lanes added."""
        center, radius, actions = confidence.center, confidence.radius, layers.action_mask
        lists = _lists_of(layers)
        present = lists.present
        total = _over_lanes(Successors.to_pairs, lists, jnp.where(present, center, 0))
        right = (jnp.abs(target) < LARGEST_TARGET) & (center >= 0)
        sensible = (radius >= 0) & (jnp.abs(total - 1) < LOOSE)
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
            target=entries_of(groups, self.target),
            center=entries_of(groups, self.center),
            half_radius=cones_of(groups, self._at_rows(self.half_radius)),
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
            return [jnp.moveaxis(x, 2, 1) for x in split(groups, array)]

        def open_layer(after: Array, layer: _Layer) -> tuple[Array, Array]:
            supports = []
            cones = layer.target, layer.center, layer.half_radius, layer.following
            for u, p, h, x in zip(*cones, strict=True):
                ahead = jnp.take_along_axis(after, x.reshape(-1, B), 0).reshape(x.shape)
                supports.append(u[0] - ahead[0] if len(u) == 1 else support_of(u - ahead, p, h))
            none = jnp.full_like(after[:1], ABSENT)
            flat = jnp.concatenate([*supports, none])  # [R + 1, B]
            actions = range(layer.rows.shape[1])
            usable = [jnp.take_along_axis(flat, layer.rows[:, a], 0) for a in actions]
            opens = per_lane(margin, 2) - reduce(jnp.maximum, usable)
            closed = (layer.conserved > 0) & (layer.potential < opens)
            own = jnp.where(closed, opens, layer.potential)
            return own, own

        layers = _Layer(
            target=by_layer(self.target),
            center=by_layer(self.center),
            half_radius=split_rows(groups, self._at_rows(self.half_radius)),
            following=by_layer(lists.following),
            rows=lists.row,
            conserved=self.conserved,
            potential=potential,
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
