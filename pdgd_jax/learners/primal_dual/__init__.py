"""Learners in which a primal player descends over occupancies, most of them against a dual one."""

from pdgd_jax.learners.primal_dual._cold import cold
from pdgd_jax.learners.primal_dual._constants import constant, sizes_of
from pdgd_jax.learners.primal_dual._o_reps import o_reps
from pdgd_jax.learners.primal_dual._pdgd_ops import pdgd_ops
from pdgd_jax.learners.primal_dual._uc_o_gdps import uc_o_gdps
from pdgd_jax.learners.primal_dual._uc_o_reps import uc_o_reps
from pdgd_jax.learners.primal_dual._ucpd import ucpd
from pdgd_jax.learners.primal_dual._unifying import unifying
from pdgd_jax.learners.primal_dual._wei_yu_neely import wei_yu_neely

__all__ = [
    "cold",
    "constant",
    "o_reps",
    "pdgd_ops",
    "sizes_of",
    "uc_o_gdps",
    "uc_o_reps",
    "ucpd",
    "unifying",
    "wei_yu_neely",
]
