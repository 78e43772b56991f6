"""Successor lists: everything equals what it is without them, on the same transitions."""

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pdgd_jax import (
    CMDP,
    LayeredMDP,
    Layers,
    evaluate_policies,
    occupancy_of,
    oracle,
    policy_of,
    rollout,
    stack,
    unroll,
    value_of,
)
from pdgd_jax.models._groups import MOST_GROUPS, Group, Groups, choose_groups
from pdgd_jax.models._successor_arrays import build

N, A, HORIZON = 6, 3, 4


def flat_mdp(seed, most=3):
    """Random transitions of one to `most` successors, but one pair with all, and some actions."""
    rng = np.random.default_rng(seed)
    P = np.zeros((N, A, N))
    for state in range(N):
        for action in range(A):
            count = N if state == action == 0 else rng.integers(1, most + 1)
            P[state, action, rng.choice(N, count, replace=False)] = rng.dirichlet(np.ones(count))
    actions = rng.random((N, A)) < 0.7
    actions[:, 0] = True
    return P, rng.dirichlet(np.ones(N)), actions


def both(seed=0, **settings):
    """The same MDP without and with successor lists."""
    P, start, actions = flat_mdp(seed, **settings)
    return [
        unroll(P, start, HORIZON, action_mask=actions, support=support)
        for support in ("unknown", "known")
    ]


def random_policy(layers, seed=0):
    weights = np.random.default_rng(seed).random(layers.shape) * np.asarray(layers.action_mask)
    total = weights.sum(-1, keepdims=True)
    return jnp.asarray(weights / np.where(total > 0, total, 1))


@pytest.mark.parametrize("seed", range(3))
def test_layers_and_transitions_are_the_same(seed):
    dense, lists = both(seed)
    assert lists.layers.sizes == dense.layers.sizes
    np.testing.assert_array_equal(lists.layers.action_mask, dense.layers.action_mask)
    np.testing.assert_array_equal(lists.layers.to_dense(lists.transition), dense.transition)
    np.testing.assert_array_equal(lists.layers.from_dense(dense.transition), lists.transition)
    possible = np.asarray(dense.transition) > 0
    np.testing.assert_array_equal(lists.layers.to_dense(lists.layers.triple_mask), possible)
    assert int(lists.layers.num_triples) == possible.sum() < int(dense.layers.num_triples)


@pytest.mark.parametrize("seed", range(3))
def test_sums_over_triples_are_those_of_the_dense_array(seed):
    _, lists = both(seed)
    layers = lists.layers
    rng = np.random.default_rng(seed)
    triples = jnp.asarray(rng.normal(size=layers.triple_shape)) * layers.triple_mask
    dense = np.asarray(layers.to_dense(triples))
    np.testing.assert_allclose(layers.to_pairs(triples), dense.sum(-1), atol=1e-14)
    np.testing.assert_allclose(layers.into_next(triples), dense.sum((1, 2)), atol=1e-14)
    pairs, states = rng.normal(size=layers.shape), rng.normal(size=layers.shape[:2])
    possible = np.asarray(layers.to_dense(layers.triple_mask))
    of_pairs = layers.to_dense(layers.to_triples(jnp.asarray(pairs)))
    np.testing.assert_array_equal(of_pairs, pairs[..., None] * possible)
    of_states = layers.to_dense(layers.at_next(jnp.asarray(states)) * layers.triple_mask)
    np.testing.assert_array_equal(of_states, states[:, None, None] * possible)


def test_occupancies_policies_values_and_rollouts():
    dense, lists = both()
    policy = random_policy(dense.layers)
    expected, found = occupancy_of(dense, policy), occupancy_of(lists, policy)
    np.testing.assert_allclose(lists.layers.to_dense(found), expected, atol=1e-15)
    expected_policy = policy_of(expected, dense.layers)
    np.testing.assert_allclose(policy_of(found, lists.layers), expected_policy, atol=1e-12)
    reward = jnp.asarray(np.random.default_rng(1).random(dense.layers.shape))
    value = value_of(reward, found, lists.layers)
    assert float(value) == pytest.approx(float(value_of(reward, expected)), abs=1e-13)
    with pytest.raises(ValueError, match="pass its layers, too"):
        value_of(reward, found)
    keys = jax.random.split(jax.random.key(0), 200)
    paths = [
        jax.vmap(lambda key, mdp=mdp: rollout(key, mdp, policy))(keys) for mdp in (dense, lists)
    ]
    np.testing.assert_array_equal(paths[0].states, paths[1].states)
    np.testing.assert_array_equal(paths[0].actions, paths[1].actions)


