"""Gymnasium's toy-text environments, and any other environment with a transition table."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pdgd_jax._internal.checks import whole_number
from pdgd_jax.instances._blackjack import HIT, Table, blackjack_table
from pdgd_jax.instances._build import at_most
from pdgd_jax.models import CMDP, RewardUnits, unroll
from pdgd_jax.processes import around

__all__ = ["Cost", "ImportedCMDP", "from_gymnasium", "gymnasium", "mishap_of"]

Cost = Callable[[int, int, int, float, bool], float]


class ImportedCMDP(NamedTuple):
    """A Gymnasium environment as a CMDP.

    The environment's rewards are mapped to [0, 1] by (r - low) / (high - low) in each of the
    `horizon` steps; `cmdp.units` is the inverse map.

    Attributes:
      cmdp: the CMDP; its `mdp` is an `UnrolledMDP` over the environment's states and one more
        state at the end, in which the episode is over.
      low: the smallest reward of the environment, or 0 if all are larger, since nothing is earned
        after the end.
      high: the largest reward, or 0 if all are smaller.
    """

    cmdp: CMDP
    low: float
    high: float


def mishap_of(env: Any) -> Cost:
    """The cost of a mishap in one of Gymnasium's own environments: 1 for a mishap, otherwise 0.

    In FrozenLake a mishap is a fall into a hole. In CliffWalking it is a step off the cliff, which
    moves the walker back to the start; reaching the goal costs nothing, although it earns as little
    as any step. In Taxi it is an illegal pick-up or drop-off, in Blackjack a hand that goes bust.
    All variants and maps of these environments are recognised by their class.

    Args:
      env: the environment.

    Raises:
      ValueError: for any other environment, where the definition of a mishap is unknown.
    """
    env = env.unwrapped
    classes = _classes_of(env)
    if "FrozenLakeEnv" in classes:
        holes = {int(state) for state in np.flatnonzero(np.asarray(env.desc).ravel() == b"H")}
        return lambda state, action, following, reward, ended: float(following in holes)
    if "CliffWalkingEnv" in classes:
        return lambda state, action, following, reward, ended: float(reward == -100)
    if "TaxiEnv" in classes:
        return lambda state, action, following, reward, ended: float(reward == -10)
    if "BlackjackEnv" in classes:
        return lambda state, action, following, reward, ended: float(action == HIT and ended)
    raise ValueError(
        f"a mishap in {env} is not defined; define it with `cost`: a function of state, action, "
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
    support: str = "unknown",
) -> ImportedCMDP:
    """Import an environment that has a table `P` and an `initial_state_distrib`, or Blackjack.

    Blackjack has no table; `pdgd_jax.instances.blackjack_state` counts the states of the one that
    is made for it.

    Args:
      env: the environment, or the name of one for `gymnasium.make`.
      horizon: decisions of an episode. An episode that ends earlier in Gymnasium waits in a last
        state.
      budget: the largest expected total cost of an episode.
      cost: a function that gives the cost of a step, in [0, 1], from the state, the action, the
        next state, the reward and whether the episode ended. Or a number: steps that earn at most
        this cost 1 and others 0. `mishap_of(env)` by default.
      rewards: the kind of process (`pdgd_jax.processes.KINDS`) around the expected rewards.
      constraints: the kind of process around the expected costs.
      support: "unknown", or "known": the learner is told which states can follow each pair.

    Raises:
      ValueError: if the environment has no table or does not follow it, no cost is known, or one is
        out of range.
    """
    if isinstance(env, str):
        env = _gymnasium_make(env)
    env = env.unwrapped
    table = _table_of(env)
    price_of = cost if callable(cost) else mishap_of(env) if cost is None else _at_most(cost)
    N, A = len(table.P), len(table.P[0])
    over = N  # the state in which the episode has ended
    width = max(len(outcomes) for actions in table.P.values() for outcomes in actions.values())
    successors, chances = np.full((N + 1, A, width), -1), np.zeros((N + 1, A, width))
    successors[over, :, 0], chances[over, :, 0] = over, 1
    earned, spent = np.zeros((N + 1, A)), np.zeros((N + 1, A))
    low = high = 0.0
    for state, actions in table.P.items():
        for action, outcomes in actions.items():
            for slot, (chance, following, reward, terminated) in enumerate(outcomes):
                price = price_of(state, action, following, reward, terminated)
                if not 0 <= price <= 1:
                    raise ValueError(
                        f"cost of state {state}, action {action} to state {following} is {price}; "
                        "a cost lies in [0, 1]."
                    )
                successors[state, action, slot] = over if terminated else following
                chances[state, action, slot] = chance
                earned[state, action] += chance * reward
                spent[state, action] += chance * price
                low, high = min(low, reward), max(high, reward)
    start = np.append(table.start, 0.0)
    certain = np.flatnonzero(start == 1)
    mdp = unroll(
        chances,
        start=int(certain[0]) if len(certain) else start,
        horizon=whole_number("horizon", horizon, 1),
        support=support,
        successors=successors,
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
    support: str = "unknown",
) -> CMDP:
    """A Gymnasium toy-text environment: reach the goal, with few mishaps.

    The table of the environment is unrolled over `horizon` steps. A mishap is a hole in FrozenLake,
    a fall off the cliff in CliffWalking (which earns -100, so that the best walker avoids it for
    any budget), an illegal pick-up or drop-off in Taxi (likewise, at -10), or going bust in
    Blackjack, whose table is derived from its rules; a hand that is not over by the horizon earns
    and costs nothing. `from_gymnasium` accepts any other cost. Rewards are rescaled to [0, 1], and
    reported in the environment's units as well. Needs the extra `gym`.

    Default: sizes (1, 3, 6, 9, 11, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 1), A = 4, m = 1;
    OPT = 0.1194, without constraints 0.1324, rho = 0.0300.

    - FrozenLake8x8-v1, horizon 40, budget 0.02: OPT = 0.0996, without constraints 0.1205,
      rho = 0.0200; in its own units 0.0996.
    - CliffWalking-v1, horizon 20, budget 0.03: OPT = 19.8700, without constraints 19.8700,
      rho = 0.0300; in its own units -13.0000.
    - Taxi-v4, horizon 20, budget 0.03: OPT = 6.9310, without constraints 6.9310,
      rho = 0.0300; in its own units 7.9300.
    - Blackjack-v1, horizon 12, budget 0.05: OPT = 5.9702, without constraints 5.9784,
      rho = 0.0500; in its own units -0.0595.

    Args:
      env: the environment's name; FrozenLake8x8-v1 is the large map of FrozenLake.
      horizon: steps of an episode.
      budget: expected mishaps of an episode, at most.
      cost: a number: steps that earn at most this are mishaps instead; needed for environments
        other than these four.
      rewards: the kind of process (`pdgd_jax.processes.KINDS`).
      constraints: the kind of process.
      support: "unknown", or "known": the learner is told which states can follow each pair.
    """
    imported = from_gymnasium(
        env,
        horizon=horizon,
        budget=budget,
        cost=cost,
        rewards=rewards,
        constraints=constraints,
        support=support,
    )
    return imported.cmdp


def _classes_of(env: Any) -> set[str]:
    return {cls.__name__ for cls in type(env).__mro__}


def _table_of(env: Any) -> Table:
    """The table of an environment, or the one made for it."""
    if "BlackjackEnv" in _classes_of(env):
        return blackjack_table(bool(env.natural), bool(env.sab))
    if not hasattr(env, "P") or not hasattr(env, "initial_state_distrib"):
        raise ValueError(
            f"{env} has no table P with an initial_state_distrib; only environments of the "
            "toy-text kind (FrozenLake, CliffWalking, Taxi, Blackjack) can be imported."
        )
    if getattr(env, "fickle_passenger", False):
        raise ValueError(
            f"{env} has a passenger who changes the destination, which its table P does "
            "not contain."
        )
    return Table(env.P, np.asarray(env.initial_state_distrib))


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
