"""Occupancies against enumeration of every trajectory, and rollouts against occupancies."""

import itertools

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pdgd_jax import LayeredMDP, Layers, occupancy_of, policy_of, rollout, value_of
from pdgd_jax.models._occupancy import _choose
from tests.conftest import random_mdp, random_policy


def occupancy_by_enumeration(mdp, policy):
    """The probability of every trajectory, added up: slow, obvious, and shares no code."""
    P, policy = np.asarray(mdp.transition), np.asarray(policy)
    L, S, A, _ = P.shape
    q = np.zeros(P.shape)
    for states in itertools.product(range(S), repeat=L):
        for actions in itertools.product(range(A), repeat=L):
            path = (0, *states)
            probability = 1.0
            for k in range(L):
                probability *= policy[k, path[k], actions[k]]
                probability *= P[k, path[k], actions[k], path[k + 1]]
            for k in range(L):
                q[k, path[k], actions[k], path[k + 1]] += probability
    return q


@pytest.mark.parametrize("seed", range(3))
def test_occupancy_equals_the_enumeration_of_trajectories(seed):
    mdp = random_mdp(seed)
    policy = random_policy(seed + 100, mdp.layers)
    np.testing.assert_allclose(
        occupancy_of(mdp, policy), occupancy_by_enumeration(mdp, policy), atol=1e-15
    )


def flow_residual(mdp, q):
    """The largest breach of: unit mass from x_0, conservation, q = q(x,a) P, q >= 0."""
    q, P = np.asarray(q), np.asarray(mdp.transition)
    outflow, inflow = q.sum((2, 3)), q.sum((1, 2))
    return max(
        abs(outflow[0, 0] - 1),
        np.abs(outflow[1:] - inflow[:-1]).max(initial=0),
        np.abs(q - q.sum(-1, keepdims=True) * P).max(),
        max(0, -q.min()),
    )


@hypothesis.given(
    widths=st.lists(st.integers(1, 6), min_size=0, max_size=6),
    num_actions=st.integers(1, 4),
    seed=st.integers(0, 10**6),
)
@hypothesis.settings(max_examples=12, deadline=None, derandomize=True)
def test_occupancy_conserves_flow_and_inverts(widths, num_actions, seed):
    mdp = random_mdp(seed, (1, *widths, 1), num_actions)
    policy = random_policy(seed + 1, mdp.layers)
    occupancy = jax.jit(occupancy_of)
    q = np.asarray(occupancy(mdp, policy))
    assert flow_residual(mdp, q) < 1e-12
    reached = q.sum((2, 3)) > 0
    recovered = np.asarray(jax.jit(policy_of)(q, mdp.layers))
    np.testing.assert_allclose(recovered[reached], np.asarray(policy)[reached], atol=1e-12)
    # The other way round, from an occupancy to its policy and back.
    np.testing.assert_allclose(occupancy(mdp, jnp.asarray(recovered)), q, atol=1e-13)


def test_states_without_mass_get_the_uniform_policy():
    layers = Layers.from_sizes((1, 2, 1), num_actions=2)
    actions = np.zeros((2, 2, 3), bool)
    actions[..., :2] = layers.action_mask
    actions[1, 1] = [True, True, True]
    layers = Layers(layers.state_mask, actions)
    q = np.zeros((2, 2, 3, 2))
    q[0, 0, 1, 0] = q[1, 0, 0, 0] = 1.0
    policy = np.asarray(policy_of(jnp.asarray(q), layers))
    np.testing.assert_allclose(policy[0, 0], [0, 1, 0])
    np.testing.assert_allclose(policy[1, 0], [1, 0, 0])
    np.testing.assert_allclose(policy[1, 1], [1 / 3] * 3)
    assert not policy[0, 1].any()  # outside the masks
    # The marginal says the same, and rounding below zero is no probability.
    marginal = jnp.asarray(q.sum(-1)).at[0, 0, 0].set(-1e-18)
    np.testing.assert_array_equal(policy_of(marginal, layers), policy)


def test_policy_of_needs_no_layers_where_all_actions_exist():
    mdp = random_mdp(3)
    q = occupancy_of(mdp, mdp.layers.uniform_policy())
    np.testing.assert_allclose(occupancy_of(mdp, policy_of(q)), q, atol=1e-15)