def test_the_linear_programs_are_the_same():
    dense, lists = both()
    rng = np.random.default_rng(2)
    reward, costs = rng.random(dense.layers.shape), rng.uniform(-1, 0.5, (2, *dense.layers.shape))
    costs[:, 0] = 0.3  # so that they bind
    expected, found = (oracle.optimum(mdp, reward, costs) for mdp in (dense, lists))
    assert found.value == pytest.approx(expected.value, abs=1e-9)
    marginals = [
        mdp.layers.to_pairs(jnp.asarray(x.occupancy))
        for mdp, x in ((dense, expected), (lists, found))
    ]
    np.testing.assert_allclose(marginals[1], marginals[0], atol=1e-7)
    margins = [oracle.slater_margin(mdp, costs).rho for mdp in (dense, lists)]
    assert margins[1] == pytest.approx(margins[0], abs=1e-9)


def cmdp_of(mdp, seed=0):
    rng = np.random.default_rng(seed)
    mask = np.asarray(mdp.layers.action_mask)
    return CMDP(mdp, rng.random(mask.shape) * mask, rng.uniform(-1, 1, (1, *mask.shape)) * mask)


def test_instances_with_other_lists_are_stacked():
    cmdps = [cmdp_of(both(seed, most=most)[1], seed) for seed, most in ((0, 2), (1, 5))]
    shorter = unroll(*flat_mdp(2)[:2], 2, support="known")
    cmdps.append(cmdp_of(shorter))
    stacked = stack(cmdps)
    policies = [random_policy(cmdp.layers, i) for i, cmdp in enumerate(cmdps)]
    shape = stacked.layers.action_mask.shape[1:]
    padded = [
        np.pad(p, [(0, n - o) for o, n in zip(p.shape, shape, strict=True)]) for p in policies
    ]
    values = evaluate_policies(stacked, jnp.asarray(np.stack(padded))[:, None])
    for i, (cmdp, policy) in enumerate(zip(cmdps, policies, strict=True)):
        alone = evaluate_policies(cmdp, policy[None])
        np.testing.assert_allclose(values.reward[i], alone.reward, atol=1e-13)
        np.testing.assert_allclose(values.violation[i], alone.violation, atol=1e-13)
    with pytest.raises(ValueError, match="instance 1 has successor lists and instance 0 has none"):
        stack([cmdp_of(both()[0]), cmdps[0]])


def test_pack_and_unpack_keep_the_order_of_the_lists():
    """Also where -1 stands between two successors, and for pairs."""
    lists = [np.array([[[2, -1, 0], [-1, -1, 1]]]), np.zeros((3, 2, 1), int)]
    layers = Layers.from_successors((1, 3, 1), lists)
    rng = np.random.default_rng(0)
    given = [np.where(each >= 0, rng.random(each.shape), 0) for each in lists]
    packed = layers.pack(given)
    assert packed.shape == layers.triple_shape
    for back, array in zip(layers.unpack(packed), given, strict=True):
        np.testing.assert_array_equal(back, array)
    assert float(layers.to_dense(packed)[0, 0, 0, 2]) == given[0][0, 0, 0]
    pairs = [rng.random(each.shape[:2]) for each in lists]
    assert layers.pack(pairs).shape == layers.shape
    for back, array in zip(layers.unpack(layers.pack(pairs)), pairs, strict=True):
        np.testing.assert_array_equal(back, array)


def test_without_lists_pack_pads():
    layers = Layers.from_sizes((1, 3, 2, 1), num_actions=2)
    given = [
        np.random.default_rng(k).random(shape)
        for k, shape in enumerate([(1, 2, 3), (3, 2, 2), (2, 2, 1)])
    ]
    packed = layers.pack(given)
    assert packed.shape == (3, 3, 2, 3)
    assert float(jnp.abs(packed).sum()) == pytest.approx(sum(x.sum() for x in given))
    for back, array in zip(layers.unpack(packed), given, strict=True):
        np.testing.assert_array_equal(back, array)


