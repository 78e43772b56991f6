import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pdgd_jax import CMDP, LayeredMDP, Layers, make, occupancy_of, rollout, stack, value_of
from pdgd_jax.processes import AdversarialProcess, Bernoulli, Constant, Corrupted, Table, pytree
from tests.conftest import random_mdp, random_policy

MDP = random_mdp(0)
SHAPE = MDP.layers.shape
REWARD = np.full(SHAPE, 0.5)
COSTS = np.zeros((2, *SHAPE))


@pytree
class Rising(AdversarialProcess):
    """Leaves [0, 1] after three episodes."""

    slope: jnp.ndarray

    def draw(self, key, state, episode, policy):
        return self.slope * episode, state


@pytest.mark.parametrize(
    ("rewards", "constraints", "sentence"),
    [
        (
            REWARD[:1],
            COSTS,
            r"rewards must have the shape \[L, S, A\] = \(3, 3, 2\) .* got \(1, 3, 2\)",
        ),
        (REWARD, REWARD, r"shape \[m, L, S, A\]; got \(3, 3, 2\). For one constraint, put an axis"),
        (REWARD, COSTS[:, :2], r"= \(m, 3, 3, 2\) of the MDP; got \(2, 2, 3, 2\)"),
        (REWARD, COSTS[:0], "at least one constraint"),
        (REWARD + 1, COSTS, r"layer 0, state 0, action 0 is 1.5; a reward lies in \[0, 1\]"),
        (REWARD, COSTS - 2, r"a constraint lies in \[-1, 1\]"),
        (Rising(-np.ones(SHAPE) - REWARD), COSTS, None),
        (Rising(np.full(SHAPE, np.nan)), COSTS, "rewards of layer 0, state 0, action 0 is nan"),
        (Constant(COSTS), COSTS, r"rewards must have the shape"),
        (
            Corrupted(Rising(np.full(SHAPE, np.nan)), Constant(REWARD), share=0.0),
            COSTS,
            "rewards of layer 0, state 0, action 0 is nan",
        ),
    ],
)
def test_bad_input(rewards, constraints, sentence):
    if sentence is None:  # in range in its first episode: nothing the host can see
        CMDP(MDP, rewards, constraints)
        return
    with pytest.raises(ValueError, match=sentence):
        CMDP(MDP, rewards, constraints)


@pytree
class Doubled(Constant):
    """Shows twice what its constructor has checked."""

    def draw(self, key, state, episode, policy):
        return 2 * self.values, state


def test_a_process_derived_from_a_checked_one_is_checked_again():
    assert Constant.checks_values
    assert not Doubled.checks_values
    with pytest.raises(ValueError, match="rewards of layer 0, state 0, action 0 is 2;"):
        CMDP(MDP, Doubled(REWARD + 0.5), COSTS)


def test_what_leaves_its_range_in_a_run_becomes_nan():
    cmdp = CMDP(MDP, Rising(REWARD), COSTS)
    draw = jax.jit(cmdp.draw)
    policy = MDP.layers.uniform_policy()
    state = cmdp.init(jax.random.key(0))
    mask = np.asarray(MDP.layers.action_mask)
    for t, value in ((0, 0.0), (2, 1.0), (3, np.nan)):
        outcome, _ = draw(jax.random.key(t), state, t, policy)
        np.testing.assert_array_equal(outcome.reward[mask], value)
        np.testing.assert_array_equal(outcome.constraints, 0)


def test_outside_the_masks_everything_is_exactly_zero():
    cmdp = CMDP(MDP, Bernoulli(np.ones(SHAPE)), Bernoulli(np.ones((1, *SHAPE))))
    draw = jax.jit(cmdp.draw)
    outcome, _ = draw(jax.random.key(0), ((), ()), 0, MDP.layers.uniform_policy())
    np.testing.assert_array_equal(outcome.reward, MDP.layers.action_mask)
    np.testing.assert_array_equal(outcome.constraints[0], MDP.layers.action_mask)


