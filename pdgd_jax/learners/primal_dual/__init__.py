"""Learners in which a primal player plays against a dual player."""

from pdgd_jax.learners.primal_dual._pdgd_ops import pdgd_ops
from pdgd_jax.learners.primal_dual._uc_o_gdps import uc_o_gdps

__all__ = ["pdgd_ops", "uc_o_gdps"]
