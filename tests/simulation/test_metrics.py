"""What a run measures, against the same numbers recomputed from its episodes one by one."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pdgd_jax import (
    CMDP,
    comparators_of,
    evaluate,
    learners,
    make,
    occupancy_of,
    oracle,
    pdgd_ops,
    run,
    theory,
)
from pdgd_jax._internal.sums import Compensated
from pdgd_jax.processes import Phases, Table
from pdgd_jax.simulation import start, sums_of
from pdgd_jax.simulation._loop import advance
from pdgd_jax.simulation._worst import Worst
from tests.quick import QUICK

T = 40


def problem(kind):
    return make("random", sizes=(1, 3, 1), num_actions=2, num_constraints=2, constraints=kind)


@pytest.fixture(
    scope="module", params=[pytest.param("bernoulli", marks=pytest.mark.slow), "phases"]
)
def played(request):
    """A run, and all of its episodes: what was shown, played, believed and priced."""
    cmdp = problem(request.param)
    learner = pdgd_ops(cmdp.layers, 2, T, solver=QUICK).as_pytree()
    comparators = comparators_of(cmdp, T)
    step = jax.jit(lambda carry: advance(carry, cmdp, learner, carry.episode + 1, comparators))

    @jax.jit
    def look(carry):
        policy = learner.policy(carry.learner)
        draw_key, _ = jax.random.split(jax.random.fold_in(carry.key, carry.episode))
        outcome, _ = cmdp.draw(draw_key, carry.processes, carry.episode, policy)
        believed = carry.learner.primal.occupancy
        seen = outcome.reward, outcome.constraints, carry.learner.dual.multipliers
        return (*seen, occupancy_of(cmdp.mdp, policy), believed)

    carry, episodes = start(jax.random.key(3), cmdp, learner, comparators), []
    for _ in range(T):
        episodes.append(jax.tree.map(np.asarray, look(carry)))
        carry = step(carry)
    history = run(jax.random.key(3), cmdp, learner, T, comparators=comparators)
    r, G, prices, q, believed = (np.stack(part) for part in zip(*episodes, strict=True))
    last = np.asarray(carry.learner.dual.multipliers)
    prices = np.concatenate([prices, last[None]])  # [T + 1, m]
    return cmdp, learner, comparators, history, (r, G, prices, q, believed)


def costs_of(G, marginals):
    """`[T, n, m]`, of each comparator."""
    return np.einsum("tilsa,nlsa->tni", G, marginals)


def test_sums_are_those_of_the_episodes(played):
    cmdp, _, comparators, history, (r, G, prices, q, believed) = played
    marginals = np.asarray(comparators.occupancies).sum(-1)
    cost, hoped = (np.einsum("tilsa,tlsax->ti", G, o) for o in (q, believed))
    stochastic = history.metrics.constraint_sum is None
    harm = cost
    deviation = np.zeros((T, len(marginals)))
    if stochastic:
        mean = np.asarray(cmdp.constraints.mean())
        harm = np.einsum("ilsa,tlsax->ti", mean, q)
        away = costs_of(G, marginals) - costs_of(mean[None], marginals)
        deviation = np.einsum("ti,tni->tn", prices[:-1], away)
    theirs = np.einsum("tlsa,nlsa->tn", r - np.asarray(cmdp.rewards.mean()), marginals)
    loss = np.einsum("ti,tilsa->tlsa", prices[:-1], G) - r
    lost, hoped_for = (np.einsum("tlsa,tlsax->t", loss, o) for o in (q, believed))
    earned = np.einsum("lsa,tlsax->t", np.asarray(cmdp.rewards.mean()), q)
    shown = (np.asarray(cmdp.constraints.mean())[None] if stochastic else G).mean(0)
    best = oracle.optimum(cmdp.mdp, np.asarray(cmdp.rewards.mean()), shown).value
    expected = {
        "strong_regret": np.maximum(best - earned, 0),
        "feasible": (harm <= 2e-6).all(-1),
        "squared_loss": np.abs(loss).max((1, 2, 3)) ** 2,
        "estimation_loss": lost - hoped_for,
        "descent_regret": hoped_for[:, None] - np.einsum("tlsa,nlsa->tn", loss, marginals),
        "next_violation": np.full_like(cost, np.nan),
        "reward": np.einsum("tlsa,tlsax->t", r, q),
        "model_error": np.abs(q - believed).sum((1, 2, 3, 4)),
        "dual_utility": (prices[:-1] * cost).sum(-1),
        "violation": cost,
        "positive_violation": np.maximum(harm, 0),
        "believed_violation": hoped,
        "reward_deviation": theirs,
        "constraint_deviation": deviation,
    }
    found = sums_of(history.metrics)
    for name, terms in expected.items():
        np.testing.assert_allclose(found[name].value, terms.cumsum(0), atol=1e-9, err_msg=name)
    assert float(found["iterations"].value[-1]) >= T
    share = np.abs(deviation.cumsum(0)) / np.sqrt(np.arange(1, T + 1))[:, None]
    largest = np.maximum.accumulate(prices[:-1].sum(-1))
    share = np.where(largest[:, None] > 0, share / np.maximum(largest, 1e-300)[:, None], 0)
    np.testing.assert_allclose(history.metrics.deviation, np.maximum.accumulate(share), atol=1e-9)
    assert (share.max() > 0) == stochastic


def test_worst_cases_are_those_of_the_episodes(played):
    _, _, comparators, history, (_, G, prices, _, _) = played
    marginals = np.asarray(comparators.occupancies).sum(-1)
    sizes = prices.sum(-1)
    last = jax.tree.map(lambda x: np.asarray(x[-1]), history.metrics)
    assert float(last.largest_increment) == pytest.approx(np.diff(sizes).max(), abs=1e-12)
    np.testing.assert_allclose(last.margin, (-costs_of(G, marginals)).min((0, 2)), atol=1e-12)
    if last.constraint_max is not None:
        np.testing.assert_array_equal(last.constraint_max, G.max(0))
        np.testing.assert_allclose(last.constraint_sum.value, G.sum(0), atol=1e-12)


def test_every_interval_is_compared_with_its_own_bound(played):
    """Brute force over all intervals, with the paper's bound of each written out."""
    cmdp, learner, comparators, history, (r, G, prices, q, believed) = played
    L, X, A = 2, 5, 2
    C, eta = (float(rate) for rate in learner.setting.rates)
    U, delta = int(cmdp.layers.num_triples), 0.05
    error = 4 * L * X * np.sqrt(2 * T * np.log(1 / delta))
    error += 6 * L * X * np.sqrt(2 * T * A * np.log(T * X * A / delta))
    loss = np.einsum("ti,tilsa->tlsa", prices[:-1], G) - r
    size = np.abs(loss).max((1, 2, 3))
    largest = np.maximum.accumulate(size)
    hoped = np.einsum("tilsa,tlsax->ti", G, believed)
    intervals = [(a, b) for a, b in itertools.product(range(T), range(T)) if a <= b]

    for n, against in enumerate(np.asarray(comparators.multipliers)):
        gains = ((against - prices[:-1]) * hoped).sum(-1)
        excess = [
            gains[a : b + 1].sum()
            - ((prices[a] - against) ** 2).sum() / (2 * eta)
            - eta * 2 * L**2 * (b - a + 1) / 2
            for a, b in intervals
        ]
        found = history.metrics.dual_excess.value[-1, n]
        assert float(found) == pytest.approx(max(excess), abs=1e-9)

    for name, occupancy, extra in (("descent", believed, 0.0), ("primal", q, error)):
        for n, against in enumerate(np.asarray(comparators.occupancies).sum(-1)):
            terms = np.einsum("tlsa,tlsa->t", loss, occupancy.sum(-1) - against)
            steps = U * size**2 / largest / (2 * C * np.sqrt(T))
            excess = [
                (terms - steps)[a : b + 1].sum() - largest[b] * (L * C * np.sqrt(T) + extra)
                for a, b in intervals
            ]
            found = getattr(history.metrics, f"{name}_excess").value[-1, n]
            assert float(found) == pytest.approx(max(excess), abs=1e-8)
            # The bound of Lemma 10 itself is never smaller than that of its proof.
            inside = [size[a : b + 1].max() for a, b in intervals]
            stated = [
                theory.primal_descent_regret(
                    theory.Problem(L, X, A, U, 2, T, delta, C, eta), largest[b], b - a + 1, top
                ).value
                for (a, b), top in zip(intervals, inside, strict=True)
            ]
            proved = [
                steps[a : b + 1].sum() + largest[b] * L * C * np.sqrt(T) for a, b in intervals
            ]
            assert (np.array(stated) >= np.array(proved) - 1e-9).all()


