"""The entropic projection against its optimality conditions, Clarabel, and closed forms."""

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pdgd_jax import (
    ConfidenceSet,
    KnownTransitions,
    Layers,
    make,
    occupancy_of,
    policy_of,
    project_entropic,
)
from tests.projection.entropic.problems import LANES, SHAPE, batch, boxed, check_exact, many
from tests.reference.entropic import KINDS, flow_error, project_clarabel, project_clarabel_box
from tests.reference.projection import random_feasible


@pytest.mark.parametrize("kind", KINDS)
def test_random_problems_satisfy_their_optimality_conditions(kind):
    problems = batch(KINDS.index(kind), kind=kind)
    result = many(*problems)
    check_exact(problems, result)
    assert np.max(result.info.iterations) <= 40
    assert result.info.infeasible.any() == (kind == "zeros")


def compare_with_clarabel(problems, result, lanes):
    close = []
    for i in lanes:
        reference = project_clarabel(*(array[i] for array in problems))
        if reference is not None:
            close.append(np.abs(result.occupancy[i] - reference).max())
    # It stops at a gap of 1e-11, which by Pinsker's inequality is a distance of some 1e-5.
    assert np.max(close) < 2e-5
    return close


@pytest.mark.parametrize("kind", ["mild", "medium"])
def test_random_problems_against_clarabel(kind):
    problems = batch(10, 64, kind=kind)
    close = compare_with_clarabel(problems, many(*problems), range(0, 64, 8))
    assert len(close) >= 2
    assert np.median(close) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_thousands_of_problems(kind):
    problems = batch(20 + KINDS.index(kind), 2048, kind=kind)
    result = many(*problems)
    check_exact(problems, result)
    assert np.max(result.info.iterations) <= 60
    if kind in ("mild", "medium", "wide"):
        compare_with_clarabel(problems, result, range(0, 2048, 3))


@hypothesis.given(
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(KINDS),
    num_layers=st.integers(1, SHAPE[0]),
)
@hypothesis.settings(max_examples=40, deadline=None, derandomize=True)
def test_any_problem_is_solved(seed, kind, num_layers):
    one = batch(seed, 1, kind=kind, num_layers=num_layers)
    problems = [np.repeat(array, LANES, axis=0) for array in one]
    check_exact(problems, many(*problems), lanes=[0])


def test_boxes():
    problems = boxed(batch(30, 64), 30)
    result = many(*problems, kind="box")
    check_exact(problems, result, kind="box")
    compared = 0
    for i in range(0, 64, 4):
        if np.isfinite(problems[2][i]).all() and np.abs(problems[2][i]).max() < 10:
            masks, rest = [x[i] for x in problems[:2]], [x[i] for x in problems[2:]]
            reference = project_clarabel_box(masks, *rest)
            if reference is not None:
                np.testing.assert_allclose(result.occupancy[i], reference, atol=2e-5)
                compared += 1
    assert compared >= 3


def test_known_transitions_are_radius_0():
    problems = batch(31)
    problems[4] = 0 * problems[4]
    ball = many(*problems)
    known = many(*problems[:4], kind="known")
    check_exact(problems, known)
    np.testing.assert_allclose(known.occupancy, ball.occupancy, atol=1e-9)
    np.testing.assert_array_equal(known.info.infeasible, ball.info.infeasible)


def test_it_is_the_nearest_of_all_feasible_points():
    problems = batch(32, kind="medium")
    result = many(*problems)
    rng = np.random.default_rng(0)
    for i in range(LANES):
        masks, target, ball = [x[i] for x in problems[:2]], problems[2][i], problems[3:]
        q = np.asarray(result.occupancy[i])

        def divergence(q, target=target):
            there = q > 0
            return (q[there] * (np.log(q[there]) - target[there])).sum()

        for _ in range(5):
            other = random_feasible(rng, *masks, *(x[i] for x in ball))
            assert divergence(q) <= divergence(other) + 1e-9


# By hand


def test_the_worked_example():
    """Layers (1, 2, 1), one action; the ball allows 0.6 where 0.75 would be best."""
    layers = Layers.from_sizes((1, 2, 1), 1)
    target = np.zeros((2, 2, 1, 2))
    target[0, 0, 0] = np.log([0.9, 0.1])
    target[1] = np.log(0.5)
    center = np.zeros((2, 2, 1, 2))
    center[0, 0, 0] = 0.5
    center[1, :, 0, 0] = 1
    for radius, first in ((0.2, 0.6), (0.8, 0.75), (0.0, 0.5)):
        set_ = ConfidenceSet(center, np.array([[[radius]] * 2, [[0.0]] * 2]))
        result = project_entropic(layers, jnp.asarray(target), set_)
        np.testing.assert_allclose(result.occupancy[0, 0, 0], [first, 1 - first], atol=1e-12)
        if radius == 0.2:
            y = np.asarray(result.warm_start.potential)
            potentials = [y[0, 0], *y[1]]
            np.testing.assert_allclose(potentials, [0.331374, np.log(1.2), np.log(0.8)], atol=1e-6)


def test_one_layer_is_hedge():
    layers = Layers.from_sizes((1, 1), 5)
    loss = np.linspace(0, 30, 5)
    for radius in (0.0, 0.3, 2.0):
        set_ = ConfidenceSet(np.ones((1, 1, 5, 1)), np.full((1, 1, 5), radius))
        result = project_entropic(layers, jnp.asarray(-loss[None, None, :, None]), set_)
        expected = np.exp(-loss) / np.exp(-loss).sum()
        np.testing.assert_allclose(result.occupancy[0, 0, :, 0], expected, rtol=1e-12)


