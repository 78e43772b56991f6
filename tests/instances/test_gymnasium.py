"""The import of Gymnasium against the environments themselves: their tables and their steps."""

import inspect
import json
import re

import gymnasium as gym
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

from pdgd_jax import RewardUnits, from_gymnasium, make, occupancy_of, oracle, policy_of, value_of
from pdgd_jax import stack as stack_cmdps
from pdgd_jax.cli.entry import app
from pdgd_jax.instances import builder_of
from pdgd_jax.instances._gymnasium import mishap_of


def newest(family):
    return max(name for name in gym.registry if re.fullmatch(rf"{family}-v\d+", name))


LAKE, CLIFF, TAXI = newest("FrozenLake"), newest("CliffWalking"), newest("Taxi")
LARGE_LAKE = newest("FrozenLake8x8")
# With the horizon of the test: Taxi has 500 states, so that a short one is enough. Blackjack, which
# has no table of its own, has its own tests.
ENVIRONMENTS = {LAKE: 20, LARGE_LAKE: 20, CLIFF: 18, TAXI: 8}
SUPPORTS = ("unknown", "known")


def imported(name, support):
    return from_gymnasium(name, horizon=ENVIRONMENTS[name], budget=1.0, support=support)


def marginal(cmdp, occupancy):
    """How often each pair is visited, `[L, S, A]`, in either layout."""
    return jnp.asarray(cmdp.layers.rows_on_host(np.asarray(occupancy)).sum(-1))


def best_of(cmdp):
    return oracle.optimum(cmdp.mdp, cmdp.rewards.mean(), cmdp.constraints.mean())


@pytest.mark.parametrize("support", SUPPORTS)
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_the_unrolled_transitions_are_the_environments_table(name, support):
    table = gym.make(name).unwrapped.P
    mdp = imported(name, support).cmdp.mdp
    over = len(table)
    flat = np.asarray(mdp.flat_states)
    P = np.asarray(mdp.layers.to_dense(mdp.transition))
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
    # A learner of known support is told of these steps and of no others.
    possible = np.asarray(mdp.layers.to_dense(mdp.layers.triple_mask))
    assert (support == "known") == np.array_equal(possible, P > 0)


def test_a_hole_is_a_mishap_and_the_goal_is_none():
    cost = mishap_of(gym.make(LAKE, is_slippery=False))
    table = gym.make(LAKE, is_slippery=False).unwrapped.P
    down, right = 1, 2
    into_hole, into_goal = table[1][down][0], table[14][right][0]
    assert (into_hole[1], into_goal[1]) == (5, 15)
    assert cost(1, down, *into_hole[1:]) == 1
    assert cost(14, right, *into_goal[1:]) == 0
    assert cost(0, right, *table[0][right][0][1:]) == 0


def test_a_hole_that_pays_is_a_hole_and_a_goal_that_costs_is_a_goal():
    env = gym.make(LAKE, is_slippery=False, reward_schedule=(-20, 1, 0))
    cost, table = mishap_of(env), env.unwrapped.P
    assert cost(1, 1, *table[1][1][0][1:]) == 1
    assert cost(14, 2, *table[14][2][0][1:]) == 0


@pytest.mark.parametrize("slips", [False, True])
def test_the_cliff_is_a_mishap_and_the_goal_is_none(slips):
    env = gym.make(CLIFF, is_slippery=slips)
    cost = mishap_of(env)
    falls = goals = 0
    for state, actions in env.unwrapped.P.items():
        for action, outcomes in actions.items():
            for _, following, reward, ended in outcomes:
                fell = reward == -100
                assert cost(state, action, following, reward, ended) == float(fell)
                falls, goals = falls + fell, goals + ended
    assert falls > 10
    assert goals > 0


def test_an_illegal_pick_up_is_a_mishap_of_a_taxi():
    cost = mishap_of(gym.make(TAXI))
    table = gym.make(TAXI).unwrapped.P
    illegal = {
        action
        for state, actions in table.items()
        for action, [(_, *outcome)] in actions.items()
        if cost(state, action, *outcome)
    }
    assert illegal == {4, 5}
    delivered = [o for actions in table.values() for [o] in actions.values() if o[-1]]
    assert delivered
    assert not any(cost(0, 5, *outcome[1:]) for outcome in delivered)


def rolled_out(env, cmdp, policy, goal, episodes, rng):
    """Reward, cost and whether the goal was reached, of every episode in the real environment."""
    flat = np.asarray(cmdp.mdp.to_flat(policy))  # [horizon, N, A]
    cost = mishap_of(env)
    found = np.zeros((episodes, 3))
    for episode in range(episodes):
        state, _ = env.reset(seed=episode)
        for row in flat:
            chances = row[state] / row[state].sum()
            action = int(rng.choice(len(chances), p=chances))
            following, reward, ended, _, _ = env.step(action)
            price = cost(state, action, following, reward, ended)
            found[episode] += reward, price, goal(following, reward)
            state = following
            if ended:
                break
    return found


