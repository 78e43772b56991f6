"""Offline optima and the feasibility margin, by linear programming on the host.

A run is measured against these numbers. They are exact (HiGHS, float64) and cannot be traced.
"""

from pdgd_jax.oracle._episodes import UnforeseenError, episode_optima, k_benchmark
from pdgd_jax.oracle._programs import Optimum, SlaterMargin, hindsight, optimum, slater_margin

__all__ = [
    "Optimum",
    "SlaterMargin",
    "UnforeseenError",
    "episode_optima",
    "hindsight",
    "k_benchmark",
    "optimum",
    "slater_margin",
]
