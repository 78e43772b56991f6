r"""The interface of the projection onto the occupancies of a confidence set.

$$\Pi(v) = \arg\min_q \tfrac12 \|q - v\|_2^2 \quad \text{over} \quad
q \in \Delta(\mathcal P): \; F q = b, \;\; q(x,a,\cdot) \in K(x,a),$$

where $F q = b$ says that flow is conserved in every state and that unit mass leaves $x_0$, and
$K(x,a) = \{q \ge 0 : \sum_{x'} |q(x') - \bar P(x' \mid x,a) s| \le \epsilon(x,a) s, \;
s = \sum_{x'} q(x')\}$. With potentials $y$, one for each state, and
$(F^\top y)(x,a,x') = y(x) - y(x')$, the optimality conditions are $q = \Pi_K(v + F^\top y)$ and
$F q = b$.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, DTypeLike, Float, Int, PyTree

from pdgd_jax._internal.checks import is_positive
from pdgd_jax._internal.memory import spare_bytes
from pdgd_jax._internal.pytree import is_concrete
from pdgd_jax._internal.registry import Registry
from pdgd_jax._internal.typing import Pairs, Triples
from pdgd_jax.models import Layers
from pdgd_jax.projection._confidence import ConfidenceSet
from pdgd_jax.projection._known import KnownTransitions
from pdgd_jax.projection._validity import check_arguments

__all__ = [
    "SOLVERS",
    "ProjectionInfo",
    "ProjectionResult",
    "Solver",
    "cold_start",
    "project",
    "project_batch",
]


class ProjectionInfo(NamedTuple):
    r"""How well a projection was solved.

    Attributes:
      residual: how much the returned point violates the optimality conditions,
        $\max(\|Fq - b\|_\infty, \|q - \Pi_K(v + F^\top y)\|_\infty)$, or the rounding error of
        $v + F^\top y$ if that is larger: it exceeds the tolerance for targets of about $10^6$, in
        single precision of about 100. For "newton" the residual also covers four times the squared
        distance that too low potentials may cause.
      iterations: the number of iterations of the solver.
      converged: whether the residual is within the tolerance. If not, the occupancy is feasible
        but not the projection, or NaN if the input was invalid.
      residual_before_polish: the residual of the solver's point before the polish; None for solvers
        without a polish.
    """

    residual: Float[Array, ""]
    iterations: Int[Array, ""]
    converged: Bool[Array, ""]
    residual_before_polish: Float[Array, ""] | None = None


class ProjectionResult(NamedTuple):
    """The projection.

    Attributes:
      occupancy: `[L, S, A, S]`, or `[L, M]` with successor lists, exactly 0 outside the masks.
      warm_start: a start for the next projection of a similar problem by the same solver.
      info: how well it was solved.
    """

    occupancy: Triples
    warm_start: PyTree
    info: ProjectionInfo


class Solver(NamedTuple):
    """A projection method: two pure functions and a default tolerance.

    Attributes:
      init: `(layers, dtype) -> warm_start`, the cold start.
      solve: `(layers, target, confidence, warm_start, tolerance) -> ProjectionResult`.
      tolerance: the default tolerance in float32 and in float64.
      takes_lists: whether `solve` takes layers with successor lists, and arrays `[L, M]`.
      solve_known: the same with `KnownTransitions` and a target over pairs; None if it cannot.
    """

    init: Callable[[Layers, DTypeLike], PyTree]
    solve: Callable[[Layers, Array, ConfidenceSet, PyTree, ArrayLike], ProjectionResult]
    tolerance: tuple[float, float]
    takes_lists: bool = False
    solve_known: (
        Callable[[Layers, Array, KnownTransitions, PyTree, ArrayLike], ProjectionResult] | None
    ) = None


SOLVERS = Registry[Solver](
    "solver", group="pdgd_jax.solvers", valid=lambda thing: isinstance(thing, Solver)
)
# Imported on first use: all but the first need jaxopt.
SOLVERS.add_lazy("newton", "pdgd_jax.projection.newton:solver")
SOLVERS.add_lazy("osqp", "pdgd_jax.projection.jaxopt:osqp")
SOLVERS.add_lazy("osqp-bare", "pdgd_jax.projection.jaxopt:osqp_bare")
SOLVERS.add_lazy("projected_gradient", "pdgd_jax.projection.jaxopt:projected_gradient")
SOLVERS.add_lazy("projected_gradient-bare", "pdgd_jax.projection.jaxopt:projected_gradient_bare")


def solver_of(solver: str | Solver) -> Solver:
    """Look up a solver by name; a `Solver` is returned as it is."""
    return solver if isinstance(solver, Solver) else SOLVERS.get(solver)


def register_solver(name: str, solver: Solver) -> None:
    """Make a solver available by name: to `project`, learners, the command line, configurations.

    An installed package needs no call: it declares an entry point of the group `pdgd_jax.solvers`.
    """
    SOLVERS.add(name, solver)


def cold_start(layers: Layers, solver: str | Solver = "newton", dtype: DTypeLike = float) -> PyTree:
    """The warm start of a first projection, for the carry of a `lax.scan`."""
    return solver_of(solver).init(layers, jnp.dtype(jnp.result_type(dtype)))


def project(
    layers: Layers,
    target: Triples | Pairs,
    confidence: ConfidenceSet | KnownTransitions,
    *,
    solver: str | Solver = "newton",
    warm_start: PyTree = None,
    tolerance: float | Float[Array, ""] | None = None,
) -> ProjectionResult:
    r"""Project onto the occupancies of a confidence set, $\Pi_{\Delta(\mathcal P)}(v)$.

    With `KnownTransitions` the target and the distance are over pairs, $\sum (q(x,a) - v(x,a))^2$.
    A confidence set of radius 0 has the same occupancies, but another distance, over triples.

    A pure function that works under `jit`, `vmap` and `scan`, in float32 and float64. It has no
    derivative, and raises an error if one is requested.

    Args:
      layers: the states and actions.
      target: `[L, S, A, S]`, or `[L, M]` with successor lists, $v$; `[L, S, A]` if the transitions
        are known. Ignored outside the masks.
      confidence: $\mathcal P$.
      solver: "newton" (exact, the default), "osqp" or "projected_gradient" (jaxopt's solvers with
        a polish; append "-bare" for jaxopt alone), or a `Solver`. Known transitions need "newton".
      warm_start: the warm start of an earlier result on layers of the same shape. It saves time,
        and changes the answer only within the tolerance. NaN in it does no harm.
      tolerance: on every part of the optimality conditions. For "newton" the default is 1e-9 in
        float64 and 1e-6 in float32.

    Returns:
      The projection with its info. `info.converged` is false only if every method failed; the
      occupancy is feasible even then. Invalid input gives NaN.

    Raises:
      ValueError: outside `jit`, if the target is not finite or the center is not a distribution;
        the error names the place. Always, if shapes disagree, the solver is unknown, or the warm
        start does not belong to this solver and these layers.

    Example:
      >>> import jax
      >>> import jax.numpy as jnp
      >>> from pdgd_jax import ConfidenceSet, make, occupancy_of, project
      >>> mdp = make("random").mdp
      >>> q = occupancy_of(mdp, mdp.layers.uniform_policy())
      >>> unsure = ConfidenceSet(mdp.transition, jnp.full(mdp.layers.shape, 0.1))
      >>> result = project(mdp.layers, q - 0.05 * (q > 0), unsure)
      >>> bool(result.info.converged), result.occupancy.sum(axis=(1, 2, 3)).round(4).tolist()
      (True, [1.0, 1.0, 1.0, 1.0])
    """
    method = solver_of(solver)
    if layers.successors is not None and not method.takes_lists:
        raise ValueError(f"the solver {solver!r} does not take layers with successor lists.")
    known = isinstance(confidence, KnownTransitions)
    find = method.solve_known if known else method.solve
    if find is None:
        raise ValueError(f"the solver {solver!r} does not take known transitions.")
    target = jnp.asarray(target)
    check_arguments(layers, target, confidence, over_pairs=known)
    dtype = target.dtype
    if warm_start is None:
        warm_start = method.init(layers, dtype)
    else:
        _check_start(method, layers, dtype, warm_start)
    if tolerance is None:
        tolerance = method.tolerance[int(dtype == jnp.float64)]
    elif is_concrete(tolerance) and not is_positive(tolerance):
        raise ValueError(f"the tolerance must be positive and finite; it is {tolerance}.")

    @jax.custom_jvp
    def solve(
        layers: Layers, target: Array, confidence: PyTree, warm_start: PyTree
    ) -> ProjectionResult:
        return find(layers, target, confidence, warm_start, tolerance)

    solve.defjvp(_no_derivative)

    def in_dtype(x: Array) -> Array:
        return x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x

    confidence, warm_start = jax.tree.map(in_dtype, (confidence, warm_start))
    return solve(layers, target, confidence, warm_start)


class _Lane(NamedTuple):
    """The arguments that `project_batch` maps over; None if shared by all lanes, or absent."""

    layers: Layers | None
    target: Array
    confidence: ConfidenceSet | KnownTransitions | None
    warm_start: Any


def project_batch(
    layers: Layers,
    target: Float[Array, "batch layers states actions states"]
    | Float[Array, "batch layers triples"]
    | Float[Array, "batch layers states actions"],
    confidence: ConfidenceSet | KnownTransitions,
    *,
    solver: str | Solver = "newton",
    warm_start: PyTree = None,
    tolerance: float | Float[Array, ""] | None = None,
    max_bytes: int | None = None,
) -> ProjectionResult:
    """`project` for many lanes, as many at a time as fit in memory.

    Args:
      layers: shared, or with a leading axis for the lanes.
      target: `[B, L, S, A, S]`, or `[B, L, M]` with successor lists; `[B, L, S, A]` if the
        transitions are known.
      confidence: shared, or with a leading axis, as of `jax.vmap(KnownTransitions)(transitions)`.
      solver: as in `project`.
      warm_start: with a leading axis.
      tolerance: as in `project`.
      max_bytes: a limit on the working memory; by default a quarter of the device's memory, or
        1 GiB if that is unknown.

    Returns:
      The results, with a leading axis.
    """
    method = solver_of(solver)
    num_lanes = target.shape[0]
    lanes = _Lane(
        layers=layers if layers.action_mask.ndim == 4 else None,
        target=target,
        confidence=None if _is_shared(layers, confidence) else confidence,
        warm_start=warm_start,
    )

    def one(lane: _Lane) -> ProjectionResult:
        return project(
            layers if lane.layers is None else lane.layers,
            lane.target,
            confidence if lane.confidence is None else lane.confidence,
            solver=method,
            warm_start=lane.warm_start,
            tolerance=tolerance,
        )

    working = _ARRAYS_PER_LANE * target[0].size * target.dtype.itemsize
    size = max(1, (max_bytes or spare_bytes()) // working)
    if size >= num_lanes:
        result: ProjectionResult = jax.vmap(one)(lanes)
        return result
    return _in_batches(one, lanes, int(size))


def _is_shared(layers: Layers, confidence: ConfidenceSet | KnownTransitions) -> bool:
    """Whether all lanes have the same set."""
    if isinstance(confidence, KnownTransitions):
        return confidence.transition.ndim == (4 if layers.successors is None else 2)
    return confidence.radius.ndim == 3


def _in_batches(
    one: Callable[[_Lane], ProjectionResult], lanes: _Lane, size: int
) -> ProjectionResult:
    """`lax.map` in batches, which cannot join those of an array without entries."""
    like = jax.eval_shape(one, jax.tree.map(lambda x: x[0], lanes))

    def filled(lane: _Lane) -> list[Array]:
        return [x for x in jax.tree.leaves(one(lane)) if x.size]

    found = iter(jax.lax.map(filled, lanes, batch_size=size))
    num_lanes = len(lanes.target)
    result: ProjectionResult = jax.tree.map(
        lambda x: next(found) if x.size else jnp.zeros((num_lanes, *x.shape), x.dtype), like
    )
    return result


# How many arrays of the size of an occupancy a solver holds at once; a generous estimate.
_ARRAYS_PER_LANE = 32


def _no_derivative(primals: PyTree, tangents: PyTree) -> NoReturn:
    raise NotImplementedError(
        "project has no derivative: it is not differentiable where the active pieces change. "
        "Wrap its arguments in jax.lax.stop_gradient if it is a constant to you."
    )


def _check_start(method: Solver, layers: Layers, dtype: DTypeLike, warm_start: PyTree) -> None:
    def shapes(tree: PyTree) -> PyTree:
        return jax.tree.map(jnp.shape, tree)

    if shapes(warm_start) != shapes(jax.eval_shape(lambda: method.init(layers, dtype))):
        raise ValueError(
            "the warm start does not fit; it must be that of an earlier projection by the same "
            "solver on layers of the same shape, or a cold_start."
        )
