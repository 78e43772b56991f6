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
from typing import Any, NamedTuple, TypeAlias

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from pdgd_jax.projection._cone import ABSENT, WRITTEN_OUT, positive_part
from pdgd_jax.projection._problem import entries_sum
from pdgd_jax.projection._xla import fence

__all__ = ["Balls", "Boxes", "ConeSet", "Points", "Shares", "logarithm", "shares_of"]


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
    exists = theta.max(0) > ABSENT / 2
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


def _one_where(condition: Array, like: Array) -> Array:
    return jnp.where(condition, jnp.ones_like(like), jnp.zeros_like(like))


def _raised_sum(center: Array, weight: Array) -> Array:
    r"""$\sum_i (\alpha w_i - p_i)_+$ at the breakpoint $\alpha = p_j / w_j$ of every entry."""
    level = center / weight
    return _each(lambda p, w: positive_part(level * w - p), center, weight)


def _lowered_sum(center: Array, weight: Array) -> Array:
    r"""$\sum_i (p_i - \beta w_i)_+$ at the breakpoint $\beta = p_j / w_j$ of every entry."""
    level = center / weight
    return _each(lambda p, w: positive_part(p - level * w), center, weight)


def _below(center: Array, theta: Array) -> Array:
    """The center's mass of the entries whose weight is not larger than that of each entry."""
    return _each(lambda p, t: jnp.where(t <= theta, p, 0), center, theta)


def _known(theta: Array, points: Points) -> Shares:
    """$P$ is known, and no entries move together."""
    center, log_center = points
    one = jnp.ones_like(theta[0])
    return Shares(
        log_mass=entries_sum(center * (theta - log_center)),
        log_share=log_center,
        block=jnp.zeros_like(theta),
        block_mass=(one, one),
    )


class _Block(NamedTuple):
    """The entries that move together, by their weights relative to a reference."""

    member: Array  # [S, ...], 1 or 0
    mass: Array  # [...]
    weight: Array  # [S, ...]
    reference: Array  # [...], the logarithm of the weight's unit

    def log_level(self) -> Array:
        r"""$\ln P - \theta$ on the block, which gives it its mass."""
        total = entries_sum(self.member * self.weight)
        exists = total > 0
        log_level = jnp.log(self.mass) - jnp.log(jnp.where(exists, total, 1)) - self.reference
        return jnp.where(exists, log_level, 0)


def _on_balls(theta: Array, balls: Balls) -> Shares:
    r"""$P_j / w_j = \mathrm{clip}(p_j / w_j, \alpha, \beta)$: two levels, or one if $w$ is inside.

    The raised entries solve $\sum_j (\alpha w_j - p_j)_+ = h$, and the lowered ones
    $\sum_j (p_j - \beta w_j)_+ = h$. If the ball binds and weights differ a lot, the largest weight
    is raised, and the lowered ones are those with the mass $h$ of the smallest weights.
    """
    center, log_center, h = balls
    slack, far = _slack(h), _range(h)
    largest = theta.max(0)
    weight = jnp.exp(jnp.maximum(theta - largest[None], -far))
    excess = entries_sum(positive_part(weight / entries_sum(weight)[None] - center))
    open_ = ((excess <= h + slack) & (h > 0)) | (h >= 1)
    raised = fence(_raised_sum, center, weight) < h[None]
    deep = jnp.where(fence(_below, center, theta) > h[None], theta, largest[None]).min(0)
    small = jnp.exp(jnp.clip(theta - deep[None], -far, far))
    lowered = (fence(_lowered_sum, center, small) <= (h + slack)[None]) & (h > 0)[None] & ~raised
    up = _one_where(raised | open_[None], theta)
    down = _one_where(lowered & ~open_[None], theta)
    tiny = jnp.finfo(theta.dtype).tiny
    masses = (
        jnp.where(open_, 1, entries_sum(up * center) + h),
        jnp.maximum(entries_sum(down * center) - h, tiny),
    )
    log_up = _Block(up, masses[0], weight, largest).log_level()
    log_down = _Block(down, masses[1], small, deep).log_level()
    kept = 1 - up - down
    of_blocks = jnp.where(up.max(0) > 0, masses[0] * log_up, 0)
    of_blocks += jnp.where(down.max(0) > 0, masses[1] * log_down, 0)
    return Shares(
        log_mass=entries_sum(kept * center * (theta - log_center)) - of_blocks,
        log_share=jnp.where(
            up > 0, theta + log_up[None], jnp.where(down > 0, theta + log_down[None], log_center)
        ),
        block=up - down,
        block_mass=masses,
    )


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
    low, high = _one_where(at_lower, theta), _one_where(at_upper, theta)
    free = 1 - low - high
    bound = low * lower + high * upper
    log_bound = jnp.where(at_lower, log_lower, log_upper)
    mass = jnp.maximum(1 - entries_sum(bound), jnp.finfo(theta.dtype).tiny)
    log_level = _Block(free, mass, weight, near).log_level()
    return Shares(
        log_mass=entries_sum(bound * (theta - log_bound))
        - jnp.where(free.max(0) > 0, mass * log_level, 0),
        log_share=jnp.where(free > 0, theta + log_level[None], log_bound),
        block=free,
        block_mass=(mass, jnp.ones_like(mass)),
    )
