"""Registers the solver "quick", for `pdgd --import tests.quick_solver`."""

from pdgd_jax.projection import SOLVERS, register_solver
from tests.conftest import QUICK

if "quick" not in SOLVERS:
    register_solver("quick", QUICK)
