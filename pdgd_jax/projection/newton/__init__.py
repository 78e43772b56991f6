"""The exact solver: Newton's method on the potentials of states."""

from pdgd_jax.projection.newton._options import NewtonOptions
from pdgd_jax.projection.newton._solver import make_solver, solver
from pdgd_jax.projection.newton._start import WarmStart

__all__ = ["NewtonOptions", "WarmStart", "make_solver", "solver"]
