"""Plans over sets of transitions, with constraints or without, on the device and in batches."""

from pdgd_jax.planning._bounds import occupancy_bounds
from pdgd_jax.planning._constrained import ConstrainedPlan, first_prices, plan_constrained
from pdgd_jax.planning._evaluate import PolicyEvaluation, evaluate
from pdgd_jax.planning._optimum import Optima, optimum
from pdgd_jax.planning._plan import Plan, best_response, extreme_evaluation

__all__ = [
    "ConstrainedPlan",
    "Optima",
    "Plan",
    "PolicyEvaluation",
    "best_response",
    "evaluate",
    "extreme_evaluation",
    "first_prices",
    "occupancy_bounds",
    "optimum",
    "plan_constrained",
]
