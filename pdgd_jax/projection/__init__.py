"""The projection on the occupancies of a confidence set: one interface, several solvers."""

from pdgd_jax.projection.base import (
    SOLVERS,
    ProjectionInfo,
    ProjectionResult,
    Solver,
    cold_start,
    project,
    project_batch,
    register_solver,
)

__all__ = [
    "SOLVERS",
    "ProjectionInfo",
    "ProjectionResult",
    "Solver",
    "cold_start",
    "project",
    "project_batch",
    "register_solver",
]
