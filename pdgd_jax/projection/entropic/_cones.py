r"""The entropic projection onto the cone of one state-action pair, in closed form.

With $\theta = \ln u + F^\top y$ and $w = e^\theta$, the pair's part of the dual is minimised by
$q = s P$, where

$$P = \arg\min_{P \in \mathcal B} \mathrm{KL}(P \| w), \qquad s = e^{-\mathrm{KL}(P \| w)},$$

and $\mathcal B$ is what the set of transitions allows the pair. Unlike in the Euclidean projection
the mass $s$ is explicit. In every set $P$ is the center or a bound on some entries, and
proportional to $w$ on one or two *blocks* of entries that move together. So $s$ is differentiable,
with $\nabla_\theta s = q$ and

$$\nabla^2_\theta s = s \, (P P^\top + J), \qquad
J = \bigoplus_B \Big( \mathrm{diag}(P_B) - \frac{P_B P_B^\top}{m_B} \Big), \quad m_B = P(B).$$

Which entries are in a block is found by evaluating the equation of its level at the breakpoint of
every entry, without sort or search: $S^2$ comparisons, and $2 S$ exponentials. Weights of one cone
may differ by hundreds of orders of magnitude. The equation of a level needs them relative to the
weights near that level only, so that those further away may be clipped.

Arrays are entries-first, as in `_cone.py` of the Euclidean projection.
"""

from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple, TypeAlias

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from pdgd_jax.projection._entries import (
    ABSENT,
    WRITTEN_OUT,
    larger,
    one_where,
    over_entries,
    positive_part,
    sum_entries,
)
from pdgd_jax.projection._problem import entries_sum
from pdgd_jax.projection._xla import fence

__all__ = [
    "Balls",
    "Boxes",
    "ConeSet",
    "Points",
    "Shares",
    "largest_entry",
    "logarithm",
    "shares_of",
]


class Shares(NamedTuple):
    """The projection onto every cone, and what its second derivative needs."""

    log_mass: Array  # [...], the logarithm of s
    log_share: Array  # [S, ...], that of P
    block: Array  # [S, ...], 1 and -1 on the entries of the two blocks, else 0
    block_mass: tuple[Array, Array]  # [...], of the blocks 1 and -1


class Balls(NamedTuple):
    """L1 balls."""

    center: Array  # [S, ...]
    log_center: Array  # [S, ...]
    half_radius: Array  # [...]

    def allows(self, usable: Array) -> Array:
        """Whether the ball holds a distribution on these entries."""
        lost = entries_sum(jnp.where(usable, 0, self.center))
        return lost <= self.half_radius + _slack(lost)

    def without(self, usable: Array) -> "Balls":
        """The ball where other entries can be left out, in spite of rounding."""
        lost = entries_sum(jnp.where(usable, 0, self.center))
        return self._replace(half_radius=jnp.maximum(self.half_radius, lost))

    def reaches(self) -> Array:
        """The entries that some distribution of the ball gives mass."""
        return (self.center > 0) | (self.half_radius > 0)[None]


class Boxes(NamedTuple):
    """Bounds on every entry."""

    lower: Array  # [S, ...]
    upper: Array  # [S, ...]
    log_lower: Array  # [S, ...]
    log_upper: Array  # [S, ...]

    @classmethod
    def of(cls, lower: Array, upper: Array) -> "Boxes":
        """The boxes with no bound that the others rule out, so that zeros are known."""
        room = 1 - entries_sum(lower)
        room = jnp.where(room > _slack(room), room, 0)[None]
        spare = entries_sum(upper) - 1
        spare = jnp.where(spare > _slack(spare), spare, 0)[None]
        least, most = jnp.maximum(lower, upper - spare), jnp.minimum(upper, lower + room)
        return cls(least, most, logarithm(least), logarithm(most))

    def allows(self, usable: Array) -> Array:
        """Whether the box holds a distribution on these entries."""
        lost = entries_sum(jnp.where(usable, 0, self.lower))
        most = entries_sum(jnp.where(usable, self.upper, 0))
        return (lost <= _slack(lost)) & (most >= 1 - _slack(most))

    def without(self, usable: Array) -> "Boxes":
        """The box without the other entries."""
        lower, upper = (jnp.where(usable, x, 0) for x in (self.lower, self.upper))
        return Boxes(lower, upper, logarithm(lower), logarithm(upper))

    def reaches(self) -> Array:
        """The entries that some distribution of the box gives mass."""
        return self.upper > 0


