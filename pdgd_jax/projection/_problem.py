r"""A batch of projections with lanes last, and the mathematics that all solvers share.

Here and in the Newton solver the lanes of a batch are the *last* axis and the next states the
*first*: `[S', L, S, A, B]`, which `_layout.py` flattens further. A CPU vectorises the innermost
axes. Pairs and lanes are long, and the cones, where most of the time goes, never reduce over them.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, PyTree

from pdgd_jax.models import Layers
from pdgd_jax.projection._api import ProjectionInfo, ProjectionResult
from pdgd_jax.projection._cone import ABSENT, project_cone
from pdgd_jax.projection._confidence import ConfidenceSet
from pdgd_jax.projection._validity import LARGEST_TARGET, LOOSE

__all__ = [
    "Problem",
    "conclude",
    "densified",
    "entries_first",
    "entries_last",
    "entries_sum",
    "exact_sum",
    "feasible_point",
    "flow_excess",
    "next_states_sum",
    "outflow_and_inflow",
    "per_lane",
    "point_at",
    "residual_of",
    "select",
    "single_lane",
]

Tree = TypeVar("Tree")

Solve = Callable[[Layers, Array, ConfidenceSet, PyTree, ArrayLike], ProjectionResult]


class Problem(NamedTuple):
    """A batch of valid projections.

    Attributes:
      target: `[S', L, S, A, B]`, `ABSENT` where there is no variable.
      center: `[S', L, S, A, B]`, a distribution up to rounding, 0 where there is no variable.
      half_radius: `[L, S, A, B]`, at most 1.
      conserved: `[L, S, B]`, 1 in the states in which flow is conserved, else 0.
      sound: `[B]`, false if the input of the lane was invalid; such a lane is not solved.
    """

    target: Float[Array, "next layers states actions lanes"]
    center: Float[Array, "next layers states actions lanes"]
    half_radius: Float[Array, "layers states actions lanes"]
    conserved: Float[Array, "layers states lanes"]
    sound: Bool[Array, " lanes"]

    @classmethod
    def of(
        cls,
        state_mask: Array,
        action_mask: Array,
        target: Array,
        center: Array,
        radius: Array,
        support: Array | None = None,
    ) -> "Problem":
        """The problem from the arguments of `project`, with a last axis for the lanes added.

        `support` is true for the triples that can happen; None if all can.
        """
        target, center = entries_first(target), entries_first(center)
        present = action_mask[None] & state_mask[1:].swapaxes(0, 1)[:, :, None, None]
        if support is not None:
            present &= entries_first(support)
        total = next_states_sum(jnp.where(present, center, 0))
        # Entries first: sums over the first axis run over contiguous numbers.
        right = (jnp.abs(target) < LARGEST_TARGET) & (center >= 0)
        wrong = next_states_sum(jnp.where(present & ~right, 1.0, 0.0))
        sensible = (wrong == 0) & (radius >= 0) & (jnp.abs(total - 1) < LOOSE)
        sound = (sensible | ~action_mask).all((0, 1, 2))
        present &= per_lane(sound, 5)
        action_mask &= per_lane(sound, 4)
        return cls(
            target=jnp.where(present, target, ABSENT),
            # In single precision an estimate sums to one only within 1e-7.
            center=jnp.where(present, center / jnp.where(total > 0, total, 1)[None], 0),
            half_radius=jnp.where(action_mask, jnp.minimum(radius / 2, 1), 0),
            conserved=action_mask.any(2).astype(target.dtype),
            sound=sound,
        )

    @property
    def present(self) -> Bool[Array, "next layers states actions lanes"]:
        """True where there is a variable."""
        return self.target > ABSENT / 2


def entries_first(array: Array) -> Array:
    """`[L, S, A, S', B] -> [S', L, S, A, B]`."""
    return jnp.moveaxis(array, 3, 0)


def entries_last(array: Array) -> Array:
    """`[S', L, S, A, B] -> [L, S, A, S', B]`."""
    return jnp.moveaxis(array, 0, 3)


def entries_sum(array: Array) -> Array:
    """Sum over the first axis, which is short, as explicit additions.

    XLA's CPU backend passes a reduction of a few thousand numbers to a library, which takes three
    times as long.
    """
    total: Any = sum(array[i] for i in range(array.shape[0]))
    return total


# Sums over more next states are reductions: the program would grow with them.
WRITTEN_OUT = 32


def next_states_sum(array: Array) -> Array:
    """Sum over the first axis if it has the next states, which may be many."""
    return entries_sum(array) if len(array) <= WRITTEN_OUT else array.sum(0)


def per_lane(lanes: Array, rank: int) -> Array:
    """One number per lane, shaped to broadcast against an array of the given rank."""
    return lanes.reshape((1,) * (rank - 1) + (-1,))


def select(lanes: Array, new: Tree, old: Tree) -> Tree:
    """`new` in these lanes and `old` in the others; the last axis of an array ends in lanes."""

    def pick(x: Array, y: Array) -> Array:
        each = jnp.tile(lanes, x.shape[-1] // lanes.size)
        return jnp.where(per_lane(each, x.ndim), x, y)

    return jax.tree.map(pick, new, old)


def following(
    potential: Float[Array, "layers states lanes"],
) -> Float[Array, "layers states lanes"]:
    """The potentials of the next layer; the last layer's are zero."""
    return jnp.concatenate([potential[1:], jnp.zeros_like(potential[:1])])


