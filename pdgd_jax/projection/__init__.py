"""The projection onto the occupancies of a confidence set: one interface, several solvers."""

from pdgd_jax.projection._api import (
    SOLVERS,
    ProjectionInfo,
    ProjectionResult,
    Solver,
    cold_start,
    project,
    project_batch,
    register_solver,
    solver_of,
)
from pdgd_jax.projection._box import BoxSet
from pdgd_jax.projection._cone import project_cone
from pdgd_jax.projection._confidence import ConfidenceSet, contains
from pdgd_jax.projection._known import KnownTransitions
from pdgd_jax.projection._validity import check_set
from pdgd_jax.projection.entropic import (
    EntropicInfo,
    EntropicResult,
    EntropicStart,
    LinearConstraints,
    project_entropic,
)

__all__ = [
    "SOLVERS",
    "BoxSet",
    "ConfidenceSet",
    "EntropicInfo",
    "EntropicResult",
    "EntropicStart",
    "KnownTransitions",
    "LinearConstraints",
    "ProjectionInfo",
    "ProjectionResult",
    "Solver",
    "check_set",
    "cold_start",
    "contains",
    "project",
    "project_batch",
    "project_cone",
    "project_entropic",
    "register_solver",
    "solver_of",
]