class Points(NamedTuple):
    """Known transitions."""

    center: Array  # [S, ...]
    log_center: Array  # [S, ...]

    def allows(self, usable: Array) -> Array:
        """Whether the transition leads to these entries only."""
        lost = entries_sum(jnp.where(usable, 0, self.center))
        return lost <= _slack(lost)

    def without(self, usable: Array) -> "Points":
        """The transition without the other entries."""
        center = jnp.where(usable, self.center, 0)
        return Points(center, logarithm(center))

    def reaches(self) -> Array:
        """The entries that the transition leads to."""
        return self.center > 0


ConeSet: TypeAlias = Balls | Boxes | Points


def shares_of(theta: Array, cone_set: ConeSet) -> Shares:
    r"""Project onto every cone: the cone function, on which alone the kind of set depends.

    Args:
      theta: `[S, ...]`, $\theta$; `ABSENT` where an entry does not exist or has $u = 0$.
      cone_set: what is allowed.
    """
    if isinstance(cone_set, Balls):
        shares = _on_balls(theta, cone_set)
    elif isinstance(cone_set, Boxes):
        shares = _in_boxes(theta, cone_set)
    else:
        shares = _known(theta, cone_set)
    exists = largest_entry(theta) > ABSENT / 2
    return shares._replace(log_mass=jnp.where(exists, shares.log_mass, ABSENT))


def logarithm(x: Array) -> Array:
    """The logarithm, with the mark of absent entries where there is none."""
    return jnp.where(x > 0, jnp.log(jnp.where(x > 0, x, 1)), ABSENT)


def _slack(like: Array) -> Any:
    """Rounding of sums of probabilities: levels within it give the same shares."""
    return 8 * jnp.finfo(like.dtype).eps


def _range(like: Array) -> float:
    """Weights are clipped this far, in logarithms, from the weights near a level."""
    return 80.0 if like.dtype == jnp.float32 else 700.0


def _each(add: Callable[..., Array], *arrays: Array) -> Array:
    """The sum of `add` over the entries of some arrays, for every entry."""
    like = arrays[0]
    if len(like) > WRITTEN_OUT:

        def body(i: Array, total: Array) -> Array:
            return total + add(*(x[i][None] for x in arrays))

        return lax.fori_loop(0, len(like), body, jnp.zeros_like(like))
    total: Any = sum(add(*(x[i : i + 1] for x in arrays)) for i in range(len(like)))
    return total


def largest_entry(array: Array, written_out: int | None = None) -> Array:
    """`array.max(0)`, which XLA's CPU backend passes to a library, written out if it is short."""
    if len(array) > (WRITTEN_OUT if written_out is None else written_out):
        return array.max(0)
    return reduce(larger, (array[i] for i in range(len(array))))


def _below(center: Array, theta: Array) -> Array:
    """The center's mass of the entries whose weight is not larger than that of each entry."""
    return _each(lambda p, t: jnp.where(t <= theta, p, 0), center, theta)


def _kept_mass(center: Array, theta: Array, log_center: Array) -> Array:
    """What entries at the center add to the logarithm of the mass: apart, for equal rounding."""
    return entries_sum(center * (theta - log_center))


def _known(theta: Array, points: Points) -> Shares:
    """$P$ is known, and no entries move together."""
    center, log_center = points
    one = jnp.ones_like(theta[0])
    return Shares(
        log_mass=fence(_kept_mass, center, theta, log_center),
        log_share=log_center,
        block=jnp.zeros_like(theta),
        block_mass=(one, one),
    )