def evaluate(cmdp, key, policy=None):
    """One episode, and everything that can be computed of it."""
    policy = cmdp.layers.uniform_policy(cmdp.mdp.transition.dtype) if policy is None else policy
    outcome, _ = cmdp.draw(key, cmdp.init(key), 3, policy)
    occupancy = occupancy_of(cmdp.mdp, policy)
    path = rollout(key, cmdp.mdp, policy)
    layers = cmdp.layers
    constants = (layers.num_layers, layers.num_states, layers.num_actions, layers.num_triples)
    return {
        "reward": value_of(outcome.reward, occupancy),
        "violation": value_of(outcome.constraints, occupancy),
        "last state": path.states[-1],
        "constants": jnp.stack(constants),
    }


@pytest.mark.slow
def test_vmap_over_a_stack_equals_a_loop(precision):
    shapes = [((1, 2, 1), 2), ((1, 5, 3, 1), 4)]
    cmdps = [
        make("random", sizes=sizes, num_actions=A, num_constraints=2, seed=i)
        for i, (sizes, A) in enumerate(shapes)
    ]
    keys = jax.random.split(jax.random.key(0), len(cmdps))
    batched = stack(cmdps)
    together = jax.jit(jax.vmap(evaluate))(batched, keys)
    rounding = 1e-6 if precision == "float32" else 1e-14
    for i, (cmdp, key) in enumerate(zip(cmdps, keys, strict=True)):
        alone = jax.jit(evaluate)(cmdp, key)
        for name, value in alone.items():
            np.testing.assert_allclose(
                together[name][i], value, atol=rounding, err_msg=f"{name} of instance {i}"
            )


def test_padding_changes_no_result():
    cmdp = make("inventory")
    L, S, A = cmdp.layers.shape
    padded = cmdp.pad_to((L + 2, S + 3, A + 1))
    policy = random_policy(0, cmdp.layers)
    wide = jnp.pad(policy, [(0, 2), (0, 3), (0, 1)])
    key = jax.random.key(5)
    compiled = jax.jit(evaluate)
    plain, other = compiled(cmdp, key, policy), compiled(padded, key, wide)
    for name, value in plain.items():
        np.testing.assert_allclose(other[name], value, atol=1e-14, err_msg=name)


def test_what_cannot_be_stacked_is_named():
    one = make("random")
    with pytest.raises(ValueError, match="at least one CMDP"):
        stack([])
    with pytest.raises(ValueError, match="instances 0 and 1 have 1 and 2 constraints"):
        stack([one, make("random", num_constraints=2)])
    with pytest.raises(
        ValueError, match="constraints of instances 0 and 1 are Bernoulli and Phases"
    ):
        stack([one, make("random", constraints="phases")])
    tables = [CMDP(MDP, Table(np.zeros((T, *SHAPE))), COSTS) for T in (3, 4)]
    with pytest.raises(ValueError, match="rewards of instances 0 and 1"):
        stack(tables)
    with jax.enable_x64(False):
        other = make("random")
    with pytest.raises(ValueError, match="hold arrays float64.* and float32|floating point type"):
        stack([one, other])


def test_a_stacked_cmdp_survives_a_transformation():
    batched = stack([make("random"), make("random", seed=1)])
    doubled = jax.tree.map(lambda x: x, batched)
    assert doubled.num_constraints == 1
    assert doubled.layers.shape == (4, 4, 3)
    assert "shape=(2, 4, 4, 3)" in repr(doubled)


def test_arrays_stand_for_constants():
    layers = Layers.from_sizes((1, 1), num_actions=2)
    mdp = LayeredMDP(layers, np.ones((1, 1, 2, 1)))
    cmdp = CMDP(mdp, np.array([[[1, 0]]]), np.zeros((1, 1, 1, 2)))
    assert isinstance(cmdp.rewards, Constant)
    assert cmdp.rewards.mean().dtype == jnp.float64