def goal_share(env, cmdp, occupancy, goal):
    """How often the linear program reaches the goal, from its occupancy and the table."""
    visits = np.asarray(cmdp.mdp.to_flat(marginal(cmdp, occupancy))).sum(0)  # [N, A]
    return sum(
        visits[state, action] * chance
        for state, actions in env.unwrapped.P.items()
        for action, outcomes in actions.items()
        for chance, following, reward, ended in outcomes
        if ended and goal(following, reward)
    )


# Name, options of the environment, horizon, budget, when the goal is reached, and how often the
# best feasible policy reaches it at least.
BEST = {
    "lake": (LAKE, {}, 16, 0.03, lambda s, r: r == 1, 0.1),
    "large lake": (LARGE_LAKE, {}, 30, 0.03, lambda s, r: r == 1, 0.02),
    "lake, no slip": (LAKE, {"is_slippery": False}, 16, 0.03, lambda s, r: r == 1, 0.999999),
    "cliff": (CLIFF, {}, 20, 0.03, lambda s, r: s == 47, 0.999999),
    "cliff, slippery": (CLIFF, {"is_slippery": True}, 60, 0.1, lambda s, r: s == 47, 0.3),
    "taxi": (TAXI, {}, 8, 0.03, lambda s, r: r == 20, 0.04),
}


@pytest.mark.slow
@pytest.mark.parametrize("support", SUPPORTS)
@pytest.mark.parametrize("case", BEST)
def test_the_best_feasible_policy_does_in_the_environment_what_the_program_says(case, support):
    name, options, horizon, budget, goal, least = BEST[case]
    env = gym.make(name, **options, max_episode_steps=horizon + 1)
    cmdp = from_gymnasium(env, horizon=horizon, budget=budget, support=support).cmdp
    best = best_of(cmdp)
    share = goal_share(env, cmdp, best.occupancy, goal)
    assert share >= least
    value = cmdp.units.to_environment(best.value)
    costs = value_of(cmdp.constraints.mean(), jnp.asarray(best.occupancy), cmdp.layers)
    cost = float(costs[0]) + budget
    assert cost <= budget + 1e-9  # what HiGHS is asked for, in a sum of few terms

    policy = policy_of(jnp.asarray(best.occupancy), cmdp.layers)
    rolled = rolled_out(env, cmdp, policy, goal, 1500, np.random.default_rng(0))
    # 5 standard errors: 36 comparisons, a right import fails once in 10^5. A rare cost may not be
    # seen at all, and one in the sample of 1,500 has a standard error of 1 / 1500.
    error = 5 * np.maximum(rolled.std(0), 1500**-0.5) / np.sqrt(len(rolled))
    np.testing.assert_array_less(np.abs(rolled.mean(0) - [value, cost, share]), error)


def test_the_best_walker_reaches_the_goal_of_the_cliff_in_thirteen_steps():
    cmdp = make("gymnasium", env=CLIFF, horizon=20, budget=0.03)
    best = best_of(cmdp)
    assert cmdp.units == RewardUnits(scale=100.0, offset=-2000.0)
    assert cmdp.units.to_environment(best.value) == pytest.approx(-13, abs=1e-7)
    ends = np.asarray(cmdp.mdp.to_flat(jnp.asarray(best.occupancy.sum(-1))))[-1]
    assert ends[48].sum() == pytest.approx(1, abs=1e-9)  # all of it waits behind the goal


@pytest.mark.slow
@pytest.mark.parametrize("support", SUPPORTS)
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_policys_value_is_what_stepping_the_environment_gives(name, support):
    horizon = ENVIRONMENTS[name]
    case = imported(name, support)
    mdp = case.cmdp.mdp
    env = gym.make(name, max_episode_steps=horizon + 1)
    N, A = env.observation_space.n, env.action_space.n
    rng = np.random.default_rng(0)
    policy = rng.dirichlet(np.full(A, 0.5), size=(horizon, N + 1))
    layered = mdp.policy_from_flat(policy)
    q = occupancy_of(mdp, layered)
    means = case.cmdp.rewards.mean(), case.cmdp.constraints.mean()
    earned, costs = (value_of(mean, q, mdp.layers) for mean in means)
    value = case.cmdp.units.to_environment(float(earned))
    cost = float(costs[0]) + 1.0  # back to the plain cost
    rolled = rolled_out(env, case.cmdp, layered, lambda s, r: False, 1500, rng)[:, :2]
    # 5 standard errors: 16 comparisons, a right import fails once in 10^5. A goal that is reached
    # once in 50,000 episodes, as on the large lake, is not seen: as above.
    error = 5 * np.maximum(rolled.std(0), 1500**-0.5) / np.sqrt(len(rolled))
    np.testing.assert_array_less(np.abs(rolled.mean(0) - [value, cost]), error)


def test_a_cost_of_ones_own():
    def at_the_edge(state, action, following, reward, terminated):
        return float(following % 4 == 3)

    case = from_gymnasium("FrozenLake-v1", horizon=6, budget=0.5, cost=at_the_edge)
    assert float(jnp.max(case.cmdp.constraints.mean())) <= 1 - 0.5 / 6 + 1e-12
    with pytest.raises(ValueError, match="cost of state 0, action 0 to state 0 is 2.0"):
        from_gymnasium("FrozenLake-v1", horizon=6, budget=0.5, cost=lambda *step: 2.0)


