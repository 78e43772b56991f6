"""Swimming against a current with limited strength."""

import numpy as np

from pdgd_jax._internal.checks import whole_number
from pdgd_jax.instances._build import at_most, check_size
from pdgd_jax.models import CMDP, unroll
from pdgd_jax.processes import around

__all__ = ["riverswim"]


def riverswim(
    num_states: int = 4,
    horizon: int = 8,
    effort_budget: float = 4.0,
    rewards: str = "bernoulli",
    constraints: str = "bernoulli",
    support: str = "unknown",
) -> CMDP:
    """RiverSwim with limited strength: swimming against the current costs effort.

    This is the classical chain. The left bank pays 0.05 and the right bank 1. Drifting left always
    succeeds; swimming right succeeds with probability 0.35 (0.6 from the left bank). Every stroke
    costs 1, and the expected number of strokes must stay below `effort_budget`. Exploration itself
    uses up the budget: it takes strokes to find out that the right bank pays.

    Default: sizes (1, 2, 3, 4, 4, 4, 4, 4, 1), A = 2, m = 1; OPT = 1.1781,
    without constraints 1.5285, rho = 4.0000.

    Args:
      num_states: length of the river.
      horizon: steps of an episode.
      effort_budget: expected strokes of an episode.
      rewards: the kind of process (`pdgd_jax.processes.KINDS`).
      constraints: the kind of process.
      support: "unknown", or "known": the learner is told which states can follow each pair.
    """
    N = whole_number("num_states", num_states, 2)
    check_size(horizon, N, 2)
    place = np.arange(N)
    left = np.eye(N)[np.maximum(place - 1, 0)]
    right = 0.35 * np.eye(N)[np.minimum(place + 1, N - 1)] + 0.6 * np.eye(N) + 0.05 * left
    right[0] = 0.4 * np.eye(N)[0] + 0.6 * np.eye(N)[1]
    mdp = unroll(
        np.stack([left, right], axis=1), 0, whole_number("horizon", horizon, 1), support=support
    )
    pay = np.zeros((N, 2))
    pay[0, 0], pay[-1, 1] = 0.05, 1.0
    stroke = np.broadcast_to(np.array([0.0, 1.0]), (N, 2))
    G = at_most(mdp, mdp.from_flat(stroke), effort_budget, "effort_budget")[None]
    return CMDP(mdp, around(mdp.from_flat(pay), rewards), around(G, constraints))
