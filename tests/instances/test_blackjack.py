"""The table of Blackjack against the rules, known numbers, and the environment's own steps."""

import collections

import gymnasium as gym
import jax.numpy as jnp
import numpy as np
import pytest

from pdgd_jax import from_gymnasium, make, occupancy_of, oracle, value_of
from pdgd_jax.instances import blackjack_state
from pdgd_jax.instances._blackjack import HIT, STICK, blackjack_table

# What the environment may be made with; the first is the default of `gymnasium.make`.
RULES = {
    "book": {"natural": False, "sab": True},
    "plain": {"natural": False, "sab": False},
    "casino": {"natural": True, "sab": False},
}


def at(total, shown, usable=0, is_first=False):
    return blackjack_state((total, shown, usable), is_first)


def test_the_default_rules_are_those_of_the_book():
    env = gym.make("Blackjack-v1").unwrapped
    assert {"natural": env.natural, "sab": env.sab} == RULES["book"]


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_every_row_is_a_distribution(rules):
    table = blackjack_table(**rules)
    assert len(table.P) == len(table.start) == 290
    assert table.start.sum() == pytest.approx(1, abs=1e-14)
    for actions in table.P.values():
        for outcomes in actions.values():
            assert sum(chance for chance, *_ in outcomes) == pytest.approx(1, abs=1e-14)


def test_a_card_more():
    P = blackjack_table(**RULES["book"]).P
    # Hard 20: an ace makes 21, every other card is bust.
    ends = [(ended, following) for _, following, _, ended in P[at(20, 5)][HIT]]
    assert ends == [(False, at(21, 5)), *[(True, at(20, 5))] * 9]
    # An ace that counts as 11 counts as 1 instead of going bust.
    assert [s for _, s, _, _ in P[at(16, 5, 1)][HIT]][3:7] == [
        at(20, 5, 1),
        at(21, 5, 1),
        at(12, 5),
        at(13, 5),
    ]
    assert not any(ended for *_, ended in P[at(21, 5, 1, True)][HIT])


def test_a_natural_is_paid_by_the_rules():
    def expected(rules, state):
        return sum(chance * reward for chance, _, reward, _ in rules.P[state][STICK])

    book, plain, casino = (blackjack_table(**rules) for rules in RULES.values())
    natural, other = at(21, 10, 1, True), at(21, 10, 1, False)
    # Against a ten, the dealer has a natural with probability 1/13, and then it is a draw.
    assert expected(book, natural) == pytest.approx(12 / 13)
    assert expected(plain, natural) == expected(plain, other) < 12 / 13
    assert expected(book, other) == expected(plain, other)
    assert expected(casino, natural) == pytest.approx(1.5 * expected(plain, natural))


def test_the_dealer_goes_bust_as_often_as_known():
    """The published chances of a dealer who stands on soft 17, infinite deck, card by card."""
    P = blackjack_table(**RULES["plain"]).P
    bust = [
        sum(chance for chance, _, reward, _ in P[at(4, shown)][STICK] if reward == 1)
        for shown in range(2, 11)
    ]
    known = [0.3536, 0.3739, 0.3945, 0.4164, 0.4232, 0.2623, 0.2447, 0.2284, 0.2121]
    np.testing.assert_allclose(bust, known, atol=5e-5)


def test_the_best_player_without_constraints_plays_the_basic_strategy():
    """When to stick, without and with a usable ace: the basic strategy of an infinite deck."""
    case = from_gymnasium("Blackjack-v1", horizon=12, budget=1.0, support="known").cmdp
    best = oracle.optimum(case.mdp, case.rewards.mean())
    marginal = case.layers.rows_on_host(best.occupancy).sum(-1)
    visits = np.asarray(case.mdp.to_flat(jnp.asarray(marginal))).sum(0)  # [N, A]
    hard, soft = (
        [
            min(n for n in range(12, 22) if np.argmax(visits[at(n, shown, usable)]) == STICK)
            for shown in range(1, 11)  # an ace first
        ]
        for usable in (0, 1)
    )
    assert hard == [17, 13, 13, 12, 12, 12, 17, 17, 17, 17]
    assert soft == [19, 18, 18, 18, 18, 18, 18, 18, 19, 19]


@pytest.mark.slow
@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_the_environment_steps_as_the_table_says(rules):
    """30,000 games: the frequency of every outcome, and the value and cost of a policy."""
    horizon, games = 12, 30_000
    table = blackjack_table(**rules)
    env = gym.make("Blackjack-v1", **rules)
    case = from_gymnasium(env, horizon=horizon, budget=1.0, support="known").cmdp
    rng = np.random.default_rng(0)
    policy = rng.dirichlet(np.ones(2), size=(horizon, len(table.P) + 1))
    env.reset(seed=1)
    seen = collections.defaultdict(collections.Counter)
    found = np.zeros((games, 2))
    draws = rng.random((games, horizon))
    for game in range(games):
        observation, _ = env.reset()
        state = blackjack_state(observation, True)
        for step in range(horizon):
            action = int(draws[game, step] >= policy[step, state, STICK])
            observation, reward, ended, _, _ = env.step(action)
            following = state if ended else blackjack_state(observation, False)
            seen[state, action][following, reward, ended] += 1
            found[game] += reward, ended and action == HIT
            state = following
            if ended:
                break
    compared = 0
    for (state, action), counts in seen.items():
        number = counts.total()
        expected = collections.Counter()
        for chance, *outcome in table.P[state][action]:
            expected[tuple(outcome)] += chance
        assert set(counts) <= set(expected)
        for outcome, chance in expected.items():
            # 5.5 standard errors, and one of a rare outcome: thousands of comparisons, a right
            # table fails once in 10^4.
            error = 5.5 * np.sqrt(chance * abs(1 - chance) / number) + 3 / number
            assert abs(counts[outcome] / number - chance) < error
            compared += 1
    assert compared > 2000
    q = occupancy_of(case.mdp, case.mdp.policy_from_flat(policy))
    value = case.units.to_environment(float(value_of(case.rewards.mean(), q, case.layers)))
    cost = float(value_of(case.constraints.mean(), q, case.layers)[0]) + 1.0  # plus the budget
    error = 5 * found.std(0) / np.sqrt(games)
    np.testing.assert_array_less(np.abs(found.mean(0) - [value, cost]), error)


def test_lost_games_may_be_the_cost_instead():
    cmdp = make("gymnasium", env="Blackjack-v1", horizon=4, budget=0.5, cost=-1)
    stick = at(12, 10)
    layer = np.asarray(cmdp.mdp.flat_states)[1]
    costs = np.asarray(cmdp.constraints.mean())[0, 1, list(layer).index(stick)] + 0.5 / 5
    P = blackjack_table(**RULES["book"]).P[stick]
    lost = [sum(p for p, _, r, _ in P[action] if r == -1) for action in (STICK, HIT)]
    np.testing.assert_allclose(costs, lost, atol=1e-12)
