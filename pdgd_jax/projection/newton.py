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
   start that takes a few steps.
2. **Globalised**: exact cone projections and damped steps, each accepted only if it decreases $f$
   or halves the residual. It always converges, and runs only if the first left a lane undone.

Everything is written for a batch, with the lanes as the *last* axis, and `vmap` of a projection is
a larger batch. Hence "every lane is done" is one number, loops stop and branches are skipped for
real, and every elementwise loop of the compiled program runs over contiguous lanes.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap
from jaxtyping import Array

from pdgd_jax.confidence import ConfidenceSet
from pdgd_jax.layers import Layers
from pdgd_jax.projection.base import ProjectionInfo, ProjectionResult, Solver
from pdgd_jax.projection.cone import (
    ABSENT,
    ConePieces,
    classify,
    fence,
    positive_part,
    project_cone,
)
from pdgd_jax.projection.problem import (
    Problem,
    entries_last,
    feasible_point,
    flow_excess,
    following,
    per_lane,
    point_at,
)

__all__ = ["WarmStart", "solver"]

LOCAL_STEPS = 25
GLOBAL_STEPS = 1000
# Near the solution the globalised loop may crawl where a step of the local one is exact: it hands
# over at this residual, and only in the last round goes all the way itself.
HAND_OVER = 1e-6
ROUNDS = 3

# On a CPU, lanes are processed in groups of about this many variables: a group's arrays fit the
# first caches, and a slow lane delays few others. Elsewhere all at once, as far as memory goes.
VARIABLES_AT_ONCE_CPU = 1600
VARIABLES_AT_ONCE = 2**24


class WarmStart(NamedTuple):
    """What the next projection of a sequence starts from.

    Attributes:
      potential: `[L, S]`, $y$.
      mass: `[L, S, A]`, $q(x, a)$; 0 where it is not known.
    """

    potential: Array
    mass: Array


class _Iterate(NamedTuple):
    start: WarmStart  # lanes last
    pieces: ConePieces
    gradient: Array  # F q - b, [L, S, B]
    residual: Array  # [B]
    iterations: Array  # [B]


class _Found(NamedTuple):
    """What a loop ends with; the pieces, which are large, stay inside it."""

    start: WarmStart
    occupancy: Array  # [S', L, S, A, B]
    residual: Array
    iterations: Array

    @classmethod
    def of(cls, iterate: _Iterate) -> "_Found":
        pieces = iterate.pieces
        start = WarmStart(iterate.start.potential, pieces.mass)
        return cls(start, pieces.occupancy, iterate.residual, iterate.iterations)


def _unrolled_sum(array: Array, axis: int) -> Array:
    """Sum over a short axis, as one elementwise loop over the rest.

    XLA's own reductions are slower at these shapes.
    """
    entries = (lax.index_in_dim(array, i, axis, keepdims=False) for i in range(array.shape[axis]))
    return sum(entries, start=jnp.zeros((), array.dtype))


def _over_pairs(array: Array) -> Array:
    """Sum over states and actions, `[S', L, S, A, B] -> [L, S', B]`."""
    return array.sum((2, 3)).swapaxes(0, 1)


def _evaluate(
    problem: Problem,
    start: WarmStart,
    iterations: Array,
    find_pieces: Callable[..., ConePieces] = classify,
) -> _Iterate:
    """The pieces, the flow they violate, and the residual at a point."""
    point = point_at(problem, start.potential)
    # Flat, so that the compiler sees one long inner loop over the cones of all lanes.
    flat = [x.reshape(point.shape[0], -1) for x in (point, problem.center)]
    flat += [x.reshape(-1) for x in (problem.half_radius, start.mass)]
    pieces = fence(find_pieces, *flat)
    entries, cones = point.shape, start.mass.shape
    pieces = ConePieces(*(x.reshape(entries if x.ndim == 2 else cones) for x in pieces))
    inflow = fence(_over_pairs, pieces.shape + pieces.weight * pieces.mass[None])
    gradient = flow_excess(problem, pieces.mass.sum(2), inflow)
    moved = jnp.abs(pieces.mass - pieces.mass_guess)
    residual = jnp.maximum(jnp.abs(gradient).max((0, 1)), moved.max((0, 1, 2)))
    return _Iterate(start, pieces, gradient, residual, iterations)


class _Hessian(NamedTuple):
    r"""$F J F^\top + d I$, block tridiagonal over the layers."""

    own: Array  # [L, S, B], what a layer's own pairs add to its diagonal
    into: Array  # [L, S, S, B], what a layer's pairs add to the diagonal block of the next layer
    across: Array  # [L, S, S, B], the block between a layer and the next
    free: Array  # [L, S, B], 0 where the potential is fixed


