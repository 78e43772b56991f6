r"""The exact Euclidean projection onto the confidence cone of one state-action pair.

The cone of a pair with estimated transition $p$ and radius $\epsilon = 2h$ is

$$K = \{q \ge 0 : \sum_j |q_j - p_j s| \le 2 h s, \; s = \sum_j q_j\}.$$

For a fixed mass $s$ its slice is $s$ times the confidence ball, and the projection of $u$ on the
slice is $q_j = \max(u_j - \alpha, \min(p_j s, (u_j - \beta)_+))$, where the two levels solve

$$\sum_j (u_j - p_j s - \alpha)_+ = h s, \qquad \sum_j \min(p_j s, (u_j - \beta)_+) = (1 - h) s.$$

Both left-hand sides decrease in the level. Evaluating them *at the breakpoint of an entry* tells
its piece: $S^2$ comparisons, no sort and no search. One unknown remains, the mass. Once the pieces
are known, $q$ is linear in $u$ (see `ConePieces`) and so is the best mass, which gives a Newton
step for $s$.

Arrays are entries-first: `[S, ...]` for the entries of cones and `[...]` for one number per cone.
Every operation, sums over entries included, then runs contiguously over all cones of all lanes.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from pdgd_jax.projection._xla import fence

__all__ = [
    "ABSENT",
    "ConePieces",
    "Entries",
    "classify",
    "positive_part",
    "project_cone",
    "support_of",
]

# An array over the entries of cones, `[S, ...]`; with successor lists a tuple of them, one for each
# group of cones of the same width.
Entries: TypeAlias = Any

Sums = TypeVar("Sums", bound=tuple[Array, ...])
Maxima = TypeVar("Maxima", bound=tuple[Array, ...])

# The target of an entry that does not exist. Its projection is then exactly zero, without further
# masking.
ABSENT = -1e30

# Up to so many entries the comparisons are written out. One evaluation of 32 entries takes 2.4 ms
# written out and 3.2 ms as a loop, of 48 entries 9.6 and 8.5. If larger, the program grows with the
# entries; if smaller, middle layers are slower.
WRITTEN_OUT = 32

# How many entries such a loop takes at a time, written out. If larger, the program is longer; if
# smaller, the loop is started more often.
ENTRIES_AT_ONCE = 16

# Where entries are many, a CPU takes the cones in parts of so many, and a part in which no ball
# binds needs no comparisons. With 100 entries and every ball binding, all cones at once take 77 ms,
# parts of 256, 64 and 16 take 75, 63 and 59. If larger, parts leave the cache, and fewer can be
# skipped; if smaller, starting the loops shows.
CONES_AT_ONCE = 64


class ConePieces(NamedTuple):
    r"""The linear piece of the projection that holds at a point and a guess of the mass.

    With $c = w \sqrt{\text{gain}}$ and $e$ the `block`, the projection's generalised Jacobian is

    $$J_{ij} = c_i c_j - \max(e_i e_j, 0) + [i = j][e_i \ne 0].$$

    Attributes:
      value: `[S, ...]`, the projection if the mass is exact; otherwise some entries may be
        negative.
      weight: `[S, ...]`, $w$; sums to one over the entries (to zero at the apex).
      block: `[S, ...]`, $+1/\sqrt{|U|}$ on the raised entries, $-1/\sqrt{|D|}$ on the lowered
        positive ones and 0 on the others: equal signs mark the entries that move together.
      gain: `[...]`, $1 / w^\top w$; 0 at the apex.
      mass: `[...]`, the best mass for these pieces; it is exact if it equals `mass_guess`.
      mass_guess: `[...]`, the mass at which the pieces were found.
      rounding: `[...]`, the rounding error of the mass; 0 if the cone is certainly at its apex.
    """

    value: Entries
    weight: Entries
    block: Entries
    gain: Array
    mass: Array
    mass_guess: Array
    rounding: Array

    @property
    def occupancy(self) -> Entries:
        """The projection `[S, ...]`, clipped since rounding may leave entries at -1e-17."""
        return jax.tree.map(lambda x: jnp.maximum(x, 0), self.value)


def _reduce(added: Sums, largest: Maxima) -> tuple[Sums, Maxima]:
    """Sums of some arrays over the entries and maxima of others, in one pass over memory.

    At least two in all: XLA's CPU backend passes a reduction of one array to a library, which takes
    many times as long for a few entries.
    """
    dtype = (*added, *largest)[0].dtype
    zero, lowest = jnp.zeros((), dtype), jnp.full((), -jnp.inf, dtype)

    def combine(left: Any, right: Any) -> Any:
        sums, maxima = zip(left, right, strict=True)
        return jax.tree.map(jnp.add, *sums), jax.tree.map(_larger, *maxima)

    initial = jax.tree.map(lambda _: zero, added), jax.tree.map(lambda _: lowest, largest)
    return lax.reduce((added, largest), initial, combine, (0,))


def _sum(added: Sums) -> Sums:
    """Sums of some arrays over the entries, in one pass over memory."""
    return _reduce(added, ())[0]


def positive_part(x: Array) -> Array:
    """`max(x, 0)` with NaN mapped to 0: propagating NaN takes a third of the time of the sums."""
    return jnp.where(x > 0, x, 0)


def _larger(x: Array, y: Array) -> Array:
    return jnp.where(x > y, x, y)


def _between(x: Array, upper: Array) -> Array:
    """`clip(x, 0, upper)` with NaN mapped to 0, as in `positive_part`."""
    x = positive_part(x)
    return jnp.where(x < upper, x, upper)


def _rows(array: Array) -> list[Array]:
    """The entries one by one, each `[1, ...]`."""
    return [array[i : i + 1] for i in range(array.shape[0])]


def _over_entries(add: Callable[..., Sums], start: Sums, *arrays: tuple[Array, float]) -> Sums:
    """`add(sums, *entries)` for one entry after the other, each `[1, ...]`.

    Args:
      add: adds an entry to the sums.
      start: the sums before.
      *arrays: `[S, ...]`, each with its value at an entry that adds nothing.
    """

    def added(sums: Sums, *parts: Array) -> Sums:
        for entries in zip(*map(_rows, parts), strict=True):
            sums = add(sums, *entries)
        return sums

    num_entries = len(arrays[0][0])
    if num_entries <= WRITTEN_OUT:
        return added(start, *(array for array, _ in arrays))
    spare = -num_entries % ENTRIES_AT_ONCE
    whole = [
        jnp.pad(x, [(0, spare), *[(0, 0)] * (x.ndim - 1)], constant_values=nothing)
        for x, nothing in arrays
    ]

    def loop(i: Array, sums: Sums) -> Sums:
        first = i * ENTRIES_AT_ONCE
        parts = (lax.dynamic_slice_in_dim(x, first, ENTRIES_AT_ONCE) for x in whole)
        return added(sums, *parts)

    return lax.fori_loop(0, (num_entries + spare) // ENTRIES_AT_ONCE, loop, start)


def _tail(point: Array, center: Array) -> Array:
    r"""$\sum_i p_i \max(u_i, u_j)$ for every entry $j$."""

    def add(sums: tuple[Array], p: Array, u: Array) -> tuple[Array]:
        return (sums[0] + p * _larger(u, point),)

    return _over_entries(add, (jnp.zeros_like(point),), (center, 0), (point, ABSENT))[0]


def support_of(point: Array, center: Array, half_radius: Array) -> Array:
    r"""The largest $u^\top P$ of the ball, $h \max_j u_j + \min_t \sum_i p_i \max(u_i, t) - h t$.

    It is positive where the projection is not the apex, and grows as much as all of $u$ does.
    """
    least, largest = _reduce((), (half_radius[None] * point - _tail(point, center), point))[1]
    return half_radius * largest - least


def _one_where(condition: Array, like: Array) -> Array:
    """1 or 0 instead of true or false: mixing bytes and floats prevents vectorisation."""
    return jnp.where(condition, jnp.ones_like(like), jnp.zeros_like(like))


# The piece of an entry: q = u - alpha, p s, u - beta, or 0.
RAISED, MIDDLE, LOWERED, REMOVED = 1.0, 0.0, -1.0, -2.0


def _compare(point: Array, middle: Array, moved: Array, kept: Array, binding: Array) -> Array:
    """The piece of every entry, from the equations of both levels at its breakpoints.

    Differences of entries are taken first, since they are exact where they are small: a radius may
    be smaller than the rounding error of `point - middle`.
    """

    def add(sums: tuple[Array, ...], u: Array, upper: Array) -> tuple[Array, ...]:
        above, below, emptied = sums
        ahead = u - point
        raised = ahead + middle
        return (
            above + positive_part(raised - upper),
            below + _between(raised, upper),
            emptied + _between(ahead, upper),
        )

    start: tuple[Array, ...] = (jnp.zeros_like(point),) * 3
    above, below, emptied = _over_entries(add, start, (point, ABSENT), (middle, 0))
    low = jnp.where(emptied < kept, jnp.full_like(point, LOWERED), REMOVED)
    piece = jnp.where((below > kept) & (binding > 0), low, MIDDLE)
    return jnp.where(above < moved, RAISED, piece)


class _Totals(NamedTuple):
    """Sums over all entries of a cone."""

    positive_mass: Array
    positive_count: Array
    center_square: Array
    center_point: Array  # of the center times the size of the point


class _Extremes(NamedTuple):
    """Maxima over all entries of a cone."""

    largest: Array  # of the point
    least: Array  # of what the support function subtracts


class _Moved(NamedTuple):
    """Sums over the entries that are raised, or over those that are lowered."""

    entries: Array  # how many
    point: Array
    center: Array


class _Kept(NamedTuple):
    """Sums over the entries in the middle, and the excess of the slack piece."""

    center_point: Array
    center_square: Array
    excess: Array


class _PieceSums(NamedTuple):
    """Sums over the entries of each piece, one number for each cone, `[...]`."""

    raised: _Moved
    lowered: _Moved  # entries and point: of those that stay positive
    middle: _Kept


class _Cone(NamedTuple):
    """What is known about each cone before its pieces are, `[...]`."""

    positive_count: Array
    positive_mass: Array
    half_radius: Array
    support: Array
    rounding: Array
    guess: Array


TIGHT, OPEN, APEX = 0.0, 1.0, 2.0


class _Common(NamedTuple):
    """What the entries of a cone share: one number for each cone, `[...]`."""

    kind: Array  # TIGHT, OPEN where the ball does not bind, or APEX
    mean_u: Array  # q = u - mean + w s on the raised entries, and w and e there
    weight_u: Array
    block_u: Array
    mean_d: Array  # the same on the lowered entries
    weight_d: Array
    block_d: Array
    gain: Array
    mass: Array
    mass_guess: Array
    rounding: Array


def _settle(sums: _PieceSums, cone: _Cone) -> _Common:
    """The kind of each cone and its best mass, from sums over the pieces."""
    up, down, middle = sums
    half_radius, rounding, guess = cone.half_radius, cone.rounding, cone.guess
    apex = ~(cone.support > rounding)
    slack = (middle.excess <= half_radius * cone.positive_mass) | (half_radius >= 1)
    per_u, per_d = 1 / jnp.maximum(up.entries, 1), 1 / jnp.maximum(down.entries, 1)
    weight_u = jnp.where(up.entries > 0, up.center + half_radius, 0) * per_u
    weight_d = jnp.where(down.entries > 0, down.center - half_radius, 0) * per_d
    mean_u, mean_d = up.point * per_u, down.point * per_d
    square = middle.center_square + up.entries * weight_u**2 + down.entries * weight_d**2
    tight_mass = (middle.center_point + weight_u * up.point + weight_d * down.point) / square
    # A mass below the bound of `classify`: this piece ends before the solution.
    tight_mass = _larger(tight_mass, cone.support - rounding)
    # alpha < beta: the ball does not bind at this mass, although it does at the solution. The slack
    # piece leads back to it.
    gap = (mean_u - weight_u * guess) - (mean_d - weight_d * guess)
    crossed = (up.entries > 0) & (down.entries > 0) & (gap < -rounding)
    open_ = slack | crossed
    per_positive = 1 / jnp.maximum(cone.positive_count, 1)
    mass = jnp.where(apex, 0, jnp.where(open_, cone.positive_mass, tight_mass))
    return _Common(
        kind=jnp.where(apex, APEX, jnp.where(open_, OPEN, TIGHT)).astype(mass.dtype),
        mean_u=jnp.where(open_, 0, mean_u),
        weight_u=jnp.where(open_, per_positive, weight_u),
        block_u=jnp.sqrt(jnp.where(open_, per_positive, per_u)),
        mean_d=mean_d,
        weight_d=weight_d,
        block_d=-jnp.sqrt(per_d),
        gain=jnp.where(apex, 0, jnp.where(open_, cone.positive_count, 1 / square)),
        mass=mass,
        mass_guess=jnp.where(apex | slack, mass, guess),
        rounding=jnp.where(cone.support < -rounding, 0, rounding),
    )


class _Marks(NamedTuple):
    """1 on the entries of a piece and 0 on the others, `[S, ...]`, if the cone is tight."""

    raised: Array
    middle: Array
    reduced: Array  # lowered, and still positive


def _pieces_of(point: Array, center: Array, marks: _Marks, common: _Common) -> ConePieces:
    """The pieces entry by entry, from what the entries share."""
    each = jax.tree.map(lambda x: x[None], common)
    tight = _one_where(each.kind == TIGHT, point)
    upper = tight * marks.raised + _one_where((each.kind == OPEN) & (point > 0), point)
    lower, inner = tight * marks.reduced, tight * marks.middle
    weight = upper * each.weight_u + lower * each.weight_d + inner * center
    # Differences first here as well: the effect of a small radius would be lost in a level.
    shifted = point - upper * each.mean_u - lower * each.mean_d
    return ConePieces(
        value=jnp.where(upper + lower > 0, shifted, 0) + weight * tight * each.mass,
        weight=weight,
        block=upper * each.block_u + lower * each.block_d,
        gain=common.gain,
        mass=common.mass,
        mass_guess=common.mass_guess,
        rounding=common.rounding,
    )


def classify(point: Array, center: Array, half_radius: Array, mass: Array) -> ConePieces:
    r"""Find the linear piece of the cone projection at `point`, given a guess of the mass.

    Cones that are slack ($q = u_+$) or at the apex ($q = 0$) are recognised for any guess.

    Args:
      point: `[S, ...]`, what to project; `ABSENT` where an entry does not exist.
      center: `[S, ...]`, a distribution.
      half_radius: `[...]`, $h \ge 0$.
      mass: `[...]`, a guess of the projection's mass; 0 or less means unknown.

    Returns:
      The pieces; `pieces.occupancy` is the projection if `pieces.mass == pieces.mass_guess`.
    """
    arguments = point, center, half_radius, mass
    if len(point) <= WRITTEN_OUT or mass.size <= CONES_AT_ONCE:
        return _classify(*arguments)
    return lax.platform_dependent(*arguments, cpu=_classify_in_parts, default=_classify)


def _classify_in_parts(point: Array, center: Array, half_radius: Array, mass: Array) -> ConePieces:
    """`_classify`, some cones after the others: the comparisons of a part stay in the cache."""
    num_entries, num_cones = len(point), mass.size
    per_entry = [x.reshape(num_entries, num_cones) for x in (point, center)]
    per_cone = [x.reshape(num_cones) for x in (half_radius, mass)]

    def part(i: Array, found: ConePieces) -> ConePieces:
        first = jnp.minimum(i * CONES_AT_ONCE, num_cones - CONES_AT_ONCE)

        def cut(x: Array) -> Array:
            return lax.dynamic_slice_in_dim(x, first, CONES_AT_ONCE, axis=-1)

        def put(whole: Array, x: Array) -> Array:
            return lax.dynamic_update_slice_in_dim(whole, x, first, axis=-1)

        pieces = _classify(*map(cut, per_entry), *map(cut, per_cone), skipping=True)
        return jax.tree.map(put, found, pieces)

    entries, cones = jnp.zeros_like(per_entry[0]), jnp.zeros_like(per_cone[0])
    nothing = ConePieces(entries, entries, entries, cones, cones, cones, cones)
    found = lax.fori_loop(0, -(-num_cones // CONES_AT_ONCE), part, nothing)
    return jax.tree.map(lambda x: x.reshape(*x.shape[:-1], *mass.shape), found)


def _tail_if_bound(point: Array, center: Array, half_radius: Array) -> Array:
    """`_tail`, or what leads to the same support where no ball binds: the largest entry."""

    def tail(point: Array, center: Array) -> Array:
        return fence(_tail, point, center)

    return lax.cond((half_radius < 1).any(), tail, lambda point, center: point, point, center)


def _compare_if_tight(tight: Array, *arguments: Array) -> Array:
    """`_compare`, unless no cone is tight: the pieces of other cones are not looked at."""

    def compared(*arguments: Array) -> Array:
        return fence(_compare, *arguments)

    return lax.cond(
        tight.any(),
        compared,
        lambda point, *others: jnp.full_like(point, MIDDLE),
        *arguments,
    )


def _classify(
    point: Array, center: Array, half_radius: Array, mass: Array, *, skipping: bool = False
) -> ConePieces:
    """`classify`; if `skipping`, without the comparisons that no cone needs."""
    radius = half_radius[None]
    positive = positive_part(point)
    bound = _tail_if_bound(point, center, half_radius) if skipping else None
    tail = fence(_tail, point, center) if bound is None else bound
    totals, extremes = _reduce(
        _Totals(positive, _one_where(point > 0, point), center * center, center * jnp.abs(point)),
        _Extremes(point, radius * point - tail),
    )
    # The support function of the ball, h max(u) + min_t [sum_i p_i max(u_i, t) - h t]. Where it is
    # not positive, the projection is the apex.
    support = half_radius * extremes.largest - extremes.least
    exists = totals.center_square > 0
    size = totals.center_point + jnp.where(exists, jnp.abs(extremes.largest), 0)
    rounding = 2 * jnp.finfo(point.dtype).eps * size
    unknown = positive_part(support) / (totals.center_square + half_radius * half_radius)
    # The mass is at least the support: |q| is the largest u.P / |P| over all P in the ball, and
    # |P| <= 1. Guesses far below it would drown in the rounding of u, and could look settled.
    guess = _larger(jnp.where(mass > 0, mass, unknown), support - rounding)
    middle = center * guess[None]
    moved, kept = radius * guess[None], (1 - radius) * guess[None]
    excess = positive_part(positive - center * totals.positive_mass[None])
    breakpoints = point, middle, moved, kept, radius
    if skipping:
        # Certainly, however the sums are rounded.
        slack = (excess.sum(0) < 0.99 * half_radius * totals.positive_mass) | (half_radius >= 1)
        piece = _compare_if_tight(~slack & (support > 0), *breakpoints)
    else:
        piece = fence(_compare, *breakpoints)
    raised, middle, reduced = (_one_where(piece == x, point) for x in (RAISED, MIDDLE, LOWERED))
    lowered = _one_where(piece < MIDDLE, point)
    # Three sums at a time: more do not fit in the registers.
    sums = _PieceSums(
        raised=_sum(_Moved(raised, raised * point, raised * center)),
        lowered=_sum(_Moved(reduced, reduced * point, lowered * center)),
        middle=_sum(_Kept(middle * center * point, middle * center * center, excess)),
    )
    cone = _Cone(
        positive_count=totals.positive_count,
        positive_mass=totals.positive_mass,
        half_radius=half_radius,
        support=support,
        rounding=rounding,
        guess=guess,
    )
    return _pieces_of(point, center, _Marks(raised, middle, reduced), fence(_settle, sums, cone))


class _MassSearch(NamedTuple):
    """The carry of `project_cone`."""

    guess: Array
    low: Array
    high: Array
    pieces: ConePieces  # at the last guess
    settled: Array  # [], whether every cone is
    steps: Array  # []


def project_cone(
    point: Array, center: Array, half_radius: Array, mass: Array, max_steps: int = 60
) -> ConePieces:
    """Project onto the cone by Newton's method on the mass, safeguarded by a shrinking bracket.

    The distance to the slice of mass s is convex in s and piecewise quadratic. The sign of
    `pieces.mass - s` therefore tells on which side of s the solution lies, and Newton's method ends
    after finitely many steps.

    Args:
      point: as in `classify`.
      center: as in `classify`.
      half_radius: as in `classify`.
      mass: as in `classify`.
      max_steps: more than is ever needed; bisection alone would reach rounding within it.

    Returns:
      The pieces at the solution.
    """
    size = jnp.abs(jnp.where(point > ABSENT / 2, point, 0))
    scale = 1 + _reduce((size,), (size,))[1][0]  # at least two
    tiny = 2 * jnp.finfo(point.dtype).eps * scale

    # The loop begins with the evaluation, so that the program contains `classify` only once.
    def step(search: _MassSearch) -> _MassSearch:
        pieces = classify(point, center, half_radius, search.guess)
        settled = jnp.abs(pieces.mass - pieces.mass_guess) <= tiny
        rising = pieces.mass > pieces.mass_guess
        low = jnp.where(rising, pieces.mass_guess, search.low)
        high = jnp.where(rising, search.high, pieces.mass_guess)
        inside = (pieces.mass > low) & (pieces.mass < high)
        halfway = jnp.where(jnp.isfinite(high), (low + high) / 2, 2 * low + 1)
        newton = jnp.where(inside, pieces.mass, halfway)
        guess = jnp.where(settled, pieces.mass_guess, newton)
        return _MassSearch(guess, low, high, pieces, settled.all(), search.steps + 1)

    def unsettled(search: _MassSearch) -> Array:
        return ~search.settled & (search.steps < max_steps)

    nothing, none = jnp.zeros_like(point), jnp.zeros_like(mass)
    start = _MassSearch(
        guess=mass,
        low=jnp.zeros_like(mass),
        high=jnp.full_like(mass, jnp.inf),
        pieces=ConePieces(nothing, nothing, nothing, none, none, none, none),
        settled=jnp.zeros_like(mass, bool).all(),
        steps=jnp.zeros((), jnp.int32),
    )
    return lax.while_loop(unsettled, step, start).pieces