def _log_level(mass: Array, total: Array, unit: Array) -> Array:
    r"""$\ln P - \theta$ on the entries that move together, which gives them their mass.

    Args:
      mass: `[...]`, $m_B$.
      total: `[...]`, the sum of their weights.
      unit: `[...]`, the logarithm of the unit of these weights.
    """
    exists = total > 0
    return jnp.where(exists, jnp.log(mass) - jnp.log(jnp.where(exists, total, 1)) - unit, 0)


class _Weights(NamedTuple):
    """The weights of a cone's entries relative to the largest, and what follows from sums."""

    weight: Array  # [S, ...]
    largest: Array  # [...], the logarithm of the largest
    excess: Array  # [...], how far the distribution of the weights is from the center
    clipped: Array  # [...], whether any is smaller than it should be, as a number


def _weights(theta: Array, center: Array) -> _Weights:
    """The weights, not smaller than `_range` below the largest."""
    far = _range(theta)
    largest = largest_entry(theta)
    below = theta - largest[None]
    weight = jnp.exp(larger(below, jnp.full_like(theta, -far)))
    inverse = 1 / entries_sum(weight)
    excess = entries_sum(positive_part(weight * inverse[None] - center))
    clipped = entries_sum(one_where((below < -far) & (theta > ABSENT / 2), theta))
    return _Weights(weight, largest, excess, clipped)


def _light_weights(theta: Array, center: Array, h: Array, heavy: _Weights) -> tuple[Array, Array]:
    """Weights relative to those near the lower level, and their unit.

    The lowered entries are those with the mass $h$ of the smallest weights. They are the weights at
    hand unless those of one cone differ by more than `_range`.
    """
    far = _range(h)

    def wide() -> tuple[Array, Array]:
        unit = heavy.largest
        deep = jnp.where(fence(_below, center, theta) > h[None], theta, unit[None]).min(0)
        return jnp.exp(jnp.clip(theta - deep[None], -far, far)), deep

    def near() -> tuple[Array, Array]:
        return heavy.weight, heavy.largest

    return lax.cond((heavy.clipped > 0).any(), wide, near)


def _level_sums(center: Array, weight: Array, light: Array) -> tuple[Array, Array]:
    r"""The equations of both levels at the breakpoint $p_j / w_j$ of every entry.

    $\sum_i (\alpha w_i - p_i)_+$ is with the weights, $\sum_i (p_i - \beta w_i)_+$ with the light
    ones.
    """
    alpha, beta = center / weight, center / light

    def add(sums: tuple[Array, ...], p: Array, w: Array, v: Array) -> tuple[Array, ...]:
        raised, lowered = sums
        return raised + positive_part(alpha * w - p), lowered + positive_part(p - beta * v)

    start: tuple[Array, ...] = (jnp.zeros_like(center),) * 2
    raised, lowered = over_entries(add, start, (center, 0), (weight, 0), (light, 0))
    return raised, lowered


def _on_balls(theta: Array, balls: Balls) -> Shares:
    r"""$P_j / w_j = \mathrm{clip}(p_j / w_j, \alpha, \beta)$: two levels, or one if $w$ is inside.

    The raised entries solve $\sum_j (\alpha w_j - p_j)_+ = h$, and the lowered ones
    $\sum_j (p_j - \beta w_j)_+ = h$. If the ball binds and weights differ a lot, the largest weight
    is raised.
    """
    center, _, h = balls
    heavy = fence(_weights, theta, center)
    light, deep = _light_weights(theta, center, h, heavy)
    sums = fence(_level_sums, center, heavy.weight, light)
    return fence(_shares_on_balls, theta, balls, heavy, light, deep, *sums)