def _into_next_layer(pieces: ConePieces) -> Array:
    r"""$\sum_{x,a} J(x,a)$ without its diagonal part, `[L, S', S', B]`."""
    num_states, num_layers, _, num_actions, num_lanes = pieces.weight.shape
    num_pairs = num_states * num_actions
    if num_lanes == 1 and num_states >= 8:  # three matrix products are then the fastest

        def product(left: Array, right: Array) -> Array:
            shape = (num_states, num_layers, num_pairs)
            return jnp.einsum("ilp,jlp->lij", left.reshape(shape), right.reshape(shape))

        up = positive_part(pieces.block)
        down = pieces.block - up
        weights = product(pieces.weight * pieces.gain[None], pieces.weight)
        return (weights - product(up, up) - product(down, down))[..., None]
    shape = (num_states, num_layers, num_pairs, num_lanes)
    # [L, pairs, S', B]: an outer product over the last but one axis for each pair, written out as
    # one fused loop over contiguous lanes, twice as fast as a batched matrix product.
    weight, block = (
        fence(lambda x: jnp.moveaxis(x.reshape(shape), 0, 2), array)
        for array in (pieces.weight, pieces.block)
    )
    gain = pieces.gain.reshape(num_layers, -1, 1, 1, num_lanes)
    into: Any = sum(
        gain[:, i] * weight[:, i, :, None] * weight[:, i, None]
        - positive_part(block[:, i, :, None] * block[:, i, None])
        for i in range(num_pairs)
    )
    return into


def _hessian(problem: Problem, pieces: ConePieces, damping: Array) -> _Hessian:
    free = problem.conserved
    moving = fence(_over_pairs, jnp.where(pieces.block != 0, jnp.ones_like(pieces.block), 0))
    eye = jnp.eye(moving.shape[1], dtype=moving.dtype)[None, ..., None]
    across = jnp.moveaxis((pieces.weight * pieces.gain[None]).sum(3), 0, 2)
    return _Hessian(
        own=pieces.gain.sum(2) * free + (1 - free) + per_lane(damping, 3),
        into=_into_next_layer(pieces) + eye * moving[:, :, None],
        across=-across * free[:, :, None] * following(free)[:, None],
        free=free,
    )


def _solve(hessian: _Hessian, right: Array) -> Array:
    """Solve the symmetric positive definite system by block elimination along the layers.

    Each block is eliminated by Gauss-Jordan without pivoting, written out over the states so that
    every operation runs over contiguous lanes.
    """
    num_states = right.shape[1]
    is_pivot = jnp.eye(num_states, dtype=bool)[..., None]

    def eliminate(carry: tuple[Array, Array], layer: tuple[_Hessian, Array]) -> Any:
        block, shift = carry
        (own, into, across, free), rhs = layer
        block = block * free[:, None] * free[None] + jnp.where(is_pivot, own[:, None], 0)
        table = jnp.concatenate([block, across, (rhs - shift)[:, None]], 1)  # [S, 2S + 1, B]
        for i in range(num_states):
            pivot_row = (table[i] / table[i, i][None])[None]
            reduced = table - table[:, i, None] * pivot_row
            table = jnp.where(is_pivot[i][:, None], pivot_row, reduced)
        solved = table[:, num_states:]  # block^-1 [across, rhs]
        product: Any = sum(across[i][:, None] * solved[i][None] for i in range(num_states))
        return (into - product[:, :-1], product[:, -1]), solved

    def substitute(after: Array, solved: Array) -> tuple[Array, Array]:
        here = solved[:, -1] - sum(solved[:, i] * after[i][None] for i in range(num_states))
        return here, here

    start = jnp.zeros_like(hessian.into[0]), jnp.zeros_like(right[0])
    _, solved = lax.scan(eliminate, start, (hessian, right))
    return lax.scan(substitute, start[1], solved, reverse=True)[1]


def _newton_point(problem: Problem, iterate: _Iterate, damping: Array) -> WarmStart:
    """Where the linear system of the current pieces is solved."""
    pieces = iterate.pieces
    change = _solve(_hessian(problem, pieces, damping), -iterate.gradient)
    after = following(change).swapaxes(0, 1)[:, :, None, None]
    ahead = _unrolled_sum(pieces.weight * after, 0)
    mass = pieces.mass + pieces.gain * (change[:, :, None] - ahead)
    return WarmStart(iterate.start.potential + change, mass)


