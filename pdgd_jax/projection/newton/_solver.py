r"""The projection by semismooth Newton on the flow multipliers: exact, and the default.

With one potential $y$ for each state and $(F^\top y)(x, a, x') = y(x) - y(x')$, the dual of the
projection is

$$\min_y f(y) = \tfrac12 \|\Pi_K(v + F^\top y)\|^2 - b^\top y, \qquad
\nabla f = F \, \Pi_K(v + F^\top y) - b,$$

convex, with a piecewise linear gradient, and the projection is $q = \Pi_K(v + F^\top y)$. Two
loops solve it:

1. **Local** (`_iteration.py`): the masses of the cones are unknowns beside $y$, eliminated by a
   Schur complement. Each step fixes the linear pieces at the current $(y, s)$ and solves the linear
   system of these pieces: one classification and one block tridiagonal solve, no line search. This
   is Newton's method on a piecewise linear system, so it ends with the exact solution once the
   pieces are right. From a warm start (`_start.py`) that takes a few steps, most of them in single
   precision unless the problem is small. `_acceptance.py` judges the result.
2. **Globalised** (`_fallback.py`): exact cone projections, potentials at which every state has
   outflow, so that the Hessian is regular, and steps that are shortened until $f$ decreases
   (`_linesearch.py`). It runs only if the local loop left a lane unsolved, and ignores the warm
   start. From time to time the potentials move into the target. The projection stays the same, and
   the rounding error becomes that of $v + F^\top y$ instead of $y$. The loop converges for targets
   of up to $10^4$, and computes in double precision even for single precision input.

Everything is written for a batch with the lanes as the *last* axis, and `vmap` of a projection is a
larger batch (`_batching.py`). "Every lane is done" is therefore a single number: loops stop and
branches are skipped, and every elementwise loop of the compiled program runs over contiguous lanes.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, ArrayLike, DTypeLike

from pdgd_jax.models import Layers
from pdgd_jax.projection._api import ProjectionInfo, ProjectionResult, Solver
from pdgd_jax.projection._batching import merging
from pdgd_jax.projection._confidence import ConfidenceSet
from pdgd_jax.projection._known import KnownTransitions
from pdgd_jax.projection._layout import MIN_LAYERS
from pdgd_jax.projection._problem import Problem
from pdgd_jax.projection._xla import fence
from pdgd_jax.projection.newton._acceptance import accepted
from pdgd_jax.projection.newton._dense import DenseProblem
from pdgd_jax.projection.newton._fallback import from_start, in_double
from pdgd_jax.projection.newton._iteration import Found, Guess, local, select
from pdgd_jax.projection.newton._lanes import Lanes, result_types
from pdgd_jax.projection.newton._lists import ListProblem
from pdgd_jax.projection.newton._options import DEFAULT, NewtonOptions
from pdgd_jax.projection.newton._rays import AnyCones, AnyProblem, RayProblem, has_lists
from pdgd_jax.projection.newton._start import WarmStart, init, mean_target, predict, roughly

__all__ = ["make_solver", "solver"]

# The distance to the projection is at most L times the sum of the residuals of all states, and half
# the root of the tolerance if some state has no outflow (`_acceptance.py`): 1e-6 keeps it below
# 1e-3.
TOLERANCE = (1e-6, 1e-9)  # in float32 and float64


class Prepared(NamedTuple):
    """A batch in the form that the loops use."""

    problem: AnyProblem
    cones: AnyCones
    before: WarmStart  # arrays over the cones with the lanes on the same axis, [C B]
    goal: Array  # [B], the residual to reach


def prepare(lanes: Lanes, known: bool = False) -> Prepared:
    """The problem in both layouts, the start, and the residual to reach; lanes last."""
    layers, target, confidence = lanes.layers, lanes.target, lanes.confidence
    problem: AnyProblem
    if layers.successors is None:
        masks = layers.state_mask, layers.action_mask
        ball = confidence.center, confidence.radius
        problem = DenseProblem(Problem.of(*masks, target, *ball, lanes.support))
    else:
        problem = ListProblem.of(layers, target, confidence)
    if known:
        problem = RayProblem(problem)
    cones = problem.cones()
    start = lanes.warm_start
    before = WarmStart(
        potential=start.potential * cones.free,
        mass=start.mass.reshape(-1),
        gain=start.gain.reshape(-1),
        target=start.target.reshape(-1),
        last=start.last,
        change=start.change,
    )
    goal = jnp.minimum(lanes.tolerance, 1)  # the unit mass satisfies any larger tolerance
    return Prepared(
        problem=problem,
        cones=cones,
        before=before,
        goal=jnp.where(problem.sound, goal, jnp.inf),
    )


def _find(
    options: NewtonOptions,
    problem: AnyProblem,
    cones: AnyCones,
    start: Guess,
    change: Array,
    goal: Array,
) -> Found:
    """Steps from the start, then globalised steps from zero in the lanes that are not solved."""
    if has_lists(problem):
        found = from_start(options, problem, goal, start, change)
    else:
        found = local(options, cones, start, goal)
    found = accepted(options, problem, cones, found, goal)
    lanes = ~found.within(goal)
    return lax.cond(
        lanes.any(),
        partial(in_double, options),
        lambda problem, cones, goal, found, lanes: found,
        problem,
        cones,
        goal,
        found,
        lanes,
    )


# Compiled for the cache of its traces: `vmap` would trace it again.
@partial(jax.jit, static_argnames=("options", "known"))
def project_lanes(options: NewtonOptions, known: bool, lanes: Lanes) -> ProjectionResult:
    """Project all lanes; they are the first axis of every argument and result."""
    lanes_last = jax.tree.map(partial(jnp.moveaxis, source=0, destination=-1), lanes)
    problem, cones, before, goal = fence(prepare, lanes_last, known=known)
    target = fence(mean_target, cones, before)
    predicted = fence(predict, cones, before, target, response=options.response)
    if has_lists(problem):
        start, rough_steps = predicted, jnp.zeros_like(goal, jnp.int32)
    else:
        start, rough_steps = roughly(options, cones, predicted)
    found = _find(options, problem, cones, start, before.change, goal)
    converged = found.within(goal)
    occupancy = lax.cond(
        converged.all(),
        lambda q: q,
        lambda q: select(converged, q, problem.feasible(q)),
        problem.assembled(found.value, found.last),
    )
    change = before.change
    if has_lists(problem):
        change = found.start.potential - predicted.potential
    lanes_first = partial(jnp.moveaxis, source=-1, destination=0)

    def of_cones(x: Array) -> Array:
        return lanes_first(x.reshape(-1, goal.size))

    sound = problem.sound
    return ProjectionResult(
        occupancy=lanes_first(problem.returned(occupancy)),
        warm_start=WarmStart(
            potential=lanes_first(found.start.potential),
            mass=of_cones(found.start.mass),
            gain=of_cones(found.gain),
            target=of_cones(target),
            last=lanes_first(cones.last),
            change=lanes_first(change),
        ),
        info=ProjectionInfo(
            residual=jnp.where(sound, jnp.maximum(found.residual, found.rounding), jnp.nan),
            # A lane that was never evaluated has -1.
            iterations=rough_steps + jnp.maximum(found.iterations, 0),
            converged=converged & sound,
        ),
    )


@cache  # one function per options: the cache of `jit` is keyed by the function
def _project_batch(options: NewtonOptions, known: bool) -> Callable[[Lanes], ProjectionResult]:
    return merging(partial(project_lanes, options, known), options, result_types)


def _solve(
    options: NewtonOptions,
    known: bool,
    layers: Layers,
    target: Array,
    confidence: ConfidenceSet,
    warm_start: WarmStart,
    tolerance: ArrayLike,
) -> ProjectionResult:
    """Project one target; under `vmap`, all lanes together."""
    lane = Lanes(layers, target, confidence, warm_start, jnp.asarray(tolerance, target.dtype), None)
    if layers.successors is None or not _fits_densely(options, layers):
        return _solve_lane(options, known, lane)
    dense = lane._replace(
        layers=layers.without_lists(),
        target=layers.to_dense(target),
        confidence=ConfidenceSet(layers.to_dense(confidence.center), confidence.radius),
        support=layers.to_dense(layers.triple_mask),
    )
    result = _solve_lane(options, known, dense)
    return result._replace(occupancy=layers.from_dense(result.occupancy))


def _fits_densely(options: NewtonOptions, layers: Layers) -> bool:
    """Whether layers with lists are solved with dense arrays, which are faster if small."""
    L, S, A = layers.shape
    return options.dense_variables >= L * S * A * S


def _solve_lane(options: NewtonOptions, known: bool, lane: Lanes) -> ProjectionResult:
    """A batch of one lane, with layers without actions at the end if there are too few."""
    L = lane.layers.shape[0]
    few = L < MIN_LAYERS and lane.layers.successors is None
    batch = jax.tree.map(lambda x: x[None], _padded(lane) if few else lane)
    result: ProjectionResult = jax.tree.map(lambda x: x[0], _project_batch(options, known)(batch))
    if not few:
        return result
    potential = result.warm_start.potential[:L]
    return result._replace(
        occupancy=result.occupancy[:L],
        warm_start=result.warm_start._replace(potential=potential),
    )


def _padded(lane: Lanes) -> Lanes:
    L, S, A = lane.layers.shape

    def longer(x: Array) -> Array:
        return jnp.pad(x, [(0, MIN_LAYERS - L)] + [(0, 0)] * (x.ndim - 1))

    return lane._replace(
        layers=lane.layers.pad_to((MIN_LAYERS, S, A)),
        target=longer(lane.target),
        confidence=jax.tree.map(longer, lane.confidence),
        warm_start=lane.warm_start._replace(potential=longer(lane.warm_start.potential)),
        support=None if lane.support is None else longer(lane.support),
    )


def make_solver(options: NewtonOptions = DEFAULT) -> Solver:
    """The Newton solver with other options.

    Equal options give the same solver, so that compiled programs are reused.

    Args:
      options: the options.

    Example:
      >>> from pdgd_jax.projection.newton import NewtonOptions, make_solver, solver
      >>> patient = make_solver(NewtonOptions(local_steps=20))
      >>> patient is make_solver(NewtonOptions(local_steps=20)), make_solver() is solver
      (True, True)
    """
    return _make_solver(options)


@cache
def _make_solver(options: NewtonOptions) -> Solver:
    return Solver(
        init=partial(_cold, options),
        solve=partial(_solve, options, False),
        tolerance=TOLERANCE,
        takes_lists=True,
        solve_known=partial(_solve_known, options),
    )


def _solve_known(
    options: NewtonOptions,
    layers: Layers,
    target: Array,
    known: KnownTransitions,
    warm_start: WarmStart,
    tolerance: ArrayLike,
) -> ProjectionResult:
    """Project a target over pairs, in the distance over pairs."""
    confidence = ConfidenceSet(known.transition, jnp.zeros_like(target))
    triples = jnp.broadcast_to(layers.to_triples(target), layers.triple_shape)
    return _solve(options, True, layers, triples, confidence, warm_start, tolerance)


def _cold(options: NewtonOptions, layers: Layers, dtype: DTypeLike) -> WarmStart:
    return init(layers.without_lists() if _fits_densely(options, layers) else layers, dtype)


solver = make_solver()