# Sums over very many episodes, in float32.

MANY = 10_000_000


@pytest.fixture
def single():
    with jax.enable_x64(False):
        yield


def test_a_sum_of_ten_million_terms_is_right_in_float32(single):
    """Terms that a float32 cannot add to a large sum: 0.3 to 3 million, and 1 to 2^24."""
    terms = jnp.asarray([0.3, 1.0, 4.0, -0.7], jnp.float32)

    def add(_, both):
        total, plain = both
        return total.add(terms), plain + terms

    none = Compensated.zeros(4, jnp.float32), jnp.zeros(4, jnp.float32)
    total, plain = jax.jit(lambda: jax.lax.fori_loop(0, MANY, add, none))()
    truth = np.asarray(terms, np.float64) * MANY
    np.testing.assert_allclose(total.value, truth, rtol=1e-7)
    np.testing.assert_allclose(total.total(), truth, rtol=1e-12)
    assert np.abs(plain / truth - 1).max() > 0.01  # or there would be nothing to mend


def test_a_long_interval_is_summed_right_in_float32(single):
    terms = jnp.asarray([0.3, -0.3], jnp.float32)

    def add(_, worst):
        return worst.add(terms)

    worst = jax.jit(lambda: jax.lax.fori_loop(0, MANY, add, Worst.none(2, jnp.float32)))()
    np.testing.assert_allclose(worst.value, [np.float32(0.3) * float(MANY), -0.3], rtol=1e-6)


