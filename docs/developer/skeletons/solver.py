r"""A solver of the projection to copy: gradient descent on the dual.

$y \leftarrow y - \gamma\,(F q - b)$ with $q = \Pi_K(v + F^\top y)$ and one potential $y$ for each
state; the step $\gamma$ is at most one over the largest eigenvalue of $F F^\top$.
`docs/projection.md` explains the symbols.
"""

import jax.numpy as jnp
from jax import lax

from pdgd_jax import ProjectionInfo, ProjectionResult, register_solver
from pdgd_jax.projection import Solver, project_cone

MAX_STEPS = 2000
ABSENT = -1e30  # the target of an entry that does not exist, as `project_cone` expects it


def init(layers, dtype):
    """The cold start: potentials `[L, S]`; any pytree works that `solve` also returns."""
    num_layers, num_states, _ = layers.shape
    return jnp.zeros((num_layers, num_states), dtype)


def occupancy_at(layers, target, confidence, potential):
    """The projection of v + F'y onto the cones, `[L, S, A, S]`."""
    entered = jnp.concatenate([potential[1:], jnp.zeros_like(potential[:1])])
    point = target + potential[:, :, None, None] - entered[:, None, None, :]
    point = jnp.where(layers.triple_mask, point, ABSENT)
    first = jnp.moveaxis(point, -1, 0)  # a cone's entries come first, [S, L, S, A]
    center = jnp.moveaxis(confidence.center, -1, 0)
    mass = jnp.zeros_like(first[0])
    found = project_cone(first, center, confidence.radius / 2, mass).occupancy
    return jnp.where(layers.triple_mask, jnp.moveaxis(found, 0, -1), 0)


def excess_of(layers, occupancy):
    """F q - b: the outflow of each state minus its inflow, `[L, S]`."""
    entered = occupancy.sum((1, 2))
    source = jnp.zeros_like(entered[:1]).at[0, 0].set(1)
    excess = occupancy.sum((2, 3)) - jnp.concatenate([source, entered[:-1]])
    return jnp.where(layers.decision_mask, excess, 0)


def solve(layers, target, confidence, warm_start, tolerance):
    """Project; the residual is measured on the returned point."""
    _, num_states, num_actions = layers.shape
    step = 1 / (4 * num_states * num_actions)

    def measure(potential):
        excess = excess_of(layers, occupancy_at(layers, target, confidence, potential))
        return excess, jnp.abs(excess).max()

    def unfinished(carry):
        _, _, residual, count = carry
        return (residual > tolerance) & (count < MAX_STEPS)

    def descend(carry):
        potential, excess, _, count = carry
        potential = potential - step * excess
        return potential, *measure(potential), count + 1

    start = warm_start, *measure(warm_start), jnp.zeros((), jnp.int32)
    potential, _, residual, count = lax.while_loop(unfinished, descend, start)
    occupancy = occupancy_at(layers, target, confidence, potential)
    return ProjectionResult(
        occupancy, potential, ProjectionInfo(residual, count, residual <= tolerance)
    )


my_solver = Solver(init, solve, tolerance=(1e-3, 1e-3))  # in float32 and in float64
register_solver("my-solver", my_solver)
