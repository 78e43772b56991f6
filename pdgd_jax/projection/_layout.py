"""The cones of a batch of projections on one axis: how the Newton solver lays out its arrays.

The first layer always has one state. The last layer leads to one state, so that its cones are
half-lines and need no search. The $C = A + A S (L-2)$ cones of the other layers lie side by side on
one axis, each for all lanes: first those of the first layer, then the inner layers in blocks, each
ordered by action, state and layer. The compiler then sees one long inner loop even for a single
lane, and sums over actions, or over all pairs of a layer, run over contiguous layers. The cones of
wide layers are ordered by layer, state and action: each layer is a factor of a matrix product.
"""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from pdgd_jax.projection._cone import ConePieces, classify, project_cone
from pdgd_jax.projection._opening import margin_at
from pdgd_jax.projection._problem import Problem, entries_sum, next_states_sum
from pdgd_jax.projection._xla import fence

__all__ = [
    "MIN_LAYERS",
    "Cones",
    "around",
    "assemble",
    "is_wide",
    "join",
    "over_pairs",
    "per_state",
    "split",
]

# A first, an inner and a last layer; shorter horizons are padded with layers without actions.
MIN_LAYERS = 3

# The number of inner layers in a block for which sums over pairs are fastest, and the largest
# number of blocks, since the program grows with every block.
LAYERS_AT_ONCE = 8
MOST_BLOCKS = 4

# Layers of more states are wide: matrix products and LAPACK instead of loops that are written out.
# With 24 states the Hessian and its system take 1.1 ms written out and 1.3 ms as matrix products,
# with 32 states 2.1 and 1.7. If larger, the program grows with the states; if smaller, middle
# layers are slower.
NARROW = 24


def is_wide(num_states: int) -> bool:
    """Whether layers have so many states that nothing is written out over them."""
    return num_states > NARROW


class Cones(NamedTuple):
    """A batch of problems without padding."""

    target: Array  # [S', C B], ABSENT where there is no variable
    center: Array  # [S', C B]
    half_radius: Array  # [C B]
    last: Array  # [S, A, B], the target of the last layer
    free: Array  # [L, S, B], 0 where the potential is fixed, else 1

    @classmethod
    def of(cls, problem: Problem) -> "Cones":
        """The cones of a batch of problems."""
        return cls(
            target=join(problem.target),
            center=join(problem.center),
            half_radius=join(problem.half_radius),
            last=problem.target[:, -1].max(0),  # only one of these next states is present
            free=problem.conserved,
        )

    # The loops of the Newton solver see a batch through these methods alone, and `ListCones` has
    # the same ones.

    @property
    def lane_size(self) -> int:
        """The number of variables of a lane, but for its last layer."""
        return self.target.size // self.free.shape[-1]

    def around(self, potential: Array) -> tuple[Array, Array]:
        """The potentials of each cone's state, `[C B]`, and of its next states, `[S', C B]`."""
        return around(potential, self.last.shape[1])

    def spread(self, per_cone: Array) -> Array:
        """A number of each cone, shaped to broadcast against its entries."""
        return per_cone[None]

    def totals(self, entries: Array) -> Array:
        """The sum over the entries of each cone, `[C B]`."""
        return next_states_sum(entries)

    def pieces(self, point: Array, mass: Array, *, exact: bool) -> ConePieces:
        """The pieces of every cone: at the given masses, or where the masses are exact."""
        find = project_cone if exact else classify
        return fence(find, point, self.center, self.half_radius, mass)

    def outflow(self, mass: Array, last: Array) -> Array:
        """What leaves each state, `[L, S, B]`."""
        return per_state(mass, last)

    def inflow(self, entries: Array, last: Array) -> Array:
        """What enters each state of every layer but the first, `[L-1, S, B]`."""
        return fence(over_pairs, entries, last)

    def margin(self, residual: Array, share: float) -> Array:
        """The margin by which closed states are opened, `[B]` (see `_opening.py`)."""
        return margin_at(residual, self.last, share)


