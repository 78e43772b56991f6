"""The linear programs against brute force over all deterministic policies, and against duality."""

import itertools

import jax
import numpy as np
import pytest
from scipy.optimize import linprog

from pdgd_jax import (
    CMDP,
    EpisodesWarning,
    comparators_of,
    learners,
    make,
    make_for,
    occupancy_of,
    oracle,
    policy_of,
    registered,
)
from pdgd_jax.processes import Adaptive, Bernoulli, Constant, Corrupted, Drift, Phases, Table
from tests.conftest import random_mdp


def deterministic_occupancies(mdp):
    """The marginal occupancy of every deterministic policy, `[policies, L, S, A]`."""
    P, mask = np.asarray(mdp.transition), np.asarray(mdp.layers.action_mask)
    L, S, A, _ = P.shape
    places = [(k, x) for k in range(L) for x in range(S) if mask[k, x].any()]
    choices = [np.flatnonzero(mask[k, x]) for k, x in places]
    found = []
    for actions in itertools.product(*choices):
        action_at = dict(zip(places, actions, strict=True))
        q = np.zeros((L, S, A))
        mass = np.eye(S)[0]
        for k in range(L):
            following = np.zeros(S)
            for x in range(S):
                if (k, x) in action_at:
                    q[k, x, action_at[k, x]] = mass[x]
                    following += mass[x] * P[k, x, action_at[k, x]]
            mass = following
        found.append(q)
    return np.stack(found)


def best_mixture(values, costs):
    """The best convex combination of policies that meets the constraints: a tiny, explicit LP.

    Every occupancy is a mixture of deterministic ones, so this is OPT by its definition.
    """
    solution = linprog(
        -values,
        A_ub=costs.T,
        b_ub=np.zeros(costs.shape[1]),
        A_eq=np.ones((1, len(values))),
        b_eq=[1],
    )
    return -solution.fun if solution.status == 0 else None


def problem(seed, m=2):
    rng = np.random.default_rng(seed)
    mdp = random_mdp(seed, (1, 2, 2, 1), num_actions=2)
    reward = rng.uniform(size=mdp.layers.shape)
    G = rng.uniform(-1, 1, size=(m, *mdp.layers.shape))
    return mdp, reward, G


@pytest.mark.parametrize("seed", range(12))
def test_optimum_equals_brute_force(seed):
    mdp, reward, G = problem(seed)
    policies = deterministic_occupancies(mdp)
    values = np.tensordot(policies, reward, axes=3)
    costs = np.tensordot(policies, G, axes=[(1, 2, 3), (1, 2, 3)])

    free = oracle.optimum(mdp, reward)
    assert free.value == pytest.approx(values.max(), abs=1e-9)
    best, expected = oracle.optimum(mdp, reward, G), best_mixture(values, costs)
    if expected is None:
        assert best.status == "infeasible"
        assert not best.feasible
        assert best.value == -np.inf
        assert np.isnan(best.occupancy).all()
    else:
        assert best.feasible
        assert best.value == pytest.approx(expected, abs=1e-9)
        check_occupancy(mdp, best.occupancy)
        assert (np.tensordot(G, best.occupancy.sum(-1), axes=3) <= 1e-9).all()

    margin = oracle.slater_margin(mdp, G)
    # rho by brute force: the largest s such that some mixture has every cost below -s.
    n = len(values)
    solution = linprog(
        np.append(np.zeros(n), -1.0),
        A_ub=np.column_stack([costs.T, np.ones(len(G))]),
        b_ub=np.zeros(len(G)),
        A_eq=np.append(np.ones(n), 0.0)[None],
        b_eq=[1],
        bounds=[(0, None)] * n + [(None, None)],
    )
    assert margin.rho == pytest.approx(-solution.fun, abs=1e-9)
    assert margin.feasible == best.feasible
    worst = np.tensordot(G, margin.occupancy.sum(-1), axes=3).max()
    assert -worst == pytest.approx(margin.rho, abs=1e-9)


def test_both_answers_occur_above():
    statuses = {oracle.optimum(*problem(seed)).status for seed in range(12)}
    assert statuses == {"optimal", "infeasible"}


def check_occupancy(mdp, q):
    outflow, inflow = q.sum((2, 3)), q.sum((1, 2))
    assert q.min() >= 0
    assert outflow[0, 0] == pytest.approx(1, abs=1e-9)
    np.testing.assert_allclose(outflow[1:], inflow[:-1], atol=1e-9)
    np.testing.assert_allclose(q, q.sum(-1, keepdims=True) * np.asarray(mdp.transition), atol=1e-9)


def best_response(mdp, values):
    """max over policies of values, by backward induction: shares nothing with the LP."""
    P, mask = np.asarray(mdp.transition), np.asarray(mdp.layers.action_mask)
    future = np.zeros(P.shape[1])
    for k in reversed(range(P.shape[0])):
        Q = values[k] + P[k] @ future
        future = np.where(mask[k].any(-1), np.where(mask[k], Q, -np.inf).max(-1), 0)
    return future[0]