def test_padding_changes_nothing():
    _, lists = both()
    policy = random_policy(lists.layers)
    larger = (HORIZON + 3, N + 2, A + 1)
    padded = lists.pad_to(larger)
    grow = [(0, n - o) for o, n in zip(lists.layers.shape, larger, strict=True)]
    found = occupancy_of(padded, jnp.pad(policy, grow))
    expected = np.asarray(lists.layers.to_dense(occupancy_of(lists, policy)))
    dense = np.asarray(padded.layers.to_dense(found))
    L, S, _ = lists.layers.shape
    np.testing.assert_allclose(dense[:L, :S, :A, :S], expected, atol=1e-15)
    assert dense.sum() == pytest.approx(expected.sum())


@hypothesis.given(
    lengths=st.lists(st.lists(st.integers(0, 12), min_size=5, max_size=5), min_size=1, max_size=4)
)
@hypothesis.settings(max_examples=200, deadline=None, derandomize=True)
def test_groups_have_room_for_every_layer_and_are_few(lengths):
    lengths = np.array(lengths)
    groups = choose_groups(lengths, most=2)
    assert len(groups) <= 2
    for row in lengths:
        wanted = np.sort(row[row > 0])[::-1]
        widths = np.array([width for rows, width in groups for _ in range(rows)])[::-1]
        assert len(widths) >= len(wanted)
        assert (widths[: len(wanted)] >= wanted).all()
    one = choose_groups(lengths, most=1)
    assert groups.num_entries <= one.num_entries


def test_lists_of_many_instances_have_as_few_groups_as_those_of_one():
    """Each group is a part of the program, also an empty one."""
    graphs = [
        Layers.from_successors((1, width, 1), [[[list(range(width))]], [[[0]]] * width])
        for width in range(1, 10)
    ]
    largest = graphs[-1].shape
    padded = [graph.pad_to(largest, graphs).successors for graph in graphs]
    assert len({(each.groups, each.entering_groups) for each in padded}) == 1
    assert padded[0].groups == Groups([Group(8, 1), Group(1, 9)])
    for groups in (padded[0].groups, padded[0].entering_groups):
        assert len(groups) <= MOST_GROUPS
        assert all(group.rows for group in groups)


def test_a_few_wide_rows_do_not_widen_the_others():
    lengths = np.ones((11, 3000), int)
    lengths[0] = 0
    lengths[0, 0] = 300
    assert choose_groups(lengths) == Groups([Group(2999, 1), Group(1, 300)])


@pytest.mark.parametrize(
    ("sizes", "lists", "sentence"),
    [
        (
            (1, 2, 1),
            [[[[0, 2]]], [[[0]]] * 2],
            "successor of layer 0, state 0, action 0 is 2; layer 1 has the states 0 to 1",
        ),
        ((1, 2, 1), [[[[0, -2]]], [[[0]]] * 2], "is -2; layer 1 has the states"),
        (
            (1, 2, 1),
            [[[[1, 1]]], [[[0]]] * 2],
            "successors of layer 0, state 0, action 0 name state 1 twice",
        ),
        ((1, 2, 1), [[[[0, 1]]]], "have 2 decision layers; got successors of 1"),
        (
            (1, 2, 1),
            [[[[0, 1]]], [[[0]]]],
            r"layer 1 must have the shape \[X, A, K\] = \(2, 1, K\); got \(1, 1, 1\)",
        ),
        ((1, 2, 1), [[[0, 1]], [[[0]]] * 2], r"layer 0 must have the shape"),
        (
            (1, 2, 1),
            [[[[0.0, 1.0]]], [[[0]]] * 2],
            "layer 0 are float64; they must be whole numbers",
        ),
        ((1, 2, 1), [[[[0, 1]]], [[[0]], [[-1]]]], "layer 1, state 1 has no action"),
        (
            (1, 2, 1),
            [[[[0], [0, 1]]], [[[0]] * 2] * 2],
            r"successors of layer 0 must be one array \[X, A, K\]; got lists of different lengths",
        ),
    ],
)
def test_wrong_lists_get_a_sentence(unchecked, sizes, lists, sentence):
    with pytest.raises(ValueError, match=sentence):
        Layers.from_successors(sizes, lists)