def _select(lanes: Array, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda x, y: jnp.where(per_lane(lanes, x.ndim), x, y), new, old)


def _unevaluated(problem: Problem, start: WarmStart, iterations: Array) -> _Iterate:
    """Before the first evaluation: a Newton step from here changes nothing.

    The loops below begin with it and evaluate inside, so that the program, which takes longer to
    compile than to run, holds the evaluation only once.
    """
    nothing = jnp.zeros_like(problem.target)
    none = jnp.zeros_like(problem.half_radius)
    pieces = ConePieces(nothing, nothing, nothing, none, start.mass, start.mass)
    gradient = jnp.zeros_like(problem.conserved)
    residual = jnp.full(iterations.shape, jnp.inf, problem.target.dtype)
    return _Iterate(start, pieces, gradient, residual, iterations)


def _local(problem: Problem, start: WarmStart, tolerance: Array) -> _Iterate:
    """Newton on the pieces from `start`, until every lane is done or out of budget."""

    def running(iterate: _Iterate) -> Array:
        return (iterate.residual > tolerance) & (iterate.iterations < LOCAL_STEPS)

    def step(iterate: _Iterate) -> _Iterate:
        # A lane that is done keeps its point, and evaluating it again gives the same result.
        lanes = running(iterate)
        damping = jnp.minimum(1e-3, 1e-3 * iterate.residual)
        moved = lax.cond(
            (iterate.iterations < 0).all(),
            lambda: iterate.start,
            lambda: _select(lanes, _newton_point(problem, iterate, damping), iterate.start),
        )
        return _evaluate(problem, moved, iterate.iterations + lanes)

    first = _unevaluated(problem, start, jnp.full(tolerance.shape, -1, jnp.int32))
    return lax.while_loop(lambda iterate: jnp.any(running(iterate)), step, first)


def _globalised(problem: Problem, tolerance: Array, found: _Found) -> _Iterate:
    r"""Damped Newton on the dual with exact cones, along a path of growing targets.

    For the lanes that are not done; the others keep their point. Far from the feasible set the
    problem is close to a linear program: the dual is flat but for thin kinks, where any descent
    method crawls. So a lane first solves for a target scaled to size one half, where kinks and
    potentials have the same scale, and the scale doubles, together with the potentials, whenever
    the residual is below 0.1.

    Along the way steps are backtracked until they decrease the dual or halve the residual. The
    damping $0.1 \min(1, \|\nabla f\|)$ bounds the step where the Hessian is singular.
    """
    present = problem.present

    def evaluate(start: WarmStart, iterations: Array, scale: Array) -> _Iterate:
        target = jnp.where(present, problem.target * per_lane(scale, 5), ABSENT)
        return _evaluate(problem._replace(target=target), start, iterations, project_cone)

    def dual(iterate: _Iterate) -> Array:
        square = (iterate.pieces.occupancy**2).sum((0, 1, 2, 3))
        return square / 2 - iterate.start.potential[0, 0]

    def running(iterate: _Iterate, scale: Array) -> Array:
        unsolved = (iterate.residual > tolerance) | (scale < 1)
        return unsolved & (iterate.iterations < LOCAL_STEPS + GLOBAL_STEPS)

    def step(carry: tuple[_Iterate, Array, Array, Array]) -> tuple[_Iterate, Array, Array, Array]:
        iterate, value, length, scale = carry
        lanes = running(iterate, scale)
        grow = (iterate.residual < 0.1) & (scale < 1)
        next_scale = jnp.where(grow, jnp.minimum(2 * scale, 1), scale)
        size = jnp.sqrt((iterate.gradient**2).sum((0, 1)))
        damping = 0.1 * jnp.where(jnp.isinf(iterate.residual), 1, jnp.minimum(1, size))
        full = _newton_point(problem, iterate, damping).potential
        change = full - iterate.start.potential
        slope = length * (iterate.gradient * change).sum((0, 1))
        grown = full * per_lane(next_scale / scale, 3)
        shortened = iterate.start.potential + per_lane(length, 3) * change
        potential = _select(grow, grown, shortened)
        moved = _select(lanes, WarmStart(potential, iterate.pieces.mass), iterate.start)
        trial = evaluate(moved, iterate.iterations + lanes, next_scale)
        trial_value = dual(trial)
        rise = trial_value - value
        accept = (
            grow
            | jnp.isinf(iterate.residual)  # the first evaluation
            | (rise <= 1e-4 * slope)
            | (trial.residual <= iterate.residual / 2)
            | (length < 1e-10)
        )
        # The minimiser of the parabola through what is known, safeguarded.
        shorter = length * jnp.clip(-slope / (2 * (rise - slope)), 0.05, 0.5)
        kept = _select(accept | ~lanes, trial, iterate._replace(iterations=trial.iterations))
        value = jnp.where(accept, trial_value, value)
        return kept, value, jnp.where(accept, 1, shorter), next_scale

    unfinished = ~(found.residual <= tolerance)
    cold = jax.tree.map(jnp.zeros_like, found.start)
    largest = jnp.abs(jnp.where(present, problem.target, 0)).max((0, 1, 2, 3))
    scale = jnp.where(unfinished, jnp.minimum(1, 0.5 / jnp.maximum(largest, 0.5)), 1)
    start = _select(unfinished, cold, found.start)
    first = _unevaluated(problem, start, found.iterations)
    carry = first, jnp.zeros_like(scale), jnp.ones_like(scale), scale
    return lax.while_loop(lambda carry: jnp.any(running(carry[0], carry[3])), step, carry)[0]


