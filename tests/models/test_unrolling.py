"""Unrolled MDPs against a forward recursion over the flat states."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pdgd_jax import occupancy_of, policy_of, unroll
from tests.conftest import random_policy


def flat_mdp(seed, num_states=5, num_actions=3):
    """Sparse random transitions; the last state is absorbing."""
    rng = np.random.default_rng(seed)
    P = rng.uniform(size=(num_states, num_actions, num_states))
    P *= rng.uniform(size=P.shape) > 0.6
    P[np.arange(num_states), :, np.arange(num_states)] += 0.1
    P[-1] = np.eye(num_states)[-1]
    return P / P.sum(-1, keepdims=True)


def flat_visits(P, start, policy):
    """The probability of (state, action) at each step, by the textbook recursion."""
    mass, visits = start, []
    for step in policy:
        visits.append(mass[:, None] * step)
        mass = np.einsum("xa,xay->y", visits[-1], P)
    return np.stack(visits)


def random_flat_policy(seed, shape):
    policy = np.random.default_rng(seed).uniform(size=shape)
    return policy / policy.sum(-1, keepdims=True)


@pytest.mark.parametrize("start", [2, np.array([0.2, 0.0, 0.5, 0.3, 0.0])])
@pytest.mark.parametrize("horizon", [1, 4])
def test_occupancies_and_policies_map_both_ways(start, horizon):
    P = flat_mdp(0)
    mdp = unroll(P, start, horizon)
    flat_policy = random_flat_policy(1, (horizon, 5, 3))
    q = occupancy_of(mdp, mdp.policy_from_flat(flat_policy))
    first = np.eye(5)[start] if np.ndim(start) == 0 else start
    expected = flat_visits(P, first, flat_policy)
    np.testing.assert_allclose(mdp.to_flat(q.sum(-1)), expected, atol=1e-15)
    # A layered policy seen from the flat side, wherever it can be asked.
    reached = expected.sum(-1) > 0
    recovered = np.asarray(mdp.to_flat(policy_of(q, mdp.layers)))
    np.testing.assert_allclose(recovered[reached], flat_policy[reached], atol=1e-12)
    # Rewards: the value of the layered MDP is that of the flat one.
    reward = np.random.default_rng(2).uniform(size=(5, 3))
    np.testing.assert_allclose(
        (mdp.from_flat(reward) * q.sum(-1)).sum(), (reward * expected).sum(), atol=1e-14
    )


def test_only_reachable_copies_exist():
    # A corridor: from each state only to the next, the last one absorbing.
    P = np.eye(4)[np.minimum(np.arange(4) + 1, 3)][:, None, :]
    mdp = unroll(P, start=0, horizon=6)
    assert mdp.layers.sizes == (1, 1, 1, 1, 1, 1, 1)
    np.testing.assert_array_equal(mdp.flat_states[:, 0], [0, 1, 2, 3, 3, 3, -1])
    full = unroll(flat_mdp(3), start=0, horizon=5)
    P = flat_mdp(3)
    reachable = {0}
    for layer in range(5):
        held = [int(x) for x in full.flat_states[layer] if x >= 0]
        assert set(held) == reachable
        reachable = {int(y) for x in reachable for y in np.flatnonzero(P[x].any(0))}


def test_a_start_distribution_becomes_a_first_step_from_a_single_root():
    start = np.array([0.25, 0.75, 0.0])
    mdp = unroll(np.eye(3)[:, None, :], start, horizon=2)
    assert mdp.layers.sizes == (1, 2, 2, 1)
    assert mdp.has_root
    assert mdp.horizon == 2
    np.testing.assert_allclose(mdp.transition[0, 0, 0], [0.25, 0.75])
    np.testing.assert_array_equal(np.asarray(mdp.layers.action_mask)[0], [[True], [False]])


def test_a_certain_start_needs_no_root():
    assert not unroll(np.eye(3)[:, None, :], 1, horizon=2).has_root


def test_transitions_may_depend_on_the_step():
    stay, swap = np.eye(2)[:, None, :], np.eye(2)[::-1][:, None, :]
    mdp = unroll(np.stack([stay, swap, stay]), start=0, horizon=3)
    np.testing.assert_array_equal(mdp.flat_states[:, 0], [0, 0, 1, -1])


def test_states_may_have_different_actions():
    P = flat_mdp(4)
    allowed = np.ones((5, 3), bool)
    allowed[0, 1] = allowed[2, 0] = False
    garbage = P.copy()
    garbage[0, 1] = 7.0  # never looked at: the action does not exist
    mdp = unroll(garbage, start=0, horizon=3, action_mask=allowed)
    np.testing.assert_array_equal(mdp.layers.action_mask[0, 0], allowed[0])
    policy = random_policy(5, mdp.layers)
    visits = np.asarray(mdp.to_flat(occupancy_of(mdp, policy).sum(-1)))
    assert not visits[:, ~allowed].any()
    np.testing.assert_allclose(visits.sum((1, 2)), 1)


def test_padding_a_layered_copy_keeps_its_value():
    mdp = unroll(flat_mdp(6), start=0, horizon=3)
    padded = mdp.pad_to((4, 7, 3))
    q = occupancy_of(mdp, mdp.layers.uniform_policy())
    wide = occupancy_of(padded, padded.layers.uniform_policy())
    L, S, A, _ = q.shape
    np.testing.assert_allclose(wide[:L, :S, :A, :S], q, atol=0)
    assert float(jnp.abs(wide).sum() - q.sum()) == pytest.approx(0, abs=1e-14)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"start": 7}, "start must be a state 0..4; got 7"),
        ({"start": np.array([0.5, 0.4, 0, 0, 0])}, "start sums to 0.9"),
        ({"start": np.array([1.5, -0.5, 0, 0, 0])}, "start gives state 1 the probability -0.5"),
        ({"start": np.array([1.0, 0])}, r"distribution \[N\] = \(5,\)"),
        ({"horizon": 0}, "horizon must be a whole number, at least 1"),
        ({"transition": np.ones((5, 3))}, r"must be \[N, A, N\]"),
        ({"transition": 0.5 * flat_mdp(0)}, "step 0, state 0, action 0 sums to 0.5"),
        ({"transition": flat_mdp(0) * np.nan}, "is nan; it must be a probability"),
        ({"action_mask": np.ones((5, 2), bool)}, r"must be \[N, A\] = \(5, 3\)"),
        ({"action_mask": np.arange(15).reshape(5, 3) > 2}, "state 0 has no action"),
    ],
)
def test_bad_input(unchecked, change, sentence):
    arguments = {"transition": flat_mdp(0), "start": 0, "horizon": 3} | change
    with pytest.raises(ValueError, match=sentence):
        unroll(**arguments)


def test_flat_values_of_a_wrong_shape():
    mdp = unroll(flat_mdp(0), 0, 3)
    with pytest.raises(ValueError, match=r"\[N, A\] = \(5, 3\)"):
        mdp.from_flat(np.zeros((4, 3)))


def as_lists(P, rng):
    """`[N, A, N]` as lists in some order, the first entry of each in two halves, and some -1."""
    N, A, _ = P.shape
    lists, chances = np.full((N, A, N + 2), -1), np.zeros((N, A, N + 2))
    for state in range(N):
        for action in range(A):
            following = rng.permutation(np.flatnonzero(P[state, action]))
            following = np.append(following, following[0])
            chance = P[state, action, following]
            chance[[0, -1]] /= 2
            lists[state, action, 1 : len(following) + 1] = following
            chances[state, action, 1 : len(following) + 1] = chance
    return lists, chances


@pytest.mark.parametrize("support", ["known", "unknown"])
@pytest.mark.parametrize("start", [2, np.array([0.2, 0.0, 0.5, 0.3, 0.0])])
def test_lists_of_successors_say_what_a_dense_array_says(support, start):
    P, rng = flat_mdp(7), np.random.default_rng(7)
    allowed = np.ones((5, 3), bool)
    allowed[1, 2] = allowed[3, 0] = False
    lists, chances = as_lists(P, rng)
    lists[1, 2], chances[1, 2] = 99, np.nan  # never looked at: the action does not exist
    settings = {"start": start, "horizon": 4, "action_mask": allowed, "support": support}
    dense, sparse = unroll(P, **settings), unroll(chances, successors=lists, **settings)
    for leaf, other in zip(jax.tree.leaves(dense), jax.tree.leaves(sparse), strict=True):
        np.testing.assert_array_equal(leaf, other)


def test_lists_may_depend_on_the_step():
    stay, swap = np.array([[[0]], [[1]]]), np.array([[[1]], [[0]]])
    lists = np.stack([stay, swap, stay])
    mdp = unroll(np.ones(lists.shape), 0, 3, successors=lists, support="known")
    np.testing.assert_array_equal(mdp.flat_states[:, 0], [0, 0, 1, -1])


def test_a_step_without_probability_cannot_happen():
    lists, chances = np.array([[[0, 1]], [[1, 0]]]), np.array([[[1.0, 0.0]], [[1.0, 0.0]]])
    mdp = unroll(chances, 0, 3, successors=lists, support="known")
    assert mdp.layers.sizes == (1, 1, 1, 1)


def test_lists_need_memory_for_their_steps_alone(monkeypatch):
    N = 5000  # 200 MB as one array [N, 1, N]
    monkeypatch.setattr("pdgd_jax._internal.memory.free_memory", lambda: 2.0**23)
    ring, certain = (np.arange(N)[:, None, None] + 1) % N, np.ones((N, 1, 1))
    mdp = unroll(certain, 0, 20, successors=ring, support="known")
    assert mdp.layers.sizes == (1,) * 21
    with pytest.raises(ValueError, match="5,000 states over 20 steps needs about"):
        unroll(certain, 0, 20, successors=ring)
    with pytest.raises(ValueError, match="5,000 states over 1,000 steps needs about"):
        unroll(certain, 0, 1000, successors=ring, support="known")


@pytest.mark.parametrize(
    ("successors", "transition", "sentence"),
    [
        ([[[0, 2]], [[1, -1]]], [[[0.5, 0.5]], [[1.0, 0.0]]], "state 0, action 0 is 2; the states"),
        ([[[0, 1]], [[1, -1]]], [[[0.5, 0.5]], [[0.5, 0.5]]], "state 1, action 0 is 0.5 where"),
        ([[[0, 1]], [[1, -1]]], [[[0.5, 0.4]], [[1.0, 0.0]]], "state 0, action 0 sums to 0.9"),
        ([[[0, 1]], [[1, 0]]], [[[1.5, -0.5]], [[1.0, 0.0]]], "to state 1 is -0.5; it must be a"),
        ([[[0, 1]], [[1, 0]]], [[[1.0]], [[1.0]]], r"in the shape of transition, \(2, 1, 1\)"),
        ([[[0.0]], [[1.0]]], [[[1.0]], [[1.0]]], "successors must be whole numbers .* float64"),
        ([[0], [1]], [[1.0], [1.0]], r"transition must be \[N, A, K\]"),
    ],
)
def test_bad_lists(unchecked, successors, transition, sentence):
    with pytest.raises(ValueError, match=sentence):
        unroll(np.array(transition), 0, 3, successors=np.array(successors), support="known")
