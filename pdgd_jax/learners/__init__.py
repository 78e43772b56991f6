"""Learners: PDGD-OPS, its primal player alone, and policies to compare with."""

from pdgd_jax.learners.base import Info, Learner, Rates, Setting
from pdgd_jax.learners.fixed import best_feasible, fixed_policy, most_feasible, uniform
from pdgd_jax.learners.pdgd_ops import pdgd_ops
from pdgd_jax.learners.rates import RATES, rates_of
from pdgd_jax.learners.registry import (
    SETTINGS,
    make_learner,
    register_learner,
    registered_learners,
    settings_of,
)
from pdgd_jax.learners.uc_o_gdps import uc_o_gdps

__all__ = [
    "RATES",
    "SETTINGS",
    "Info",
    "Learner",
    "Rates",
    "Setting",
    "best_feasible",
    "fixed_policy",
    "make_learner",
    "most_feasible",
    "pdgd_ops",
    "rates_of",
    "register_learner",
    "registered_learners",
    "settings_of",
    "uc_o_gdps",
    "uniform",
]
