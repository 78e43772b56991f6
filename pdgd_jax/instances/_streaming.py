"""Streaming video without stalls."""

import numpy as np

from pdgd_jax._internal.checks import whole_number
from pdgd_jax.instances._build import at_most, check_size
from pdgd_jax.models import CMDP, unroll
from pdgd_jax.processes import around

__all__ = ["streaming"]


def streaming(
    capacity: int = 4,
    horizon: int = 7,
    fast_budget: float = 2.0,
    rewards: str = "bernoulli",
    constraints: str = "bernoulli",
    support: str = "unknown",
) -> CMDP:
    """A media player keeps its buffer from running dry with few requests to an expensive server.

    The state is the buffer (0 to `capacity` packets), which is empty at first. In each step a
    request to the slow server brings a packet with probability 0.4, one to the fast server with
    probability 0.9. A packet is played with probability 0.6 if there is one. The reward is 1 while
    the buffer is not empty. The optimal policy is a threshold on the buffer; because of the
    constraint it is randomised at the threshold.

    Default: sizes (1, 2, 3, 4, 5, 5, 5, 1), A = 2, m = 1; OPT = 4.6222,
    without constraints 5.7246, rho = 2.0000.

    Args:
      capacity: packets that fit in the buffer.
      horizon: steps of an episode.
      fast_budget: expected requests to the fast server in an episode.
      rewards: the kind of process (`pdgd_jax.processes.KINDS`).
      constraints: the kind of process.
      support: "unknown", or "known": the learner is told which states can follow each pair.
    """
    check_size(horizon, whole_number("capacity", capacity, 1) + 1, 2)
    buffer = np.arange(capacity + 1)
    arrives = np.array([0.4, 0.9])[None, :, None]
    plays = np.where(buffer > 0, 0.6, 0.0)[:, None, None]
    levels = np.eye(capacity + 1)
    more = levels[np.minimum(buffer + 1, capacity)][:, None, :]
    less = levels[np.maximum(buffer - 1, 0)][:, None, :]
    same = levels[:, None, :]
    P = (
        arrives * (1 - plays) * more
        + (arrives * plays + (1 - arrives) * (1 - plays)) * same
        + (1 - arrives) * plays * less
    )
    mdp = unroll(P, start=0, horizon=whole_number("horizon", horizon, 1), support=support)
    smooth = np.repeat((buffer > 0).astype(float)[:, None], 2, axis=1)
    fast = np.broadcast_to(np.array([0.0, 1.0]), (capacity + 1, 2))
    G = at_most(mdp, mdp.from_flat(fast), fast_budget, "fast_budget")[None]
    return CMDP(mdp, around(mdp.from_flat(smooth), rewards), around(G, constraints))