def test_any_transition_has_a_closed_form():
    """With two layers and all radii 2 the mass of a state is the mean of both layers' masses.

    The geometric mean: min m ln(m / u_0) + m ln(m / u_1).
    """
    layers = Layers.from_sizes((1, 4, 1), 3)
    target = np.random.default_rng(0).normal(size=(2, 4, 3, 4)) * 3
    center = np.asarray(layers.triple_mask) / np.maximum(
        np.asarray(layers.triple_mask).sum(-1, keepdims=True), 1
    )
    result = project_entropic(
        layers, jnp.asarray(target), ConfidenceSet(center, np.full(layers.shape, 2.0))
    )
    into, out = np.exp(target[0, 0]).sum(0), np.exp(target[1, :, :, 0]).sum(1)
    mass = np.sqrt(into * out)
    mass /= mass.sum()
    first = np.exp(target[0, 0]) * (mass / into)
    last = np.exp(target[1, :, :, 0]) * (mass / out)[:, None]
    np.testing.assert_allclose(result.occupancy[0, 0], first, atol=1e-11)
    np.testing.assert_allclose(result.occupancy[1, :, :, 0], last, atol=1e-11)


def random_loss(rng, layers):
    return rng.normal(size=layers.shape) * np.asarray(layers.action_mask)


def test_where_actions_do_not_matter_every_state_is_a_hedge():
    mdp = make("random", sizes=(1, 3, 2, 1), num_actions=3).mdp
    center = np.asarray(mdp.transition)[:, :, :1].repeat(3, 2)
    q = occupancy_of(mdp.__class__(mdp.layers, center), mdp.layers.uniform_policy())
    loss = random_loss(np.random.default_rng(1), mdp.layers)
    result = project_entropic(mdp.layers, jnp.log(q) - loss[..., None], KnownTransitions(center))
    weights = np.exp(-loss) * np.asarray(mdp.layers.action_mask)
    total = weights.sum(-1, keepdims=True)
    expected = weights / np.where(total > 0, total, 1)
    decides = np.asarray(mdp.layers.decision_mask)
    policy = np.asarray(policy_of(result.occupancy, mdp.layers))
    np.testing.assert_allclose(policy[decides], expected[decides], atol=1e-9)


# Invariances


def test_a_constant_per_layer_changes_nothing():
    problems = batch(33, kind="medium")
    plain = many(*problems)
    shift = np.array([300.0, -5.0, 0.1, -700.0])[:, None, None, None]
    problems[2] = problems[2] + shift
    shifted = many(*problems)
    np.testing.assert_allclose(shifted.occupancy, plain.occupancy, atol=1e-9)
    np.testing.assert_array_equal(shifted.info.iterations, plain.info.iterations)


def test_it_is_idempotent():
    problems = batch(34, kind="wide")
    problems[2] = many(*problems).log_occupancy
    again = many(*problems)
    np.testing.assert_allclose(again.occupancy, np.exp(problems[2]), atol=1e-8)
    # A state that the first projection left out of reach need not be solved for again.
    assert np.max(again.info.iterations) <= 2


def chain(layers, set_, losses, start):
    def step(carry, loss):
        log_q, warm = carry
        result = project_entropic(layers, log_q - loss[..., None], set_, warm_start=warm)
        return (result.log_occupancy, result.warm_start), result.info

    zero = project_entropic(layers, start, set_)
    (log_q, _), info = jax.lax.scan(step, (start, zero.warm_start), losses)
    return log_q, info


@pytest.mark.parametrize("length", [200, pytest.param(10_000, marks=pytest.mark.slow)])
def test_nothing_drifts_in_a_chain(length):
    """With known transitions a chain of steps is one step with the sum of all losses."""
    mdp = make("random", sizes=(1, 3, 2, 1), num_actions=2).mdp
    set_ = KnownTransitions(mdp.transition)
    start = jnp.log(occupancy_of(mdp, mdp.layers.uniform_policy()))
    rng = np.random.default_rng(2)
    drift = random_loss(rng, mdp.layers)
    noise = rng.normal(size=(length, *mdp.layers.shape)) * np.asarray(mdp.layers.action_mask)
    losses = jnp.asarray((drift + noise) / np.sqrt(length))
    log_q, info = jax.jit(chain)(mdp.layers, set_, losses, start)
    assert np.all(info.converged)
    assert np.mean(info.iterations) <= 5
    whole = project_entropic(mdp.layers, start - losses.sum(0)[..., None], set_)
    there = np.isfinite(np.asarray(start))
    # Every step may leave a relative error of 1e-9; Newton's last step leaves far less.
    np.testing.assert_allclose(
        np.asarray(log_q)[there], np.asarray(whole.log_occupancy)[there], atol=1e-9 * length
    )
    assert flow_error(np.asarray(mdp.layers.action_mask), np.asarray(log_q)) < 1e-12


@pytest.mark.slow
def test_nothing_fails_in_a_chain_over_balls():
    """Some entries become smaller than any number, and the flow is still conserved."""
    mdp = make("random", sizes=(1, 3, 2, 1), num_actions=2).mdp
    set_ = ConfidenceSet(mdp.transition, jnp.full(mdp.layers.shape, 0.2))
    start = jnp.log(occupancy_of(mdp, mdp.layers.uniform_policy()))
    rng = np.random.default_rng(3)
    drift = random_loss(rng, mdp.layers)
    noise = rng.normal(size=(10_000, *mdp.layers.shape)) * np.asarray(mdp.layers.action_mask)
    log_q, info = jax.jit(chain)(mdp.layers, set_, jnp.asarray((drift + noise) / 10), start)
    assert np.all(info.converged)
    assert np.mean(info.iterations) <= 5
    assert np.asarray(log_q)[np.isfinite(np.asarray(start))].min() < -750
    assert flow_error(np.asarray(mdp.layers.action_mask), np.asarray(log_q)) < 1e-11
