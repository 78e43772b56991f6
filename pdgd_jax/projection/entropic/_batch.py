"""A batch of entropic projections with lanes last, without zeros that no flow can pass."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from pdgd_jax.models import Layers
from pdgd_jax.projection._box import BoxSet
from pdgd_jax.projection._cone import ABSENT
from pdgd_jax.projection._known import KnownTransitions
from pdgd_jax.projection._layout import join
from pdgd_jax.projection._problem import entries_first, entries_sum, per_lane
from pdgd_jax.projection._validity import LARGEST_TARGET, LOOSE, TransitionSet
from pdgd_jax.projection.entropic._cones import Balls, Boxes, ConeSet, Points, logarithm
from pdgd_jax.projection.entropic._constraints import LinearConstraints

__all__ = ["Batch", "EntropicStart", "Lanes"]


class EntropicStart(NamedTuple):
    """Where a projection starts: the dual solution of another.

    Attributes:
      potential: `[L, S]`, one for each state.
      multipliers: `[m]`, one for each linear constraint.
    """

    potential: Array
    multipliers: Array


class Lanes(NamedTuple):
    """The arguments of a batch of projections: every array has an additional axis for the lanes."""

    layers: Layers
    target: Array  # the logarithm of u
    confidence: TransitionSet
    constraints: LinearConstraints
    warm_start: EntropicStart
    tolerance: Array
    support: Array | None = None  # the triples that can happen; None if all can


class Batch(NamedTuple):
    """A batch of projections, its cones side by side (see `_layout.py`)."""

    target: Array  # [S', C B], ln u; ABSENT where there is no variable or u = 0
    cone_set: ConeSet  # over [S', C B]
    last: Array  # [S, A, B], the target of the last layer
    free: Array  # [L, S, B], 1 in the states that some occupancy visits, else 0
    costs: tuple[Array, ...]  # [C B] each, G
    last_costs: tuple[Array, ...]  # [S, A, B] each
    bounds: Array  # [m, B], c
    sound: Array  # [B], false if the input was invalid
    possible: Array  # [B], false if the zeros of u leave no occupancy
    present: Array  # [S', L, S, A, B]

    @classmethod
    def of(cls, lanes: Lanes) -> "Batch":
        """The batch of lanes whose last axis is the lanes."""
        state_mask, pairs = lanes.layers.state_mask, lanes.layers.action_mask
        target = entries_first(lanes.target)
        present = pairs[None] & state_mask[1:].swapaxes(0, 1)[:, :, None, None]
        if lanes.support is not None:
            present &= entries_first(lanes.support)
        given, sensible = _cone_set(lanes.confidence, present)
        zero = target == -jnp.inf
        right = zero | (jnp.abs(target) < LARGEST_TARGET)
        sensible &= entries_sum(jnp.where(present & ~right, 1.0, 0.0)) == 0
        sound = (sensible | ~pairs).all((0, 1, 2))
        costs, bounds = lanes.constraints.costs, lanes.constraints.bounds
        sound &= jnp.isfinite(jnp.where(pairs[None], costs, 0)).all((0, 1, 2, 3))
        sound &= jnp.isfinite(bounds).all(0)
        costs = jnp.where(pairs[None] & per_lane(sound, 5), costs, 0)
        present &= per_lane(sound, 5)
        pairs &= per_lane(sound, 4)
        usable = present & ~zero & given.reaches()
        # Most batches have no zeros.
        usable, possible = lax.cond(
            (present & ~usable).any(),
            _passable,
            lambda usable, given, played: (usable, played[0]),
            usable,
            given,
            pairs.any((1, 2)),
        )
        target = jnp.where(usable, target, ABSENT)
        return cls(
            target=join(target),
            cone_set=jax.tree.map(join, given.without(usable)),
            last=target[:, -1].max(0),  # only one of these next states is present
            free=usable.any((0, 3)).astype(target.dtype),
            costs=tuple(join(cost) for cost in costs),
            last_costs=tuple(costs[:, -1]),
            bounds=bounds,
            sound=sound,
            possible=possible | ~sound,
            present=present,
        )


def _cone_set(given: TransitionSet, present: Array) -> tuple[ConeSet, Array]:
    """The set `[S', L, S, A, B]`, 0 where there is no variable, and which pairs make sense."""

    def masked(array: Array) -> tuple[Array, Array, Array]:
        array = entries_first(array)
        wrong = entries_sum(jnp.where(present & ~((array >= 0) & (array < jnp.inf)), 1.0, 0.0))
        array = jnp.where(present & (array >= 0), array, 0)
        return array, entries_sum(array), wrong == 0

    if isinstance(given, BoxSet):
        lower, least, fine = masked(given.lower)
        upper, most, fine_too = masked(given.upper)
        ordered = (lower <= upper).all(0)
        sensible = fine & fine_too & ordered & (least < 1 + LOOSE) & (most > 1 - LOOSE)
        # In single precision bounds may miss the sum one by rounding.
        lower = lower / jnp.maximum(least, 1)[None]
        upper = upper / jnp.where(most > 0, jnp.minimum(most, 1), 1)[None]
        return Boxes.of(lower, upper), sensible
    center, total, fine = masked(
        given.transition if isinstance(given, KnownTransitions) else given.center
    )
    center = center / jnp.where(total > 0, total, 1)[None]
    sensible = fine & (jnp.abs(total - 1) < LOOSE)
    if isinstance(given, KnownTransitions):
        return Points(center, logarithm(center)), sensible
    half_radius = jnp.where(given.radius >= 0, jnp.minimum(given.radius / 2, 1), 0)
    half_radius = jnp.where(present.any(0), half_radius, 0)
    return Balls(center, logarithm(center), half_radius), sensible & (given.radius >= 0)


def _passable(usable: Array, given: ConeSet, played: Array) -> tuple[Array, Array]:
    """The entries that some occupancy gives mass, and whether there is an occupancy, `[B]`.

    Backwards, a pair is dead if its set holds no distribution over the entries that lead on, and a
    state if all its pairs are. Then forwards, a state is reached by the pairs that are alive.
    `played`, `[L, B]`, is false in layers that only pad.
    """
    layers_first = jax.tree.map(
        lambda x: x if x.ndim == 4 else jnp.moveaxis(x, 1, 0), (usable, given)
    )

    def backward(alive: Array, layer: tuple[Array, ConeSet, Array]) -> tuple[Array, Array]:
        entries, cone_set, played = layer
        entries = entries & alive[:, None, None]
        entries &= (cone_set.allows(entries) & entries.any(0))[None]
        # Layers that only pad lead nowhere, and stop nothing.
        return jnp.where(played[None], entries.any((0, 2)), alive), entries

    def forward(reached: Array, entries: Array) -> tuple[Array, Array]:
        entries = entries & reached[None, :, None]
        return entries.any((1, 2)), entries

    end = jnp.ones_like(usable[:, 0, 0, 0])
    start, entries = lax.scan(backward, end, (*layers_first, played), reverse=True)
    first = jnp.zeros_like(end).at[0].set(start[0])
    _, entries = lax.scan(forward, first, entries)
    return jnp.moveaxis(entries, 0, 1), start[0]
