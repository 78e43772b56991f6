"""Learners that play a primal player against a dual one."""

from pdgd_jax.learners.primal_dual._pdgd_ops import pdgd_ops
from pdgd_jax.learners.primal_dual._uc_o_gdps import uc_o_gdps

__all__ = ["pdgd_ops", "uc_o_gdps"]
