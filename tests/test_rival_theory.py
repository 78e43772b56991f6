"""The formulas of the rivals' guarantees, by hand."""

import math

import pytest

from pdgd_jax import theory

# L = 2, |X| = 5, |A| = 3, U = 12 pairs, m = 4, T = 100, delta = 0.1, a dual step of 0.02.
PROBLEM = theory.Problem(2, 5, 3, 12, 4, 100, 0.1, math.nan, 0.02)


def test_descent():
    """By hand: reach 6, step 0.1, curvature 8, and losses whose squares add up to 64."""
    plain = theory.Descent(0.1, 6.0, 8.0)
    found = theory.descent_regret(plain, 2, 100, 64.0)
    assert found.value == pytest.approx(6 / 0.1 + 0.1 * 8 / 2 * 64)
    assert found.probability == 1
    mixed = theory.descent_regret(plain._replace(mixing=0.01), 2, 100, 64.0)
    lost = 100 * 2 * -math.log(0.99) / 0.1
    assert mixed.value == pytest.approx(found.value + lost + 0.01 * 2 * 2 * math.sqrt(6400))
    assert theory.entropy_to_start([3, 12]) == pytest.approx(math.log(36))


def test_mirror_descent_on_a_simplex_meets_its_bound():
    """Hedge with two actions against the worst of many adversaries, in plain numbers."""
    T, eta = 60, 0.4
    bound = theory.descent_regret(theory.Descent(eta, math.log(2), 0.25, 1.0), 1, T, T).value
    assert bound == pytest.approx(math.log(2) / eta + eta * T / 8)
    worst = -math.inf
    for turn in range(1, 8):
        losses = [0.0, 0.0]
        lost = 0.0
        for t in range(T):
            weights = [math.exp(-eta * loss) for loss in losses]
            share = weights[0] / sum(weights)
            first = 1.0 if (t // turn) % 2 == 0 else 0.0
            lost += share * first + (1 - share) * (1 - first)
            losses = [losses[0] + first, losses[1] + 1 - first]
        worst = max(worst, lost - min(losses))
    assert 0.3 * bound < worst <= bound


def test_regrets_of_the_papers():
    logarithm = math.log(100 * 5 * 3 / 0.1)
    found = theory.uc_o_reps_regret(PROBLEM)
    assert found.value == pytest.approx(15 * 2 * 5 * math.sqrt(100 * 3 * logarithm))
    assert found.probability == pytest.approx(0.8)
    found = theory.estimation_loss(PROBLEM)
    first, second = math.sqrt(100 * math.log(20)), math.sqrt(300 * logarithm)
    assert found.value == pytest.approx(30 * (2 * first + 3 * second))
    assert found.probability == pytest.approx(0.8)
    found = theory.o_reps_regret(PROBLEM)
    assert found.value == pytest.approx(4 * math.sqrt(100 * math.log(7.5)))
    assert found.probability == 1
    # It is what its step gives, and not below what is proved for each occupancy.
    step = math.sqrt(math.log(7.5) / 100)
    player = theory.Descent(step, theory.entropy_to_start([3, 9]), 2 / 4, 1.0)
    assert theory.descent_regret(player, 2, 100, 100.0).value <= found.value
    assert step * 2 * 100 + 2 * math.log(7.5) / step == pytest.approx(found.value)


def test_both_players():
    # |lambda|^2 / (2 eta) + eta m L^2 T / 2 = 9 / 0.04 + 0.02 * 4 * 4 * 100 / 2.
    dual = theory.dual_regret(PROBLEM, 3.0, 100)
    assert dual.value == pytest.approx(225 + 16)
    primal = theory.Bound(50.0, 1.0, "")
    found = theory.lagrangian_regret(primal, dual, 0.2, 80.0)
    assert found.value == pytest.approx(50 + 241 + 64)


def test_drift_plus_penalty():
    """V = 10, alpha = 50: V U T / 4 alpha = 60, 2 L alpha / V = 20, m L^2 T / 2 V = 80."""
    found = theory.queue_regret(PROBLEM, 12, 10.0, 50.0, drift=7.0)
    assert found.value == pytest.approx(60 + 20 + 80 + 7)
    queues = theory.queue_bound(PROBLEM, 12, 10.0, 50.0, drift=7.0)
    assert queues.value == pytest.approx(math.sqrt(2 * (200 + 167) / 10))
    assert theory.window_drift(PROBLEM, 1, 10.0, 3.0) == 0
    # m L^2 / V (T 4 / 2 + 25 / 6) + L 4 / 2 * 3.
    expected = 1.6 * (200 + 25 / 6) + 12
    assert theory.window_drift(PROBLEM, 5, 10.0, 3.0) == pytest.approx(expected)


def test_nothing_is_estimated_where_transitions_are_known():
    known = PROBLEM._replace(known=True, primal=6.0)
    assert theory.estimation_error(known).value == 0
    assert theory.estimation_error(known).probability == 1
    kinds = {"stochastic_rewards": False, "stochastic_constraints": False}
    found = theory.regret_bound(known, 1.5, rho=0.5, opt=1.2, **kinds)
    primal = theory.primal_descent_regret(known, 2.5).value
    dual = 0.02 * 4 * 4 * 100 / 2
    assert found.value == pytest.approx(2 / 2.5 * 120 + dual + primal)
    assert found.probability == 1
    numbers = (2, 5, 3, 12, 100, 0.1, 6.0, 0.02)
    assert float(theory.pace(*numbers, num_constraints=4, known=True).error) == 0
    assert float(theory.pace(*numbers, num_constraints=4).error) > 0
