r"""The projection by semismooth Newton on the flow multipliers: exact, and the default.

With one potential $y$ for each state and $(F^\top y)(x, a, x') = y(x) - y(x')$, the dual of the
projection is

$$\min_y f(y) = \tfrac12 \|\Pi_K(v + F^\top y)\|^2 - b^\top y, \qquad
\nabla f = F \, \Pi_K(v + F^\top y) - b,$$

convex, with a piecewise linear gradient, and the projection is $q = \Pi_K(v + F^\top y)$. Two
loops solve it:

1. **Local**: the masses of the cones are unknowns beside $y$, eliminated by a Schur complement.
   Each step fixes the linear pieces at the current $(y, s)$ and solves the linear system of these
   pieces: one classification and one block tridiagonal solve, no line search. It is a Newton method
   on a piecewise linear system, so that it ends exactly once the pieces are right; from a warm
   start that takes a few steps, most of them in single precision if the problem is not small.
2. **Globalised**: exact cone projections, potentials at which something can leave every state, so
   that the Hessian is regular, and steps that are shortened until $f$ decreases. It runs only if
   the first left a lane undone, and begins without potentials, whatever the warm start was. From
   time to time the potentials move into the target, which leaves the projection as it is, so that
   rounding is that of $v + F^\top y$, not of $y$. It converges for targets of up to $10^4$, and
   computes in double precision even if what is projected does not.

Everything is written for a batch, with the lanes as the *last* axis, and `vmap` of a projection is
a larger batch. Hence "every lane is done" is one number, loops stop and branches are skipped for
real, and every elementwise loop of the compiled program runs over contiguous lanes.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap
from jaxtyping import Array

from pdgd_jax.models import Layers
from pdgd_jax.projection._api import ProjectionInfo, ProjectionResult, Solver
from pdgd_jax.projection._cone import (
    ABSENT,
    ConePieces,
    classify,
    positive_part,
    project_cone,
    support_of,
)
from pdgd_jax.projection._confidence import ConfidenceSet
from pdgd_jax.projection._hessian import hessian_of, solve_system
from pdgd_jax.projection._layout import Cones, around, assemble, over_pairs, per_state
from pdgd_jax.projection._problem import (
    Problem,
    entries_last,
    entries_sum,
    feasible_point,
    per_lane,
    point_at,
)
from pdgd_jax.projection._xla import fence

__all__ = ["WarmStart", "solver"]

LOCAL_STEPS = 10
# Steps in single precision come first where a lane has at least so many variables (the program
# then takes some seconds longer to compile), up to the first from below this residual: what it
# leads to is close to exact.
ROUGH_VARIABLES = 1000
ROUGH_RESIDUAL = 1e-3
ROUGH_STEPS = 6
# The globalised loop moves its potentials into the target after so many steps, the first time as
# soon as the residual is so many times the tolerance, where rounding begins to matter.
GLOBAL_STEPS = 25
HAND_OVER = 1000
ROUNDS = 12
# The share of the rounding of target plus potentials that counts as residual: half of it is what a
# sum is off by. More is not asked for, since it only solves for a target that is as little off, and
# the projection moves by no more; what violates the flow the condition of the dual multiplies.
ROUNDING = 1 / 2
# Below this share of the tolerance it is not seen in the flow of the point that is returned.
NEGLIGIBLE = 1 / 64
# The share of the residual that may leave a state because it opened it: that matters little.
OPENED = 0.01

# The share of what a state loses that its potential makes up for in `_predict`: where steps are
# fewest. With all of it less would flow in, too.
RESPONSE = 0.6

# A first, an inner and a last layer; shorter horizons are padded by layers without actions.
MIN_LAYERS = 3

# On a CPU, lanes are processed in groups of about this many variables: a group's arrays fit the
# first caches, and a slow lane delays few others. Elsewhere all at once, as far as memory goes.
VARIABLES_AT_ONCE_CPU = 3200
VARIABLES_AT_ONCE = 2**24


class WarmStart(NamedTuple):
    """What the next projection of a sequence starts from: a solution, and what it was for.

    Attributes:
      potential: `[L, S]`, $y$.
      mass: `[C]`, $q(x, a)$ of every cone (see `layout.py`); 0 where it is not known.
      gain: `[C]`, by how much the mass grows with the target; 0 where it is not known.
      target: `[C]`, the mean target of every cone.
      last: `[S, A]`, the target of the last layer.
    """

    potential: Array
    mass: Array
    gain: Array
    target: Array
    last: Array


class _Guess(NamedTuple):
    """Where the pieces are to be found."""

    potential: Array  # [L, S, B]
    mass: Array  # [C B]


class _Iterate(NamedTuple):
    start: _Guess
    pieces: ConePieces
    last: Array  # [S, A, B], the occupancy of the last layer
    gradient: Array  # F q - b, [L, S, B]
    residual: Array  # [B]
    rounding: Array  # [B], of what the residual is computed from
    iterations: Array  # [B]


class _Found(NamedTuple):
    """What a loop ends with: of the pieces, which are large, what is needed afterwards."""

    start: _Guess
    gain: Array  # [C B]
    value: Array  # [S', C B]
    last: Array
    residual: Array
    rounding: Array
    iterations: Array

    @classmethod
    def of(cls, iterate: _Iterate) -> "_Found":
        pieces = iterate.pieces
        return cls(
            start=_Guess(iterate.start.potential, pieces.mass),
            gain=pieces.gain,
            value=pieces.value,
            last=iterate.last,
            residual=iterate.residual,
            rounding=iterate.rounding,
            iterations=iterate.iterations,
        )

    def within(self, goal: Array) -> Array:
        """The lanes that are done: the residual is small enough, and so is its rounding."""
        return (self.residual <= goal) & (self.rounding <= goal)


def _excess(cones: Cones, mass: Array, value: Array, last: Array) -> Array:
    """$F q - b$ of the masses and entries of the cones and the occupancy of the last layer."""
    outflow = per_state(mass, last)
    source = jnp.zeros_like(outflow[:1]).at[0, 0].set(1)
    entered = jnp.concatenate([source, fence(over_pairs, value, last)])
    return (outflow - entered) * cones.free


def _evaluate(
    cones: Cones,
    start: _Guess,
    iterations: Array,
    exact: bool = False,
) -> _Iterate:
    """The pieces, at a guess of the masses or exact, the flow they violate, and the residual."""
    y = start.potential
    here, ahead = around(y, cones.last.shape[1])
    point = cones.target + here[None] - ahead
    arguments = (point, cones.center, cones.half_radius, start.mass)
    pieces = fence(project_cone if exact else classify, *arguments)
    last = positive_part(cones.last + y[-1][:, None])
    # Rounding leaves the mass and the sum of what has it a little apart.
    value = positive_part(pieces.value) if exact else pieces.value
    gradient = _excess(cones, entries_sum(value) if exact else pieces.mass, value, last)
    moved = jnp.abs(pieces.mass - pieces.mass_guess).reshape(-1, y.shape[-1])
    residual = jnp.maximum(jnp.abs(gradient).max((0, 1)), moved.max(0))
    share = ROUNDING * jnp.finfo(y.dtype).eps
    behind = jnp.where(pieces.rounding > 0, share * jnp.abs(here), 0)
    doubt = ROUNDING / 2 * pieces.rounding + behind
    doubt_last = jnp.where(last > 0, share * jnp.abs(cones.last), 0)
    rounding = jnp.maximum(doubt.reshape(moved.shape).max(0), doubt_last.max((0, 1)))
    return _Iterate(start, pieces, last, gradient, residual, rounding, iterations)


def _newton_point(cones: Cones, iterate: _Iterate, damping: Array) -> _Guess:
    """Where the linear system of the current pieces is solved."""
    pieces, last = iterate.pieces, iterate.last
    change = solve_system(hessian_of(cones, pieces, last, damping), -iterate.gradient)
    here, ahead = around(change, last.shape[1])
    mass = pieces.mass + pieces.gain * (here - entries_sum(pieces.weight * ahead))
    return _Guess(iterate.start.potential + change, mass)


def _select(lanes: Array, new: Any, old: Any) -> Any:
    """`new` in these lanes and `old` in the others, for arrays whose last axis ends in lanes."""

    def pick(x: Array, y: Array) -> Array:
        each = jnp.tile(lanes, x.shape[-1] // lanes.size)
        return jnp.where(per_lane(each, x.ndim), x, y)

    return jax.tree.map(pick, new, old)


def _unevaluated(cones: Cones, start: _Guess, iterations: Array) -> _Iterate:
    """Before the first evaluation: a Newton step from here changes nothing.

    The loops below begin with it and evaluate inside, so that the program, which takes longer to
    compile than to run, holds the evaluation only once.
    """
    nothing = jnp.zeros_like(cones.target)
    none = jnp.zeros_like(cones.half_radius)
    pieces = ConePieces(nothing, nothing, nothing, none, start.mass, start.mass, none)
    endless = jnp.full_like(iterations, jnp.inf, cones.target.dtype)
    last, gradient = jnp.zeros_like(cones.last), jnp.zeros_like(cones.free)
    return _Iterate(start, pieces, last, gradient, endless, endless, iterations)


def _damping(iterate: _Iterate) -> Array:
    return 1e-3 * jnp.minimum(1, iterate.residual)


def _local(cones: Cones, start: _Guess, tolerance: Array) -> _Found:
    """Newton on the pieces from `start`, until every lane is done or out of budget."""

    def running(found: _Found | _Iterate) -> Array:
        return (found.residual > tolerance) & (found.iterations < LOCAL_STEPS)

    def step(carry: tuple[_Guess, _Found]) -> tuple[_Guess, _Found]:
        start, before = carry
        iterate = _evaluate(cones, start, before.iterations + running(before))
        lanes = running(iterate)

        def move() -> _Guess:
            point = _newton_point(cones, iterate, _damping(iterate))
            # A lane that is done keeps its point, and evaluating it again gives the same result.
            return _select(lanes, point, iterate.start)

        start = lax.cond(lanes.any(), move, lambda: iterate.start)
        return start, _Found.of(iterate)

    first = _Found.of(_unevaluated(cones, start, jnp.full_like(tolerance, -1, jnp.int32)))
    return lax.while_loop(lambda carry: running(carry[1]).any(), step, (start, first))[1]


def _opened(problem: Problem, potential: Array, margin: Array) -> Array:
    r"""The potentials, raised in closed states until these are open by the margin.

    A state is closed while every cone of its pairs is at the apex. Little changes of its potential
    then change nothing that leaves it: the Hessian is singular, and a Newton step much too long. As
    $\partial f / \partial y(x)$ is minus what enters, raising the potential does not raise $f$
    until the state opens, and little within the margin. Where every state is open the Hessian is
    regular (but for margins below rounding), since the potentials that it does not see are means of
    those of the next layer, and so zero.
    """

    def open_layer(after: Array, layer: tuple[Array, ...]) -> tuple[Array, Array]:
        target, center, half_radius, conserved, own = layer
        usable = (target > ABSENT / 2).any(0)
        support = support_of(target - after[:, None, None], center, half_radius)
        opens = per_lane(margin, 2) - jnp.where(usable, support, ABSENT).max(1)
        own = jnp.where((conserved > 0) & (own < opens), opens, own)
        return own, own

    by_layer = (x.swapaxes(0, 1) for x in (problem.target, problem.center))
    layers = (*by_layer, problem.half_radius, problem.conserved, potential)
    return lax.scan(open_layer, jnp.zeros_like(potential[0]), layers, reverse=True)[1]


def _globalised(
    problem: Problem, start: _Guess, tolerance: Array, lanes: Array, iterations: Array
) -> _Found:
    """Newton on the dual with open states and exact cones, in these lanes.

    Each step begins at `start` or where the last one ended, and is shortened until it descends; or
    until it halves the least residual so far, which is seen where rounding hides the descent, and
    cannot happen without end; or until it is too short to matter.
    """
    cones = Cones.of(problem)
    share = OPENED / cones.last[..., 0].size  # the actions of a state times their next states

    def dual(iterate: _Iterate) -> Array:
        square = (iterate.pieces.occupancy**2).sum(0).reshape(-1, tolerance.size).sum(0)
        square += (iterate.last**2).sum((0, 1))
        return square / 2 - iterate.start.potential[0, 0]

    def running(iterate: _Iterate) -> Array:
        steps = iterate.iterations - iterations
        return lanes & (iterate.residual > tolerance) & (steps < GLOBAL_STEPS)

    def step(carry: tuple[_Iterate, Array, Array, Array]) -> tuple[_Iterate, Array, Array, Array]:
        iterate, value, least, length = carry
        moving = running(iterate)
        full = _newton_point(cones, iterate, _damping(iterate)).potential
        change = per_lane(length, 3) * (full - iterate.start.potential)
        slope = (iterate.gradient * change).sum((0, 1))
        point = _Guess(iterate.start.potential + change, iterate.pieces.mass)
        opened = _opened(problem, point.potential, share * jnp.minimum(1, iterate.residual))
        moved = _select(moving, point._replace(potential=opened), iterate.start)
        trial = _evaluate(cones, moved, iterate.iterations + moving, exact=True)
        trial_value = dual(trial)
        rise = trial_value - value
        # What rounding may add to the dual. Below it no descent can be seen, but whether the slope
        # has fallen to half, as it does only near or before the lowest point.
        rounding = 4 * jnp.finfo(value.dtype).eps * (1 + jnp.abs(value))
        flatter = (trial.gradient * change).sum((0, 1)) <= -slope / 2
        accept = (
            (rise <= 1e-4 * slope - rounding)
            | ((rise <= rounding) & flatter)
            | (trial.residual <= least / 2)
            | (length < 1e-10)
        )
        # The minimiser of the parabola through what is known, safeguarded.
        shorter = length * jnp.clip(-slope / (2 * (rise - slope)), 0.05, 0.5)
        kept = _select(accept | ~moving, trial, iterate._replace(iterations=trial.iterations))
        value = jnp.where(accept, trial_value, value)
        least = jnp.where(trial.residual < least, trial.residual, least)
        return kept, value, least, jnp.where(accept, 1, shorter)

    first = _unevaluated(cones, start, iterations)
    value = jnp.full_like(tolerance, jnp.inf)  # so that the first evaluation is a descent
    carry = first, value, first.residual, jnp.ones_like(tolerance)
    return _Found.of(lax.while_loop(lambda carry: running(carry[0]).any(), step, carry)[0])


def _prepare(*arrays: Array) -> tuple[Problem, Cones, WarmStart, Array]:
    """The problem in both shapes, where to start, and the residual to reach."""
    problem = Problem.of(*arrays[:5])
    potential, mass, gain, target, last, tolerance = arrays[5:]
    before = WarmStart(
        potential=potential * problem.conserved,
        mass=mass.reshape(-1),
        gain=gain.reshape(-1),
        target=target.reshape(-1),
        last=last,
    )
    goal = jnp.minimum(tolerance, 1)  # more than all the mass would ask for nothing
    return problem, Cones.of(problem), before, jnp.where(problem.sound, goal, jnp.inf)


def _mean_target(cones: Cones) -> Array:
    """The mean target of every cone, `[C B]`."""
    present = cones.target > ABSENT / 2
    ones = jnp.ones_like(cones.target)  # of the target's type, whatever the default one is
    total, count = (entries_sum(jnp.where(present, x, 0)) for x in (cones.target, ones))
    return total / jnp.maximum(count, 1)


def _predict(cones: Cones, before: WarmStart, target: Array) -> _Guess:
    r"""A start for this target from the solution for another, without a system to be solved.

    Near that solution a cone's mass is linear in its target, here in the mean over the entries.
    What a state would send out less than before, its potential makes up for, in part, and all
    states of the layers before it move along by the mean over the flow, which leaves their cones
    as they are.
    """
    y = before.potential
    occupancy = positive_part(before.last + y[-1][:, None])
    on = jnp.where(occupancy > 0, jnp.ones_like(occupancy), 0)
    less = before.gain * (before.target - target)
    own = per_state(before.gain, on)
    moves = jnp.where(own > 0, cones.free, 0)
    share = RESPONSE * moves / jnp.where(own > 0, own, 1)
    change = share * per_state(less, on * (before.last - cones.last))
    mean = (per_state(before.mass, occupancy) * change).sum(1)  # [L, B]
    along = lax.cumsum(mean, reverse=True) - mean
    mass = before.mass - less + before.gain * around(change, cones.last.shape[1])[0]
    guess = _Guess(
        potential=y + change + moves * along[:, None],
        mass=jnp.where(mass > 0, mass, before.mass),
    )
    return jax.tree.map(lambda x: jnp.where(jnp.isfinite(x), x, 0), guess)


def _cast(tree: Any, dtype: Any) -> Any:
    """The same with its floating point numbers in another precision."""

    def cast(x: Array) -> Array:
        return x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x

    return jax.tree.map(cast, tree)


def _single(tree: Any) -> Any:
    return _cast(tree, jnp.float32)


def _roughly(cones: Cones, start: _Guess) -> tuple[_Guess, Array]:
    """Local steps in single precision, which take 0.6 of the time, and how many.

    The last of them begins near the solution, or the budget ends. A lane in which single precision
    overflows keeps its start.
    """
    each = start.potential[0, 0]  # [B]
    none = jnp.zeros_like(each, jnp.int32)
    if each.dtype != jnp.float64 or cones.target.size < ROUGH_VARIABLES * each.size:
        return start, none
    cones = fence(_single, cones)

    def running(carry: tuple[_Guess, Array, Array]) -> Array:
        _, residual, iterations = carry
        return (residual > ROUGH_RESIDUAL) & (iterations < ROUGH_STEPS)

    def step(carry: tuple[_Guess, Array, Array]) -> tuple[_Guess, Array, Array]:
        guess, residual, iterations = carry
        lanes = running(carry)
        iterate = _evaluate(cones, guess, iterations)
        point = _newton_point(cones, iterate, _damping(iterate))
        residual = jnp.where(lanes, iterate.residual, residual)
        return _select(lanes, point, guess), residual, iterations + lanes

    carry = _single(start), jnp.full_like(each, jnp.inf, jnp.float32), none
    guess, _, iterations = lax.while_loop(lambda x: running(x).any(), step, carry)
    finite = jnp.isfinite(guess.potential.sum((0, 1)))
    return _select(finite, _cast(guess, jnp.float64), start), iterations


def _from_anywhere(problem: Problem, goal: Array, local: _Found, lanes: Array) -> _Found:
    r"""Globalised steps in these lanes, whatever the local ones began with; others mean nothing.

    Every round but the first begins where the last one ended, with its potentials moved into the
    target: adding $F^\top y$ to it does not change the projection, as $F q = b$ is given. What is
    left of potentials and dual is small, and so is its rounding.
    """

    def undone(carry: tuple[_Found, Array, Array]) -> Array:
        found, _, rounds = carry
        return ~(found.within(goal) | ~lanes).all() & (rounds < ROUNDS)

    def solve_round(carry: tuple[_Found, Array, Array]) -> tuple[_Found, Array, Array]:
        before, base, rounds = carry
        base = base + before.start.potential
        shifted = problem._replace(target=point_at(problem, base))
        start = before.start._replace(potential=jnp.zeros_like(base))
        loose = jnp.where(rounds == 0, HAND_OVER * goal, goal)
        moving = lanes & ~((rounds > 1) & before.within(goal))
        found = _globalised(shifted, start, loose, moving, before.iterations)
        return _select(moving, found, before), base, rounds + 1

    cold = jax.tree.map(jnp.zeros_like, local.start)
    endless = jnp.full_like(goal, jnp.inf)
    first = local._replace(start=cold, residual=endless, rounding=endless)
    base = jnp.zeros_like(cold.potential)
    found, base, _ = lax.while_loop(undone, solve_round, (first, base, jnp.zeros((), jnp.int32)))
    potential = base + found.start.potential
    return found._replace(start=found.start._replace(potential=potential))


def _measured(cones: Cones, found: _Found) -> _Found:
    """With the flow of what is returned in the residual, not that of the iterate."""
    value = positive_part(found.value)
    excess = _excess(cones, entries_sum(value), value, found.last)
    residual = jnp.maximum(found.residual, jnp.abs(excess).max((0, 1)))
    return found._replace(residual=residual)


def _in_double(problem: Problem, cones: Cones, goal: Array, local: _Found, lanes: Array) -> _Found:
    """`_from_anywhere` in double precision, also for a caller that has not enabled it.

    In single precision its line search is blind long before the end. It is rare enough for an
    accelerator on which double precision is slow.
    """
    if goal.dtype == jnp.float64:
        return _select(lanes, _from_anywhere(problem, goal, local, lanes), local)
    with jax.enable_x64(True):
        wide, wide_goal, wide_local = _cast((problem, goal, local), jnp.float64)
        # Distributions to the rounding of this precision, without which it does not converge.
        total = entries_sum(wide.center)
        wide = wide._replace(center=wide.center / jnp.where(total > 0, total, 1)[None])
        # Rounding what was found to single precision adds to its residual.
        found = _from_anywhere(wide, wide_goal / 10, wide_local, lanes)
    return _select(lanes, _measured(cones, _cast(found, goal.dtype)), local)


def _find(problem: Problem, cones: Cones, start: _Guess, goal: Array) -> _Found:
    """Local and, where these leave lanes undone, globalised steps."""
    local = _local(cones, start, goal)
    sure = (local.residual <= goal) & (local.rounding <= NEGLIGIBLE * goal)
    local = lax.cond(sure.all(), lambda cones, local: local, _measured, cones, local)
    lanes = ~local.within(goal)
    return lax.cond(
        lanes.any(),
        _in_double,
        lambda problem, cones, goal, local, lanes: local,
        *(problem, cones, goal, local, lanes),
    )


# In what follows a batch has its lanes first, as `vmap` gives them.


@jax.jit  # for its cache: `vmap` and the platforms trace it several times
def _project_lanes(
    state_mask: Array,
    action_mask: Array,
    target: Array,
    center: Array,
    radius: Array,
    *start_and_tolerance: Array,
) -> tuple[Array, ...]:
    lanes_last = partial(jnp.moveaxis, source=0, destination=-1)
    arrays = (state_mask, action_mask, target, center, radius, *start_and_tolerance)
    problem, cones, before, goal = fence(_prepare, *map(lanes_last, arrays))
    target_mean = fence(_mean_target, cones)
    start, rough_steps = _roughly(cones, fence(_predict, cones, before, target_mean))
    found = _find(problem, cones, start, goal)
    converged = found.within(goal)
    occupancy = lax.cond(
        converged.all(),
        lambda q: q,
        lambda q: _select(converged, q, feasible_point(problem, q)),
        assemble(problem, found.value, found.last),
    )
    lanes_first = partial(jnp.moveaxis, source=-1, destination=0)
    return (
        lanes_first(entries_last(jnp.where(per_lane(problem.sound, 5), occupancy, jnp.nan))),
        lanes_first(found.start.potential),
        *(
            lanes_first(x.reshape(-1, goal.size))
            for x in (found.start.mass, found.gain, target_mean)
        ),
        lanes_first(cones.last),
        jnp.where(problem.sound, jnp.maximum(found.residual, found.rounding), jnp.nan),
        rough_steps + jnp.maximum(found.iterations, 0),  # a lane never evaluated stands at -1
        converged & problem.sound,
    )


def _in_groups(variables_at_once: int, *arguments: Array) -> tuple[Array, ...]:
    num_lanes = arguments[0].shape[0]
    size = max(1, variables_at_once // arguments[2][0].size)
    if num_lanes <= size:
        return _project_lanes(*arguments)
    if size == 1:  # an axis of length 1 in the arrays of all groups would cost a copy of them

        def single(lane: tuple[Array, ...]) -> tuple[Array, ...]:
            return tuple(x[0] for x in _project_lanes(*(x[None] for x in lane)))

        return lax.map(single, arguments)
    num_groups = -(-num_lanes // size)
    size = -(-num_lanes // num_groups)
    spare = num_groups * size - num_lanes  # the last group is filled up with lanes of the first
    groups = [
        jnp.concatenate([x, x[:spare]]).reshape(num_groups, size, *x.shape[1:]) for x in arguments
    ]
    results = lax.map(lambda group: _project_lanes(*group), groups)
    return tuple(x.reshape(-1, *x.shape[2:])[:num_lanes] for x in results)


@custom_vmap
def _project_batch(*arguments: Array) -> tuple[Array, ...]:
    return lax.platform_dependent(
        *arguments,
        cpu=partial(_in_groups, VARIABLES_AT_ONCE_CPU),
        default=partial(_in_groups, VARIABLES_AT_ONCE),
    )


@_project_batch.def_vmap
def _merge_batches(axis_size: int, in_batched: Any, *arguments: Array) -> Any:
    """`vmap` of a batch is a larger batch."""
    widened = [
        x if batched else jnp.broadcast_to(x, (axis_size, *x.shape))
        for x, batched in zip(arguments, in_batched, strict=True)
    ]
    merged = _project_batch(*(x.reshape(-1, *x.shape[2:]) for x in widened))
    return tuple(x.reshape(axis_size, -1, *x.shape[1:]) for x in merged), (True,) * len(merged)


def init(layers: Layers, dtype: Any) -> WarmStart:
    """No potential, and masses and pieces that are not known."""
    L, S, A = layers.shape
    num_cones = A + (max(L, MIN_LAYERS) - 2) * S * A
    shapes = (L, S), (num_cones,), (num_cones,), (num_cones,), (S, A)
    return WarmStart(*(jnp.zeros(shape, dtype) for shape in shapes))


def solve(
    layers: Layers, target: Array, confidence: ConfidenceSet, warm_start: Any, tolerance: Any
) -> ProjectionResult:
    """Project one target; under `vmap`, all lanes together."""
    L, S, A = layers.shape
    if L < MIN_LAYERS:
        target, center, radius, potential = (
            jnp.pad(x, [(0, MIN_LAYERS - L)] + [(0, 0)] * (x.ndim - 1))
            for x in (target, confidence.center, confidence.radius, warm_start.potential)
        )
        result = solve(
            layers.pad_to((MIN_LAYERS, S, A)),
            target,
            ConfidenceSet(center, radius),
            warm_start._replace(potential=potential),
            tolerance,
        )
        potential = result.warm_start.potential[:L]
        return result._replace(
            occupancy=result.occupancy[:L],
            warm_start=result.warm_start._replace(potential=potential),
        )
    arguments = (
        layers.state_mask,
        layers.action_mask,
        target,
        confidence.center,
        confidence.radius,
        *warm_start,
        jnp.asarray(tolerance, target.dtype),
    )
    result = _project_batch(*(x[None] for x in arguments))
    occupancy, *start, residual, iterations, converged = (x[0] for x in result)
    info = ProjectionInfo(residual, iterations, converged)
    return ProjectionResult(occupancy, WarmStart(*start), info)


# The square of the distance to the projection is at most the residual times how far the potentials
# are off, which in states that hardly anything enters may be much: 1e-6 keeps it below 1e-3.
solver = Solver(init, solve, tolerance=(1e-6, 1e-9))
