"""Strong, dynamic and window regret, and feasibility, against slow sums over the episodes."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog

from pdgd_jax import (
    CMDP,
    LayeredMDP,
    Layers,
    comparators_of,
    dataset_of,
    evaluate,
    learners,
    make,
    make_for,
    oracle,
    policy_of,
    run,
    stack,
)
from pdgd_jax.learners import Info, Learner
from pdgd_jax.oracle import _episodes
from pdgd_jax.processes import AdversarialProcess, Corrupted, Drift, Phases, Table, pytree
from pdgd_jax.results import _benchmarks
from tests.conftest import random_mdp

T = 24


def single(rewards, costs):
    """One state, two actions that only differ in what they show: `[T, 2]` each."""
    mdp = LayeredMDP(Layers.from_sizes((1, 1), num_actions=2), np.ones((1, 1, 2, 1)))
    rewards, costs = np.asarray(rewards, float), np.asarray(costs, float)
    return CMDP(mdp, Table(rewards[:, None, None]), Table(costs[:, None, None, None]))


def playing(shares):
    """A learner that plays the first action with these probabilities, episode by episode."""
    shares = jnp.asarray(shares)

    def policy(t):
        return jnp.stack([shares[t], 1 - shares[t]])[None, None]

    return Learner(
        init=lambda key: jnp.zeros((), jnp.int32),
        policy=policy,
        update=lambda t, trajectory, outcome: (t + 1, Info()),
    )


# By hand: the first action earns 1 and costs 1 or 0, the second earns nothing and gains 1 or 0.5.
REWARDS = [[1, 0]] * 4
COSTS = [[1, -1], [1, -1], [0, -0.5], [0, -0.5]]
SHARES = [0.5, 0.75, 1.0, 0.0]  # costs 0, 0.5, 0, -0.5


def test_by_hand():
    """OPT: x 2/4 - (1 - x) 3/4 <= 0 gives 0.6; by themselves the episodes allow 1/2, 1/2, 1, 1."""
    cmdp = single(REWARDS, COSTS)
    comparators = comparators_of(cmdp, 4)
    assert float(comparators.opt) == pytest.approx(0.6)
    history = run(jax.random.key(0), cmdp, playing(SHARES), 4, comparators=comparators)
    result = evaluate(history, cmdp, k=2)
    np.testing.assert_allclose(result.strong_regret, np.cumsum([0.1, 0, 0, 0.6]), atol=1e-9)
    lost = np.cumsum([0.5, 0.5, 1, 1]) - np.cumsum(SHARES)
    np.testing.assert_allclose(result.dynamic_regret, lost, atol=1e-9)
    assert result.dynamic_reason.item() == ""
    np.testing.assert_allclose(result.feasibility, [1, 1 / 2, 2 / 3, 3 / 4])
    # Windows of two: the first is the tightest, 2 x - 2 (1 - x) <= 0.
    best = np.array([1 / 2] * 4)
    np.testing.assert_allclose(result.k_regret, [1, 2, 3, 4] * best - np.cumsum(SHARES), atol=1e-9)
    assert float(result.window) == 2


def test_what_is_not_known_is_nan(monkeypatch):
    cmdp = single(REWARDS, COSTS)
    bare = evaluate(run(jax.random.key(0), cmdp, playing(SHARES), 4), cmdp)  # no comparators
    assert np.isnan(bare.strong_regret).all()
    assert np.isfinite(bare.dynamic_regret).all()
    assert np.isnan(bare.k_regret).all()
    assert np.isnan(bare.window)
    with monkeypatch.context() as patch:
        patch.setattr(_benchmarks, "_LONGEST", 3)
        long = evaluate(run(jax.random.key(0), cmdp, playing(SHARES), 4), cmdp)
    assert np.isnan(long.dynamic_regret).all()
    assert long.dynamic_reason.item() == "the run is longer than 3 episodes"
    hopeless = single(REWARDS, np.ones((4, 2)))
    assert np.isnan(float(comparators_of(hopeless, 4).opt))
    result = evaluate(run(jax.random.key(0), hopeless, playing(SHARES), 4), hopeless)
    assert np.isnan(result.dynamic_regret).all()
    assert result.dynamic_reason.item() == "no policy satisfies the constraints of episode 1"
    np.testing.assert_array_equal(result.feasibility, 0)
    never = CMDP(cmdp.mdp, jnp.ones((1, 1, 2)), jnp.ones((1, 1, 1, 2)))
    result = evaluate(run(jax.random.key(0), never, playing(SHARES), 4), never)
    assert np.isnan(result.dynamic_regret).all()
    assert result.dynamic_reason.item() == "no policy satisfies the constraints"


@pytest.mark.parametrize(
    ("kinds", "reason"),
    [
        ({"constraints": "adaptive"}, "the constraints depend on the policies"),
        ({"rewards": "adaptive"}, "the rewards depend on the policies"),
    ],
)
def test_an_adversary_that_looks_has_no_optimum_beforehand(kinds, reason):
    cmdp = make("random", sizes=(1, 3, 1), num_actions=2, **kinds)
    comparators = comparators_of(cmdp, T)
    assert np.isnan(float(comparators.opt))
    idle = learners.uniform(cmdp.layers)
    result = evaluate(run(jax.random.key(0), cmdp, idle, T, comparators=comparators), cmdp)
    assert np.isnan(result.dynamic_regret).all()
    assert result.dynamic_reason.item() == reason
    with pytest.raises(oracle.UnforeseenError, match="depend on the policies"):
        oracle.k_benchmark(cmdp, T, 3) if "constraints" in kinds else oracle.episode_optima(cmdp, T)


def brute_force(mdp, reward, rows):
    """The best mixture of deterministic policies; the rows `[n, L, S, A]` cost at most 0."""
    P, mask = np.asarray(mdp.transition), np.asarray(mdp.layers.action_mask)
    places = [place for place in np.ndindex(*mask.shape[:2]) if mask[place].any()]
    marginals = []
    for actions in itertools.product(*[np.flatnonzero(mask[place]) for place in places]):
        q, mass = np.zeros(mask.shape), np.eye(mask.shape[1])[0]
        for layer in range(mask.shape[0]):
            for (k, x), a in zip(places, actions, strict=True):
                if k == layer:
                    q[k, x, a] = mass[x]
            mass = np.einsum("xa,xay->y", q[layer], P[layer])
        marginals.append(q)
    marginals = np.stack(marginals)
    values = np.einsum("nlxa,lxa->n", marginals, reward)
    costs = np.einsum("nlxa,rlxa->rn", marginals, np.asarray(rows))
    ones = np.ones((1, len(values)))
    found = linprog(-values, A_ub=costs, b_ub=np.zeros(len(costs)), A_eq=ones, b_eq=[1])
    return -found.fun if found.status == 0 else np.nan


def table_of(seed, m):
    rng = np.random.default_rng(seed)
    mdp = random_mdp(seed, (1, 2, 2, 1), num_actions=2)
    rewards = rng.uniform(size=(T, *mdp.layers.shape))
    costs = np.clip(rng.uniform(-1, 0.6, (T, m, *mdp.layers.shape)), -1, 1)
    return CMDP(mdp, Table(rewards), Table(costs)), rewards, costs


@pytest.mark.parametrize(("seed", "m"), [(0, 1), (1, 2), (2, 3), (3, 1)])
def test_windows_against_one_program_with_all_of_them(seed, m):
    cmdp, rewards, costs = table_of(seed, m)
    found = set()
    for K in (1, 2, 5, 11, T):
        rows = [costs[t : t + K].sum(0) / K for t in range(T - K + 1)]
        rows = np.concatenate(rows)
        best = oracle.k_benchmark(cmdp, T, K)
        expected = brute_force(cmdp.mdp, rewards.mean(0), rows)
        assert best.feasible == np.isfinite(expected)
        if best.feasible:
            assert best.value == pytest.approx(expected, abs=1e-8)
            marginal = np.asarray(best.occupancy).sum(-1)
            assert (np.tensordot(rows, marginal, axes=3) <= 1e-8).all()
            assert (best.multipliers >= 0).all()
        found.add(round(best.value, 6))
    assert len(found) > 2  # or the windows would not matter


def test_the_optima_of_episodes_against_brute_force():
    cmdp, rewards, costs = table_of(1, 2)
    expected = [brute_force(cmdp.mdp, r, G) for r, G in zip(rewards, costs, strict=True)]
    assert 0 < np.isnan(expected).sum() < T  # a batch with infeasible programs in it
    np.testing.assert_allclose(oracle.episode_optima(cmdp, T), expected, atol=1e-8)
    easy = CMDP(cmdp.mdp, cmdp.rewards, Table(costs / 2 - 0.05))  # and one without
    expected = [brute_force(cmdp.mdp, r, G / 2 - 0.05) for r, G in zip(rewards, costs, strict=True)]
    assert np.isfinite(expected).all()
    free = [brute_force(cmdp.mdp, r, np.zeros((0, *r.shape))) for r in rewards]
    assert (np.array(free) > np.array(expected) + 1e-3).any()  # some constraints bind
    np.testing.assert_allclose(oracle.episode_optima(easy, T), expected, atol=1e-8)
    with pytest.raises(oracle.UnforeseenError, match="24 linear programs"):
        oracle.episode_optima(cmdp, T, most=10)


def test_rewards_and_constraints_change_at_their_own_times(monkeypatch):
    """Three phases of rewards and a table of constraints; a few programs at a time."""
    cmdp, rewards, costs = table_of(1, 2)
    monkeypatch.setattr(_episodes, "_TOGETHER", 5)
    phases = Phases(rewards[:3], period=5)
    mixed = CMDP(cmdp.mdp, phases, Table(costs / 2 - 0.05))
    shown = [rewards[t // 5 % 3] for t in range(T)]
    expected = [brute_force(cmdp.mdp, r, G / 2 - 0.05) for r, G in zip(shown, costs, strict=True)]
    np.testing.assert_allclose(oracle.episode_optima(mixed, T), expected, atol=1e-8)


def test_prices_of_ten_none_and_eight():
    """The example by hand: a budget of 30 buys 1, 2 or 5/3 at prices (10, 0, 8) over K days.

    One buys x between 0 and 3 for the price of the day and has 10 a day: x p <= 10 each day.
    """
    prices, most = np.array([10.0, 0.0, 8.0]), 3.0
    # The share y = x / 3 of the first action costs (3 p - 10) / 20, the second gains 10 / 20.
    costs = np.stack([(most * prices - 10) / 20, np.full(3, -0.5)], -1)
    cmdp = single([[1, 0]] * 3, costs)
    bought = [most * oracle.k_benchmark(cmdp, 3, K).value for K in (1, 2, 3)]
    np.testing.assert_allclose(bought, [1, 2, 5 / 3], atol=1e-8)


@pytest.mark.parametrize("schedule", ["periodic", "doubling", "once"])
def test_phases_are_a_table_of_few_rows(schedule):
    cmdp, _, costs = table_of(0, 2)
    phases = Phases(costs[:3], period=5, schedule=schedule)
    shown = np.stack([phases.draw(None, (), t, None)[0] for t in range(T)])
    few, many = (CMDP(cmdp.mdp, cmdp.rewards, process) for process in (phases, Table(shown)))
    for K in (1, 4, 7, T):
        ours, theirs = (oracle.k_benchmark(one, T, K).value for one in (few, many))
        assert ours == pytest.approx(theirs, abs=1e-8)


def test_what_every_process_will_show():
    """A timetable is the episodes that are drawn, or their means."""
    rng = np.random.default_rng(0)
    shape = (2, 3, 2)
    values = rng.uniform(0.3, 0.7, (T, *shape))
    base = make("random", sizes=(1, 3, 1), num_actions=2).rewards
    processes = [
        Table(values),
        Phases(values[:3], period=4, schedule="doubling"),
        Drift(values[0], 0.1, period=7),
        Drift(values[0], 0.1, period=700),
        Corrupted(Phases(values[:2], period=2), Table(values), share=0.4, period=5),
    ]
    for process in processes:
        drawn = [draw(process, t) for t in range(T)]
        table = process.timetable(T)
        np.testing.assert_allclose(table.values[table.which], drawn, atol=1e-7)
    table = Corrupted(base, Table(values), share=0.4, period=5).timetable(T)
    expected = [values[t] if t % 5 < 2 else np.asarray(base.mean()) for t in range(T)]
    np.testing.assert_allclose(table.values[table.which], expected)


def draw(process, episode):
    key = jax.random.key(0)
    return np.asarray(process.draw(key, process.init(key), episode, None)[0])


def test_a_process_of_ones_own_is_drawn():
    @pytree
    class Alternating(AdversarialProcess):
        first: jnp.ndarray
        second: jnp.ndarray

        def draw(self, key, state, episode, policy):
            return jnp.where(episode % 2 == 0, self.first, self.second), state

    cmdp = single(REWARDS, COSTS)
    costs = Alternating(*(jnp.asarray([[[cost]]]) for cost in ([1.0, -1.0], [0.0, -0.5])))
    mine = CMDP(cmdp.mdp, jnp.asarray([[[1.0, 0.0]]]), costs)
    np.testing.assert_allclose(oracle.episode_optima(mine, 4), [0.5, 1, 0.5, 1], atol=1e-9)


def test_only_the_whole_run_is_a_window_of_what_depends_on_policies():
    cmdp = make("random", sizes=(1, 3, 1), num_actions=2, constraints="adaptive")
    history = run(jax.random.key(0), cmdp, learners.uniform(cmdp.layers), T, checkpoints=2)
    result = evaluate(history, cmdp, k=T)
    np.testing.assert_array_equal(result.k_regret, result.regret)
    with pytest.raises(oracle.UnforeseenError):
        evaluate(history, cmdp, k=T - 1)
    with pytest.raises(ValueError, match="k must be"):
        evaluate(history, cmdp, k=0)


def test_the_regrets_of_stochastic_runs_agree_and_are_stacked():
    """Without an adversary, episodes differ by chance alone: dynamic regret is regret."""
    options = {"sizes": (1, 3, 1), "num_actions": 2}
    both = stack([make("random", seed=seed, **options) for seed in (0, 1)])

    def play(cmdp, key):
        return run(key, cmdp, learners.uniform(cmdp.layers), T, checkpoints=3)

    keys = jax.random.split(jax.random.key(0), 3)
    history = jax.vmap(lambda cmdp: jax.vmap(lambda key: play(cmdp, key))(keys))(both)
    result = evaluate(history, both, k=5)
    assert result.dynamic_regret.shape == (2, 3, 3)
    np.testing.assert_allclose(result.dynamic_regret, result.regret, atol=1e-9)
    np.testing.assert_allclose(result.k_regret, result.regret, atol=1e-9)
    data = dataset_of(history, result, dims=("instance", "seed"))
    assert data.window.shape == data.dynamic_reason.shape == (2, 3)


def test_the_best_feasible_policy_has_no_strong_regret_and_is_always_feasible(precision):
    """Of the means: rewards and constraints that are drawn around them do not count."""
    cmdp = make("random", sizes=(1, 3, 1), num_actions=2)
    comparators, best = comparators_of(cmdp, T), learners.best_feasible(cmdp, T)
    history = run(jax.random.key(0), cmdp, best, T, checkpoints=2, comparators=comparators)
    result = evaluate(history, cmdp)
    slack = 1e-6 if precision == "float32" else 1e-9
    assert (result.strong_regret <= slack * T).all()
    np.testing.assert_array_equal(result.feasibility, 1)
    free = oracle.optimum(cmdp.mdp, cmdp.rewards.mean())
    greedy = policy_of(jnp.asarray(free.occupancy), cmdp.layers)
    always = Learner(lambda key: (), lambda state: jnp.asarray(greedy), lambda s, t, o: (s, Info()))
    history = run(jax.random.key(0), cmdp, always, T, checkpoints=2, comparators=comparators)
    result = evaluate(history, cmdp)
    np.testing.assert_array_equal(result.feasibility, 0)
    assert (result.strong_regret <= slack * T).all()  # it earns more than OPT


def test_two_phases_made_for_a_run():
    cmdp = make_for("two-phase", 100)
    history = run(jax.random.key(0), cmdp, learners.most_feasible(cmdp), 100, checkpoints=4)
    result = evaluate(history, cmdp)
    np.testing.assert_allclose(result.dynamic_regret, [12.5, 25, 30, 35], atol=1e-8)
