"""A CMDP in which no policy has a margin."""

from collections.abc import Sequence

import numpy as np

from pdgd_jax._internal.checks import whole_number
from pdgd_jax.instances._random import _garnet
from pdgd_jax.models import CMDP
from pdgd_jax.processes import around

__all__ = ["no_slater"]


def no_slater(
    sizes: Sequence[int] = (1, 3, 3, 1),
    num_actions: int = 4,
    seed: int = 0,
    rewards: str = "bernoulli",
    constraints: str = "bernoulli",
) -> CMDP:
    """A random CMDP whose constraints can be met, but without any margin: rho = 0.

    The first half of the actions are free. The others pay about twice as much, but have a positive
    expected violation. No action makes up for it, so that every early mistake stays in the sum.
    Slater's condition fails, multipliers have no bound, and the paper's guarantee is T^(3/4)
    instead of T^(1/2).

    Default: sizes (1, 3, 3, 1), A = 4, m = 1; OPT = 1.2736,
    without constraints 2.1828, rho = 0.0000.

    Args:
      sizes: states of each layer.
      num_actions: actions of every state, at least 2.
      seed: of the instance.
      rewards: the kind of process (`pdgd_jax.processes.KINDS`).
      constraints: the kind of process. With "adaptive" and "corrupted" the rho that is known before
        a run is negative, and so it is with "phases" and "drift" for fewer than 4 actions. From 4
        actions on two free actions move in opposite directions and cancel, and rho stays 0.
    """
    whole_number("num_actions", num_actions, 2)
    rng = np.random.default_rng(whole_number("seed", seed, 0))
    mdp = _garnet(rng, sizes, num_actions, 0)
    mask = np.asarray(mdp.layers.action_mask)
    free = np.arange(num_actions) < num_actions // 2
    reward = rng.uniform(size=mask.shape) * np.where(free, 0.5, 1.0)
    violation = np.where(free, 0.0, rng.uniform(0.2, 0.8, size=mask.shape))
    return CMDP(
        mdp,
        around(np.where(mask, reward, 0), rewards),
        around(np.where(mask, violation, 0)[None], constraints),
    )