def _blocks(num_layers: int, num_states: int = 1) -> list[slice]:
    """The first layer, and the inner ones in a few blocks of about the same size."""
    inner = num_layers - 2
    count = 1 if is_wide(num_states) else min(-(-inner // LAYERS_AT_ONCE), MOST_BLOCKS)
    cuts = [1 + i * inner // count for i in range(count + 1)]
    return [slice(*cut) for cut in pairwise([0, *cuts])]


def _states(layers: slice, num_states: int) -> int:
    """The number of states in each layer of a block."""
    return 1 if layers.start == 0 else num_states


def join(array: Array) -> Array:
    """The cones of an array over all pairs, `[..., L, S, A, B] -> [..., C B]`."""
    num_layers, num_states = array.shape[-4:-2]
    blocks = (
        _stored(array[..., layers, : _states(layers, num_states), :, :], num_states)
        for layers in _blocks(num_layers, num_states)
    )
    return jnp.concatenate([x.reshape(*array.shape[:-4], -1) for x in blocks], -1)


def _stored(block: Array, num_states: int) -> Array:
    """`[..., layers, X, A, B]` in the order of the cones: see the module."""
    return block if is_wide(num_states) else block.swapaxes(-4, -2)


def split(array: Array, last: Array) -> list[Array]:
    """The blocks, `[..., C B] -> [..., A, X, layers, B]`, where X is 1 in the first, then S.

    `last` is any array over the last layer, `[S, A, B]`; only its shape is used.
    """
    num_states, num_actions, num_lanes = last.shape
    num_layers = (array.shape[-1] // last[0].size - 1) // num_states + 2
    blocks, start = [], 0
    for layers in _blocks(num_layers, num_states):
        shape = num_actions, _states(layers, num_states), layers.stop - layers.start, num_lanes
        stop = start + math.prod(shape)
        block = array[..., start:stop]
        if is_wide(num_states):
            block = block.reshape(*array.shape[:-1], *shape[2::-1], num_lanes).swapaxes(-4, -2)
        blocks.append(block.reshape(*array.shape[:-1], *shape))
        start = stop
    return blocks


def assemble(problem: Problem, value: Array, last: Array) -> Array:
    """The occupancy `[S', L, S, A, B]` of the cones' projections `[S', C B]` and the last layer."""
    first, *inner = split(jnp.maximum(value, 0), last)  # rounding may leave -1e-17
    first = jnp.zeros_like(problem.target[:, :1]).at[:, 0, 0].set(first[:, :, 0, 0])
    last = jnp.where(problem.present[:, -1:], last[None, None], 0)
    return jnp.concatenate([first, *(x.swapaxes(1, 3) for x in inner), last], 1)


def around(potential: Array, num_actions: int) -> tuple[Array, Array]:
    """The potentials of each cone's state and next states, `[L, S, B] -> [C B], [S', C B]`.

    These are lookups with constant indices; broadcasts would take three times as long.
    """
    num_layers, num_states, num_lanes = potential.shape
    if is_wide(num_states):
        return _around_wide(potential, num_actions)
    every = np.arange(num_layers * num_states).reshape(num_layers, num_states)
    state = np.concatenate(
        [
            np.tile(every[layers, : _states(layers, num_states)].T.reshape(-1), num_actions)
            for layers in _blocks(num_layers)
        ]
    )
    following = (state // num_states + 1) * num_states + np.arange(num_states)[:, None]
    flat = potential.reshape(-1, num_lanes)
    return flat[state].reshape(-1), flat[following].reshape(num_states, -1)


def _around_wide(potential: Array, num_actions: int) -> tuple[Array, Array]:
    """`around` as broadcasts: the indices would be as many as the entries."""
    _, num_states, num_lanes = potential.shape
    inner = potential[1:-1, :, None]
    here = jnp.broadcast_to(inner, (len(inner), num_states, num_actions, num_lanes))
    root = jnp.broadcast_to(potential[0, 0], (num_actions, num_lanes))
    following = potential[1:].swapaxes(0, 1)[:, :, None]
    after_root = jnp.broadcast_to(following[:, 0], (num_states, num_actions, num_lanes))
    pairs = num_states * num_actions
    shape = num_states, len(inner), pairs, num_lanes
    after = jnp.broadcast_to(following[:, 1:], shape)
    return (
        jnp.concatenate([root.reshape(-1), here.reshape(-1)]),
        jnp.concatenate([x.reshape(num_states, -1) for x in (after_root, after)], 1),
    )


def over_pairs(array: Array, last: Array, reduce: Callable[[Array], Array] = entries_sum) -> Array:
    """Sum over the pairs of each layer, `[S', C B] -> [L-1, S', B]`, or reduce otherwise."""
    if is_wide(len(last)) and reduce is entries_sum:
        sums = [x.sum((1, 2)) for x in split(array, last)]
        return jnp.concatenate(sums, 1).swapaxes(0, 1)
    pairs_first = (
        x.reshape(x.shape[0], -1, *x.shape[-2:]).swapaxes(0, 1) for x in split(array, last)
    )
    return jnp.concatenate([fence(reduce, x) for x in pairs_first], 1).swapaxes(0, 1)


def per_state(
    array: Array,
    last: Array,
    reduce: Callable[[Array], Array] = entries_sum,
    empty: float = 0,
) -> Array:
    """Sum over actions: of the cones `[C B]` and the last layer `[S, A, B]`, `[L, S, B]`.

    Another `reduce` may be given, with its value where there are no actions.
    """
    first, *inner = map(reduce, split(array, last))
    root = jnp.full_like(last[None, :, 0], empty).at[:, :1].set(first)
    inner = [x.swapaxes(0, 1) for x in inner]
    end = last.sum(1) if reduce is entries_sum else reduce(last.swapaxes(0, 1))
    return jnp.concatenate([root, *inner, end[None]])
