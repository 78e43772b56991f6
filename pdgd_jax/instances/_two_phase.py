"""The instance on which no algorithm has both sublinear regret and sublinear violation."""

from typing import Any

import numpy as np

from pdgd_jax._internal.checks import MOST_EPISODES, whole_number
from pdgd_jax.models import CMDP, LayeredMDP, Layers
from pdgd_jax.processes import Constant, Phases

__all__ = ["two_phase"]


def two_phase(ending: str = "tight", num_episodes: int = 10_000) -> CMDP:
    r"""Two halves; the first does not reveal what the second will be.

    There is one state with two actions: "risky" earns 1, "safe" earns 0. In the first half risky
    violates by 1 and safe gains 1. With the ending "relaxed", both actions then gain 1, so that
    always playing risky is feasible in hindsight and OPT = 1. With "tight", risky violates by 1
    again and safe gains only 1/4. A learner that aimed for the first OPT has violated by T/2 and
    can undo at most T/8 of it. A learner that is safe against one ending has linear regret or
    violation in the other (Mannor, Tsitsiklis and Yu, 2009). This is why the paper's adversarial
    guarantee is a fraction $\rho/(L+\rho)$ of OPT.

    Default: sizes (1, 1), A = 2, m = 1; OPT = 0.3846,
    without constraints 1.0000, rho = 0.2500.

    Args:
      ending: "tight" or "relaxed".
      num_episodes: T, by default that of the run. The second half begins at T/2, rounded down, and
        never ends.
    """
    if ending not in ("tight", "relaxed"):
        raise ValueError(f'ending must be "tight" or "relaxed"; got {ending!r}.')
    half = max(whole_number("num_episodes", num_episodes, 1, MOST_EPISODES) // 2, 1)
    stay: Any = np.ones((1, 1, 2, 1))
    mdp = LayeredMDP(Layers.from_sizes((1, 1), num_actions=2), stay)
    first, second = [1.0, -1.0], ([1.0, -0.25] if ending == "tight" else [-1.0, -1.0])
    violations: Any = np.array([first, second]).reshape(2, 1, 1, 1, 2)  # [phases, m, L, S, A]
    reward: Any = np.array([1.0, 0.0]).reshape(1, 1, 2)
    return CMDP(mdp, Constant(reward), Phases(violations, period=half, schedule="once"))