def constant_shown_as_phases():
    """One state, two actions, rewards and costs that never change, shown by adversaries."""
    mdp = make("two-phase").mdp
    rewards = np.tile([0.3, 0.1], (2, 1, 1, 1)).astype(np.float32)
    costs = np.tile([-0.2, -0.7], (2, 1, 1, 1, 1)).astype(np.float32)
    return CMDP(mdp, Phases(rewards, period=7), Phases(costs, period=5))


def test_hindsight_of_ten_million_episodes_is_right_in_float32(single):
    average = oracle.hindsight(constant_shown_as_phases(), MANY)
    np.testing.assert_allclose(average.reward[0, 0], [0.3, 0.1], rtol=1e-6)
    np.testing.assert_allclose(average.constraints[0, 0, 0], [-0.2, -0.7], rtol=1e-6)


@pytest.mark.slow
@pytest.mark.optimised
def test_regret_of_the_best_policy_stays_zero_for_ten_million_episodes(single):
    """Rewards of 0.3 in every episode, always earned: nothing is lost, and no sum drifts."""
    cmdp = constant_shown_as_phases()
    always = jnp.asarray([[[1.0, 0.0]]], jnp.float32)
    learner = learners.Learner(
        init=lambda key: (),
        policy=lambda state: always,
        update=lambda state, trajectory, outcome: (state, learners.Info()),
    )
    history = run(jax.random.key(0), cmdp, learner, MANY, checkpoints=[10**5, 10**6, 3 * 10**6])
    result = evaluate(history, cmdp)
    t = np.array([10**5, 10**6, 3 * 10**6, MANY])
    np.testing.assert_allclose(history.reward, 0.3 * t, rtol=1e-6)
    np.testing.assert_allclose(history.violation[:, 0], -0.2 * t, rtol=1e-6)
    np.testing.assert_allclose(result.opt, 0.3, rtol=1e-6)
    # 1e-6 of what was earned; without compensation it was 27.9, -453 and 24,547.
    assert (np.abs(result.regret) <= 1e-6 * 0.3 * t).all()


# Violation without cancellation.


def test_the_optimum_has_no_positive_violation_where_constraints_are_stochastic():
    """Drawn constraints are violated in about half of the episodes by whoever uses the budget."""
    cmdp = make("random", sizes=(1, 3, 1), num_actions=2)
    best = learners.best_feasible(cmdp, T)
    result = evaluate(run(jax.random.key(0), cmdp, best, T, checkpoints=4), cmdp)
    # The linear program satisfies its constraints to 1e-10 an episode.
    assert float(result.positive_violation[-1, 0]) <= 1e-9 * T
    everything = CMDP(cmdp.mdp, cmdp.rewards, Table(shown(cmdp)))
    drawn = evaluate(run(jax.random.key(0), everything, best, T, checkpoints=4), everything)
    assert float(drawn.positive_violation[-1, 0]) > 1


def shown(cmdp):
    """The constraints of T episodes as a table: an adversary shows what chance might."""
    keys = jax.random.split(jax.random.key(5), T)
    return np.stack([cmdp.constraints.draw(key, (), 0, None)[0] for key in keys])
