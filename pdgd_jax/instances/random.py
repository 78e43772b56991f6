"""Random CMDPs."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from pdgd_jax.cmdp import CMDP
from pdgd_jax.instances._build import at_most, check_size, fraction, whole_number
from pdgd_jax.layers import Layers
from pdgd_jax.mdp import LayeredMDP
from pdgd_jax.oracle import optimum
from pdgd_jax.processes import around

__all__ = ["no_slater", "random"]


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
    """A random CMDP in the manner of Garnet, with costs that go along with rewards.

    Every state and action leads to `branching` random states of the next layer, and earns a
    uniform reward. Each cost is two thirds that reward and one third noise, so that greed is
    expensive; the budgets lie between the cost of the most careful policy (`tightness` 0: no margin
    left) and of the greediest (1: nothing binds). The workhorse: any size, any number of
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
      constraints: likewise.
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


def no_slater(
    sizes: Sequence[int] = (1, 3, 3, 1),
    num_actions: int = 4,
    seed: int = 0,
    rewards: str = "bernoulli",
    constraints: str = "bernoulli",
) -> CMDP:
    """A random CMDP that can be satisfied, but with no margin at all: rho = 0.

    The first half of the actions are free and the others, which pay about twice as much, have a
    positive expected violation. Nothing is ever gained back, so that every early mistake stays in
    the sum. Slater's condition fails, multipliers have no bound, and the paper's guarantee is
    T^(3/4) instead of T^(1/2).

    Default: sizes (1, 3, 3, 1), A = 4, m = 1; OPT = 1.2736,
    without constraints 2.1828, rho = 0.0000.

    Args:
      sizes: states of each layer.
      num_actions: actions of every state, at least 2.
      seed: of the instance.
      rewards: the kind of process (`pdgd_jax.processes.KINDS`).
      constraints: likewise. "adaptive" and "corrupted" make rho negative, as far as it is known
        before a run, and so do "phases" and "drift" with fewer than 4 actions; from 4 on there are
        two free actions that these move against each other, which cancels, and rho stays 0.
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


def _garnet(
    rng: np.random.Generator,
    sizes: Sequence[int],
    num_actions: int,
    branching: int,
    num_constraints: int = 1,
) -> LayeredMDP:
    whole_number("num_actions", num_actions, 1)
    if len(sizes) > 1 and min(sizes) > 0:  # what else is wrong with them is said by Layers
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