@pytest.mark.parametrize("name", registered())
def test_strong_duality(name):
    cmdp = make(name)
    average = oracle.hindsight(cmdp, 10_000)
    reward, G = np.asarray(average.reward), np.asarray(average.constraints)
    best = oracle.optimum(cmdp.mdp, reward, G)
    assert best.feasible
    assert (best.multipliers >= 0).all()
    # OPT = min over lambda of max over q of the Lagrangian, attained at the multipliers.
    lagrangian = reward - np.tensordot(best.multipliers, G, axes=1)
    assert best_response(cmdp.mdp, lagrangian) == pytest.approx(best.value, abs=1e-8)
    slack = np.tensordot(G, best.occupancy.sum(-1), axes=3)
    np.testing.assert_allclose(best.multipliers * slack, 0, atol=1e-8)
    # And any other multipliers give an upper bound.
    for seed in range(3):
        other = np.random.default_rng(seed).uniform(0, 3, size=len(G))
        bound = best_response(cmdp.mdp, reward - np.tensordot(other, G, axes=1))
        assert bound >= best.value - 1e-9


def test_an_unconstrained_optimum_has_no_multipliers():
    mdp, reward, _ = problem(0)
    assert oracle.optimum(mdp, reward).multipliers.shape == (0,)
    assert oracle.optimum(mdp, reward).value == pytest.approx(best_response(mdp, reward))


def test_adversarial_margin_of_a_long_table():
    rng = np.random.default_rng(0)
    mdp = make("random", sizes=(1, 4, 4, 1)).mdp
    T = 100_000
    # Wide enough that the worst rows are not the worst entry by entry.
    table = (rng.uniform(-1, 0.4, size=(T, 1, *mdp.layers.shape))).astype(np.float32)
    margin = oracle.slater_margin(mdp, table)
    # It is attained, and no policy does better: the dual is a distribution over rows whose
    # average no policy can push below -rho.
    worst = np.tensordot(table.astype(float), margin.occupancy.sum(-1), axes=3).max()
    assert -worst == pytest.approx(margin.rho, abs=1e-8)
    every = oracle.slater_margin(mdp, table[:400])
    assert margin.rho <= every.rho + 1e-9
    assert full_margin(mdp, table[:400]) == pytest.approx(every.rho, abs=1e-8)


def full_margin(mdp, table):
    """rho with every row in the program at once, over mixtures of deterministic policies' LP."""
    mask = np.asarray(mdp.layers.action_mask)
    P = np.asarray(mdp.transition)
    pairs = np.argwhere(mask)
    rows = table.reshape(-1, *mask.shape)[:, mask].astype(float)
    states = np.argwhere(mask.any(-1))
    balance = np.zeros((len(states), len(pairs)))
    for j, (k, x, a) in enumerate(pairs):
        for i, (layer, state) in enumerate(states):
            balance[i, j] += (layer, state) == (k, x)
            if layer == k + 1:
                balance[i, j] -= P[k, x, a, state]
    solution = linprog(
        np.append(np.zeros(len(pairs)), -1.0),
        A_ub=np.column_stack([rows, np.ones(len(rows))]),
        b_ub=np.zeros(len(rows)),
        A_eq=np.column_stack([balance, np.zeros(len(states))]),
        b_eq=(states == 0).all(1).astype(float),
        bounds=[(0, None)] * len(pairs) + [(None, None)],
    )
    return -solution.fun


def test_margin_of_a_process_is_that_of_its_episodes():
    cmdp = make("two-phase")
    assert oracle.slater_margin(cmdp.mdp, cmdp.constraints).rho == pytest.approx(0.25)
    both = np.asarray(cmdp.constraints.values)
    assert oracle.slater_margin(cmdp.mdp, both).rho == pytest.approx(0.25)
    # A table counts its first episodes only, as many as are played.
    table = Table(both)
    assert oracle.slater_margin(cmdp.mdp, table, num_episodes=1).rho == pytest.approx(1.0)
    assert oracle.slater_margin(cmdp.mdp, table).rho == pytest.approx(0.25)


