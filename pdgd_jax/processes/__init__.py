"""Where rewards and constraints come from: stochastic processes and adversaries."""

from pdgd_jax._pytree import pytree, static
from pdgd_jax.processes.adversarial import Adaptive, Corrupted, Drift, Phases, Table
from pdgd_jax.processes.around import KINDS, around
from pdgd_jax.processes.base import (
    AdversarialProcess,
    Extremes,
    Foresight,
    Process,
    StochasticProcess,
    foresight,
)
from pdgd_jax.processes.stochastic import (
    Bernoulli,
    Beta,
    ClippedGaussian,
    Constant,
    UniformNoise,
)

__all__ = [
    "KINDS",
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
    "UniformNoise",
    "around",
    "foresight",
    "pytree",
    "static",
]
