"""Processes of a named kind around given means, so that every instance comes in every setting."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike, Float

from pdgd_jax._internal.registry import Registry
from pdgd_jax.processes._adversarial import Adaptive, Corrupted, Drift, Phases
from pdgd_jax.processes._base import Process, check_values
from pdgd_jax.processes._stochastic import Bernoulli, Beta, ClippedGaussian, Constant, UniformNoise

__all__ = ["KINDS", "around"]

# Each kind turns means, a NumPy array, into a process around them.
KINDS = Registry[Callable[[Any], Process]]("kind of process", listing="the kinds are {names}.")


def around(means: Float[ArrayLike, "..."], kind: str) -> Process:
    """A process of the given kind around `means`.

    The stochastic kinds have these means (a clipped Gaussian only approximately). "phases" and
    "drift" move every entry by at most half its distance to the nearer bound, in opposite
    directions for even and odd actions, so that the best action changes: "phases" in turns of
    doubling length, "drift" smoothly. "corrupted" draws Bernoulli variables, and the mirror image
    of the means in a tenth of the episodes. "adaptive" punishes the actions that the policy plays
    most.

    Args:
      means: `[L, S, A]` for a reward, `[m, L, S, A]` for constraints.
      kind: one of `KINDS`.

    Raises:
      ValueError: if the kind is unknown, or a mean is out of range.
    """
    build = KINDS.get(kind)
    check_values("means", means)
    return build(np.asarray(means))


def _phases(means: np.ndarray) -> Process:
    swing = _swing(means)
    both = jnp.asarray(np.stack([means + swing, means - swing]))
    return Phases(both, period=100, schedule="doubling")


def _drift(means: np.ndarray) -> Process:
    return Drift(jnp.asarray(means), jnp.asarray(_swing(means)))


def _corrupted(means: np.ndarray) -> Process:
    _, (low, high) = check_values("means", means)
    return Corrupted(Bernoulli(jnp.asarray(means)), Constant(jnp.asarray(low + high - means)))


def _adaptive(means: np.ndarray) -> Process:
    return Adaptive(jnp.asarray(means), strength=0.3)


def _swing(means: np.ndarray) -> np.ndarray:
    """Half the distance to the nearer bound, upwards for even and downwards for odd actions."""
    _, (low, high) = check_values("means", means)
    turn = np.where(np.arange(means.shape[-1]) % 2 == 0, 0.5, -0.5)
    return turn * np.minimum(means - low, high - means)


# Stochastic.
KINDS.add("constant", Constant)
KINDS.add("bernoulli", Bernoulli)
KINDS.add("beta", Beta)
KINDS.add("gaussian", ClippedGaussian)
KINDS.add("uniform", UniformNoise)
# Adversarial.
KINDS.add("phases", _phases)
KINDS.add("drift", _drift)
KINDS.add("corrupted", _corrupted)
KINDS.add("adaptive", _adaptive)
