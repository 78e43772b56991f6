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

Arrays are entries-first, `[S, ...]`: see `_entries`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from pdgd_jax.projection._cone_mass import (
    OPEN,
    TIGHT,
    Common,
    Cone,
    Kept,
    Moved,
    PieceSums,
    settle,
)
from pdgd_jax.projection._entries import (
    ABSENT,
    WRITTEN_OUT,
    Entries,
    between,
    larger,
    one_where,
    over_entries,
    positive_part,
    reduce_entries,
    sum_entries,
)
from pdgd_jax.projection._xla import fence

__all__ = [
    "ABSENT",
    "WRITTEN_OUT",
    "ConePieces",
    "Entries",
    "classify",
    "positive_part",
    "project_cone",
    "support_of",
]

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


def _tail(point: Array, center: Array) -> Array:
    r"""$\sum_i p_i \max(u_i, u_j)$ for every entry $j$."""

    def add(sums: tuple[Array], p: Array, u: Array) -> tuple[Array]:
        return (sums[0] + p * larger(u, point),)

    return over_entries(add, (jnp.zeros_like(point),), (center, 0), (point, ABSENT))[0]


def support_of(point: Array, center: Array, half_radius: Array) -> Array:
    r"""The largest $u^\top P$ of the ball, $h \max_j u_j + \min_t \sum_i p_i \max(u_i, t) - h t$.

    It is positive where the projection is not the apex, and grows as much as all of $u$ does.
    """
    least, largest = reduce_entries((), (half_radius[None] * point - _tail(point, center), point))[
        1
    ]
    return half_radius * largest - least


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
            below + between(raised, upper),
            emptied + between(ahead, upper),
        )

    start: tuple[Array, ...] = (jnp.zeros_like(point),) * 3
    above, below, emptied = over_entries(add, start, (point, ABSENT), (middle, 0))
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


class _Marks(NamedTuple):
    """1 on the entries of a piece and 0 on the others, `[S, ...]`, if the cone is tight."""

    raised: Array
    middle: Array
    reduced: Array  # lowered, and still positive


def _pieces_of(point: Array, center: Array, marks: _Marks, common: Common) -> ConePieces:
    """The pieces entry by entry, from what the entries share."""
    each = jax.tree.map(lambda x: x[None], common)
    tight = one_where(each.kind == TIGHT, point)
    upper = tight * marks.raised + one_where((each.kind == OPEN) & (point > 0), point)
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
    totals, extremes = reduce_entries(
        _Totals(positive, one_where(point > 0, point), center * center, center * jnp.abs(point)),
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
    guess = larger(jnp.where(mass > 0, mass, unknown), support - rounding)
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
    raised, middle, reduced = (one_where(piece == x, point) for x in (RAISED, MIDDLE, LOWERED))
    lowered = one_where(piece < MIDDLE, point)
    # Three sums at a time: more do not fit in the registers.
    sums = PieceSums(
        raised=sum_entries(Moved(raised, raised * point, raised * center)),
        lowered=sum_entries(Moved(reduced, reduced * point, lowered * center)),
        middle=sum_entries(Kept(middle * center * point, middle * center * center, excess)),
    )
    cone = Cone(
        positive_count=totals.positive_count,
        positive_mass=totals.positive_mass,
        half_radius=half_radius,
        support=support,
        rounding=rounding,
        guess=guess,
    )
    return _pieces_of(point, center, _Marks(raised, middle, reduced), settle(sums, cone))


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
    scale = 1 + reduce_entries((size,), (size,))[1][0]  # at least two
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
