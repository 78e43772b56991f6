"""Gymnasium's toy-text environments, and any other with a transition table."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pdgd_jax._internal.checks import whole_number
from pdgd_jax.instances._build import at_most
from pdgd_jax.models import CMDP, RewardUnits, unroll
from pdgd_jax.processes import around

__all__ = ["Cost", "ImportedCMDP", "from_gymnasium", "gymnasium", "mishap_of"]

Cost = Callable[[int, int, int, float, bool], float]


class ImportedCMDP(NamedTuple):
    """A Gymnasium environment as a CMDP.

    The environment's rewards are mapped to [0, 1] by (r - low) / (high - low), in every one of the
    `horizon` steps; `cmdp.units` undoes it.

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


def mishap_of(env: Any) -> Cost:
    """What goes wrong in an environment that Gymnasium ships: 1 for such a step, 0 for others.

    FrozenLake: falling into a hole. CliffWalking: stepping off the cliff, which throws the walker
    back to the start; reaching the goal costs nothing, though it earns as little as any step. Taxi:
    an illegal pick-up or drop-off. All their variants are known by their class, slippery or not and
    whatever the map.

    Args:
      env: the environment.

    Raises:
      ValueError: for any other: what a mishap is there is not for us to guess.
    """
    env = env.unwrapped
    classes = {cls.__name__ for cls in type(env).__mro__}
    if "FrozenLakeEnv" in classes:
        holes = {int(state) for state in np.flatnonzero(np.asarray(env.desc).ravel() == b"H")}
        return lambda state, action, following, reward, ended: float(following in holes)
    if "CliffWalkingEnv" in classes:
        return lambda state, action, following, reward, ended: float(reward == -100)
    if "TaxiEnv" in classes:
        return lambda state, action, following, reward, ended: float(reward == -10)
    raise ValueError(
        f"what a mishap is in {env} is not known; say it with `cost`: a function of state, action, "
        "next state, reward and whether the episode ended, or a number: a step that earns so "
        "little, or less, costs 1."
    )


def from_gymnasium(
    env: Any,
    *,
    horizon: int,
    budget: float,
    cost: Cost | float | None = None,
    rewards: str = "constant",
    constraints: str = "constant",
) -> ImportedCMDP:
    """Import an environment that has a table `P` and an `initial_state_distrib`.

    Args:
      env: the environment, or the name of one for `gymnasium.make`.
      horizon: decisions of an episode. What ends earlier in Gymnasium waits in a last state.
      budget: the expected total cost of an episode, at most.
      cost: of a step, in [0, 1], given state, action, next state, reward and whether it ended; or a
        number: a step that earns so little, or less, costs 1 and others nothing. By default what
        `mishap_of` knows about the environment.
      rewards: the kind of process (`pdgd_jax.processes.KINDS`) around the expected rewards.
      constraints: likewise.

    Raises:
      ValueError: if the environment has no table or steps otherwise than its table says, no cost
        is known, or one is out of range.
    """
    if isinstance(env, str):
        env = _gymnasium_make(env)
    env = env.unwrapped
    if not hasattr(env, "P") or not hasattr(env, "initial_state_distrib"):
        raise ValueError(
            f"{env} has no table P with an initial_state_distrib; only environments of the "
            "toy-text kind (FrozenLake, CliffWalking, Taxi) can be imported."
        )
    if getattr(env, "fickle_passenger", False):
        raise ValueError(
            f"{env} has a passenger who changes the destination, of which its table P knows "
            "nothing."
        )
    price_of = cost if callable(cost) else mishap_of(env) if cost is None else _at_most(cost)
    N, A = len(env.P), len(env.P[0])
    over = N  # the state in which the episode has ended
    transition = np.zeros((N + 1, A, N + 1))
    earned, spent = np.zeros((N + 1, A)), np.zeros((N + 1, A))
    transition[over, :, over] = 1
    low = high = 0.0
    for state, actions in env.P.items():
        for action, outcomes in actions.items():
            for chance, following, reward, terminated in outcomes:
                price = price_of(state, action, following, reward, terminated)
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
    units = RewardUnits(float(scale), float(mdp.horizon * low))
    cmdp = CMDP(mdp, around(reward, rewards), around(G, constraints), units=units)
    return ImportedCMDP(cmdp, float(low), float(high))


def gymnasium(
    env: str = "FrozenLake-v1",
    horizon: int = 16,
    budget: float = 0.03,
    cost: float | None = None,
    rewards: str = "constant",
    constraints: str = "constant",
) -> CMDP:
    """A Gymnasium toy-text environment: reach the goal, with few mishaps.

    The table of the environment, unrolled over `horizon` steps; a mishap is a hole of FrozenLake, a
    fall off the cliff of CliffWalking (which earns -100, so that the best walker stays away from it
    whatever the budget), an illegal pick-up or drop-off of Taxi. `from_gymnasium` takes a cost of
    your own. Rewards are rescaled to [0, 1], and reported in the environment's own units too.
    Needs the extra `gym`.

    Default: sizes (1, 3, 6, 9, 11, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 1), A = 4, m = 1;
    OPT = 0.1194, without constraints 0.1324, rho = 0.0300.

    Args:
      env: the environment's name.
      horizon: steps of an episode.
      budget: expected mishaps of an episode, at most.
      cost: a step that earns so little, or less, is a mishap instead; needed for environments other
        than these three.
      rewards: the kind of process (`pdgd_jax.processes.KINDS`).
      constraints: likewise.
    """
    imported = from_gymnasium(
        env,
        horizon=horizon,
        budget=budget,
        cost=cost,
        rewards=rewards,
        constraints=constraints,
    )
    return imported.cmdp


def _at_most(threshold: Any) -> Cost:
    if isinstance(threshold, bool) or not isinstance(threshold, int | float):
        raise ValueError(f"cost must be a function or a number; got {threshold!r}.")
    return lambda state, action, following, reward, ended: float(reward <= threshold)


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
