"""An instance to copy: a function with options that returns a CMDP."""

import numpy as np

from pdgd_jax import CMDP, register, unroll
from pdgd_jax.processes import Bernoulli


def my_instance(horizon: int = 3, budget: float = 0.5):
    """Two rooms and a door that costs something.

    The first sentence is what `pdgd instances` shows; the names and kinds of the options are
    checked before the function is called.

    Args:
      horizon: the number of decisions of an episode.
      budget: how often the door may be used in an episode, on average.
    """
    if horizon < 1:
        raise ValueError(f"horizon must be at least 1; got {horizon}.")
    stay, move = np.eye(2), np.array([[0.1, 0.9], [0.9, 0.1]])
    transition = np.stack([stay, move], axis=1)  # [S, A, S]
    mdp = unroll(transition, start=0, horizon=horizon)
    reward = np.array([[0.2, 0.0], [0.8, 0.0]])  # [S, A]: staying pays, in the second room more
    cost = np.array([[0.0, 1.0], [0.0, 1.0]])
    # A constraint is at most 0 in sum: the cost of a step minus its share of the budget.
    constraints = mdp.from_flat(cost)[None] - budget / horizon  # [m, L, S, A]
    return CMDP(mdp, Bernoulli(mdp.from_flat(reward)), Bernoulli(constraints))


register("my-instance", my_instance)
