import pytest

from pdgd_jax import theory


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
