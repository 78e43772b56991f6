"""Learning with successor lists: the same solver, on the triples that can happen alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pdgd_jax import ConfidenceSet, make, occupancy_of, pdgd_ops, project, run, theory
from pdgd_jax.learners._visits import count, estimate, no_visits
from pdgd_jax.models import Trajectory
from tests.quick import QUICK
from tests.reference.projection import infeasibility
from tests.reference.support import project_on_support


@pytest.fixture(scope="module")
def cmdp():
    return make("grid", rows=2, columns=3, hazards=((0, 1),), horizon=3, support="known")


def test_a_projection_on_the_support_is_that_of_an_independent_solver(cmdp):
    layers = cmdp.layers
    rng = np.random.default_rng(0)
    center = cmdp.mdp.transition
    q = occupancy_of(cmdp.mdp, layers.uniform_policy())
    solve = jax.jit(lambda target, radius: project(layers, target, ConfidenceSet(center, radius)))
    for size in (0.1, 1.0, 30.0):
        target = q + size * jnp.asarray(rng.normal(size=q.shape))
        radius = jnp.asarray(rng.choice([0.0, 0.1, 0.7, 2.5], layers.shape))
        result = solve(target, radius)
        assert result.info.converged
        assert float(jnp.abs(jnp.where(layers.triple_mask, 0, result.occupancy)).max()) == 0
        dense = [np.asarray(layers.to_dense(x)) for x in (result.occupancy, target, center)]
        masks = np.asarray(layers.state_mask), np.asarray(layers.action_mask)
        assert infeasibility(*masks, dense[0], dense[2], np.asarray(radius)) < 5e-9
        support = np.asarray(layers.to_dense(layers.triple_mask))
        exact = project_on_support(*masks, support, *dense[1:], np.asarray(radius))
        # Clarabel stops at a gap of 1e-12 times the objective; the root of it is a distance.
        np.testing.assert_allclose(dense[0], exact, atol=1e-7 + 1e-6 * size)


def test_counts_and_radii_are_those_of_the_successors_of_a_pair(cmdp):
    layers, T, delta = cmdp.layers, 50.0, jnp.asarray(0.1)
    L = layers.shape[0]
    states = np.zeros(L + 1, int)
    path = Trajectory(jnp.asarray(states, jnp.int32), jnp.zeros(L, jnp.int32))
    visits, begins = count(layers, no_visits(layers), path)
    assert bool(begins)
    counted = np.asarray(layers.to_dense(visits.triples))
    expected = np.zeros_like(counted)
    expected[np.arange(L), states[:-1], 0, states[1:]] = 1
    np.testing.assert_array_equal(
        counted, expected * np.asarray(layers.to_dense(layers.triple_mask))
    )
    confidence = estimate(layers, visits, num_episodes=T, delta=delta, scale=jnp.asarray(1.0))
    possible = np.asarray(layers.to_dense(layers.triple_mask)).sum(-1)
    visited = np.asarray(visits.pairs) > 0
    sizes = int(layers.num_states), int(layers.num_actions)
    for k, x, a in np.argwhere(visited):
        radius = theory.radius(1, int(possible[k, x, a]), *sizes, T, float(delta))
        assert float(confidence.radius[k, x, a]) == pytest.approx(float(radius))
    never = ~visited & np.asarray(layers.action_mask)
    center = np.asarray(layers.to_dense(confidence.center))
    rows = possible[never][:, None]
    np.testing.assert_allclose(center[never] * rows, center[never] > 0, atol=1e-12)
    assert (np.asarray(confidence.radius)[never] >= 2).all()


def test_a_run_plays_and_its_occupancies_are_feasible(cmdp):
    T = 40
    learner = pdgd_ops(cmdp.layers, cmdp.num_constraints, T, confidence_scale=0.1, solver=QUICK)
    history = jax.jit(lambda key: run(key, cmdp, learner, T))(jax.random.key(0))
    assert float(history.metrics.infeasibility[-1]) < 1e-12
    assert np.isfinite(np.asarray(history.reward)).all()


def test_a_solver_that_knows_no_lists_is_refused_in_a_sentence(cmdp):
    target = occupancy_of(cmdp.mdp, cmdp.layers.uniform_policy())
    confidence = ConfidenceSet(cmdp.mdp.transition, jnp.zeros(cmdp.layers.shape))
    with pytest.raises(ValueError, match="does not take layers with successor lists"):
        project(cmdp.layers, target, confidence, solver=QUICK._replace(takes_lists=False))


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["osqp", "projected_gradient"])
def test_other_solvers_find_the_same(cmdp, solver):
    layers = cmdp.layers
    target = jnp.asarray(np.random.default_rng(1).normal(size=layers.triple_shape))
    confidence = ConfidenceSet(cmdp.mdp.transition, jnp.full(layers.shape, 0.3))
    exact, found = (project(layers, target, confidence, solver=x) for x in ("newton", solver))
    assert found.info.converged
    np.testing.assert_allclose(found.occupancy, exact.occupancy, atol=2e-5)
