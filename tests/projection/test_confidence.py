"""Counters, epochs and radii against loops that follow the paper's box."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pdgd_jax import Layers, Trajectory, rollout
from pdgd_jax.learners._visits import count, estimate, no_visits
from pdgd_jax.projection import ConfidenceSet, contains
from tests.conftest import random_mdp, random_policy

COUNT = jax.jit(count)
ESTIMATE = jax.jit(estimate, static_argnames="num_episodes")
SIZES, ACTIONS, T, DELTA = (1, 3, 2, 1), 2, 500, 0.1


def trajectories(number):
    mdp = random_mdp(0, SIZES, ACTIONS)
    policy = random_policy(1, mdp.layers)
    keys = jax.random.split(jax.random.key(2), number)
    played = jax.jit(jax.vmap(lambda key: rollout(key, mdp, policy)))(keys)
    return mdp, jax.tree.map(np.asarray, played)


def slow_counts(states, actions):
    """The box of UC-O-GDPS.UPDATE, word for word: counters and epochs after each episode."""
    N, M, start, epoch = {}, {}, {}, 1
    for episode_states, episode_actions in zip(states, actions, strict=True):
        visited = []
        for k, action in enumerate(episode_actions):
            pair = (k, int(episode_states[k]), int(action))
            N[pair] = N.get(pair, 0) + 1
            triple = (*pair, int(episode_states[k + 1]))
            M[triple] = M.get(triple, 0) + 1
            visited.append(pair)
        if any(N[pair] >= max(1, 2 * start.get(pair, 0)) for pair in visited):
            epoch += 1
            start = dict(N)
        yield dict(N), dict(M), dict(start), epoch


def as_array(counts, shape):
    array = np.zeros(shape, int)
    for index, number in counts.items():
        array[index] = number
    return array


def test_counts_and_epochs_follow_the_box():
    mdp, played = trajectories(300)
    layers = mdp.layers
    visits = no_visits(layers)
    expected = slow_counts(np.asarray(played.states), np.asarray(played.actions))
    before = 1
    for t, (N, M, start, epoch) in enumerate(expected):
        visits, begins = COUNT(layers, visits, jax.tree.map(lambda x, t=t: x[t], played))
        L, S, A = layers.shape
        np.testing.assert_array_equal(visits.pairs, as_array(N, (L, S, A)))
        np.testing.assert_array_equal(visits.triples, as_array(M, (L, S, A, S)))
        np.testing.assert_array_equal(visits.pairs_at_start, as_array(start, (L, S, A)))
        assert int(visits.epoch) == epoch
        assert bool(begins) == (epoch > before)
        before = epoch
    assert 10 < before < 300  # epochs become rare, as doubling makes them


def test_the_estimate_is_the_papers():
    mdp, played = trajectories(40)
    layers = mdp.layers
    visits = no_visits(layers)
    for t in range(40):
        visits, _ = COUNT(layers, visits, jax.tree.map(lambda x, t=t: x[t], played))
    scale = 0.7
    found = ESTIMATE(
        layers, visits, num_episodes=T, delta=jnp.asarray(DELTA), scale=jnp.asarray(scale)
    )
    N, M = np.asarray(visits.pairs), np.asarray(visits.triples)
    never = 0
    for k, size in enumerate(SIZES[:-1]):
        for x in range(size):
            for a in range(ACTIONS):
                after = SIZES[k + 1]
                if N[k, x, a] == 0:
                    never += 1
                    expected = np.where(np.arange(3) < after, 1 / after, 0)
                    assert found.radius[k, x, a] >= 2  # every transition is allowed
                else:
                    expected = M[k, x, a] / N[k, x, a]
                    logarithm = math.log(T * sum(SIZES) * ACTIONS / DELTA)
                    radius = scale * math.sqrt(2 * after * logarithm / N[k, x, a])
                    assert found.radius[k, x, a] == pytest.approx(radius, rel=1e-12)
                np.testing.assert_allclose(found.center[k, x, a], expected, atol=1e-15)
    outside = ~np.asarray(layers.action_mask)
    assert np.all(np.asarray(found.radius)[outside] == 0)
    assert np.all(np.asarray(found.center)[outside] == 0)
    assert never == 0 or scale < 1


def test_a_pair_never_visited_allows_everything_even_with_a_small_scale():
    layers = Layers.from_sizes((1, 2, 1), 2)
    found = estimate(
        layers,
        no_visits(layers),
        num_episodes=10,
        delta=jnp.asarray(0.1),
        scale=jnp.asarray(1e-3),
    )
    assert np.all(np.asarray(found.radius)[np.asarray(layers.action_mask)] >= 2)


def test_padding_changes_neither_counts_nor_radii():
    mdp, played = trajectories(30)
    padded = mdp.layers.pad_to((5, 4, 3))
    plain, wide = no_visits(mdp.layers), no_visits(padded)
    for t in range(30):
        one = jax.tree.map(lambda x, t=t: x[t], played)
        longer = Trajectory(np.pad(one.states, (0, 2)), np.pad(one.actions, (0, 2)))
        plain, _ = COUNT(mdp.layers, plain, one)
        wide, _ = COUNT(padded, wide, longer)
    assert wide.pairs.sum() == plain.pairs.sum() == 30 * 3
    assert int(wide.epoch) == int(plain.epoch)
    settings = {"num_episodes": T, "delta": jnp.asarray(DELTA), "scale": jnp.asarray(1.0)}
    first = ESTIMATE(mdp.layers, plain, **settings)
    second = ESTIMATE(padded, wide, **settings)
    L, S, A = mdp.layers.shape
    np.testing.assert_allclose(second.radius[:L, :S, :A], first.radius, rtol=1e-14)
    np.testing.assert_allclose(second.center[:L, :S, :A, :S], first.center, rtol=1e-14)
    assert second.radius.sum() == pytest.approx(float(first.radius.sum()), rel=1e-12)


def test_contains_is_the_distance_of_every_pair():
    mdp = random_mdp(3, SIZES, ACTIONS)
    moved = np.array(mdp.transition)
    moved[1, 0, 1, :2] += [0.1, -0.1]  # at L1 distance 0.2, in one pair alone
    exact = ConfidenceSet(mdp.transition, jnp.zeros(mdp.layers.shape))
    assert bool(contains(exact, mdp.transition))
    assert not bool(contains(exact, jnp.asarray(moved)))
    for radius, inside in ((0.199, False), (0.201, True)):
        ball = ConfidenceSet(mdp.transition, jnp.full(mdp.layers.shape, radius))
        assert bool(contains(ball, jnp.asarray(moved))) is inside


@pytest.mark.slow
def test_the_true_transitions_are_covered_as_often_as_promised():
    """Lemma 5 with delta = 0.5 over 200 runs; the bound is loose, so that none fails here."""
    mdp = random_mdp(4, SIZES, ACTIONS)
    policy = random_policy(5, mdp.layers)

    def run(key):
        def episode(carry, key):
            visits, covered = carry
            visits, _ = count(mdp.layers, visits, rollout(key, mdp, policy))
            found = estimate(
                mdp.layers,
                visits,
                num_episodes=200,
                delta=jnp.asarray(0.5),
                scale=jnp.asarray(1.0),
            )
            return (visits, covered & contains(found, mdp.transition)), None

        first = (no_visits(mdp.layers), jnp.ones((), bool))
        return jax.lax.scan(episode, first, jax.random.split(key, 200))[0][1]

    covered = jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(6), 200))
    assert covered.mean() >= 0.5
