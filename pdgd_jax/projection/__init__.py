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
from pdgd_jax.projection._cone import project_cone
from pdgd_jax.projection._confidence import ConfidenceSet, contains

__all__ = [
    "SOLVERS",
    "ConfidenceSet",
    "ProjectionInfo",
    "ProjectionResult",
    "Solver",
    "cold_start",
    "contains",
    "project",
    "project_batch",
    "project_cone",
    "register_solver",
    "solver_of",
]
