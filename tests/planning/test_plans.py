"""Best responses, evaluations and bounds on occupancies, against linear programs and by hand."""

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pdgd_jax import BoxSet, ConfidenceSet, LayeredMDP, occupancy_of, planning
from pdgd_jax.planning._model import best_in_ball, best_in_box
from pdgd_jax.projection import contains
from tests.planning.drawn import KINDS, dense_occupancy, draw, excess, rows
from tests.reference.planning import Program

BEST = jax.jit(planning.best_response, static_argnames="minimise")
EXTREME = jax.jit(planning.extreme_evaluation, static_argnames="minimise")
BOUNDS = jax.jit(planning.occupancy_bounds, static_argnames="minimise")
EVALUATE = jax.jit(planning.evaluate)
SEEDS = st.integers(0, 2**32 - 1)
LAYOUTS = [(kind, lists) for kind in KINDS for lists in (False, True)]


def problems(kind, lists, count=4, **settings):
    return [
        draw(np.random.default_rng(seed), kind, 1, lists=lists, **settings) for seed in range(count)
    ]


# The closed forms


def test_the_ball_by_hand():
    """p = (.5, .3, .2), v = (1, 2, 0), a radius of .4: P = (.5, .5, 0), worth 1.5."""
    found = best_in_ball(jnp.array([1.0, 2, 0]), jnp.array([0.5, 0.3, 0.2]), jnp.asarray(0.2))
    np.testing.assert_allclose(found, [0.5, 0.5, 0], atol=1e-15)


def test_the_box_by_hand():
    """What (.1, .2, .3) leaves, .4: first .3 to the largest value, the rest to the second."""
    lower, upper = jnp.array([0.1, 0.2, 0.3]), jnp.array([0.3, 0.5, 0.9])
    found = best_in_box(jnp.array([1.0, 2, 0]), lower, upper)
    np.testing.assert_allclose(found, [0.2, 0.5, 0.3], atol=1e-15)


@hypothesis.given(SEEDS)
@hypothesis.settings(max_examples=200, deadline=None, derandomize=True)
def test_the_best_of_a_ball_is_a_member_worth_its_support(seed):
    """The support function is h max v + min_t [sum p max(v, t) - h t]."""
    rng = np.random.default_rng(seed)
    values = rng.choice([rng.normal(size=5), rng.integers(0, 3, 5).astype(float)])
    center = rows(rng, np.ones((1, 5), bool))[0]
    half = rng.choice([0.0, rng.uniform(0, 1), 1.0])
    found = np.asarray(best_in_ball(*map(jnp.asarray, (values, center, half))))
    assert found.min() >= 0
    assert found.sum() == pytest.approx(1, abs=1e-14)
    assert np.abs(found - center).sum() <= 2 * half + 1e-14
    tails = [center @ np.maximum(values, t) - half * t for t in values]
    assert found @ values == pytest.approx(half * values.max() + min(tails), abs=1e-13)


@hypothesis.given(SEEDS)
@hypothesis.settings(max_examples=200, deadline=None, derandomize=True)
def test_the_best_of_a_box_is_a_member_that_cannot_be_improved_by_an_exchange(seed):
    rng = np.random.default_rng(seed)
    values = rng.choice([rng.normal(size=5), rng.integers(0, 3, 5).astype(float)])
    inside = rows(rng, np.ones((1, 5), bool))[0]
    lower = inside * rng.uniform(0, 1, 5)
    upper = inside + (1 - inside) * rng.choice([0.0, rng.uniform(0, 1)], 5)
    found = np.asarray(best_in_box(*map(jnp.asarray, (values, lower, upper))))
    assert (found >= lower - 1e-15).all()
    assert (found <= upper + 1e-15).all()
    assert found.sum() == pytest.approx(1, abs=1e-14)
    gives, takes = found > lower + 1e-12, found < upper - 1e-12
    assert values[takes].max(initial=-np.inf) <= values[gives].min(initial=np.inf)


# Against linear programs


@pytest.mark.parametrize(("kind", "lists"), LAYOUTS)
@pytest.mark.parametrize("minimise", [False, True], ids=["most", "least"])
def test_plans_are_the_optima_of_linear_programs(kind, lists, minimise):
    sign = -1 if minimise else 1
    for problem in problems(kind, lists):
        given = problem.reward, problem.confidence
        best = BEST(problem.layers, *given, minimise=minimise)
        program = Program(problem.triples, problem.allowed)
        expected = sign * program.solve(sign * program.of_pairs(problem.reward))
        assert float(best.value) == pytest.approx(expected, abs=1e-9)
        fixed = EXTREME(problem.layers, problem.policy, *given, minimise=minimise)
        program = Program(problem.triples, problem.allowed, problem.policy)
        expected = sign * program.solve(sign * program.of_pairs(problem.reward))
        assert float(fixed.value) == pytest.approx(expected, abs=1e-9)
        for plan in (best, fixed):
            dense = problem.layers.to_dense(plan.occupancy)
            assert excess(problem, np.asarray(dense)) < 1e-12
            assert contains(problem.confidence, plan.transition, problem.layers)
            again = occupancy_of(LayeredMDP(problem.layers, plan.transition), plan.policy)
            np.testing.assert_allclose(plan.occupancy, again, atol=1e-14)
            earned = (problem.layers.to_pairs(plan.occupancy) * problem.reward).sum()
            assert float(earned) == pytest.approx(float(plan.value), abs=1e-12)
        # The policy of a plan with its own transitions is worth the plan.
        own = EXTREME(problem.layers, best.policy, *given, minimise=minimise)
        assert float(own.value) == pytest.approx(float(best.value), abs=1e-12)


