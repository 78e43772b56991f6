import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pdgd_jax import LayeredMDP, Layers
from tests.conftest import random_mdp

LAYERS = Layers.from_sizes((1, 2, 1), num_actions=2)


def transition():
    P = np.zeros((2, 2, 2, 2))
    P[0, 0] = [[0.9, 0.1], [0.2, 0.8]]
    P[1, :, :, 0] = 1.0
    return P


def broken(index, value):
    P = transition()
    P[index] = value
    return P


@pytest.mark.parametrize(
    ("P", "sentence"),
    [
        (broken((0, 0, 1, 1), 0.7), "layer 0, state 0, action 1 sums to 0.9; it must sum to 1"),
        (broken((0, 0, 0, 0), -0.1), "layer 0, state 0, action 0 to state 0 .* not negative"),
        (broken((1, 1, 0, 0), np.nan), "layer 1, state 1, action 0 to state 0 .* not a finite"),
        (broken((1, 0, 1, 0), np.inf), "layer 1, state 0, action 1 to state 0 .* not a finite"),
        (broken((1, 0, 1, 1), 0.5), "layer 1, state 0, action 1 to state 1 .* exactly 0"),
        (broken((0, 1, 0, 0), 1.0), "layer 0, state 1, action 0 to state 0 .* exactly 0"),
        (transition()[:1], r"\[L, S, A, S\] = \(2, 2, 2, 2\) of its layers; got \(1, 2, 2, 2\)"),
    ],
)
def test_bad_transitions_name_the_place(P, sentence):
    with pytest.raises(ValueError, match=sentence):
        LayeredMDP(LAYERS, P)


def test_inside_jit_only_shapes_are_checked():
    built = jax.jit(lambda P: LayeredMDP(LAYERS, P).transition)(jnp.asarray(transition()))
    np.testing.assert_array_equal(built, transition())
    with pytest.raises(ValueError, match="must have the shape"):
        jax.jit(lambda P: LayeredMDP(LAYERS, P).transition)(jnp.zeros((2, 2)))


def test_precision_is_the_callers():
    P = transition()
    with jax.enable_x64(False):
        assert LayeredMDP(LAYERS, P).transition.dtype == jnp.float32
    assert LayeredMDP(LAYERS, P).transition.dtype == jnp.float64
    assert LayeredMDP(LAYERS, P.astype(np.float32)).transition.dtype == jnp.float32


def test_float32_rows_may_sum_to_one_only_nearly():
    mdp = random_mdp(0, (1, 7, 7, 1), num_actions=3)
    LayeredMDP(mdp.layers, np.asarray(mdp.transition, np.float32))


def test_padding_keeps_the_numbers_and_adds_zeros():
    mdp = random_mdp(1)
    padded = mdp.pad_to((4, 5, 3))
    L, S, A = mdp.layers.shape
    np.testing.assert_array_equal(padded.transition[:L, :S, :A, :S], mdp.transition)
    assert float(padded.transition.sum()) == pytest.approx(float(mdp.transition.sum()), abs=0)
