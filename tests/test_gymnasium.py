"""The import of Gymnasium against the environments themselves: their tables and their steps."""

import re

import gymnasium as gym
import jax.numpy as jnp
import numpy as np
import pytest

from pdgd_jax import make, occupancy_of, value_of
from pdgd_jax.instances import from_gymnasium
from pdgd_jax.instances.gymnasium import mishap


def newest(family):
    return max(name for name in gym.registry if re.fullmatch(rf"{family}-v\d+", name))


# With the horizon of the test: Taxi has 500 states, so that a short one is enough.
ENVIRONMENTS = {newest("FrozenLake"): 20, newest("CliffWalking"): 18, newest("Taxi"): 8}


def imported(name):
    return from_gymnasium(name, horizon=ENVIRONMENTS[name], budget=1.0)


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_the_unrolled_transitions_are_the_environments_table(name):
    table = gym.make(name).unwrapped.P
    mdp = imported(name).cmdp.mdp
    over = len(table)
    flat = np.asarray(mdp.flat_states)
    P = np.asarray(mdp.transition)
    first = int(mdp.has_root)
    checked = 0
    for layer in range(first, P.shape[0] - 1):
        copies = {int(s): i for i, s in enumerate(flat[layer + 1]) if s >= 0}
        for i, state in enumerate(flat[layer]):
            if state < 0:
                continue
            for action in range(P.shape[2]):
                expected = np.zeros(P.shape[1])
                if state == over:
                    expected[copies[over]] = 1
                else:
                    for chance, following, _, terminated in table[int(state)][action]:
                        expected[copies[over if terminated else following]] += chance
                np.testing.assert_allclose(P[layer, i, action], expected, atol=1e-12)
                checked += 1
    assert checked > 100


@pytest.mark.slow
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_policys_value_is_what_stepping_the_environment_gives(name):
    horizon = ENVIRONMENTS[name]
    case = imported(name)
    mdp = case.cmdp.mdp
    env = gym.make(name, max_episode_steps=horizon + 1)
    N, A = env.observation_space.n, env.action_space.n
    rng = np.random.default_rng(0)
    policy = rng.dirichlet(np.full(A, 0.5), size=(horizon, N + 1))
    q = occupancy_of(mdp, mdp.policy_from_flat(policy))
    scale = case.high - case.low
    value = float(value_of(case.cmdp.rewards.mean(), q)) * scale + horizon * case.low
    cost = float(value_of(case.cmdp.constraints.mean(), q)[0]) + 1.0  # back to the plain cost

    returns, costs = [], []
    for episode in range(1500):
        state, _ = env.reset(seed=episode)
        total = spent = 0.0
        for step in range(horizon):
            action = rng.choice(A, p=policy[step, state])
            following, reward, terminated, _, _ = env.step(action)
            total += reward
            spent += mishap(state, action, following, reward, terminated)
            state = following
            if terminated:
                break
        returns.append(total)
        costs.append(spent)
    for exact, sampled in ((value, returns), (cost, costs)):
        # 5 standard errors: six comparisons, a right import fails once in 10^5.
        error = 5 * np.std(sampled) / np.sqrt(len(sampled)) + 1e-9
        assert abs(np.mean(sampled) - exact) <= error


def test_a_cost_of_ones_own():
    def at_the_edge(state, action, following, reward, terminated):
        return float(following % 4 == 3)

    case = from_gymnasium("FrozenLake-v1", horizon=6, budget=0.5, cost=at_the_edge)
    assert float(jnp.max(case.cmdp.constraints.mean())) <= 1 - 0.5 / 6 + 1e-12
    with pytest.raises(ValueError, match="cost of state 0, action 0 to state 0 is 2.0"):
        from_gymnasium("FrozenLake-v1", horizon=6, budget=0.5, cost=lambda *step: 2.0)


def test_what_cannot_be_imported():
    with pytest.raises(ValueError, match="Gymnasium cannot make 'FrozenLak-v1'"):
        make("gymnasium", env="FrozenLak-v1")
    with pytest.raises(ValueError, match="has no table P"):
        make("gymnasium", env="Blackjack-v1")