def test_value_is_the_expected_sum():
    mdp = random_mdp(5)
    policy = random_policy(6, mdp.layers)
    rng = np.random.default_rng(0)
    G = rng.uniform(-1, 1, size=(2, *mdp.layers.shape))
    q = occupancy_by_enumeration(mdp, policy)
    expected = [(G[i] * q.sum(-1)).sum() for i in range(2)]
    np.testing.assert_allclose(value_of(jnp.asarray(G), occupancy_of(mdp, policy)), expected)
    assert value_of(jnp.asarray(G[0]), jnp.asarray(q)).shape == ()


def test_rollout_frequencies_match_the_occupancy(precision):
    mdp = random_mdp(7)
    mdp = LayeredMDP(mdp.layers, np.asarray(mdp.transition))  # in the precision of this test
    policy = random_policy(8, mdp.layers).astype(mdp.transition.dtype)
    count = 40_000
    keys = jax.random.split(jax.random.key(0), count)
    paths = jax.jit(jax.vmap(lambda key: rollout(key, mdp, policy)))(keys)
    frequency = np.zeros(mdp.transition.shape)
    layer = np.broadcast_to(np.arange(mdp.layers.shape[0]), paths.actions.shape)
    states = np.asarray(paths.states)
    np.add.at(frequency, (layer, states[:, :-1], np.asarray(paths.actions), states[:, 1:]), 1)
    q = np.asarray(occupancy_of(mdp, policy), np.float64)
    # Each count is binomial; 5 standard deviations, for about 30 entries, fail once in 10^5.
    tolerance = 5 * np.sqrt(q * (1 - q) / count)
    assert (np.abs(frequency / count - q) <= tolerance + 1e-6).all()
    # What has probability zero has not happened once.
    assert not frequency[np.asarray(mdp.transition) == 0].any()


def test_rollout_ends_in_the_last_state_and_padding_does_not_change_it():
    mdp = random_mdp(9, (1, 4, 3, 1), num_actions=3)
    policy = random_policy(10, mdp.layers)
    padded = mdp.pad_to((5, 6, 4))
    grow = [(0, b - a) for a, b in zip(policy.shape, padded.layers.shape, strict=True)]
    keys = jax.random.split(jax.random.key(1), 50)
    plain = jax.vmap(lambda key: rollout(key, mdp, policy))(keys)
    wide = jax.vmap(lambda key: rollout(key, padded, jnp.pad(policy, grow)))(keys)
    np.testing.assert_array_equal(wide.states[:, :4], plain.states)
    np.testing.assert_array_equal(wide.actions[:, :3], plain.actions)
    assert not wide.states[:, 4:].any()
    assert not wide.actions[:, 3:].any()
    assert not plain.states[:, -1].any()


@pytest.mark.parametrize("function", [occupancy_of, lambda *a: rollout(jax.random.key(0), *a)])
def test_what_is_not_a_policy_is_refused(function):
    mdp = random_mdp(0)
    policy = np.array(mdp.layers.uniform_policy())
    with pytest.raises(ValueError, match=r"shape \[L, S, A\]"):
        function(mdp, jnp.asarray(policy[:2]))
    wrong = policy.copy()
    wrong[1, 2] = [0.5, 0.4]
    with pytest.raises(ValueError, match="layer 1, state 2 sums to 0.9"):
        function(mdp, jnp.asarray(wrong))
    wrong[1, 2] = [1.5, -0.5]
    with pytest.raises(ValueError, match="layer 1, state 2, action 1 is -0.5"):
        function(mdp, jnp.asarray(wrong))


def test_an_action_that_a_state_does_not_have():
    actions = np.ones((1, 1, 2), bool)
    actions[0, 0, 1] = False
    layers = Layers(np.ones((2, 1), bool), actions)
    mdp = LayeredMDP(layers, np.array([1.0, 0.0]).reshape(1, 1, 2, 1))
    with pytest.raises(ValueError, match="state 0, action 1 is 0.5"):
        occupancy_of(mdp, jnp.full((1, 1, 2), 0.5))


@pytest.mark.parametrize("uniform", [0.0, 1 - 2**-24])
def test_the_choice_never_has_weight_zero(uniform):
    weights = jnp.asarray([0.0, 0.5, 0.0, 0.499, 0.0], jnp.float32)  # need not sum to 1
    choice = _choose(weights, jnp.float32(uniform))
    assert int(choice) == (1 if uniform == 0 else 3)
    assert int(_choose(jnp.zeros(3), jnp.asarray(uniform))) == 0  # a layer that only pads
