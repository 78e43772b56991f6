import chex
import pytest

from pdgd_jax import Learner, learners, make, make_learner, pdgd_ops, register_learner
from pdgd_jax.projection import SOLVERS, register_solver, solver_of
from tests.quick import QUICK


@pytest.fixture(autouse=True)
def forgotten():
    """What a test registers is forgotten after it."""
    with learners.LEARNERS.temporarily(), SOLVERS.temporarily():
        yield


@pytest.mark.parametrize("name", learners.registered_learners())
def test_every_registered_learner_is_built_with_the_common_settings(name):
    cmdp = make("two-phase", num_episodes=100)
    settings = {"delta": 0.1, "rates": "theory", "confidence_scale": 0.5, "solver": "newton"}
    assert set(settings) == set(learners.SETTINGS)
    learner = make_learner(name, cmdp, 100, **settings)
    assert isinstance(learner, Learner)
    assert learner.policy(learner.init(None)).shape == cmdp.layers.shape


def test_settings_reach_the_learner():
    cmdp = make("random")
    settings = {"delta": 0.1, "rates": (3.0, 0.02), "confidence_scale": 0.5}
    made = make_learner("pdgd-ops", cmdp, 100, **settings)
    chex.assert_trees_all_equal(made, pdgd_ops(cmdp.layers, 1, 100, **settings))
    made = make_learner("uc-o-gdps", cmdp, 100, **settings)
    chex.assert_trees_all_equal(made, learners.uc_o_gdps(cmdp.layers, 100, **settings))


def test_a_learner_of_ones_own():
    def mine(cmdp, num_episodes, *, delta=0.5, patience=3):
        assert (num_episodes, delta, patience) == (100, 0.2, 7)
        return learners.uniform(cmdp.layers)

    register_learner("mine", mine)
    register_learner("mine", mine)  # the same again, as a module that is reloaded does
    assert learners.settings_of("mine") == {"delta": 0.5, "patience": 3}
    settings = {"delta": 0.2, "patience": 7, "rates": "tuned"}
    assert isinstance(make_learner("mine", make("two-phase"), 100, **settings), Learner)
    with pytest.raises(ValueError, match="a learner named 'mine' is registered already"):
        register_learner("mine", lambda cmdp, num_episodes: None)


def test_mistakes_are_answered_with_what_is_near():
    cmdp = make("two-phase")
    with pytest.raises(ValueError, match=r"unknown learner 'pdgd' \(did you mean 'pdgd-ops'\?\)"):
        make_learner("pdgd", cmdp, 10)
    with pytest.raises(ValueError, match=r"no setting 'detla' \(did you mean 'delta'\?\)"):
        make_learner("uniform", cmdp, 10, detla=0.1)


def test_a_solver_and_rates_that_are_mistyped_are_answered_too():
    cmdp = make("two-phase")
    with pytest.raises(ValueError, match=r"unknown solver 'newtn' \(did you mean 'newton'\?\)"):
        make_learner("pdgd-ops", cmdp, 10, solver="newtn")
    with pytest.raises(ValueError, match=r"unknown rates 'tund' \(did you mean 'tuned'\?\); they"):
        make_learner("pdgd-ops", cmdp, 10, rates="tund")


def test_a_solver_of_ones_own():
    register_solver("mine", QUICK)
    register_solver("mine", QUICK)
    assert solver_of("mine") is QUICK
    with pytest.raises(ValueError, match="a solver named 'newton' is registered already"):
        register_solver("newton", QUICK)
