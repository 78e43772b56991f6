"""Not a projection, but one that compiles in a moment: for tests of what is around it."""

import jax.numpy as jnp

from pdgd_jax import LayeredMDP, ProjectionInfo, ProjectionResult, occupancy_of, policy_of
from pdgd_jax.projection import Solver


def _nearby(layers, target, confidence, warm_start, tolerance):
    """A feasible occupancy: the policy of the target, pushed through the center."""
    policy = policy_of(jnp.where(layers.triple_mask, jnp.maximum(target, 0), 0), layers)
    occupancy = occupancy_of(LayeredMDP(layers, confidence.center), policy)
    info = ProjectionInfo(jnp.zeros((), target.dtype), jnp.ones((), jnp.int32), jnp.ones((), bool))
    return ProjectionResult(occupancy, warm_start, info)


QUICK = Solver(init=lambda layers, dtype: (), solve=_nearby, tolerance=(0.0, 0.0), takes_lists=True)