def test_wrong_transitions_get_a_sentence_that_names_the_triple():
    layers = Layers.from_successors(
        (1, 2, 1), [np.array([[[1, -1], [1, 0]]]), np.zeros((2, 2, 1), int)]
    )
    good = [np.array([[[1.0, 0.0], [0.4, 0.6]]]), np.ones((2, 2, 1))]
    LayeredMDP(layers, layers.pack(good))
    wrong = [x.copy() for x in good]
    wrong[0][0, 1] = [1.4, -0.4]
    with pytest.raises(
        ValueError, match="P of layer 0, state 0, action 1 to state 0 of layer 1 is -0.4"
    ):
        LayeredMDP(layers, layers.pack(wrong))
    wrong[0][0, 1] = [0.4, 0.5]
    with pytest.raises(ValueError, match=r"layer 0, state 0, action 1 sums to 0.9"):
        LayeredMDP(layers, layers.pack(wrong))
    with pytest.raises(ValueError, match=r"shape \[L, M\] ="):
        LayeredMDP(layers, np.zeros((2, 2, 2, 2)))
    with pytest.raises(ValueError, match="support must be 'known' or 'unknown'; got 'some'"):
        unroll(np.ones((1, 1, 1)), 0, 2, support="some")


def test_numbers_outside_the_lists_get_a_sentence():
    layers = Layers.from_successors((1, 2, 1), [[[[0, -1], [0, 1]]], [[[0]] * 2] * 2])
    last = np.ones((2, 2, 1))
    sentence = "array of layer 0, state 0, action 0 has 0.5 in column 1, where its successor list"
    with pytest.raises(ValueError, match=sentence):
        layers.pack([np.array([[[0.5, 0.5], [0.4, 0.6]]]), last])
    with pytest.raises(ValueError, match="the array of layer 0 must be one array"):
        layers.pack([[[[1.0], [0.4, 0.6]]], last])
    # An entry that only pads belongs to no list.
    transition = np.array(layers.pack([np.array([[[1.0, 0.0], [0.4, 0.6]]]), last]))
    transition[tuple(np.argwhere(~np.asarray(layers.triple_mask))[0])] = 0.1
    with pytest.raises(ValueError, match="is 0.1, but that is not a step from a valid state"):
        LayeredMDP(layers, transition)


def test_lists_of_other_layers_get_a_sentence():
    """Masks and lists are given apart only where the layers are not made from the lists."""
    layers = Layers.from_successors((1, 2, 1), [[[[0, -1], [0, 1]]], [[[0]] * 2] * 2])
    masks = layers.state_mask, np.array(layers.action_mask)
    Layers(*masks, layers.successors)
    wider = Layers.from_successors((1, 3, 1), [[[[0, 1], [0, 2]]], [[[0]] * 2] * 3])
    sentence = r"lists are those of layers \(L, S, A\) = \(2, 3, 2\); the masks are of \(2, 2, 2\)"
    with pytest.raises(ValueError, match=sentence):
        Layers(*masks, wider.successors)
    fewer = masks[1].copy()
    fewer[1, 0, 1] = False
    sentence = "layer 1, state 0, action 1 has successors, but is not in the action mask"
    with pytest.raises(ValueError, match=sentence):
        Layers(masks[0], fewer, layers.successors)
    one = Layers.from_successors((1, 2, 1), [[[[0], [-1]]], [[[0]] * 2] * 2])
    sentence = "layer 0, state 0, action 1 has no successor, but is in the action mask"
    with pytest.raises(ValueError, match=sentence):
        Layers(*masks, one.successors)
    states = np.array(wider.state_mask)
    states[1, 2] = False
    actions = np.array(wider.action_mask)
    actions[1, 2] = False
    lists = [[[[0, 1], [0, 2]]], [[[0]] * 2, [[0]] * 2, [[-1]] * 2]]
    shorter = build([np.array(each) for each in lists], wider.shape)
    sentence = "a successor of layer 0, state 0, action 1 is 2, which is not in the state mask of l"
    with pytest.raises(ValueError, match=sentence):
        Layers(states, actions, shorter)


def test_an_occupancy_of_another_layout_gets_a_sentence(unchecked):
    dense, lists = both()
    q = occupancy_of(dense, random_policy(dense.layers))
    sentence = "an occupancy over the triples of these layers is"
    with pytest.raises(ValueError, match=sentence):
        policy_of(q, lists.layers)
    with pytest.raises(ValueError, match=sentence):
        value_of(jnp.zeros(dense.layers.shape), q, lists.layers)
