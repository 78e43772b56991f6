import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pdgd_jax import Layers, learners, theory


def test_the_condition_on_rho():
    # T^(-1/8) L sqrt(20 m), by hand for T = 2^16, L = 3, m = 5: 3 * 10 / 4.
    assert theory.required_margin(3, 5, 2**16) == pytest.approx(7.5)
    assert theory.slater_condition_holds(7.51, 3, 5, 2**16)
    assert not theory.slater_condition_holds(7.49, 3, 5, 2**16)


def test_the_horizon_from_which_it_holds():
    horizon = theory.episodes_for_margin(0.5, 2, 1)
    assert theory.required_margin(2, 1, horizon) == pytest.approx(0.5)
    assert theory.episodes_for_margin(0.0, 2, 1) is None
    assert theory.episodes_for_margin(-1.0, 2, 1) is None
    # rho is at most L, so for m = 1 never before 20^4 episodes.
    assert theory.episodes_for_margin(4, 4, 1) == pytest.approx(20**4)


# By hand: L = 2, |X| = 5, |A| = 3, U_2 = 18, m = 4, T = 100, delta = 0.1, C = 6, eta = 0.02.
PROBLEM = theory.Problem(2, 5, 3, 18, 4, 100, 0.1, 6.0, 0.02)


def test_the_radius():
    expected = math.sqrt(2 * 7 * math.log(100 * 5 * 3 / 0.1) / 9)
    assert theory.radius(9, 7, 5, 3, 100, 0.1) == pytest.approx(expected)
    assert theory.radius(0, 7, 5, 3, 100, 0.1) == theory.radius(1, 7, 5, 3, 100, 0.1)
    traced = jax.jit(lambda visits: theory.radius(visits, 7, 5, 3, 100, 0.1))(jnp.asarray([0, 9]))
    np.testing.assert_allclose(traced, [math.sqrt(9) * expected, expected], rtol=1e-12)


def test_the_radii_of_rivals_by_hand(unchecked):
    """P = .2, N = 26, a logarithm of 5."""
    jin = 2 * math.sqrt(0.2 * 5 / 25) + 14 * 5 / (3 * 25)
    efroni = 2 * math.sqrt(0.2 * 0.8 * 5 / 26) + 14 * 5 / (3 * 26)
    P = jnp.asarray(0.2)
    assert theory.bernstein_radius(P, 26, 5.0) == pytest.approx(jin)
    assert theory.bernstein_radius(P, 26, 5.0, "efroni") == pytest.approx(efroni)
    assert theory.hoeffding_radius(26, 5.0) == pytest.approx(math.sqrt(10 / 26))
    for variant in ("jin", "efroni"):
        radii = theory.bernstein_radius(jnp.full(2, P), jnp.asarray([0, 1]), 5.0, variant)
        assert radii[0] == radii[1] > 1
        # Three times this many visits are no 32-bit number.
        many = jnp.asarray(2**30, jnp.int32)
        assert theory.bernstein_radius(0 * P, many, 5.0, variant) > 0
    with pytest.raises(ValueError, match="the variant is 'jin' or 'efroni'; got 'weissman'"):
        theory.bernstein_radius(P, 26, 5.0, "weissman")


@pytest.mark.parametrize("kind", ["jin", "efroni", "hoeffding"])
def test_the_radii_of_rivals_cover_as_often_as_promised(kind):
    """20,000 estimates of each of 15 probabilities; a tenth of the radius would not cover them."""
    failure = 0.2
    logarithm = math.log(4 / failure) / 2  # 2 iota = ln(2 / delta'), half of it for each side
    logarithm *= 2 if kind == "hoeffding" else 1  # iota = ln(2 / failure) there suffices
    rng = np.random.default_rng(0)
    outside, close = [], []
    for visits in (2, 10, 300):
        for p in (0.01, 0.1, 0.5, 0.9, 0.99):
            mean = jnp.asarray(rng.binomial(visits, p, 20_000) / visits)
            if kind == "hoeffding":
                radius = theory.hoeffding_radius(jnp.full(mean.shape, visits), logarithm)
            else:
                radius = theory.bernstein_radius(mean, visits, logarithm, kind)
            away = np.abs(np.asarray(mean) - p)
            outside.append((away > np.asarray(radius)).mean())
            close.append((away > np.asarray(radius) / 10).mean())
    assert max(outside) <= failure
    assert max(close) > failure


def test_the_deviations():
    found = theory.estimation_error(PROBLEM)
    first = 4 * 2 * 5 * math.sqrt(2 * 100 * math.log(10))
    second = 6 * 2 * 5 * math.sqrt(2 * 100 * 3 * math.log(15_000))
    assert found.value == pytest.approx(first + second)
    assert found.probability == pytest.approx(0.8)
    found = theory.reward_deviation(PROBLEM)
    assert found.value == pytest.approx(2 * math.sqrt(100 * math.log(20) / 2))
    assert found.probability == pytest.approx(0.9)
    found = theory.constraint_deviation(PROBLEM)
    assert found.value == pytest.approx(4 * math.sqrt(200 * math.log(100_000)))
    shorter = theory.constraint_deviation(PROBLEM, length=25)
    assert shorter.value == pytest.approx(found.value / 2)


