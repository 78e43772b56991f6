"""The entropic projection as users meet it: batches, precisions, platforms, and mistakes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pdgd_jax import (
    BoxSet,
    ConfidenceSet,
    KnownTransitions,
    Layers,
    LinearConstraints,
    make,
    occupancy_of,
    project_entropic,
)
from pdgd_jax.projection import EntropicStart, contains
from tests.projection.entropic.problems import LANES, SHAPE, batch, check_exact, lane, many
from tests.reference.projection import valid_triples


def simple_problem():
    cmdp = make("random", sizes=(1, 2, 1), num_actions=2)
    q = occupancy_of(cmdp.mdp, cmdp.layers.uniform_policy())
    log_q = np.where(np.asarray(q) > 0, np.log(np.maximum(q, 1e-300)), 0)
    return cmdp.layers, log_q, np.array(cmdp.mdp.transition), np.full(cmdp.layers.shape, 0.1)


def test_a_warm_start_changes_the_time_and_not_the_answer():
    problems = batch(50)
    cold = many(*problems)

    def one(state_mask, action_mask, target, center, radius, start):
        layers, ball = Layers(state_mask, action_mask), ConfidenceSet(center, radius)
        return project_entropic(layers, target, ball, warm_start=start)

    solve = jax.jit(jax.vmap(one))
    warm = solve(*problems, cold.warm_start)
    np.testing.assert_allclose(warm.occupancy, cold.occupancy, atol=1e-8)
    assert np.max(warm.info.iterations) <= 1
    rng = np.random.default_rng(0)
    for scale in (1.0, 1e3, np.inf, np.nan):
        start = jax.tree.map(lambda x, s=scale: s * rng.normal(size=x.shape), cold.warm_start)
        result = solve(*problems, start)
        check_exact(problems, result, lanes=range(8))
        np.testing.assert_allclose(result.occupancy, cold.occupancy, atol=1e-7)


@pytest.mark.slow
def test_vmap_equals_a_loop_and_nests():
    problems = batch(51)
    together = many(*problems).occupancy
    alone = jax.jit(lane())
    for i in range(5):
        np.testing.assert_allclose(
            alone(*(x[i] for x in problems)).occupancy, together[i], atol=1e-9
        )
    nested = jax.jit(jax.vmap(jax.vmap(lane())))
    folded = nested(*(x.reshape(4, LANES // 4, *x.shape[1:]) for x in problems))
    np.testing.assert_allclose(folded.occupancy.reshape(together.shape), together, atol=1e-9)


def test_equal_calls_give_equal_bits():
    problems = batch(52)
    for x, y in zip(*(jax.tree.leaves(many(*problems)) for _ in range(2)), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.slow
@pytest.mark.parametrize("default_too", [True, False])
@pytest.mark.parametrize("kind", ["mild", "wide", "zeros"])
def test_float32(kind, default_too):
    problems = batch(53, kind=kind)
    exact = many(*problems)
    single = [x.astype(np.float32) if x.dtype == np.float64 else x for x in problems]
    with jax.enable_x64(not default_too):
        result = jax.jit(jax.vmap(lane()))(*single)
        assert {x.dtype for x in jax.tree.leaves(result)} == set(
            map(jnp.dtype, ("float32", "int32", bool))
        )
    np.testing.assert_array_equal(result.info.infeasible, exact.info.infeasible)
    assert np.all(result.info.converged | result.info.infeasible)
    # Rounding of logarithms of size up to 50, through some layers.
    np.testing.assert_allclose(result.occupancy, exact.occupancy, atol=1e-3)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("field", [2, 3, 4])
def test_inside_jit_nonsense_is_nan_and_only_in_its_lane(field, value):
    problems = [array.copy() for array in batch(54, kind="mild")]
    index = tuple(np.argwhere(valid_triples(problems[0][0], problems[1][0]))[0])
    value = -1.0 if (field, value) == (4, np.inf) else value  # an infinite radius is a radius
    problems[field][0][index[: problems[field][0].ndim - 1]] = value
    result = many(*problems)
    assert not result.info.converged[0]
    assert not result.info.infeasible[0]
    assert np.isnan(result.occupancy[0]).all()
    assert np.isnan(result.info.residual[0])
    assert np.all(result.info.converged[1:])
    assert np.isfinite(result.occupancy[1:]).all()


def test_unreachable_states_and_masks_are_exactly_zero():
    problems = batch(55, kind="medium")
    result = many(*problems)
    valid = np.stack([valid_triples(a, b) for a, b in zip(*problems[:2], strict=True)])
    assert not np.any(result.occupancy[~valid])
    assert np.all(result.log_occupancy[~valid] == -np.inf)


@pytest.mark.parametrize(
    ("field", "index", "value", "sentence"),
    [
        (1, (0, 0, 1, 1), np.nan, "target of layer 0, state 0, action 1 to state 1 has the log"),
        (1, (0, 0, 1, 1), np.inf, "logarithm inf; it must be a number of size below 1e\\+20, or"),
        (2, (0, 0, 1, 1), 5.0, "center of layer 0, state 0, action 1 sums to"),
        (3, (1, 1, 0), -1.0, "radius of layer 1, state 1, action 0 is -1; it must be at least 0"),
    ],
)
def test_outside_jit_nonsense_is_a_sentence(field, index, value, sentence):
    arrays = list(simple_problem())
    arrays[field][index] = value
    with pytest.raises(ValueError, match=sentence):
        project_entropic(arrays[0], jnp.asarray(arrays[1]), ConfidenceSet(*arrays[2:]))


def test_sets_refuse_nonsense(unchecked):
    layers, target, center, _ = simple_problem()
    target = jnp.asarray(target)
    with pytest.raises(ValueError, match="bounds of layer 0, state 0, action 0 sum to 0 and 0.5"):
        project_entropic(layers, target, BoxSet(0 * center, center / 2))
    with pytest.raises(ValueError, match="transition of layer 0, state 0, action 0 sums to 2"):
        project_entropic(layers, target, KnownTransitions(2 * center))
    with pytest.raises(ValueError, match="bounds of layer 0, .* are 1 and 0.5; they must"):
        BoxSet(center * 0 + 1, center * 0 + 0.5)
    with pytest.raises(ValueError, match="two bounds of the same shape"):
        BoxSet(center, center[0])
    with pytest.raises(ValueError, match="is -1; it must be a probability"):
        KnownTransitions(center * 0 - 1)
    with pytest.raises(ValueError, match="transitions have the shape"):
        KnownTransitions(center[0])
    with pytest.raises(ValueError, match=r"costs \[m, L, S, A\] and bounds \[m\]"):
        LinearConstraints(np.zeros((2, *layers.shape)), np.zeros(3))
    costs = np.zeros((2, *layers.shape))
    costs[1, 0, 1, 0] = np.nan
    with pytest.raises(ValueError, match="cost 1 of layer 0, state 1, action 0 is nan"):
        LinearConstraints(costs, np.zeros(2))
    with pytest.raises(ValueError, match="bound 1 is inf"):
        LinearConstraints(np.zeros((2, *layers.shape)), np.array([0, np.inf]))


def test_shapes_are_checked_first(unchecked):
    layers, target, center, radius = simple_problem()
    ball, target = ConfidenceSet(center, radius), jnp.asarray(target)
    with pytest.raises(ValueError, match=r"target must have the shape \(2, 2, 2, 2\)"):
        project_entropic(layers, target[..., 0], ball)
    with pytest.raises(ValueError, match="must be floating point"):
        project_entropic(layers, jnp.ones(target.shape, int), ball)
    start = EntropicStart(jnp.zeros((3, 2)), jnp.zeros(0))
    with pytest.raises(ValueError, match="warm start does not fit"):
        project_entropic(layers, target, ball, warm_start=start)
    constraints = LinearConstraints(np.zeros((1, 3, 2, 2)), np.zeros(1))
    with pytest.raises(ValueError, match="cost must have the shape"):
        project_entropic(layers, target, ball, constraints=constraints)
    for tolerance in (0.0, -1e-9, np.nan, np.inf):
        with pytest.raises(ValueError, match=f"must be positive and finite; it is {tolerance}"):
            project_entropic(layers, target, ball, tolerance=tolerance)


def test_a_derivative_is_refused_in_words():
    layers, target, center, radius = simple_problem()
    ball = ConfidenceSet(center, radius)
    with pytest.raises(NotImplementedError, match="project_entropic has no derivative"):
        jax.grad(lambda t: project_entropic(layers, t, ball).occupancy.sum())(jnp.asarray(target))


@pytest.mark.parametrize(
    ("kind", "num"), [("ball", 0), pytest.param("box", 2, marks=pytest.mark.slow)]
)
def test_it_lowers_for_every_platform(kind, num):
    problems = [array[0] for array in batch(56, 1, (2, 2, 2))]
    if kind == "box":
        extra = [np.zeros((num, 2, 2, 2)), np.zeros(num)]
        problems = [*problems[:4], problems[3], *extra]
    platforms = ["cpu", "cuda", "tpu"]
    lanes = [jnp.stack([array] * 3) for array in problems]
    for solve, given in ((lane(kind, num), problems), (jax.vmap(lane(kind, num)), lanes)):
        exported = jax.export.export(jax.jit(solve), platforms=platforms)(*given)
        assert exported.platforms == ("cpu", "cuda", "tpu")


@pytest.mark.parametrize("kind", [ConfidenceSet, BoxSet, KnownTransitions])
def test_successor_lists_are_the_same_problem(kind):
    """What the lists leave out can not happen, although the radius would allow it."""
    lists = [[[[0, -1], [0, 1]]], [[[0, 1], [1, -1]], [[0, -1], [0, 1]]], [[[0]] * 2] * 2]
    layers = Layers.from_successors((1, 2, 2, 1), lists)
    rng = np.random.default_rng(4)
    mask = np.asarray(layers.triple_mask)
    count = layers.to_triples(layers.num_successors.astype(float))
    center = jnp.where(layers.triple_mask, 1 / jnp.maximum(count, 1), 0)
    target = jnp.asarray(rng.normal(size=mask.shape))
    numbers = {
        ConfidenceSet: (center, jnp.full(layers.shape, 0.5)),
        BoxSet: (center / 2, jnp.minimum(1.5 * center, 1)),
        KnownTransitions: (center,),
    }[kind]
    packed = project_entropic(layers, target, kind(*numbers))
    assert packed.occupancy.shape == layers.triple_shape
    assert packed.info.converged
    dense = layers.without_lists()
    wide = [layers.to_dense(x) if x.shape == mask.shape else x for x in numbers]
    zeros = jnp.where(layers.to_dense(layers.triple_mask), layers.to_dense(target), -jnp.inf)
    expected = project_entropic(dense, zeros, kind(*wide))
    np.testing.assert_allclose(layers.to_dense(packed.occupancy), expected.occupancy, atol=1e-9)


def test_sets_know_what_they_contain():
    _, _, center, radius = simple_problem()
    mixed = 0.99 * center + 0.01 * center[..., ::-1]
    for set_, inside in (
        (KnownTransitions(center), False),
        (BoxSet(0 * center, 0 * center + 1), True),
        (BoxSet(center, center), False),
        (ConfidenceSet(center, radius), True),
    ):
        assert bool(contains(set_, jnp.asarray(center)))
        assert bool(contains(set_, jnp.asarray(mixed))) == inside


def test_fewer_than_three_layers():
    for num_layers in (1, 2):
        problems = batch(57, 1, (num_layers, 3, 2), kind="medium", num_layers=num_layers)
        result = lane()(*(x[0] for x in problems))
        assert result.warm_start.potential.shape == (num_layers, 3)
        check_exact(problems, jax.tree.map(lambda x: np.asarray(x)[None], result))


assert SHAPE[0] > 2  # the shared programs have inner layers
