"""Learners: PDGD-OPS, its primal player alone, its rivals, and fixed policies as baselines."""

from pdgd_jax.learners._base import Info, Learner, Rates, Setting, check_fits, check_setting
from pdgd_jax.learners._fixed import best_feasible, fixed_policy, most_feasible, uniform
from pdgd_jax.learners._rates import RATES, rates_of
from pdgd_jax.learners._registry import (
    LEARNERS,
    SETTINGS,
    make_learner,
    register_learner,
    registered_learners,
    settings_of,
)
from pdgd_jax.learners.optimistic import opt_cmdp, opt_cmdp_bonus, opt_dual, opt_primal_dual
from pdgd_jax.learners.primal_dual import (
    cold,
    o_reps,
    pdgd_ops,
    uc_o_gdps,
    uc_o_reps,
    ucpd,
    unifying,
    wei_yu_neely,
)

__all__ = [
    "LEARNERS",
    "RATES",
    "SETTINGS",
    "Info",
    "Learner",
    "Rates",
    "Setting",
    "best_feasible",
    "check_fits",
    "check_setting",
    "cold",
    "fixed_policy",
    "make_learner",
    "most_feasible",
    "o_reps",
    "opt_cmdp",
    "opt_cmdp_bonus",
    "opt_dual",
    "opt_primal_dual",
    "pdgd_ops",
    "rates_of",
    "register_learner",
    "registered_learners",
    "settings_of",
    "uc_o_gdps",
    "uc_o_reps",
    "ucpd",
    "uniform",
    "unifying",
    "wei_yu_neely",
]
