"""A vectorised JAX simulator of PDGD-OPS, for constrained MDPs with long-term constraints."""

from pdgd_jax import oracle, processes, theory
from pdgd_jax.cmdp import CMDP, Outcome, stack
from pdgd_jax.confidence import ConfidenceSet
from pdgd_jax.instances import make, register, registered
from pdgd_jax.layers import Layers
from pdgd_jax.mdp import LayeredMDP
from pdgd_jax.occupancy import Trajectory, occupancy_of, policy_of, rollout, value_of
from pdgd_jax.projection import (
    ProjectionInfo,
    ProjectionResult,
    cold_start,
    project,
    project_batch,
)
from pdgd_jax.unroll import UnrolledMDP, unroll

__version__ = "0.1.0"

__all__ = [
    "CMDP",
    "ConfidenceSet",
    "LayeredMDP",
    "Layers",
    "Outcome",
    "ProjectionInfo",
    "ProjectionResult",
    "Trajectory",
    "UnrolledMDP",
    "__version__",
    "cold_start",
    "make",
    "occupancy_of",
    "oracle",
    "policy_of",
    "processes",
    "project",
    "project_batch",
    "register",
    "registered",
    "rollout",
    "stack",
    "theory",
    "unroll",
    "value_of",
]
