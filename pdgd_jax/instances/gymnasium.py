"""Gymnasium's toy-text environments, and any other with a transition table."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pdgd_jax.cmdp import CMDP
from pdgd_jax.instances._build import at_most, whole_number
from pdgd_jax.processes import around
from pdgd_jax.unroll import unroll

__all__ = ["ImportedCMDP", "from_gymnasium", "gymnasium", "mishap"]

Cost = Callable[[int, int, int, float, bool], float]


class ImportedCMDP(NamedTuple):
    """A Gymnasium environment as a CMDP.

    The environment's rewards are mapped to [0, 1] by (r - low) / (high - low), in every one of the
    `horizon` steps: a value v of the CMDP is `horizon * low + (high - low) * v` there.

    Attributes:
      cmdp: the CMDP; its `mdp` is an `UnrolledMDP` over the environment's states and one more,
        the last, in which the episode is over.
      low: the smallest reward of the environment (0 if all are larger: nothing is earned after
        the end).
      high: the largest reward, 0 if all are smaller.
    """

    cmdp: CMDP
    low: float
    high: float


def mishap(state: int, action: int, following: int, reward: float, terminated: bool) -> float:
    """1 for a step that ends the episode without reward, or earns -10 or less.

    A hole of FrozenLake, the cliff of CliffWalking, an illegal pick-up or drop-off of Taxi.
    """
    del state, action, following
    return float((terminated and reward <= 0) or reward <= -10)


def from_gymnasium(
    env: Any,
    *,
    horizon: int,
    budget: float,
    cost: Cost = mishap,
    rewards: str = "constant",
    constraints: str = "constant",
) -> ImportedCMDP:
    """Import an environment that has a table `P` and an `initial_state_distrib`.

    Args:
      env: the environment, or the name of one for `gymnasium.make`.
      horizon: decisions of an episode. What ends earlier in Gymnasium waits in a last state.
      budget: the expected total cost of an episode, at most.
      cost: of a step, in [0, 1], given state, action, next state, reward and whether it ended.
      rewards: the kind of process (`pdgd_jax.processes.KINDS`) around the expected rewards.
      constraints: likewise.

    Raises:
      ValueError: if the environment has no table, or a cost is out of range.
    """
    if isinstance(env, str):
        env = _gymnasium_make(env)
    env = env.unwrapped
    if not hasattr(env, "P") or not hasattr(env, "initial_state_distrib"):
        raise ValueError(
            f"{env} has no table P with an initial_state_distrib; only environments of the "
            "toy-text kind (FrozenLake, CliffWalking, Taxi) can be imported."
        )
    N, A = len(env.P), len(env.P[0])
    over = N  # the state in which the episode has ended
    transition = np.zeros((N + 1, A, N + 1))
    earned, spent = np.zeros((N + 1, A)), np.zeros((N + 1, A))
    transition[over, :, over] = 1
    low = high = 0.0
    for state, actions in env.P.items():
        for action, outcomes in actions.items():
            for chance, following, reward, terminated in outcomes:
                price = cost(state, action, following, reward, terminated)
                if not 0 <= price <= 1:
                    raise ValueError(
                        f"cost of state {state}, action {action} to state {following} is {price}; "
                        "a cost lies in [0, 1]."
                    )
                transition[state, action, over if terminated else following] += chance
                earned[state, action] += chance * reward
                spent[state, action] += chance * price
                low, high = min(low, reward), max(high, reward)
    start = np.append(env.initial_state_distrib, 0.0)
    certain = np.flatnonzero(start == 1)
    mdp = unroll(
        transition,
        start=int(certain[0]) if len(certain) else start,
        horizon=whole_number("horizon", horizon, 1),
    )
    scale = (high - low) or 1.0
    reward = np.clip(np.asarray(mdp.from_flat((earned - low) / scale)), 0, 1)
    G = at_most(mdp, mdp.from_flat(np.clip(spent, 0, 1)), budget)[None]
    cmdp = CMDP(mdp, around(reward, rewards), around(G, constraints))
    return ImportedCMDP(cmdp, float(low), float(high))


def gymnasium(
    env: str = "FrozenLake-v1",
    horizon: int = 16,
    budget: float = 0.03,
    rewards: str = "constant",
    constraints: str = "constant",
) -> CMDP:
    """A Gymnasium toy-text environment: reach the goal, with few mishaps.

    The table of the environment, unrolled over `horizon` steps; a mishap is a step that ends the
    episode without reward (a hole of FrozenLake) or earns -10 or less (the cliff, an illegal
    pick-up). `from_gymnasium` takes a cost of your own. Needs the extra `gym`.

    Default: sizes (1, 3, 6, 9, 11, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 1), A = 4, m = 1;
    OPT = 0.1194, without constraints 0.1324, rho = 0.0300.

    Args:
      env: the environment's name.
      horizon: steps of an episode.
      budget: expected mishaps of an episode, at most.
      rewards: the kind of process (`pdgd_jax.processes.KINDS`).
      constraints: likewise.
    """
    imported = from_gymnasium(
        env, horizon=horizon, budget=budget, rewards=rewards, constraints=constraints
    )
    return imported.cmdp


def _gymnasium_make(name: str) -> Any:
    try:
        import gymnasium as gym
    except ImportError as error:
        raise ValueError(
            f'environment {name!r} needs Gymnasium: pip install "pdgd_jax[gym]".'
        ) from error
    try:
        return gym.make(name)
    except gym.error.Error as error:
        raise ValueError(f"Gymnasium cannot make {name!r}: {error}") from error
