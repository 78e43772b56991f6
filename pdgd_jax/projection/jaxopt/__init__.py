"""Two solvers of jaxopt, polished or bare. Imported on first use, since they need jaxopt."""

from pdgd_jax.projection.jaxopt._osqp import bare as osqp_bare
from pdgd_jax.projection.jaxopt._osqp import solver as osqp
from pdgd_jax.projection.jaxopt._projected_gradient import bare as projected_gradient_bare
from pdgd_jax.projection.jaxopt._projected_gradient import solver as projected_gradient

__all__ = ["osqp", "osqp_bare", "projected_gradient", "projected_gradient_bare"]
