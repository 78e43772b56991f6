import jax
import numpy as np
import pytest

from pdgd_jax import Layers


def test_constants_are_those_of_the_true_instance_whatever_the_padding():
    layers = Layers.from_sizes((1, 3, 2, 1), num_actions=2)
    padded = layers.pad_to((6, 5, 4))
    assert padded.shape == (6, 5, 4)
    for each in (layers, padded):
        assert int(each.num_layers) == 3
        assert int(each.num_states) == 1 + 3 + 2 + 1
        assert int(each.num_actions) == 2
        assert int(each.num_triples) == 2 * (1 * 3 + 3 * 2 + 2 * 1)
        assert each.sizes == (1, 3, 2, 1)
    np.testing.assert_array_equal(padded.layer_sizes, [1, 3, 2, 1, 0, 0, 0])
    # One state remains in every layer that pads, and it has no action.
    np.testing.assert_array_equal(padded.state_mask[4:].sum(-1), 1)
    assert not padded.action_mask[3:].any()


def test_only_the_padded_shape_is_static():
    traces = []

    @jax.jit
    def count(layers):
        traces.append(layers.shape)
        return layers.num_states

    small = Layers.from_sizes((1, 2, 1), 1).pad_to((3, 3, 2))
    large = Layers.from_sizes((1, 3, 3, 1), 2)
    assert (int(count(small)), int(count(large))) == (4, 8)
    assert traces == [(3, 3, 2)]


@pytest.mark.parametrize(
    ("sizes", "num_actions", "sentence"),
    [
        ((1,), 2, "at least two layers"),
        ((1, 0, 1), 2, "at least one state"),
        ((1, 2, 1), 0, "num_actions must be at least 1"),
        ((2, 2, 1), 2, "layer 0 must be the single state 0"),
        ((1, 2, 2), 2, "layer 2, where the episode is over, must be a single state; it has 2"),
    ],
)
def test_bad_sizes(sizes, num_actions, sentence):
    with pytest.raises(ValueError, match=sentence):
        Layers.from_sizes(sizes, num_actions)


def masks():
    layers = Layers.from_sizes((1, 2, 1), 2)
    return np.array(layers.state_mask), np.array(layers.action_mask)


def test_a_state_without_action():
    states, actions = masks()
    actions[1, 1] = False
    with pytest.raises(ValueError, match="layer 1, state 1 has no action"):
        Layers(states, actions)


def test_actions_of_a_state_that_is_not_there():
    states, actions = masks()
    actions[0, 1, 0] = True
    with pytest.raises(ValueError, match="layer 0, state 1 has actions but is not in"):
        Layers(states, actions)


def test_a_gap_between_layers():
    states, actions = masks()
    actions[0] = False
    with pytest.raises(ValueError, match="layer 0 has no action in any state, yet"):
        Layers(states, actions)


def test_no_decision_at_all():
    states, actions = masks()
    with pytest.raises(ValueError, match="at least one decision"):
        Layers(states, np.zeros_like(actions))


def test_masks_that_disagree():
    states, actions = masks()
    with pytest.raises(ValueError, match=r"state_mask of shape \(3, 2\); got \(2, 2\)"):
        Layers(states[:2], actions)
    with pytest.raises(ValueError, match=r"must be \[L\+1, S\]"):
        Layers(states[0], actions)


def test_padding_cannot_shrink():
    with pytest.raises(ValueError, match="cannot pad"):
        Layers.from_sizes((1, 2, 1), 2).pad_to((2, 1, 2))
