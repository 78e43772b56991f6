"""Optimistic learners with bandit feedback, which estimate transitions, rewards and constraints."""

from pdgd_jax.learners.optimistic._opt_cmdp import opt_cmdp
from pdgd_jax.learners.optimistic._opt_cmdp_bonus import opt_cmdp_bonus
from pdgd_jax.learners.optimistic._opt_dual import opt_dual
from pdgd_jax.learners.optimistic._opt_primal_dual import opt_primal_dual

__all__ = ["opt_cmdp", "opt_cmdp_bonus", "opt_dual", "opt_primal_dual"]
