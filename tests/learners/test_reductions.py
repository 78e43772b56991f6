"""Rivals that are special cases of each other: learner against learner, fed the same episodes.

What they are with one layer, or where actions do not matter, is in `test_rivals.py`.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pdgd_jax import KnownTransitions, learners, project
from pdgd_jax._internal.pytree import pytree
from pdgd_jax.learners.primal_dual import _dual as dual
from pdgd_jax.learners.primal_dual import _players as players
from pdgd_jax.learners.primal_dual import _primal as primal
from pdgd_jax.learners.primal_dual._mirrors import Euclidean
from pdgd_jax.learners.primal_dual._transitions import Given
from tests.learners.test_learners import POLICY, STEP, biased_episode, observed
from tests.learners.test_rivals import SIZES, A, mdp_of
from tests.reference.mirror import onto_l1_ball
from tests.reference.pdgd_ops import pair_mask, random_transition

T = 20
MASK = pair_mask(SIZES, A)


@pytree
class AsBalls(Given):
    """Known transitions, as balls of radius 0."""

    def allowed(self, confidence):
        return confidence


def in_step(first, second, P, m=1, cost=None):
    """Both learn from the same episodes; yields their states and the episode."""
    rng = np.random.default_rng(5)
    states = [learner.init(jax.random.key(0)) for learner in (first, second)]
    for _ in range(T):
        episode = biased_episode(rng, MASK / A, P, MASK, m)
        if cost is not None:
            episode.constraints[:] = cost * MASK
        pairs = zip((first, second), states, strict=True)
        states = [STEP(learner, state, *observed(episode))[0] for learner, state in pairs]
        yield *states, episode
    moved = np.abs(np.asarray(POLICY(first, states[0]))[0, 0] - 1 / A).max()
    assert moved > 0.02  # else nothing was learnt


def transition(seed):
    return random_transition(np.random.default_rng(seed), SIZES, A)


def test_o_reps_is_uc_o_reps_with_balls_of_radius_0():
    P = transition(0)
    known = learners.o_reps(mdp_of(P), T, eta=0.3)
    config = known.update.args[0]
    balls = dataclasses.replace(config, transitions=AsBalls(config.transitions.transition))
    others = players.alone(balls, known.setting)
    for one, other, _ in in_step(known, others, P):
        np.testing.assert_allclose(one.occupancy, other.occupancy, atol=1e-8)


def test_wei_yu_neely_is_ucpd_with_known_transitions_and_euclidean_distance():
    """Without the half in the square, its step is half as long."""
    P, V, alpha = transition(1), 3.0, 10.0
    drift = learners.wei_yu_neely(mdp_of(P), 1, T, V=V, alpha=alpha)
    ucpd = learners.ucpd(mdp_of(P).layers, 1, T, V=V, alpha=alpha)
    config = ucpd.update.args[0]
    player = dataclasses.replace(
        config.primal,
        transitions=Given(jnp.asarray(P)),
        step_size=primal.Constant(config.primal.step_size.eta / 2),
        mixing=None,
        mirror=Euclidean(),
    )
    reduced = players.together(dataclasses.replace(config, primal=player), ucpd.setting)
    largest = 0.0
    for one, other, _ in in_step(drift, reduced, P):
        np.testing.assert_allclose(one.primal.occupancy, other.primal.occupancy, atol=1e-8)
        np.testing.assert_allclose(one.dual.multipliers, other.dual.multipliers, atol=1e-8)
        largest = max(largest, float(one.dual.multipliers[0]))
    assert largest > 0.01


def test_cold_is_wei_yu_neely_with_other_weights():
    P, epsilon = transition(2), 0.4
    V = T ** (1 - epsilon / 2)
    first = learners.cold(mdp_of(P), 1, T, epsilon=epsilon)
    second = learners.wei_yu_neely(mdp_of(P), 1, T, V=V, alpha=V * np.sqrt(T))
    for one, other, _ in in_step(first, second, P):
        np.testing.assert_allclose(one.primal.occupancy, other.primal.occupancy, atol=1e-8)
        np.testing.assert_allclose(one.dual.multipliers, other.dual.multipliers, atol=1e-8)


def test_without_violation_wei_yu_neely_is_projected_gradient_descent():
    P, V, alpha = transition(3), 2.0, 10.0
    learner = learners.wei_yu_neely(mdp_of(P), 1, T, V=V, alpha=alpha)
    layers, known = mdp_of(P).layers, KnownTransitions(jnp.asarray(P))
    descend = jax.jit(lambda target: project(layers, target, known).occupancy)
    q = np.asarray(learner.init(jax.random.key(0)).primal.occupancy).sum(3)
    for state, _, episode in in_step(learner, learner, P, cost=-1.0):
        q = descend(jnp.asarray(q + V / (2 * alpha) * episode.rewards)).sum(3)
        np.testing.assert_allclose(state.primal.occupancy.sum(3), q, atol=1e-8)
        assert float(state.dual.multipliers[0]) == 0


@pytest.mark.parametrize("name", ["ucpd", "wei-yu-neely"])
def test_queues_bound_what_was_violated(name):
    """They add up the old constraints at the new point, and move by an episode at most."""
    P, V = transition(4), 2.0
    build = {
        "ucpd": lambda: learners.ucpd(mdp_of(P).layers, 1, T, V=V, alpha=10),
        "wei-yu-neely": lambda: learners.wei_yu_neely(mdp_of(P), 1, T, V=V, alpha=10),
    }[name]
    learner, violated, queue = build(), 0.0, 0.0
    for state, _, episode in in_step(learner, learner, P):
        q = np.asarray(state.primal.occupancy).sum(3)
        change = float((episode.constraints[0] * q).sum())
        violated, before, queue = violated + change, queue, max(queue + change, 0)
        found = float(state.dual.multipliers[0]) * V
        assert found == pytest.approx(queue, abs=1e-9)
        assert abs(found - before) <= 3 + 1e-9  # layers, with costs of at most 1
        assert violated <= found + 1e-9
    assert queue > 0.1


def test_the_ball_of_multipliers_and_with_one_constraint_an_interval():
    rng, project_on = np.random.default_rng(6), jax.jit(lambda region, x: region.project(x))
    for m in (1, 3):
        for _ in range(50):
            point, radius = rng.normal(size=m) * 2, rng.uniform(0.1, 3)
            found = project_on(dual.Ball(jnp.asarray(radius)), jnp.asarray(point))
            np.testing.assert_allclose(found, onto_l1_ball(point, radius), atol=1e-12)
            if m == 1:
                np.testing.assert_allclose(found, np.clip(point, 0, radius), atol=1e-12)