@pytest.mark.parametrize(("kind", "lists"), [("ball", False), ("box", True), ("box", False)])
@pytest.mark.parametrize("minimise", [False, True], ids=["upper", "lower"])
def test_bounds_on_occupancies_are_attained(kind, lists, minimise):
    """A linear program for each target."""
    sign = -1 if minimise else 1
    for problem in problems(kind, lists, 2):
        given = problem.layers, problem.policy, problem.confidence
        found = np.asarray(BOUNDS(*given, minimise=minimise))
        program = Program(problem.triples, problem.allowed, problem.policy)
        decides = problem.triples.any((2, 3))
        for k, x in np.argwhere(decides):
            expected = sign * program.solve(sign * program.of_state(k, x))
            assert found[k, x] == pytest.approx(expected, abs=1e-9)
        np.testing.assert_array_equal(found[~decides], 0)
        chosen = jnp.asarray(np.argmax(decides * (1 + np.arange(decides.shape[1])), 1))
        some = BOUNDS(*given, chosen, minimise=minimise)
        np.testing.assert_allclose(some, found[np.arange(len(chosen)), chosen], atol=1e-15)


# Properties


@pytest.mark.parametrize("kind", ["ball", "box"])
@hypothesis.given(seed=SEEDS)
@hypothesis.settings(max_examples=25, deadline=None, derandomize=True)
def test_members_of_the_set_lie_between_the_extremes(kind, seed):
    problem = draw(np.random.default_rng(seed), kind, 1)
    given = problem.layers, problem.policy
    occupancy = dense_occupancy(problem.policy, problem.member)
    value = (occupancy.sum(-1) * problem.reward).sum()
    least, most = (
        float(EXTREME(*given, problem.reward, problem.confidence, minimise=minimise).value)
        for minimise in (True, False)
    )
    assert least - 1e-12 <= value <= most + 1e-12
    assert most <= float(BEST(problem.layers, problem.reward, problem.confidence).value) + 1e-12
    lower, upper = (
        BOUNDS(*given, problem.confidence, minimise=minimise) for minimise in (True, False)
    )
    mass = occupancy.sum((2, 3))
    assert (lower - 1e-12 <= mass).all()
    assert (mass <= upper + 1e-12).all()


@pytest.mark.parametrize("lists", [False, True])
def test_a_radius_of_zero_is_a_known_transition(lists):
    for problem in problems("known", lists, 3):
        center = problem.confidence.transition
        ball = ConfidenceSet(center, jnp.zeros(problem.layers.shape))
        box = BoxSet(center, center)
        expected = BEST(problem.layers, problem.reward, problem.confidence)
        true = dense_occupancy(problem.policy, problem.member).sum((2, 3))
        for same in (ball, box):
            found = BEST(problem.layers, problem.reward, same)
            np.testing.assert_allclose(found.occupancy, expected.occupancy, atol=1e-15)
            for minimise in (True, False):
                bounds = BOUNDS(problem.layers, problem.policy, same, minimise=minimise)
                np.testing.assert_allclose(bounds, true, atol=1e-14)


@pytest.mark.parametrize("lists", [False, True])
def test_a_radius_of_two_lets_the_best_next_state_be_chosen(lists):
    for problem in problems("ball", lists, 3):
        everything = ConfidenceSet(problem.confidence.center, jnp.full(problem.layers.shape, 2.0))
        found = BEST(problem.layers, problem.reward, everything)
        values = np.zeros(problem.triples.shape[1])
        for layer in reversed(range(len(problem.triples))):
            ahead = np.where(problem.triples[layer], values, -np.inf).max(-1)
            values = np.where(np.isfinite(ahead), problem.reward[layer] + ahead, -np.inf).max(-1)
            values = np.where(np.isfinite(values), values, 0)
        assert float(found.value) == pytest.approx(values[0], abs=1e-13)


# The evaluation with bonuses


def slow_evaluation(problem, bonus, lower, upper):
    values = np.zeros(problem.triples.shape[1])
    table = np.zeros(problem.reward.shape)
    pairs = problem.triples.any(-1)
    for k in reversed(range(len(table))):
        for x, a in np.argwhere(pairs[k]):
            earned = problem.reward[k, x, a] + bonus[k, x, a] + problem.member[k, x, a] @ values
            table[k, x, a] = min(max(earned, lower), upper[k])
        values = (problem.policy[k] * table[k]).sum(-1)
    return values[0], table


@pytest.mark.parametrize("lists", [False, True])
def test_an_evaluation_adds_bonuses_and_truncates_each_step(lists):
    for seed, problem in enumerate(problems("known", lists, 4)):
        bonus = np.random.default_rng(seed).normal(size=problem.reward.shape)
        left = np.arange(problem.layers.shape[0], 0, -1).astype(float)
        found = EVALUATE(
            problem.layers,
            problem.policy,
            problem.reward,
            problem.confidence.transition,
            bonus=bonus,
            lower=0.1,
            upper=left,
        )
        value, table = slow_evaluation(problem, bonus, 0.1, left)
        assert float(found.value) == pytest.approx(value, abs=1e-13)
        np.testing.assert_allclose(found.action_values, table, atol=1e-13)
        np.testing.assert_allclose(found.state_values, (problem.policy * table).sum(-1), atol=1e-13)


def test_an_evaluation_without_truncation_is_that_of_the_occupancy():
    for problem in problems("known", False, 2):
        given = problem.layers, problem.policy, problem.reward, problem.confidence.transition
        value = (dense_occupancy(problem.policy, problem.member).sum(-1) * problem.reward).sum()
        assert float(EVALUATE(*given).value) == pytest.approx(value, abs=1e-13)
