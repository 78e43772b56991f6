"""Layers with a set of transitions, and the best transition of a set, one layer at a time.

A `Model` is scanned over its first axis. Inside of the scan it is one layer, and all its methods
are meant for that.
"""

from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from pdgd_jax.models import Layers, Successors
from pdgd_jax.projection import BoxSet, ConfidenceSet, KnownTransitions

__all__ = ["Ball", "Box", "Model", "Point", "TransitionSet", "best_in_ball", "best_in_box"]

TransitionSet: TypeAlias = ConfidenceSet | BoxSet | KnownTransitions


class Ball(NamedTuple):
    """An L1 ball for each pair: the center over the triples, and half of the radius."""

    center: Float[Array, "..."]
    half_radius: Float[Array, "..."]


class Box(NamedTuple):
    """Bounds over the triples."""

    lower: Float[Array, "..."]
    upper: Float[Array, "..."]


class Point(NamedTuple):
    """Known transitions."""

    transition: Float[Array, "..."]


class Model(NamedTuple):
    """What a plan needs to know about every layer, exactly 0 outside of the masks.

    Attributes:
      allowed: the transitions, over the triples.
      actions: `[L, S, A]`, which pairs exist.
      following: `[L, S]`, which states the next layer has.
      lists: the successor lists, or None.
    """

    allowed: Ball | Box | Point
    actions: Bool[Array, "..."]
    following: Bool[Array, "..."]
    lists: Successors | None

    @classmethod
    def of(cls, layers: Layers, confidence: TransitionSet) -> "Model":
        """The model of a set; its estimates are divided by their sums, which rounding changes."""
        present = layers.triple_mask

        def distribution(values: Array) -> Array:
            masked = jnp.where(present, values, 0)
            total = layers.to_triples(layers.to_pairs(masked))
            return masked / jnp.where(total > 0, total, 1)

        allowed: Ball | Box | Point
        if isinstance(confidence, ConfidenceSet):
            half = jnp.where(layers.action_mask, jnp.minimum(confidence.radius / 2, 1), 0)
            center = distribution(confidence.center)
            allowed = Ball(center, half.astype(center.dtype))
        elif isinstance(confidence, BoxSet):
            allowed = Box(*(jnp.where(present, x, 0) for x in (confidence.lower, confidence.upper)))
        else:
            allowed = Point(distribution(confidence.transition))
        return cls(allowed, layers.action_mask, layers.state_mask[1:], layers.successors)

    # One layer.

    def present(self) -> Array:
        """Which triples exist."""
        if self.lists is None:
            return self.actions[..., None] & self.following[None, None]
        return self.lists.present

    def to_pairs(self, triples: Array) -> Array:
        """The sum over the next states, `[S, A]`."""
        return triples.sum(-1) if self.lists is None else self.lists.to_pairs(triples)

    def flow(self, mass: Array, policy: Array, transition: Array) -> Array:
        """The occupancy of the layer's triples if its states have this mass."""
        pairs = mass[:, None] * policy
        if self.lists is None:
            return pairs[..., None] * transition
        return self.lists.to_triples(pairs) * transition

    def into_next(self, triples: Array) -> Array:
        """The sum over the triples that lead to each next state, `[S]`."""
        return triples.sum((0, 1)) if self.lists is None else self.lists.into_next(triples)

    def expected(self, transition: Array, values: Array) -> Array:
        """The mean of the next state's value, `[S, A]`."""
        if self.lists is None:
            return self.to_pairs(transition * values[None, None])
        return self.to_pairs(transition * self.lists.at_next(values))

    def best_transition(self, values: Array) -> Array:
        """The transitions of the set that lead to the largest mean of `values`, `[S]`."""
        if isinstance(self.allowed, Point):
            return self.allowed.transition
        if self.lists is None:
            ranked = jnp.where(self.following, values, -jnp.inf)[None, None]  # shared by all pairs
            return _best(ranked, self.allowed)
        lists = self.lists
        ranked = jnp.where(lists.present, lists.at_next(values), -jnp.inf)
        split = lists.groups.split
        rows: list[Ball | Box]
        if isinstance(self.allowed, Box):
            rows = [Box(*part) for part in zip(*map(split, self.allowed), strict=True)]
        else:
            center, half = self.allowed
            halves = split(lists.to_triples(half))  # the same at all entries of a row
            rows = [Ball(c, h[:, 0]) for c, h in zip(split(center), halves, strict=True)]
        parts = zip(split(ranked), rows, strict=True)
        return lists.groups.join([_best(values, row) for values, row in parts])


def _best(ranked: Array, allowed: Ball | Box) -> Array:
    if isinstance(allowed, Box):
        return best_in_box(ranked, allowed.lower, allowed.upper)
    return best_in_ball(ranked, allowed.center, allowed.half_radius)


def best_in_ball(
    values: Float[Array, "*#pairs n"],
    center: Float[Array, "*pairs n"],
    half: Float[Array, "*pairs"],
) -> Float[Array, "*pairs n"]:
    r"""The distribution of an L1 ball with the largest mean.

    It takes $h = \epsilon / 2$ of the mass from the smallest values on, and gives it to the largest
    one, $j^*$: with $i \prec j$ if $v_i < v_j$ (the first one, if equal) and $i \ne j^*$,

    $$P_j = p_j - \operatorname{clip}\big(h - \sum_{i \prec j} p_i, 0, p_j\big), \quad j \ne j^*.$$

    Args:
      values: $v$, minus infinity where there is no state.
      center: $p$, 0 where there is no state.
      half: $h$.
    """
    top = jax.nn.one_hot(jnp.argmax(values, -1), values.shape[-1], dtype=bool)
    before = _sum_before(-values, jnp.where(top, 0, center))
    taken = jnp.where(top, 0, jnp.clip(half[..., None] - before, 0, center))
    return center - taken + jnp.where(top, taken.sum(-1, keepdims=True), 0)


def best_in_box(
    values: Float[Array, "*#pairs n"],
    lower: Float[Array, "*pairs n"],
    upper: Float[Array, "*pairs n"],
) -> Float[Array, "*pairs n"]:
    r"""The distribution of a box with the largest mean.

    What the lower bounds leave goes to the largest values first: with $i \prec j$ if $v_i > v_j$,

    $$P_j = l_j + \operatorname{clip}\big(1 - \sum_i l_i - \sum_{i \prec j} (u - l)_i,
    0, (u - l)_j\big).$$

    Reference:
      The procedure Greedy of Jin et al. (2020).
    """
    spare = upper - lower
    left = 1 - lower.sum(-1, keepdims=True)
    return lower + jnp.clip(left - _sum_before(values, spare), 0, spare)


def _sum_before(values: Array, amounts: Array) -> Array:
    """The sum of the amounts of all larger values, and of equal ones that come first."""
    first, second = values[..., :, None], values[..., None, :]
    index = jnp.arange(values.shape[-1])
    earlier = jnp.expand_dims(index[:, None] < index[None], tuple(range(values.ndim - 1)))
    ahead = (first > second) | ((first == second) & earlier)
    # A sum, not a matrix product: it does not depend on the number of threads.
    return (amounts[..., :, None] * ahead).sum(-2)
