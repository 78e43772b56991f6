r"""The matrix of a Newton step with successor lists, by the edges between states.

The matrix is $\sum_x F_x J_x F_x^\top$ with $J_x$ the sum of the Jacobians of all actions in state
$x$, over the states that any of them can lead to. A state has fewer such edges than triples, so
that a product with the matrix takes fewer lookups: a quarter of the time on a grid with four moves.
"""

from typing import NamedTuple, TypeAlias

import jax.numpy as jnp
from jaxtyping import Array

from pdgd_jax.projection._cone import ConePieces, positive_part
from pdgd_jax.projection._problem import entries_sum, per_lane
from pdgd_jax.projection._xla import fence
from pdgd_jax.projection.newton._lists import (
    ListCones,
    and_zeros,
    at,
    entries_total,
    joined,
    sums_at,
)
from pdgd_jax.projection.newton._places import EdgePlaces

__all__ = ["EdgeMatrix"]

# A state with at most this many edges for each of its actions has $J_x$ as a matrix. It takes U
# products an edge, and the factors of A actions take 6 A. If larger, wide states take more memory
# and time; if smaller, narrow states take more time.
EDGES_PER_ACTION = 6

# And at most so many edges in all, since the program grows with them.
WRITTEN_OUT = 16


class Narrow(NamedTuple):
    """$J_x$ of states with few edges."""

    jacobian: Array  # [U, U, n]

    @property
    def diagonal(self) -> Array:
        """`[U, n]`."""
        return jnp.stack([self.jacobian[i, i] for i in range(len(self.jacobian))])

    @property
    def total(self) -> Array:
        r"""$1^\top J_x 1$, `[n]`."""
        return entries_sum(entries_sum(self.jacobian))

    def times(self, edges: Array) -> Array:
        """$J_x d$, `[U, n]`."""
        return entries_sum(self.jacobian.swapaxes(0, 1) * edges[:, None])


class Wide(NamedTuple):
    """The factors of $J_x$ of states with many edges: of each action, what `ConePieces` has."""

    weight: Array  # [A, U, n]
    up: Array  # [A, U, n], the block of the entries that are raised together
    down: Array  # [A, U, n], and of those that are lowered
    moving: Array  # [U, n], how many actions have the entry in a block
    gain: Array  # [A, n]

    @property
    def diagonal(self) -> Array:
        """`[U, n]`."""
        own = self.gain[:, None] * self.weight**2 - self.up**2 - self.down**2
        return entries_sum(own) + self.moving

    @property
    def total(self) -> Array:
        r"""$1^\top J_x 1$, `[n]`: entries that move together keep their sum."""
        return entries_sum(self.gain * jnp.square(self.weight.sum(1)))

    def times(self, edges: Array) -> Array:
        """$J_x d$, `[U, n]`."""
        found = self.moving * edges
        for weight, up, down, gain in zip(self.weight, self.up, self.down, self.gain, strict=True):
            found += weight * (gain * (weight * edges).sum(0))[None]
            found -= up * (up * edges).sum(0)[None] + down * (down * edges).sum(0)[None]
        return found


Jacobians: TypeAlias = tuple[Narrow | Wide, ...]


class EdgeMatrix(NamedTuple):
    r"""$F J F^\top + d I$ for the pieces of a batch."""

    jacobians: Jacobians  # of each group of states with about as many edges
    places: EdgePlaces
    free: Array  # [L, S, B]
    damping: Array  # [B]

    @classmethod
    def of(cls, cones: ListCones, pieces: ConePieces, damping: Array) -> "EdgeMatrix":
        """The matrix of these pieces."""
        return cls(fence(_jacobians, cones, pieces), cones.places.edges, cones.free, damping)

    def diagonal(self) -> tuple[Array, Array]:
        """The diagonal, and the part of it that is what leaves each state, `[L, S, B]`."""
        own = self._outflow(tuple(each.total for each in self.jacobians))
        into = self._inflow(tuple(each.diagonal for each in self.jacobians))
        leaves = own * self.free
        diagonal = leaves.at[1:].add(into * self.free[1:])
        return diagonal + (1 - self.free) + per_lane(self.damping, 3), leaves

    def times(self, potential: Array) -> Array:
        """The product with the matrix, `[L, S, B]`."""
        z = potential * self.free
        edges = fence(_differences, z, self.places)
        flows = fence(_flows, self.jacobians, edges)
        leaves = self._outflow(tuple(map(entries_total, flows)))
        flow = leaves.at[1:].add(-self._inflow(flows))
        return flow * self.free + potential - z + potential * per_lane(self.damping, 3)

    def _outflow(self, rows: tuple[Array, ...]) -> Array:
        flat = and_zeros(jnp.concatenate(rows), self.free.shape[-1])
        return fence(at, flat, self.places.rows).reshape(self.free.shape)

    def _inflow(self, edges: tuple[Array, ...]) -> Array:
        num_lanes = self.free.shape[-1]
        flat = fence(joined, edges, num_lanes=num_lanes)
        sums = fence(sums_at, flat, self.places.entering, num_lanes=num_lanes)
        return fence(at, sums, self.places.entered).reshape(-1, *self.free.shape[1:])


def _jacobians(cones: ListCones, pieces: ConePieces) -> Jacobians:
    """$J_x$ of all states."""
    num_lanes, num_actions = cones.free.shape[-1], len(cones.places.rows)
    flat = [fence(joined, each, num_lanes=num_lanes) for each in (pieces.weight, pieces.block)]
    gains = and_zeros(pieces.gain, num_lanes)
    found: list[Narrow | Wide] = []
    for entry, cone in zip(cones.places.edges.entry, cones.places.edges.cone, strict=True):
        weight, block = (at(each, entry) for each in flat)  # [A, U, n]
        gain = at(gains, cone)  # [A, n]
        moving = entries_sum(jnp.where(block != 0, jnp.ones_like(block), 0))
        num_edges = entry.shape[1]
        if num_edges <= min(EDGES_PER_ACTION * num_actions, WRITTEN_OUT):
            found.append(fence(_assembled, weight, block, gain, moving))
        else:
            up = positive_part(block)
            found.append(Wide(weight, up, block - up, moving, gain))
    return tuple(found)


def _assembled(weight: Array, block: Array, gain: Array, moving: Array) -> Narrow:
    num_edges = len(moving)
    eye = jnp.eye(num_edges, dtype=weight.dtype)[..., None]
    jacobian = eye * moving[:, None]
    for w, e, g in zip(weight, block, gain, strict=True):
        jacobian += (w * g[None])[:, None] * w[None] - positive_part(e[:, None] * e[None])
    return Narrow(jacobian)


def _differences(potential: Array, places: EdgePlaces) -> tuple[Array, ...]:
    """The potential of each state less that of each next state, `[U, n]` of each group."""
    flat = and_zeros(potential.reshape(-1), potential[0].size)
    return tuple(
        at(flat, own)[None] - at(flat, ahead)
        for own, ahead in zip(places.own, places.ahead, strict=True)
    )


def _flows(jacobians: Jacobians, edges: tuple[Array, ...]) -> tuple[Array, ...]:
    return tuple(each.times(edge) for each, edge in zip(jacobians, edges, strict=True))