# In what follows a batch has its lanes first, as `vmap` gives them.


def _project_lanes(
    state_mask: Array,
    action_mask: Array,
    target: Array,
    center: Array,
    radius: Array,
    potential: Array,
    mass: Array,
    tolerance: Array,
) -> tuple[Array, ...]:
    last = partial(jnp.moveaxis, source=0, destination=-1)
    problem = Problem.of(*map(last, (state_mask, action_mask, target, center, radius)))
    start = WarmStart(last(potential) * problem.conserved, last(mass))
    start = jax.tree.map(lambda x: jnp.where(jnp.isfinite(x), x, 0), start)
    goal = jnp.where(problem.sound, tolerance, jnp.inf)

    def undone(carry: tuple[_Found, Array]) -> Array:
        found, rounds = carry
        return ~(found.residual <= goal).all() & (rounds < ROUNDS)

    def solve_round(carry: tuple[_Found, Array]) -> tuple[_Found, Array]:
        before, rounds = carry
        found = _Found.of(_local(problem, before.start, goal))
        loose = jnp.where(rounds < ROUNDS - 1, jnp.maximum(goal, HAND_OVER), goal)
        found = lax.cond(
            (found.residual <= goal).all(),
            lambda found: found,
            lambda found: _Found.of(_globalised(problem, loose, found)),
            found,
        )
        return found._replace(iterations=before.iterations + found.iterations), rounds + 1

    endless = jnp.full(goal.shape, jnp.inf, goal.dtype)
    none = jnp.zeros(goal.shape, jnp.int32)
    first = _Found(start, jnp.zeros_like(problem.target), endless, none)
    found, _ = lax.while_loop(undone, solve_round, (first, jnp.zeros((), jnp.int32)))
    converged = found.residual <= goal
    occupancy = lax.cond(
        converged.all(),
        lambda q: q,
        lambda q: _select(converged, q, feasible_point(problem, q)),
        found.occupancy,
    )
    lanes_first = partial(jnp.moveaxis, source=-1, destination=0)
    return (
        lanes_first(entries_last(jnp.where(per_lane(problem.sound, 5), occupancy, jnp.nan))),
        lanes_first(found.start.potential),
        lanes_first(found.start.mass),
        jnp.where(problem.sound, found.residual, jnp.nan),
        jnp.maximum(found.iterations, 0),  # a lane that was never evaluated stands at -1
        converged & problem.sound,
    )


def _in_groups(variables_at_once: int, *arguments: Array) -> tuple[Array, ...]:
    num_lanes = arguments[0].shape[0]
    size = max(1, variables_at_once // arguments[2][0].size)
    if num_lanes <= size:
        return _project_lanes(*arguments)
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
    """No potential, and masses that are not known."""
    L, S, A = layers.shape
    return WarmStart(jnp.zeros((L, S), dtype), jnp.zeros((L, S, A), dtype))


def solve(
    layers: Layers, target: Array, confidence: ConfidenceSet, warm_start: Any, tolerance: Any
) -> ProjectionResult:
    """Project one target; under `vmap`, all lanes together."""
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
    occupancy, potential, mass, residual, iterations, converged = (x[0] for x in result)
    info = ProjectionInfo(residual, iterations, converged)
    return ProjectionResult(occupancy, WarmStart(potential, mass), info)


solver = Solver(init, solve, tolerance=(1e-5, 1e-9))
