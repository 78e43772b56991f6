"""Learning with successor lists: the same solver, on the triples that can happen alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pdgd_jax import (
    ConfidenceSet,
    make,
    occupancy_of,
    pdgd_ops,
    project,
    rollout,
    run,
    stack,
    theory,
)
from pdgd_jax.learners._visits import count, estimate, no_visits
from pdgd_jax.models import Trajectory
from pdgd_jax.projection import contains
from pdgd_jax.projection.newton import NewtonOptions, make_solver
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
        exact = project_on_support(masks[1], support, *dense[1:], np.asarray(radius))
        # Clarabel is off by the root of its gap at most, and in fact by less.
        np.testing.assert_allclose(
            dense[0], exact.occupancy, atol=1e-7 + min(exact.error, 1e-6 * size)
        )


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


@pytest.mark.parametrize(
    "solver",
    [
        pytest.param(QUICK, id="quick"),
        pytest.param(
            make_solver(NewtonOptions(dense_variables=0)), id="lists alone", marks=pytest.mark.slow
        ),
    ],
)
def test_stacked_instances_of_other_lists_play_as_alone_and_again_the_same(cmdp, solver):
    other = make("grid", rows=3, columns=2, hazards=(), horizon=4, support="known")
    instances, keys = [cmdp, other], jax.random.split(jax.random.key(1), 2)
    T = 25

    def play(cmdp, key):
        learner = pdgd_ops(cmdp.layers, 1, T, confidence_scale=0.1, solver=solver)
        return run(key, cmdp, learner, T)

    together = jax.jit(jax.vmap(play))
    found, again = (together(stack(instances), keys) for _ in range(2))
    jax.tree.map(np.testing.assert_array_equal, found, again)
    for i, instance in enumerate(instances):
        alone = jax.jit(play)(instance, keys[i])
        for name in ("reward", "violation", "multipliers"):
            # Sums in another order, and steps of 1e-9 in the projections, over 25 episodes.
            np.testing.assert_allclose(
                getattr(found, name)[i], getattr(alone, name), atol=1e-7, err_msg=name
            )
    assert not np.allclose(found.reward[0], found.reward[1], atol=1e-3)


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


@pytest.mark.slow
@pytest.mark.optimised
def test_compiled_centers_are_distributions():
    """XLA's CPU backend fuses concatenations wrongly, if it compiles as for a user."""
    cmdp = make("gymnasium", env="FrozenLake-v1", horizon=6, budget=0.05, support="known")
    layers = cmdp.layers
    path = rollout(jax.random.key(0), cmdp.mdp, layers.uniform_policy())
    visits, _ = count(layers, no_visits(layers), path)

    def center(layers, visits):
        settings = {"delta": jnp.asarray(0.1), "scale": jnp.asarray(0.3)}
        return estimate(layers, visits, num_episodes=300.0, **settings).center

    found = jax.jit(center)(layers, visits)
    np.testing.assert_allclose(layers.to_pairs(found), layers.action_mask, atol=1e-12)
    np.testing.assert_allclose(found, center(layers, visits), atol=1e-15)


@pytest.mark.slow
def test_the_truth_is_covered_as_often_as_promised():
    """Weissman's inequality with the successors of a pair, for the sets of all epochs at once.

    The union bound over episodes and pairs makes it loose. A third of the radius is too small,
    which shows that the test can fail.
    """
    cmdp = make("gymnasium", env="FrozenLake-v1", horizon=4, budget=0.05, support="known")
    layers, policy, T, delta = cmdp.layers, cmdp.layers.uniform_policy(), 300, 0.1
    scales = jnp.asarray([1.0, 1 / 3])

    def covers(visits, scale):
        found = estimate(
            layers, visits, num_episodes=float(T), delta=jnp.asarray(delta), scale=scale
        )
        return contains(found, cmdp.mdp.transition, layers)

    def covered(key):
        def episode(carry, key):
            visits, covered = carry
            visits, begins = count(layers, visits, rollout(key, cmdp.mdp, policy))
            inside = jax.vmap(covers, (None, 0))(visits, scales)
            return (visits, covered & (inside | ~begins)), None

        first = no_visits(layers), jnp.ones(2, bool)
        return jax.lax.scan(episode, first, jax.random.split(key, T))[0][1]

    shares = jax.jit(jax.vmap(covered))(jax.random.split(jax.random.key(0), 400)).mean(0)
    assert shares[0] >= 1 - delta
    assert shares[1] < 1 - delta


def test_arrays_of_another_layout_get_a_sentence(unchecked, cmdp):
    layers, packed = cmdp.layers, cmdp.mdp.transition
    radius, dense = jnp.zeros(layers.shape), layers.to_dense(packed)
    ball = ConfidenceSet(packed, radius)
    with pytest.raises(ValueError, match="target must have the shape"):
        project(layers, dense, ball)
    with pytest.raises(ValueError, match="center of the confidence set must have the shape"):
        project(layers, packed, ConfidenceSet(dense, radius))
    with pytest.raises(ValueError, match="target must have the shape"):
        project(layers.without_lists(), packed, ball)
    with pytest.raises(ValueError, match="pass their layers, too"):
        contains(ball, packed)
    with pytest.raises(ValueError, match="pass their layers, too"):
        contains(ball, dense, layers)
    with pytest.raises(ValueError, match=r"or a center \[L, M\] with successor lists; got"):
        ConfidenceSet(packed, packed)


def test_wrong_numbers_of_lists_get_a_sentence_with_their_place(unchecked, cmdp):
    layers, packed = cmdp.layers, cmdp.mdp.transition
    entry = tuple(int(i) for i in np.argwhere(np.asarray(layers.triple_mask))[-1])
    k, x, a, y = layers.triple_at(entry)
    at = f"layer {k}, state {x}, action {a}"
    ball = ConfidenceSet(packed, jnp.zeros(layers.shape))
    with pytest.raises(ValueError, match=f"the target of {at} to state {y} is nan"):
        project(layers, packed.at[entry].set(jnp.nan), ball)
    half = packed.at[entry].multiply(0.5)
    with pytest.raises(ValueError, match=f"the center of {at} sums to 0.5"):
        project(layers, packed, ConfidenceSet(half, ball.radius))
    with pytest.raises(ValueError, match=f"the center of layer {k}, triple {entry[1]} is -1"):
        ConfidenceSet(packed.at[entry].set(-1.0), ball.radius)
    with pytest.raises(ValueError, match=f"the radius of {at} is -1"):
        ConfidenceSet(packed, ball.radius.at[k, x, a].set(-1.0))