def point_at(problem: Problem, potential: Float[Array, "layers states lanes"]) -> Array:
    r"""$v + F^\top y$; its cone projection is the occupancy that belongs to the potentials."""
    ahead = following(potential).swapaxes(0, 1)[:, :, None, None]
    difference, small = exact_sum(potential[None, :, :, None], -ahead)
    point, smaller = exact_sum(problem.target, difference)
    return point + (small + smaller)


def exact_sum(x: Array, y: Array) -> tuple[Array, Array]:
    """The rounded sum and its rounding error (Knuth's TwoSum)."""
    total = x + y
    of_y = total - x
    return total, (x - (total - of_y)) + (y - of_y)


def flow_excess(
    problem: Problem, outflow: Array, inflow: Array
) -> Float[Array, "layers states lanes"]:
    r"""$F q - b$, from the outflow of each state and the inflow of each state of the next layer."""
    source = jnp.zeros_like(outflow).at[0, 0].set(1)
    entered = jnp.concatenate([jnp.zeros_like(inflow[:1]), inflow[:-1]])
    return (outflow - entered - source) * problem.conserved


def outflow_and_inflow(occupancy: Array) -> tuple[Array, Array]:
    """The outflow of each state and the inflow of each next state, `[L, S, B]` each."""
    return occupancy.sum((0, 3)), occupancy.sum((2, 3)).swapaxes(0, 1)


def feasible_point(problem: Problem, occupancy: Array) -> Array:
    """A feasible occupancy near an infeasible one.

    It is induced by the policy of the given occupancy and by its transitions, moved towards the
    center until they lie in the confidence set.
    """
    occupancy, center = entries_last(occupancy), entries_last(problem.center)
    mass = occupancy.sum(-2)
    has_mass = mass[..., None, :] > 0
    transition = jnp.where(has_mass, occupancy / jnp.where(has_mass, mass[..., None, :], 1), center)
    away = transition - center
    distance = jnp.abs(away).sum(-2)
    allowed = 2 * problem.half_radius
    share = jnp.where(distance > allowed, allowed / jnp.where(distance > 0, distance, 1), 1)
    transition = center + share[..., None, :] * away
    usable = problem.present.any(0).astype(occupancy.dtype)
    uniform = usable / jnp.maximum(usable.sum(2, keepdims=True), 1)
    total = mass.sum(2, keepdims=True)
    policy = jnp.where(total > 0, mass / jnp.where(total > 0, total, 1), uniform)

    def forward(state: Array, layer: tuple[Array, Array]) -> tuple[Array, Array]:
        layer_policy, layer_transition = layer
        layer_occupancy = (state[:, None] * layer_policy)[:, :, None] * layer_transition
        return layer_occupancy.sum((0, 1)), layer_occupancy

    first = jnp.zeros_like(mass[0, :, 0]).at[0].set(1)
    return entries_first(jax.lax.scan(forward, first, (policy, transition))[1])


def densified(solve: Solve) -> Solve:
    """A `Solver.solve` for successor lists, of one whose arrays are dense.

    It is given the layers with their lists, and must leave triples that cannot happen at 0.
    """
    return partial(_densified, solve)


def _densified(
    solve: Solve,
    layers: Layers,
    target: Array,
    confidence: ConfidenceSet,
    warm_start: PyTree,
    tolerance: ArrayLike,
) -> ProjectionResult:
    if layers.successors is None:
        return solve(layers, target, confidence, warm_start, tolerance)
    dense = ConfidenceSet(layers.to_dense(confidence.center), confidence.radius)
    result = solve(layers, layers.to_dense(target), dense, warm_start, tolerance)
    return result._replace(occupancy=layers.from_dense(result.occupancy))


def single_lane(layers: Layers, target: Array, confidence: ConfidenceSet) -> Problem:
    """One projection as a batch of one."""
    arrays = [layers.state_mask, layers.action_mask, target, confidence.center, confidence.radius]
    if layers.successors is not None:
        arrays.append(layers.to_dense(layers.triple_mask))
    return Problem.of(*(array[..., None] for array in arrays))


def residual_of(problem: Problem, occupancy: Array, potential: Array) -> Array:
    """How much an occupancy and potentials of one lane violate the optimality conditions."""
    excess = flow_excess(problem, *outflow_and_inflow(occupancy))
    point = point_at(problem, potential)
    nearest = project_cone(point, problem.center, problem.half_radius, occupancy.sum(0)).occupancy
    return jnp.maximum(jnp.abs(excess).max(), jnp.abs(occupancy - nearest).max())


def conclude(
    problem: Problem,
    occupancy: Array,
    potential: Array,
    warm_start: PyTree,
    iterations: ArrayLike,
    tolerance: ArrayLike,
) -> ProjectionResult:
    """The result of a solver that found an occupancy and potentials, for a single lane.

    The residual is measured here on the returned point, independently of the solver.
    """
    occupancy = jnp.where(problem.present, jnp.maximum(occupancy, 0), 0)
    residual = residual_of(problem, occupancy, potential * problem.conserved)
    converged = (residual <= tolerance) & problem.sound[0]
    occupancy = jnp.where(converged, occupancy, feasible_point(problem, occupancy))
    info = ProjectionInfo(
        jnp.where(problem.sound[0], residual, jnp.nan),
        jnp.asarray(iterations, jnp.int32),
        converged,
    )
    return ProjectionResult(
        jnp.where(problem.sound[0], entries_last(occupancy)[..., 0], jnp.nan), warm_start, info
    )