def test_the_interval_regrets():
    # L l C sqrt(T) + U_2 l' n / (2 C sqrt(T)) = 2*3*60 + 18*2*50/120.
    descent = theory.primal_descent_regret(PROBLEM, 3.0, 50, 2.0)
    assert descent.value == pytest.approx(360 + 15)
    assert descent.probability == 1
    whole = theory.primal_interval_regret(PROBLEM, 3.0, 50, 2.0)
    error = theory.estimation_error(PROBLEM)
    assert whole.value == pytest.approx(375 + 2 * error.value)
    assert whole.probability == error.probability
    # |l|^2 / (2 eta) + eta m L^2 n / 2 = 9/0.04 + 0.02*4*4*50/2.
    assert theory.dual_interval_regret(PROBLEM, 3.0, 50).value == pytest.approx(225 + 8)
    assert theory.dual_increment(PROBLEM).value == pytest.approx(4 * 0.02 * 2)


def test_the_multiplier_bound_and_its_rates():
    assert theory.multiplier_bound(PROBLEM, 0.5).value == pytest.approx(20 * 4 * 4 / 0.25)
    assert theory.multiplier_bound(PROBLEM, 0.5).probability == pytest.approx(0.8)
    assert theory.multiplier_bound(PROBLEM, 0.5, False).probability == pytest.approx(0.9)
    assert theory.multiplier_bound(PROBLEM, 0.0).value == math.inf
    layers = Layers.from_sizes((1, 4, 4, 1), 3)
    for name, allowed in (("theory", True), ("tuned", False)):
        C, eta = learners.rates_of(name, layers, 2, 1000, 0.05)
        U = int(layers.num_triples)
        problem = theory.Problem(3, 10, 3, U, 2, 1000, 0.05, float(C), float(eta))
        assert theory.rates_allow_multiplier_bound(problem) is allowed
    # Each of the boxed conditions matters.
    problem = problem._replace(primal=5 * U / 3, dual=1e-9)
    assert theory.rates_allow_multiplier_bound(problem)
    assert not theory.rates_allow_multiplier_bound(problem._replace(primal=4.9 * U / 3))
    largest = 1 / (20 * 2 * 3 * (5 * U / 3) * math.sqrt(1000))
    assert theory.rates_allow_multiplier_bound(problem._replace(dual=0.99 * largest))
    assert not theory.rates_allow_multiplier_bound(problem._replace(dual=1.01 * largest))


def test_the_regret_of_the_theorems():
    """Put together again from its parts, for each setting."""
    E_q, E_r, E_G = (
        bound(PROBLEM).value
        for bound in (theory.estimation_error, theory.reward_deviation, theory.constraint_deviation)
    )
    dual = 0.02 * 4 * 4 * 100 / 2
    multipliers = 1.5
    primal = 2 * 2.5 * 60 + 18 * 2.5 * 100 / 120 + 2.5 * E_q
    kinds = {"stochastic_rewards": True, "stochastic_constraints": True}
    found = theory.regret_bound(PROBLEM, multipliers, **kinds)
    assert found.value == pytest.approx(E_r + 1.5 * (E_G + E_q) + dual + primal)
    assert found.probability == pytest.approx(1 - 5 * 0.1)
    assert found.theorem == "Theorem 5, regret"
    found = theory.regret_bound(PROBLEM, multipliers, **kinds | {"stochastic_rewards": False})
    assert found.value == pytest.approx(1.5 * (E_G + E_q) + dual + primal)
    assert found.probability == pytest.approx(1 - 4 * 0.1)
    found = theory.regret_bound(
        PROBLEM,
        multipliers,
        stochastic_rewards=False,
        stochastic_constraints=False,
        rho=0.5,
        opt=1.2,
    )
    assert found.value == pytest.approx(2 / 2.5 * 100 * 1.2 + 1.5 * E_q + dual + primal)
    assert found.probability == pytest.approx(1 - 2 * 0.1)
    measured = theory.regret_bound(PROBLEM, multipliers, **kinds, error=7.0)
    primal = 2 * 2.5 * 60 + 18 * 2.5 * 100 / 120 + 2.5 * 7
    assert measured.value == pytest.approx(E_r + 1.5 * (E_G + 7) + dual + primal)
    assert measured.probability == pytest.approx(1 - 4 * 0.1)


def test_the_violation_of_the_theorems():
    found = theory.violation_bound(
        PROBLEM, 3.0, stochastic_rewards=True, stochastic_constraints=False
    )
    assert found.value == pytest.approx(150 + theory.estimation_error(PROBLEM).value)
    assert found.probability == pytest.approx(1 - 3 * 0.1)
    assert found.theorem == "Theorem 7, violation"


def test_alpha():
    assert theory.alpha(0.5, 2) == pytest.approx(0.2)
    assert theory.alpha(-0.5, 2) == 0
