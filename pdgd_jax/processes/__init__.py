"""Processes that produce rewards and constraints, stochastic or adversarial.

`pytree` and `static` are here for processes of one's own, which are pytrees: the lowest room where
users write classes offers them.
"""

from pdgd_jax._internal.pytree import pytree, static
from pdgd_jax.processes._adversarial import Adaptive, Corrupted, Drift, Phases, Table
from pdgd_jax.processes._base import (
    CONSTRAINT_BOUNDS,
    REWARD_BOUNDS,
    AdversarialProcess,
    Extremes,
    Foresight,
    Process,
    StochasticProcess,
    Timetable,
    check_range,
    foresight,
)
from pdgd_jax.processes._kinds import KINDS, around
from pdgd_jax.processes._stochastic import Bernoulli, Beta, ClippedGaussian, Constant, UniformNoise

__all__ = [
    "CONSTRAINT_BOUNDS",
    "KINDS",
    "REWARD_BOUNDS",
    "Adaptive",
    "AdversarialProcess",
    "Bernoulli",
    "Beta",
    "ClippedGaussian",
    "Constant",
    "Corrupted",
    "Drift",
    "Extremes",
    "Foresight",
    "Phases",
    "Process",
    "StochasticProcess",
    "Table",
    "Timetable",
    "UniformNoise",
    "around",
    "check_range",
    "foresight",
    "pytree",
    "static",
]
