"""Random CMDPs."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from pdgd_jax._internal.checks import fraction, whole_number
from pdgd_jax.instances._build import at_most, check_size
from pdgd_jax.models import CMDP, LayeredMDP, Layers
from pdgd_jax.oracle import optimum
from pdgd_jax.processes import around

__all__ = ["random"]


def random(
    sizes: Sequence[int] = (1, 4, 4, 4, 1),
    num_actions: int = 3,
    num_constraints: int = 1,
    branching: int = 0,
    tightness: float = 0.5,
    seed: int = 0,
    rewards: str = "bernoulli",
    constraints: str = "bernoulli",
) -> CMDP:
    """A random CMDP in the manner of Garnet, with costs that correlate with rewards.

    Every state and action leads to `branching` random states of the next layer and earns a uniform
    reward. Each cost is two thirds of that reward plus one third noise, so that greed is expensive.
    The budgets lie between the cost of the most careful policy (`tightness` 0: no margin is left)
    and that of the greediest (1: nothing binds). This is the workhorse: any size, any number of
    constraints, every setting of the paper.

    Default: sizes (1, 4, 4, 4, 1), A = 3, m = 1; OPT = 2.4502,
    without constraints 2.9290, rho = 0.5821.

    Args:
      sizes: states of each layer.
      num_actions: actions of every state.
      num_constraints: m.
      branching: successors of each state and action; 0 for all states of the next layer.
      tightness: where the budgets lie, from 0 to 1.
      seed: of the instance.
      rewards: the kind of process (`pdgd_jax.processes.KINDS`).
      constraints: the kind of process.
    """
    m = whole_number("num_constraints", num_constraints, 1)
    share = fraction("tightness", tightness)
    rng = np.random.default_rng(whole_number("seed", seed, 0))
    branching = whole_number("branching", branching, 0)
    mdp = _garnet(rng, sizes, num_actions, branching, num_constraints=m)
    mask = np.asarray(mdp.layers.action_mask)
    reward = np.where(mask, rng.uniform(size=mask.shape), 0)
    costs = np.where(mask, (2 * reward + rng.uniform(size=(m, *mask.shape))) / 3, 0)

    greedy = optimum(mdp, reward).occupancy.sum(-1)
    careful = optimum(mdp, np.where(mask, 1 - costs.mean(0), 0)).occupancy.sum(-1)
    budgets = [
        (1 - share) * (cost * careful).sum() + share * (cost * greedy).sum() for cost in costs
    ]
    G = np.stack([at_most(mdp, cost, budget) for cost, budget in zip(costs, budgets, strict=True)])
    return CMDP(mdp, around(reward, rewards), around(G, constraints))


def _garnet(
    rng: np.random.Generator,
    sizes: Sequence[int],
    num_actions: int,
    branching: int,
    num_constraints: int = 1,
) -> LayeredMDP:
    whole_number("num_actions", num_actions, 1)
    if len(sizes) > 1 and min(sizes) > 0:  # otherwise Layers raises the error
        check_size(len(sizes) - 1, max(sizes), num_actions, num_constraints)
    layers = Layers.from_sizes(sizes, num_actions)
    L, S, A = layers.shape
    P: Any = np.zeros((L, S, A, S))
    for layer, (size, following) in enumerate(itertools.pairwise(sizes)):
        count = min(branching, following) or following
        for state in range(size):
            for action in range(num_actions):
                successors = rng.choice(following, count, replace=False)
                P[layer, state, action, successors] = rng.dirichlet(np.ones(count))
    return LayeredMDP(layers, P)