def test_margin_of_an_adversary_is_that_of_the_episodes_it_shows():
    """One state, safe and risky: what corruption, phases and drift show within T, and no more."""
    mdp = make("two-phase").mdp

    def rows(*pairs):
        return np.array(pairs, float).reshape(-1, 1, 1, 1, 2)

    def rho(process, T=None):
        found = oracle.slater_margin(mdp, process, T)
        return round(found.rho, 7), found.exact  # the phase of a drift is a float32

    mild, harsh = rows((0.3, -0.5))[0], rows((0.9, 0.9))[0]
    # Of a table's episodes the first is hidden by the corruption, which no policy satisfies.
    table = Corrupted(Table(rows(*[(0.3, -0.5)] * 10)), Constant(harsh), share=0.1, period=10)
    assert rho(table, 10) == (-0.9, True)
    assert rho(Corrupted(Constant(mild), Constant(harsh), share=0.0), 10) == (0.5, True)
    # Chance may show +1 everywhere; that is a bound, not the margin of a run.
    chance = Corrupted(Bernoulli(mild), Constant(mild), period=10)
    assert rho(chance, 100) == (-1.0, False)
    assert rho(Adaptive(mild, strength=0.4), 100) == (0.1, False)
    phases = Phases(rows((0.3, -0.5), (0.9, 0.9)), period=50, schedule="once")
    assert rho(phases, 50) == (0.5, True)
    assert rho(phases, 51) == (-0.9, True)
    assert rho(phases) == (-0.9, True)
    drift = Drift(rows((0.0, -0.5))[0], rows((0.0, 0.5))[0], period=8)
    assert rho(drift, 1) == (0.5, True)
    assert rho(drift, 2) == (round(0.5 - 0.5 * np.sin(np.pi / 4), 7), True)
    assert rho(drift, 8) == (0.0, True)


def test_padding_changes_nothing():
    cmdp = make("inventory")
    L, S, A = cmdp.layers.shape
    padded = cmdp.pad_to((L + 1, S + 2, A + 1))
    plain = oracle.optimum(cmdp.mdp, cmdp.rewards.mean(), cmdp.constraints.mean())
    wide = oracle.optimum(padded.mdp, padded.rewards.mean(), padded.constraints.mean())
    assert wide.value == pytest.approx(plain.value, abs=1e-9)
    np.testing.assert_allclose(wide.multipliers, plain.multipliers, atol=1e-8)
    np.testing.assert_allclose(wide.occupancy.sum(), plain.occupancy.sum(), atol=1e-9)
    rho = [oracle.slater_margin(c.mdp, c.constraints).rho for c in (cmdp, padded)]
    assert rho[0] == pytest.approx(rho[1], abs=1e-9)


def test_hindsight_averages_what_an_adversary_showed():
    cmdp = make("two-phase", num_episodes=100)
    for T, risky in ((50, 1.0), (100, 1.0)):
        average = oracle.hindsight(cmdp, T)
        safe = -1.0 if T == 50 else -0.625
        np.testing.assert_allclose(average.constraints[0, 0, 0], [risky, safe], atol=1e-12)
    np.testing.assert_array_equal(average.reward, cmdp.rewards.mean())
    short = CMDP(cmdp.mdp, Table(np.zeros((3, 1, 1, 2))), cmdp.constraints)
    with pytest.raises(ValueError, match="table of rewards has 3 episodes, fewer than the 4"):
        oracle.hindsight(short, 4)


def test_float32_instances_are_solved_too():
    with jax.enable_x64(False):
        cmdp = make("grid")
        value = oracle.optimum(cmdp.mdp, cmdp.rewards.mean(), cmdp.constraints.mean()).value
    exact = make("grid")
    assert value == pytest.approx(
        oracle.optimum(exact.mdp, exact.rewards.mean(), exact.constraints.mean()).value, abs=1e-5
    )


def test_bad_input(unchecked):
    mdp, reward, G = problem(0)
    with pytest.raises(
        ValueError, match=r"with \(L, S, A\) = \(3, 2, 2\) of the MDP; got \(1, 2, 2\)"
    ):
        oracle.optimum(mdp, reward[:1])
    with pytest.raises(ValueError, match="a reward lies in"):
        oracle.optimum(mdp, reward + 1)
    with pytest.raises(ValueError, match="a constraint lies in"):
        oracle.optimum(mdp, reward, 3 * G)
    with pytest.raises(ValueError, match="m = 0"):
        oracle.slater_margin(mdp, G[:0])
    with pytest.raises(ValueError, match=r"reward must be \[L, S, A\]"):
        oracle.optimum(mdp, reward[None])
    stacked = jax.tree.map(lambda x: np.stack([x, x]), mdp)
    with pytest.raises(ValueError, match="one by one"):
        oracle.optimum(stacked, reward)


def test_an_optimal_occupancy_is_that_of_its_policy():
    cmdp = make("bidding")
    best = oracle.optimum(cmdp.mdp, cmdp.rewards.mean(), cmdp.constraints.mean())
    policy = policy_of(jax.numpy.asarray(best.occupancy), cmdp.layers)
    np.testing.assert_allclose(occupancy_of(cmdp.mdp, policy), best.occupancy, atol=1e-9)


@pytest.mark.parametrize("ask", [comparators_of, learners.best_feasible])
def test_another_number_of_episodes_than_an_instance_was_made_for_is_said(ask):
    cmdp = make_for("two-phase", 100)
    ask(cmdp, 100)
    with pytest.warns(EpisodesWarning, match="made for 100 episodes .* is played for 60"):
        ask(cmdp, 60)