def _shares_on_balls(
    theta: Array,
    balls: Balls,
    heavy: _Weights,
    light: Array,
    deep: Array,
    raised_sum: Array,
    lowered_sum: Array,
) -> Shares:
    """The shares, once it is known on which side of its breakpoint each level lies."""
    center, log_center, h = balls
    slack = _slack(h)
    open_ = one_where(((heavy.excess <= h + slack) & (h > 0)) | (h >= 1), h)
    tight = 1 - open_
    raised = one_where(raised_sum < h[None], theta)
    lowered = one_where(lowered_sum <= (h + slack)[None], theta) * one_where(h > 0, h)[None]
    up = larger(raised, jnp.broadcast_to(open_[None], theta.shape))
    down = tight[None] * lowered * (1 - raised)
    kept = 1 - up - down
    tiny = jnp.finfo(theta.dtype).tiny
    of = _BallSums(
        *sum_entries(
            _BallSums(
                up_center=up * center,
                up_weight=up * heavy.weight,
                down_center=down * center,
                down_weight=down * light,
            )
        )
    )
    masses = (
        jnp.where(open_ > 0, 1, of.up_center + h),
        larger(of.down_center - h, jnp.full_like(h, tiny)),
    )
    log_up = _log_level(masses[0], of.up_weight, heavy.largest)
    log_down = _log_level(masses[1], of.down_weight, deep)
    of_blocks = jnp.where(of.up_weight > 0, masses[0] * log_up, 0)
    of_blocks += jnp.where(of.down_weight > 0, masses[1] * log_down, 0)
    return Shares(
        log_mass=fence(_kept_mass, kept * center, theta, log_center) - of_blocks,
        log_share=jnp.where(
            kept > 0, log_center, theta + jnp.where(up > 0, log_up[None], log_down[None])
        ),
        block=up - down,
        block_mass=masses,
    )


class _BallSums(NamedTuple):
    """Sums over the entries of a ball's cone."""

    up_center: Array
    up_weight: Array
    down_center: Array
    down_weight: Array


def _filled(bound: Array, weight: Array, lower: Array, upper: Array) -> Array:
    r"""$\sum_i \mathrm{clip}(c w_i, l_i, u_i)$ at the level $c$ where every entry is at `bound`."""
    level = bound / weight
    return _each(lambda w, lo, hi: jnp.clip(level * w, lo, hi), weight, lower, upper)


def _from_above(theta: Array, lower: Array, upper: Array) -> Array:
    """The total if weights from each entry's upwards are at their upper bound, others at lower."""
    return _each(lambda t, lo, hi: jnp.where(t >= theta, hi, lo), theta, lower, upper)


def _in_boxes(theta: Array, boxes: Boxes) -> Shares:
    r"""$P_j = \mathrm{clip}(c w_j, l_j, u_j)$ with one level, at which they sum to one."""
    lower, upper, log_lower, log_upper = boxes
    slack, far = _slack(theta), _range(theta)
    full = fence(_from_above, theta, lower, upper) >= 1 - slack
    near = jnp.where(full, theta, ABSENT).max(0)
    near = jnp.where(full.any(0), near, theta.min(0))
    weight = jnp.exp(jnp.clip(theta - near[None], -far, far))
    # Bounds may fill the whole with no entry between them. Then all levels of an interval solve the
    # equation, and entries are at their lower bounds if they may be.
    at_lower = (fence(_filled, lower, weight, lower, upper) >= 1 - slack) & (lower > 0)
    at_upper = fence(_filled, upper, weight, lower, upper) < 1 - slack
    at_upper = (at_upper | (upper <= lower)) & ~at_lower
    low, high = one_where(at_lower, theta), one_where(at_upper, theta)
    free = 1 - low - high
    bound = low * lower + high * upper
    log_bound = jnp.where(at_lower, log_lower, log_upper)
    mass = jnp.maximum(1 - entries_sum(bound), jnp.finfo(theta.dtype).tiny)
    total = entries_sum(free * weight)
    log_level = _log_level(mass, total, near)
    return Shares(
        log_mass=entries_sum(bound * (theta - log_bound))
        - jnp.where(total > 0, mass * log_level, 0),
        log_share=jnp.where(free > 0, theta + log_level[None], log_bound),
        block=free,
        block_mass=(mass, jnp.ones_like(mass)),
    )
