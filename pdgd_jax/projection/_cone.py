r"""The Euclidean projection on the confidence cone of one state-action pair, exactly.

The cone of a pair with estimated transition $p$ and radius $\epsilon = 2h$ is

$$K = \{q \ge 0 : \sum_j |q_j - p_j s| \le 2 h s, \; s = \sum_j q_j\}.$$

For a fixed mass $s$ its slice is $s$ times the confidence ball, and the projection of $u$ on the
slice is $q_j = \max(u_j - \alpha, \min(p_j s, (u_j - \beta)_+))$, where the two levels solve

$$\sum_j (u_j - p_j s - \alpha)_+ = h s, \qquad \sum_j \min(p_j s, (u_j - \beta)_+) = (1 - h) s.$$

Both left-hand sides decrease in the level, so that an entry's piece is known by evaluating them *at
its own breakpoint*: $S^2$ comparisons, no sort and no search. What remains is one number, the mass.
With the pieces known $q$ is linear in $u$ (see `ConePieces`) and so is the best mass, which gives a
Newton step for $s$.

Arrays are entries-first: `[S, ...]` for the entries of cones and `[...]` for one number per cone,
so that every operation, sums over entries included, runs over all cones of all lanes contiguously.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from pdgd_jax.projection._xla import fence

__all__ = ["ABSENT", "ConePieces", "classify", "positive_part", "project_cone", "support_of"]

# The target of an entry that does not exist: its projection is then exactly zero, without any
# further masking.
ABSENT = -1e30


class ConePieces(NamedTuple):
    r"""The linear piece of the projection that holds at a point and a guess of the mass.

    With $c = w \sqrt{\text{gain}}$ and $e$ the `block`, the projection's generalised Jacobian is

    $$J_{ij} = c_i c_j - \max(e_i e_j, 0) + [i = j][e_i \ne 0].$$

    Attributes:
      value: `[S, ...]`, the projection, if the mass is exact; else some entries may be negative.
      weight: `[S, ...]`, $w$; sums to one over the entries (to zero at the apex).
      block: `[S, ...]`, $+1/\sqrt{|U|}$ on the raised entries, $-1/\sqrt{|D|}$ on the lowered
        positive ones and 0 on the others: equal signs mark the entries that move together.
      gain: `[...]`, $1 / w^\top w$; 0 at the apex.
      mass: `[...]`, the best one for these pieces, and exact when it equals `mass_guess`.
      mass_guess: `[...]`, the mass at which the pieces were found.
      rounding: `[...]`, of what is summed up to the mass; 0 if the apex is beyond doubt.
    """

    value: Array
    weight: Array
    block: Array
    gain: Array
    mass: Array
    mass_guess: Array
    rounding: Array

    @property
    def occupancy(self) -> Array:
        """The projection `[S, ...]`; rounding may leave entries at -1e-17, hence the clip."""
        return jnp.maximum(self.value, 0)


def _reduce(added: Sequence[Array], largest: Sequence[Array] = ()) -> list[Array]:
    """Sums of some arrays over the entries and maxima of others, in one pass over memory."""
    count, dtype = len(added), added[0].dtype

    def combine(left: Any, right: Any) -> Any:
        sums = map(jnp.add, left[:count], right[:count])
        return (*sums, *map(_larger, left[count:], right[count:]))

    initial = [jnp.zeros((), dtype)] * count + [jnp.full((), -jnp.inf, dtype)] * len(largest)
    return list(lax.reduce((*added, *largest), tuple(initial), combine, (0,)))


def positive_part(x: Array) -> Array:
    """`max(x, 0)`, but NaN becomes 0: propagating it costs a third of the time of these sums."""
    return jnp.where(x > 0, x, 0)


def _larger(x: Array, y: Array) -> Array:
    return jnp.where(x > y, x, y)


def _between(x: Array, upper: Array) -> Array:
    """`clip(x, 0, upper)`, likewise."""
    x = positive_part(x)
    return jnp.where(x < upper, x, upper)


def _rows(array: Array) -> list[Array]:
    """The entries one by one, each `[1, ...]`."""
    return [array[i : i + 1] for i in range(array.shape[0])]


def _tail(point: Array, center: Array) -> Array:
    r"""$\sum_i p_i \max(u_i, u_j)$ for every entry $j$."""
    terms = (p * _larger(u, point) for p, u in zip(_rows(center), _rows(point), strict=True))
    return sum(terms, start=jnp.zeros((), point.dtype))


def support_of(point: Array, center: Array, half_radius: Array) -> Array:
    r"""The largest $u^\top P$ of the ball, $h \max_j u_j + \min_t \sum_i p_i \max(u_i, t) - h t$.

    It is positive where the projection is not the apex, and grows as much as all of $u$ does.
    """
    least = (half_radius[None] * point - _tail(point, center)).max(0)
    return half_radius * point.max(0) - least


def _one_where(condition: Array, like: Array) -> Array:
    """1 or 0 instead of true or false: bytes among numbers would keep loops from vectorising."""
    return jnp.where(condition, jnp.ones_like(like), jnp.zeros_like(like))


# The piece of an entry: q = u - alpha, p s, u - beta, or 0.
RAISED, MIDDLE, LOWERED, REMOVED = 1.0, 0.0, -1.0, -2.0


def _compare(point: Array, middle: Array, moved: Array, kept: Array, binding: Array) -> Array:
    """The piece of every entry: the equations of both levels evaluated at its breakpoints.

    By differences of the entries first, which are exact where they are small: a radius may be less
    than the rounding of `point - middle`.
    """
    zero = jnp.zeros((), point.dtype)
    above = below = emptied = zero
    for u, upper in zip(_rows(point), _rows(middle), strict=True):
        ahead = u - point
        raised = ahead + middle
        above += positive_part(raised - upper)
        below += _between(raised, upper)
        emptied += _between(ahead, upper)
    low = jnp.where(emptied < kept, jnp.full_like(point, LOWERED), REMOVED)
    piece = jnp.where((below > kept) & (binding > 0), low, MIDDLE)
    return jnp.where(above < moved, RAISED, piece)


TIGHT, OPEN, APEX = 0.0, 1.0, 2.0


class _Common(NamedTuple):
    """What the entries of a cone share: one number for each cone, `[...]`."""

    kind: Array  # TIGHT, OPEN where the ball does not bind, or APEX
    level_u: Array  # q = u - level on the raised entries, and w and e there
    weight_u: Array
    block_u: Array
    level_d: Array  # likewise on the lowered ones
    weight_d: Array
    block_d: Array
    gain: Array
    mass: Array
    mass_guess: Array
    rounding: Array


def _settle(
    count_u: Array,
    point_u: Array,
    center_u: Array,
    count_d: Array,
    point_d: Array,
    center_l: Array,
    dot_m: Array,
    square_m: Array,
    excess: Array,
    positive_count: Array,
    positive_mass: Array,
    half_radius: Array,
    support: Array,
    rounding: Array,
    guess: Array,
) -> _Common:
    """The kind of each cone and its best mass, from sums over the pieces."""
    apex = ~(support > rounding)
    slack = (excess <= half_radius * positive_mass) | (half_radius >= 1)
    per_u, per_d = 1 / jnp.maximum(count_u, 1), 1 / jnp.maximum(count_d, 1)
    weight_u = jnp.where(count_u > 0, center_u + half_radius, 0) * per_u
    weight_d = jnp.where(count_d > 0, center_l - half_radius, 0) * per_d
    mean_u, mean_d = point_u * per_u, point_d * per_d
    square = square_m + count_u * weight_u**2 + count_d * weight_d**2
    tight_mass = (dot_m + weight_u * point_u + weight_d * point_d) / square
    # Below the bound of `classify`: this piece ends before the solution.
    tight_mass = _larger(tight_mass, support - rounding)
    # alpha < beta: at this mass the ball does not bind, although it does at the solution. The slack
    # piece leads back.
    gap = (mean_u - weight_u * guess) - (mean_d - weight_d * guess)
    crossed = (count_u > 0) & (count_d > 0) & (gap < -rounding)
    open_ = slack | crossed

    per_positive = 1 / jnp.maximum(positive_count, 1)
    mass = jnp.where(apex, 0, jnp.where(open_, positive_mass, tight_mass))
    return _Common(
        kind=jnp.where(apex, APEX, jnp.where(open_, OPEN, TIGHT)).astype(mass.dtype),
        level_u=jnp.where(open_, 0, mean_u - weight_u * mass),
        weight_u=jnp.where(open_, per_positive, weight_u),
        block_u=jnp.sqrt(jnp.where(open_, per_positive, per_u)),
        level_d=mean_d - weight_d * mass,
        weight_d=weight_d,
        block_d=-jnp.sqrt(per_d),
        gain=jnp.where(apex, 0, jnp.where(open_, positive_count, 1 / square)),
        mass=mass,
        mass_guess=jnp.where(apex | slack, mass, guess),
        rounding=jnp.where(support < -rounding, 0, rounding),
    )


def classify(point: Array, center: Array, half_radius: Array, mass: Array) -> ConePieces:
    r"""Find the linear piece of the cone projection at `point`, given a guess of the mass.

    Cones that are slack ($q = u_+$) or at the apex ($q = 0$) are recognised whatever the guess.

    Args:
      point: `[S, ...]`, what to project; `ABSENT` where an entry does not exist.
      center: `[S, ...]`, a distribution.
      half_radius: `[...]`, $h \ge 0$.
      mass: `[...]`, a guess of the projection's mass; not positive means unknown.

    Returns:
      The pieces; `pieces.occupancy` is the projection if `pieces.mass == pieces.mass_guess`.
    """
    radius = half_radius[None]
    positive = positive_part(point)
    tail = fence(_tail, point, center)
    positive_mass, positive_count, center_square, center_size, largest, least = _reduce(
        (positive, _one_where(point > 0, point), center * center, center * jnp.abs(point)),
        (point, radius * point - tail),
    )
    # The support function of the ball, h max(u) + min_t [sum_i p_i max(u_i, t) - h t]: where it is
    # not positive the projection is the apex.
    support = half_radius * largest - least
    size = center_size + jnp.where(center_square > 0, jnp.abs(largest), 0)  # 0 if it does not exist
    rounding = 2 * jnp.finfo(point.dtype).eps * size
    unknown = positive_part(support) / (center_square + half_radius * half_radius)
    # No mass is smaller than the support: |q| is the largest u.P / |P| of all P in the ball, and
    # |P| <= 1. Guesses far below it would be lost in the rounding of u, and could look settled.
    guess = _larger(jnp.where(mass > 0, mass, unknown), support - rounding)

    middle = center * guess[None]
    moved, kept = radius * guess[None], (1 - radius) * guess[None]
    piece = fence(_compare, point, middle, moved, kept, radius)
    raised, middle, reduced = (_one_where(piece == x, point) for x in (RAISED, MIDDLE, LOWERED))
    lowered = _one_where(piece < MIDDLE, point)
    excess = positive_part(positive - center * positive_mass[None])
    # Three sums at a time: with more the registers do not suffice.
    sums = (
        *_reduce((raised, raised * point, raised * center)),
        *_reduce((reduced, reduced * point, lowered * center)),
        *_reduce((middle * center * point, middle * center * center, excess)),
    )
    common = fence(
        _settle, *sums, positive_count, positive_mass, half_radius, support, rounding, guess
    )
    each = _Common(*(x[None] for x in common))
    tight = _one_where(each.kind == TIGHT, point)
    upper = tight * raised + _one_where((each.kind == OPEN) & (point > 0), point)
    lower, inner = tight * reduced, tight * middle
    shifted = point - upper * each.level_u - lower * each.level_d
    return ConePieces(
        value=jnp.where(upper + lower > 0, shifted, inner * center * each.mass),
        weight=upper * each.weight_u + lower * each.weight_d + inner * center,
        block=upper * each.block_u + lower * each.block_d,
        gain=common.gain,
        mass=common.mass,
        mass_guess=common.mass_guess,
        rounding=common.rounding,
    )


def project_cone(
    point: Array, center: Array, half_radius: Array, mass: Array, max_steps: int = 60
) -> ConePieces:
    """Project on the cone: Newton on the mass, kept inside a shrinking bracket.

    The distance to the slice of mass s is convex in s and piecewise quadratic, so that the sign of
    `pieces.mass - s` tells on which side of s the solution lies, and Newton ends after finitely
    many steps.

    Args:
      point: as in `classify`.
      center: as in `classify`.
      half_radius: as in `classify`.
      mass: as in `classify`.
      max_steps: more than ever needed; bisection alone would reach rounding with it.

    Returns:
      The pieces at the solution.
    """
    scale = 1 + jnp.max(jnp.abs(jnp.where(point > ABSENT / 2, point, 0)), 0)
    tiny = 2 * jnp.finfo(point.dtype).eps * scale

    # The loop begins with its evaluation, so that the program holds `classify` only once.
    def step(carry: Any) -> Any:
        guess, low, high, _, count = carry
        pieces = classify(point, center, half_radius, guess)
        settled = jnp.abs(pieces.mass - pieces.mass_guess) <= tiny
        rising = pieces.mass > pieces.mass_guess
        low = jnp.where(rising, pieces.mass_guess, low)
        high = jnp.where(rising, high, pieces.mass_guess)
        inside = (pieces.mass > low) & (pieces.mass < high)
        halfway = jnp.where(jnp.isfinite(high), (low + high) / 2, 2 * low + 1)
        newton = jnp.where(inside, pieces.mass, halfway)
        guess = jnp.where(settled, pieces.mass_guess, newton)
        return guess, low, high, (pieces, settled.all()), count + 1

    def unsettled(carry: Any) -> Array:
        return ~carry[3][1] & (carry[4] < max_steps)

    nothing = ConePieces(*[jnp.zeros_like(point)] * 3, *[jnp.zeros_like(mass)] * 4)
    low, high = jnp.zeros_like(mass), jnp.full_like(mass, jnp.inf)
    settled = jnp.zeros_like(mass, bool).all()
    start = (mass, low, high, (nothing, settled), jnp.zeros((), jnp.int32))
    return lax.while_loop(unsettled, step, start)[3][0]
