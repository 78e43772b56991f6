"""Registers the solver "quick", for `pdgd --import tests.quick_solver`."""

from pdgd_jax.projection import register_solver
from tests.quick import QUICK

register_solver("quick", QUICK)
