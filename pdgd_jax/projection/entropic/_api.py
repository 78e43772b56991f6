"""The interface of the entropic projection."""

from typing import NoReturn

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from pdgd_jax._internal.checks import is_positive
from pdgd_jax._internal.pytree import is_concrete
from pdgd_jax._internal.typing import Triples
from pdgd_jax.models import Layers
from pdgd_jax.projection._box import BoxSet
from pdgd_jax.projection._confidence import ConfidenceSet
from pdgd_jax.projection._known import KnownTransitions
from pdgd_jax.projection._validity import TransitionSet, check_arguments
from pdgd_jax.projection.entropic._batch import EntropicStart, Lanes
from pdgd_jax.projection.entropic._constraints import LinearConstraints
from pdgd_jax.projection.entropic._solver import EntropicResult, solve

__all__ = ["project_entropic"]

# In float32 and float64. The flow of a state is a sum of a few numbers, each with the rounding of
# an exponential of a number of size up to about 20: 2e-6 in float32.
TOLERANCE = (1e-5, 1e-9)


def project_entropic(
    layers: Layers,
    log_target: Triples,
    confidence: TransitionSet,
    *,
    warm_start: EntropicStart | None = None,
    tolerance: float | Float[Array, ""] | None = None,
    constraints: LinearConstraints | None = None,
) -> EntropicResult:
    r"""Project onto the occupancies of a set of transitions, in relative entropy.

    $$\arg\min_q D(q \| u) = \sum q \ln \frac{q}{u} - q + u \quad \text{over} \quad
    q \in \Delta(\mathcal P), \; G^\top q \le c,$$

    the step of mirror descent with $u = \hat q_t e^{-\eta \ell_t}$. Logarithms go in and come out,
    since occupancies of learners become too small for floating point numbers. With potentials $y$,
    one for each state, the dual problem is

    $$\min_y \sum_{x,a} s_{xa}(y) - y(x_0), \qquad
    s_{xa} = \max_{P \in \mathcal P(x,a)} e^{-\mathrm{KL}(P \| u e^{F^\top y})},$$

    smooth and with a cone in closed form for each pair. Newton's method solves it. Constants that
    are added to a layer of $\ln u$ change nothing.

    A pure function that works under `jit`, `vmap` and `scan`, in float32 and float64. It has no
    derivative, and raises an error if one is requested.

    Args:
      layers: the states and actions.
      log_target: `[L, S, A, S]`, or `[L, M]` with successor lists, $\ln u$; minus infinity where
        $u = 0$; ignored outside the masks.
      confidence: $\mathcal P$: a `ConfidenceSet`, a `BoxSet`, or `KnownTransitions`.
      warm_start: that of an earlier result on layers of the same shape, where the target has hardly
        changed. By default the potentials begin at 0, the solution for a target that is feasible.
      tolerance: on the residual; by default 1e-9 in float64 and 1e-5 in float32, or what the
        rounding of the logarithms allows if that is more.
      constraints: $G^\top q \le c$; none by default.

    Returns:
      The projection with its info. The occupancy lies in $\Delta(\mathcal P)$ up to rounding
      relative to the mass of each state, converged or not. Invalid input gives NaN.

    Raises:
      ValueError: outside `jit`, if a number is invalid; the error names the place. Always, if
        shapes disagree.

    Example:
      >>> import jax.numpy as jnp
      >>> from pdgd_jax import ConfidenceSet, make, occupancy_of, project_entropic
      >>> mdp = make("random").mdp
      >>> q = occupancy_of(mdp, mdp.layers.uniform_policy())
      >>> unsure = ConfidenceSet(mdp.transition, jnp.full(mdp.layers.shape, 0.1))
      >>> loss = jnp.arange(3.0)[None, None, :, None]   # the first action is the best
      >>> result = project_entropic(mdp.layers, jnp.log(q) - loss, unsure)
      >>> bool(result.info.converged), result.occupancy.sum(axis=(1, 2, 3)).round(4).tolist()
      (True, [1.0, 1.0, 1.0, 1.0])

    Reference:
      Rosenberg and Mansour (2019), Online Convex Optimization in Adversarial Markov Decision
      Processes, Equation 4. Its dual (5) leaves out that the two multipliers of a triple share
      their sum, and belongs to another set.
    """
    log_target = jnp.asarray(log_target)
    dtype = log_target.dtype
    L, S, A = layers.shape
    if constraints is None:
        constraints = LinearConstraints(jnp.zeros((0, L, S, A), dtype), jnp.zeros(0, dtype))
    if warm_start is None:
        zeros = jnp.zeros((L, S), dtype), jnp.zeros(constraints.bounds.shape, dtype)
        warm_start = EntropicStart(*zeros)
    _check(layers, log_target, confidence, constraints, warm_start)
    if tolerance is None:
        tolerance = TOLERANCE[int(dtype == jnp.float64)]
    elif is_concrete(tolerance) and not is_positive(tolerance):
        raise ValueError(f"the tolerance must be positive and finite; it is {tolerance}.")
    dense, support, target = confidence, None, log_target
    if layers.successors is not None:
        # Successor lists become dense arrays inside, with the triples that can happen as a mask.
        dense = _dense(layers, confidence)
        support, target = layers.to_dense(layers.triple_mask), layers.to_dense(log_target)

    @jax.custom_jvp
    def project(lane: Lanes) -> EntropicResult:
        return solve(lane)

    project.defjvp(_no_derivative)

    def in_dtype(x: Array) -> Array:
        return x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x

    lane = Lanes(
        layers=layers.without_lists(),
        target=target,
        confidence=jax.tree.map(in_dtype, dense),
        constraints=jax.tree.map(in_dtype, constraints),
        warm_start=jax.tree.map(in_dtype, warm_start),
        tolerance=jnp.asarray(tolerance, dtype),
        support=support,
    )
    result: EntropicResult = project(lane)
    if layers.successors is None:
        return result
    return result._replace(
        occupancy=layers.from_dense(result.occupancy),
        log_occupancy=jnp.where(
            layers.triple_mask, layers.from_dense(result.log_occupancy), -jnp.inf
        ),
    )


def _dense(layers: Layers, confidence: TransitionSet) -> TransitionSet:
    if isinstance(confidence, BoxSet):
        return BoxSet(layers.to_dense(confidence.lower), layers.to_dense(confidence.upper))
    if isinstance(confidence, KnownTransitions):
        return KnownTransitions(layers.to_dense(confidence.transition))
    return ConfidenceSet(layers.to_dense(confidence.center), confidence.radius)


def _no_derivative(primals: PyTree, tangents: PyTree) -> NoReturn:
    raise NotImplementedError(
        "project_entropic has no derivative. Wrap its arguments in jax.lax.stop_gradient if it is "
        "a constant to you."
    )


def _check(
    layers: Layers,
    log_target: Array,
    confidence: TransitionSet,
    constraints: LinearConstraints,
    warm_start: EntropicStart,
) -> None:
    costs = constraints.costs
    if costs.shape[1:] != layers.shape:
        wanted = (*costs.shape[:1], *layers.shape)
        raise ValueError(f"the cost must have the shape {wanted}; got {costs.shape}.")
    shapes = layers.shape[:2], constraints.bounds.shape
    if jax.tree.map(jnp.shape, tuple(warm_start)) != shapes:
        raise ValueError(
            "the warm start does not fit; it must be that of an earlier entropic projection on "
            "layers of the same shape, with as many linear constraints."
        )
    check_arguments(layers, log_target, confidence, logarithmic=True)