class Unknown(gym.Env):
    """Two states; action 1 leaves the first and earns -5, or ends the episode in the second."""

    def __init__(self):
        self.P = {
            0: {0: [(1.0, 0, -1, False)], 1: [(1.0, 1, -5, False)]},
            1: {0: [(1.0, 1, -1, False)], 1: [(1.0, 1, 0, True)]},
        }
        self.initial_state_distrib = np.array([1.0, 0.0])


def test_what_costs_in_an_unknown_environment_must_be_said():
    with pytest.raises(ValueError, match="a mishap in .* is not defined; define it with `cost`"):
        from_gymnasium(Unknown(), horizon=3, budget=0.5)
    case = from_gymnasium(Unknown(), horizon=3, budget=0.0, cost=-5)
    costs = np.asarray(case.cmdp.constraints.mean())[0, 0, 0]
    np.testing.assert_array_equal(costs, [0, 1])


def test_a_cost_that_is_neither_function_nor_number_is_refused(unchecked):
    with pytest.raises(ValueError, match="cost must be a function or a number; got 'many'"):
        from_gymnasium(Unknown(), horizon=3, budget=0.5, cost="many")


def test_what_cannot_be_imported():
    with pytest.raises(ValueError, match="Gymnasium cannot make 'FrozenLak-v1'"):
        make("gymnasium", env="FrozenLak-v1")
    with pytest.raises(ValueError, match="has no table P"):
        make("gymnasium", env="CartPole-v1")
    with pytest.raises(ValueError, match="a passenger who changes the destination"):
        from_gymnasium(gym.make(TAXI, fickle_passenger=True), horizon=4, budget=1.0)


STATED = re.findall(
    r"- (?P<family>\w+)-v\d+, horizon (?P<horizon>\d+), budget (?P<budget>[\d.]+): "
    r"OPT = (?P<opt>[\d.]+), without constraints (?P<free>[\d.]+), rho = (?P<rho>[\d.]+); "
    r"in its own units (?P<own>-?[\d.]+)\.(?: |$)",
    " ".join(inspect.getdoc(builder_of("gymnasium")).split()),
)


def test_all_environments_state_their_numbers():
    stated = {family for family, *_ in STATED}
    assert stated == {"FrozenLake8x8", "CliffWalking", "Taxi", "Blackjack"}


@pytest.mark.slow
@pytest.mark.parametrize("stated", STATED, ids=lambda stated: stated[0])
def test_the_numbers_stated_are_true_with_either_support(stated):
    family, *numbers = stated
    horizon, budget, opt, free, rho, own = map(float, numbers)
    options = {"env": newest(family), "horizon": horizon, "budget": budget}
    for support in ("known", "unknown"):
        cmdp = make("gymnasium", support=support, **options)
        best = best_of(cmdp)
        # Four digits are stated.
        assert best.value == pytest.approx(opt, abs=6e-5)
        assert cmdp.units.to_environment(best.value) == pytest.approx(own, abs=6e-5)
        unconstrained = oracle.optimum(cmdp.mdp, cmdp.rewards.mean()).value
        assert unconstrained == pytest.approx(free, abs=6e-5)
        margin = oracle.slater_margin(cmdp.mdp, cmdp.constraints).rho
        assert margin == pytest.approx(rho, abs=6e-5)


def test_environments_of_different_units_can_be_stacked():
    cases = [make("gymnasium", env=name, horizon=4, budget=0.5) for name in (LAKE, CLIFF)]
    assert cases[0].units != cases[1].units
    assert stack_cmdps(cases).mdp.transition.shape[0] == 2


@pytest.mark.slow
def test_solving_and_running_speak_the_units_of_the_environment():
    # Low and high are -100 and 0 in each of the 13 steps that the best walker takes.
    cliff = ["gymnasium", "--env", CLIFF, "--horizon", "13", "--budget", "0.03"]
    printed = CliRunner().invoke(app, ["solve", *cliff]).output
    assert "units OPT -13 and without constraints -13" in " ".join(printed.split())
    few = ["--learner", "uniform", "--episodes", "4", "--seeds", "2", "--checkpoints", "2"]
    printed = CliRunner().invoke(app, ["run", *cliff, *few]).output
    facts = json.loads(CliRunner().invoke(app, ["run", *cliff, *few, "--json"]).stdout)
    own = facts["environment"]
    assert own["opt"] == pytest.approx(-13 * 4, abs=1e-2)  # in float32
    assert (own["reward"]["mean"] + 13 * 100 * 4) / 100 == pytest.approx(facts["reward"]["mean"])
    widths = [found["reward"]["high"] - found["reward"]["low"] for found in (own, facts)]
    assert widths[0] == pytest.approx(100 * widths[1])
    assert re.search(r"OPT, in the environment's units +-52 +-13", printed)


def test_what_was_not_rescaled_speaks_no_other_units():
    assert "environment's units" not in CliRunner().invoke(app, ["solve", "two-phase"]).output
