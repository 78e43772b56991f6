"""The exact solver: Newton's method on the potentials of states."""

from pdgd_jax.projection.newton._solver import WarmStart, solver

__all__ = ["WarmStart", "solver"]
