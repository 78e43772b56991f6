"""A process of a named kind around given means, so that an instance can be had in every setting."""

from typing import Any

import numpy as np
from jaxtyping import ArrayLike, Float

from pdgd_jax.processes._adversarial import Adaptive, Corrupted, Drift, Phases
from pdgd_jax.processes._base import Process, check_values
from pdgd_jax.processes._stochastic import Bernoulli, Beta, ClippedGaussian, Constant, UniformNoise

__all__ = ["KINDS", "around"]

KINDS = (
    "constant", "bernoulli", "beta", "gaussian", "uniform",  # stochastic
    "phases", "drift", "corrupted", "adaptive",  # adversarial
)  # fmt: skip


def around(means: Float[ArrayLike, "..."], kind: str) -> Process:
    """A process of the given kind around `means`.

    The stochastic kinds have these means (a clipped Gaussian nearly). The adversarial kinds move
    every entry by at most half its distance to the nearer bound, against each other for even and
    odd actions, so that the best action changes: "phases" in turns of doubling length, "drift"
    smoothly. "corrupted" draws Bernoulli variables and shows their mirror image in a tenth of the
    episodes; "adaptive" punishes the actions that the policy likes.

    Args:
      means: `[L, S, A]` for a reward, `[m, L, S, A]` for constraints.
      kind: one of `KINDS`.
    """
    if kind not in KINDS:
        raise ValueError(f"unknown kind of process {kind!r}; the kinds are {', '.join(KINDS)}.")
    values, (low, high) = check_values("means", means)
    if kind in _STOCHASTIC:
        return _STOCHASTIC[kind](values)
    host: Any = np.asarray(means)
    if kind == "corrupted":
        return Corrupted(Bernoulli(values), Constant(low + high - host))
    if kind == "adaptive":
        return Adaptive(values, strength=0.3)
    turn = np.where(np.arange(host.shape[-1]) % 2 == 0, 0.5, -0.5)
    swing = turn * np.minimum(host - low, high - host)
    if kind == "phases":
        both: Any = np.stack([host + swing, host - swing])
        return Phases(both, period=100, schedule="doubling")
    return Drift(host, swing)


_STOCHASTIC: dict[str, Any] = {
    "constant": Constant,
    "bernoulli": Bernoulli,
    "beta": Beta,
    "gaussian": ClippedGaussian,
    "uniform": UniformNoise,
}
