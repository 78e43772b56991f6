"""What holds for every plan: lanes, layouts, padding, precision, platforms, and errors in words."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pdgd_jax import ConfidenceSet, KnownTransitions, Layers, make, planning, stack
from tests.planning.drawn import KINDS, draw, stacked


def everything(layers, confidence, reward, costs, policy):
    """All that the room offers for one problem."""
    transition = planning.best_response(layers, reward, confidence).transition
    return {
        "best": planning.best_response(layers, reward, confidence),
        "least": planning.extreme_evaluation(layers, policy, reward, confidence, minimise=True),
        "value": planning.evaluate(layers, policy, reward, transition, bonus=reward, upper=2.0),
        "bounds": planning.occupancy_bounds(layers, policy, confidence),
        "plan": planning.plan_constrained(layers, reward, costs, confidence),
    }


ALL = jax.jit(everything)


def lanes(kind, lists=False, count=3):
    rng = np.random.default_rng(3)
    return stacked([draw(rng, kind, 2, lists=lists, shift=(-0.2, 0.2)) for _ in range(count)])


def lane(tree, i):
    return jax.tree.map(lambda leaf: leaf[i], tree)


def assert_close(found, expected, atol):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=atol), found, expected)


@pytest.mark.parametrize(
    ("kind", "lists"),
    [
        ("ball", True),
        pytest.param("box", False, marks=pytest.mark.slow),
        pytest.param("known", False, marks=pytest.mark.slow),
    ],
)
def test_vmap_equals_a_loop(kind, lists):
    many = lanes(kind, lists)
    together = jax.jit(jax.vmap(everything))(*many)
    for i in range(3):
        assert_close(lane(together, i), ALL(*lane(many, i)), 1e-12)


@pytest.mark.slow
def test_jit_equals_eager():
    one = lane(lanes("ball"), 1)
    assert_close(everything(*one), ALL(*one), 1e-12)


@pytest.mark.parametrize(
    "kind", ["ball", *(pytest.param(x, marks=pytest.mark.slow) for x in KINDS[1:])]
)
def test_lists_equal_a_dense_array_where_only_these_triples_can_happen(kind):
    """A box and a point give the others no mass; a ball that is no larger than needed neither."""
    layers, confidence, reward, costs, policy = lane(lanes(kind, lists=True, count=1), 0)
    if kind == "ball":
        confidence = ConfidenceSet(confidence.center, 0 * confidence.radius)
    dense = jax.tree.map(lambda leaf: layers.to_dense(leaf) if leaf.ndim == 2 else leaf, confidence)
    found = ALL(layers, confidence, reward, costs, policy)
    expected = ALL(layers.without_lists(), dense, reward, costs, policy)
    for name in ("best", "least", "plan"):
        occupancy = layers.to_dense(found[name].occupancy)
        np.testing.assert_allclose(occupancy, expected[name].occupancy, atol=1e-10)
        assert float(found[name].value) == pytest.approx(float(expected[name].value), abs=1e-12)
    np.testing.assert_allclose(found["bounds"], expected["bounds"], atol=1e-13)


@pytest.mark.parametrize("kind", ["ball", "box"])
def test_padding_changes_nothing(kind):
    layers, confidence, reward, costs, policy = lane(lanes(kind), 0)
    L, S, A = layers.shape
    wider = (L + 2, S + 1, A + 1)

    def padded(array, axes):
        room = [(0, new - old) for new, old in zip(wider, (L, S, A), strict=True)]
        room = [*room, room[1]][:axes]
        return jnp.pad(array, [(0, 0)] * (array.ndim - axes) + room, constant_values=7.0)

    # What stands outside of the masks does not count.
    larger = jax.tree.map(lambda leaf: padded(leaf, leaf.ndim), confidence)
    arrays = padded(reward, 3), padded(costs, 3), padded(policy, 3)
    found = ALL(layers.pad_to(wider), larger, *arrays)
    expected = ALL(layers, confidence, reward, costs, policy)
    for name in ("best", "least", "plan"):
        occupancy = found[name].occupancy
        np.testing.assert_allclose(occupancy[:L, :S, :A, :S], expected[name].occupancy, atol=1e-12)
        assert float(occupancy.sum()) == pytest.approx(float(expected[name].occupancy.sum()))
        assert float(found[name].value) == pytest.approx(float(expected[name].value), abs=1e-12)
    np.testing.assert_allclose(found["bounds"][:L, :S], expected["bounds"], atol=1e-13)
    assert float(found["bounds"].sum()) == pytest.approx(float(expected["bounds"].sum()))
    assert float(found["value"].value) == pytest.approx(float(expected["value"].value))


# Numbers


@pytest.mark.parametrize("wrong", ["reward", "costs", "confidence"])
def test_nan_leads_to_nan_and_infeasible(wrong):
    layers, confidence, reward, costs, policy = lane(lanes("ball"), 0)
    if wrong == "reward":
        reward = reward.at[0, 0, 0].set(jnp.nan)
    elif wrong == "costs":
        costs = costs.at[1, 0, 0, 0].set(jnp.nan)
    else:
        # The constructor would refuse it.
        confidence = jax.tree.map(
            lambda leaf: leaf.at[0, 0, 0, 0].set(jnp.nan) if leaf.ndim == 4 else leaf, confidence
        )
    found = ALL(layers, confidence, reward, costs, policy)
    plan = found["plan"]
    assert not plan.feasible
    for array in (plan.value, plan.gap, plan.multipliers, plan.violation):
        assert np.isnan(array).all()
    assert np.isnan(plan.occupancy[0, 0]).any()
    if wrong != "costs":
        for name in ("best", "least"):
            assert np.isnan(found[name].value)
            assert np.isnan(found[name].occupancy).any()


def test_nan_outside_of_the_masks_does_not_count():
    layers, confidence, reward, costs, policy = lane(lanes("box"), 0)
    mask = layers.action_mask
    poisoned = jnp.where(mask, reward, jnp.nan), jnp.where(mask[None], costs, jnp.nan)
    assert not mask.all()
    found = ALL(layers, confidence, *poisoned, policy)
    assert_close(found, ALL(layers, confidence, reward, costs, policy), 0)


def test_single_precision():
    many = lanes("ball")
    expected = jax.jit(jax.vmap(everything))(*many)
    with jax.enable_x64(False):
        single = jax.tree.map(
            lambda leaf: leaf.astype(jnp.float32) if leaf.dtype == jnp.float64 else leaf, many
        )
        found = jax.jit(jax.vmap(everything))(*single)
        assert found["plan"].value.dtype == jnp.float32
    assert found["plan"].feasible.tolist() == expected["plan"].feasible.tolist()
    for name in ("best", "least", "plan"):
        np.testing.assert_allclose(found[name].value, expected[name].value, atol=2e-5)
    assert float(found["plan"].gap.max()) < 2e-5
    np.testing.assert_allclose(found["plan"].violation, expected["plan"].violation, atol=2e-5)
    np.testing.assert_allclose(found["bounds"], expected["bounds"], atol=2e-6)


@pytest.mark.parametrize(("kind", "lists"), [("ball", False), ("box", True)])
def test_programs_lower_for_every_platform_and_never_call_the_host(kind, lists):
    program = jax.jit(jax.vmap(everything))
    exported = jax.export.export(program, platforms=["cpu", "cuda", "tpu"])(*lanes(kind, lists))
    assert exported.platforms == ("cpu", "cuda", "tpu")
    assert "callback" not in exported.mlir_module()
    assert "custom_call" not in re.sub(r"@(Sharding|shape_assertion)", "", exported.mlir_module())


# Errors


LAYERS = Layers.from_sizes((1, 2, 1), 2)
P = np.asarray(LAYERS.triple_mask) / np.array([2, 1])[:, None, None, None]
KNOWN = KnownTransitions(P)
R = np.zeros(LAYERS.shape)
respond = functools.partial(planning.best_response, LAYERS)
constrain = functools.partial(planning.plan_constrained, LAYERS)
MISTAKES = {
    "the reward must have the shape (2, 2, 2); got (2, 2)": lambda: respond(R[0], KNOWN),
    "a ConfidenceSet, a BoxSet or KnownTransitions; got ndarray": lambda: respond(R, P),
    "the transition must have the shape (2, 2, 2, 2); got (2, 2, 2, 1)": lambda: respond(
        R, KnownTransitions(P[..., :1])
    ),
    "the transition of layer 0, state 0, action 0 sums to 0.5": lambda: respond(
        R, KnownTransitions(P / 2)
    ),
    "the policy must have the shape (2, 2, 2)": lambda: planning.occupancy_bounds(
        LAYERS, R[0], KNOWN
    ),
    "the states must have the shape (2,); got (3,)": lambda: planning.occupancy_bounds(
        LAYERS, R, KNOWN, jnp.zeros(3, int)
    ),
    "constraints must have the shape [m, L, S, A] with m of at least 1; got (2, 2, 2)": lambda: (
        constrain(R, R, KNOWN)
    ),
    "m of at least 1; got (0, 2, 2, 2)": lambda: constrain(R, R[None][:0], KNOWN),
    "the constraints must have the shape (3, 2, 2, 2)": lambda: constrain(
        R, np.zeros((3, 2, 2, 1)), KNOWN
    ),
    "the start must have the shape (2, 2); got (3, 3)": lambda: constrain(
        R, R[None], KNOWN, start=np.zeros((3, 3))
    ),
    "max_calls must be a whole number, at least 1; got 0": lambda: constrain(
        R, R[None], KNOWN, max_calls=0
    ),
    "num_constraints must be a whole number, at least 1": lambda: planning.first_prices(0),
    "the upper bound is one number, or one for each of the 2 layers": lambda: planning.evaluate(
        LAYERS, R, R, P, upper=np.ones(3)
    ),
    "the rewards must have the shape (2, 4, 4, 3)": lambda: planning.optimum(
        stack([make("random")] * 2),
        outcome=make("random").draw(
            jax.random.key(0),
            make("random").init(jax.random.key(0)),
            0,
            make("random").layers.uniform_policy(),
        )[0],
    ),
    "a plan takes one instance": lambda: planning.best_response(
        stack([make("random")] * 2).layers, R, KNOWN
    ),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_mistakes_are_named_in_a_sentence(message, unchecked):
    with pytest.raises(ValueError, match=re.escape(message)):
        MISTAKES[message]()
