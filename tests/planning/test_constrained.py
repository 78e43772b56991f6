"""Constrained plans and offline optima, against linear programs of HiGHS and by hand."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pdgd_jax import KnownTransitions, Layers, make, oracle, planning, stack
from pdgd_jax.models import mean_outcome
from tests.planning.drawn import draw, excess, stacked
from tests.reference.planning import Program

# The package promises 1e-9.
EXACT = 1e-9


@jax.jit
def solve(lanes):
    """A plan for each lane, and the best plan at its multipliers."""

    def one(layers, confidence, reward, costs, policy):
        found = planning.plan_constrained(layers, reward, costs, confidence)
        priced = found.feasible * reward - (found.multipliers[:, None, None, None] * costs).sum(0)
        return found, planning.best_response(layers, priced, confidence).value

    return jax.vmap(one)(*lanes)


@functools.partial(jax.jit, static_argnames="max_calls")
def solve_one(problem, start=None, max_calls=None):
    layers, confidence, reward, costs = problem
    given = layers, reward, costs, confidence
    return planning.plan_constrained(*given, start=start, max_calls=max_calls)


def given(problem):
    return problem.layers, problem.confidence, problem.reward, problem.costs


def check(problems):
    """Compare all with HiGHS, and verify each certificate; how many are infeasible."""
    found, priced = solve(stacked(problems))
    infeasible = 0
    for i, problem in enumerate(problems):
        one = jax.tree.map(lambda leaf, i=i: np.asarray(leaf[i]), found)
        program = Program(problem.triples, problem.allowed)
        costs = [program.of_pairs(cost) for cost in problem.costs]
        expected = program.solve(program.of_pairs(problem.reward), costs)
        occupancy = np.asarray(problem.layers.to_dense(jnp.asarray(one.occupancy)))
        pairs = occupancy.sum(-1)
        spent = (problem.costs * pairs).sum((1, 2, 3))
        assert excess(problem, occupancy) < 1e-11
        assert one.value == pytest.approx((problem.reward * pairs).sum(), abs=1e-12)
        assert one.violation == pytest.approx(spent.max(), abs=1e-12)
        assert one.multipliers.min() >= 0
        assert -1e-12 < one.gap < EXACT
        assert one.feasible == (expected is not None), i
        if one.feasible:
            assert one.value == pytest.approx(expected, abs=EXACT)
            assert one.violation < EXACT
            # Strong duality: at these prices no plan earns more, constraints ignored.
            assert priced[i] == pytest.approx(one.value + one.gap, abs=1e-11)
            assert one.multipliers @ spent == pytest.approx(0, abs=EXACT)
        else:
            infeasible += 1
            assert one.violation == pytest.approx(program.least_violation(costs), abs=EXACT)
            # The weights prove it: every occupancy violates the weighted constraint.
            assert one.multipliers.sum() == pytest.approx(1, abs=1e-12)
            assert -priced[i] == pytest.approx(one.violation, abs=EXACT)
    return infeasible


@pytest.mark.parametrize(
    ("kind", "lists", "m"),
    [
        ("ball", False, 1),
        ("ball", True, 2),
        ("box", False, 4),
        ("box", True, 1),
        ("known", False, 3),
    ],
)
def test_plans_are_those_of_linear_programs(kind, lists, m):
    rng = np.random.default_rng(m)
    count = 12 if lists else 40
    shift = (-0.2, 0.6) if m < 3 else (-0.5, 0.2)
    infeasible = check([draw(rng, kind, m, lists=lists, shift=shift) for _ in range(count)])
    assert 0 < infeasible < count


@pytest.mark.parametrize("kind", ["known", "ball"])
def test_ties_and_degenerate_bases_do_not_cycle(kind):
    """Few values of everything, deterministic transitions, margins of exactly 0."""
    rng = np.random.default_rng(0)
    problems = [draw(rng, kind, 4, coarse=True) for _ in range(60)]
    assert 0 < check(problems) < len(problems)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ball", "box", "known"])
def test_thousands_of_plans_are_those_of_linear_programs(kind):
    rng = np.random.default_rng(1)
    settings = {"largest": (1, 10, 10, 10, 1), "num_actions": 5}
    for index in range(7):
        problems = [draw(rng, kind, 4, coarse=index % 3 == 2, **settings) for _ in range(100)]
        assert 0 < check(problems) < len(problems)


# By hand


def bandit(rewards, costs):
    """One decision, `[A]` and `[m, A]`."""
    costs = np.asarray(costs, float)[:, None, None]
    layers = Layers.from_sizes((1, 1), costs.shape[-1])
    known = KnownTransitions(jnp.ones((1, 1, costs.shape[-1], 1)))
    return layers, known, np.asarray(rewards, float)[None, None], costs


def test_one_constraint_by_hand():
    """(r, G) = (1, .5), (.2, -.5): the lines meet at .8 / 1, and each is played half the time."""
    found = solve_one(bandit([1, 0.2], [[0.5, -0.5]]))
    assert float(found.value) == pytest.approx(0.6, abs=1e-15)
    assert float(found.multipliers[0]) == pytest.approx(0.8, abs=1e-15)
    np.testing.assert_allclose(found.occupancy[0, 0, :, 0], [0.5, 0.5], atol=1e-15)
    assert float(found.gap) == pytest.approx(0, abs=1e-15)


def test_two_constraints_by_hand():
    """Three actions (1; 1, 0), (.9; 0, 1) and (0; -1, -1): (1, 1, 1) / 3, with 19/30 in all."""
    found = solve_one(bandit([1, 0.9, 0], [[1, 0, -1], [0, 1, -1]]))
    np.testing.assert_allclose(found.occupancy[0, 0, :, 0], np.ones(3) / 3, atol=1e-14)
    assert float(found.value) == pytest.approx(19 / 30, abs=1e-14)
    # r_a = G_a . lambda + t for all three.
    np.testing.assert_allclose(found.multipliers, [1 - 19 / 30, 0.9 - 19 / 30], atol=1e-14)


def test_the_least_violation_by_hand():
    """Costs (.5, .1) and (.1, .5): each action half the time violates both by .3."""
    found = solve_one(bandit([1, 0], [[0.5, 0.1], [0.1, 0.5]]))
    assert not found.feasible
    assert float(found.violation) == pytest.approx(0.3, abs=1e-15)
    np.testing.assert_allclose(found.multipliers, [0.5, 0.5], atol=1e-15)


def test_a_margin_of_zero_is_feasible():
    found = solve_one(bandit([1, 0.3], [[0.7, 0.0], [0.4, 0.0]]))
    assert found.feasible
    assert float(found.value) == pytest.approx(0.3, abs=1e-12)


def test_constraints_that_do_not_bind_cost_one_plan():
    found = solve_one(bandit([1, 0.3], [[-0.1, 0.5], [0.0, 0.2]]))
    assert (float(found.value), int(found.calls)) == (1, 1)
    np.testing.assert_array_equal(found.multipliers, [0, 0])


# Starts and limits


def test_a_start_from_a_similar_problem_saves_plans():
    rng = np.random.default_rng(5)
    cold, warm, same = [], [], []
    for _ in range(12):
        problem = draw(rng, "ball", 2, shift=(-0.2, 0.2))
        first = solve_one(given(problem))
        again = solve_one(given(problem), start=first.prices)
        moved = problem._replace(
            reward=problem.reward + 0.01 * rng.normal(size=problem.reward.shape)
        )
        without, found = solve_one(given(moved)), solve_one(given(moved), start=first.prices)
        assert float(again.value) == pytest.approx(float(first.value), abs=EXACT)
        assert float(found.value) == pytest.approx(float(without.value), abs=EXACT)
        assert bool(found.feasible) == bool(without.feasible)
        same.append(int(again.calls))
        warm.append(int(found.calls))
        cold.append(int(without.calls))
    assert sum(warm) < sum(cold)
    assert sum(same) < sum(cold)


def test_any_start_leads_to_the_optimum():
    rng = np.random.default_rng(6)
    for scale in (0.0, 1.0, 100.0, np.nan):
        problem = draw(rng, "ball", 2, shift=(-0.2, 0.2))
        start = scale * jnp.asarray(rng.uniform(size=(3, 3)))
        found, expected = solve_one(given(problem), start=start), solve_one(given(problem))
        assert float(found.value) == pytest.approx(float(expected.value), abs=EXACT)


def test_after_the_most_calls_the_gap_is_true():
    rng = np.random.default_rng(7)
    problems = [draw(rng, "ball", 2, shift=(-0.2, 0.2)) for _ in range(12)]
    gaps = []
    for problem in problems:
        full, early = solve_one(given(problem)), solve_one(given(problem), max_calls=3)
        assert int(early.calls) <= 3
        if early.feasible:
            assert float(full.value - early.value) <= float(early.gap) + EXACT
            gaps.append(float(early.gap))
    assert max(gaps) > 0.01


# The optimum of many CMDPs


def test_the_optima_of_a_stack_are_those_of_the_oracle():
    """Of different sizes, some infeasible, in parts that do not divide their number."""
    rng = np.random.default_rng(0)
    settings = {"num_constraints": 2}
    sizes = [(1, 2, 1), (1, 3, 2, 1), (1, 3, 3, 1)]
    cmdps = [make("random", sizes=sizes[seed % 3], seed=seed, **settings) for seed in range(7)]
    both = stack(cmdps)
    means = mean_outcome(both)
    harder = means._replace(
        constraints=means.constraints
        + jnp.asarray(rng.uniform(0, 0.5, 7))[:, None, None, None, None]
    )
    limit = 3 * 9 * 8 * int(np.prod(both.layers.triple_shape[1:]))
    for outcome, found in (
        (means, planning.optimum(both)),
        (harder, planning.optimum(both, outcome=harder, max_bytes=3 * limit)),
    ):
        for i, cmdp in enumerate(cmdps):
            L, S, A = cmdp.layers.shape
            expected = oracle.optimum(
                cmdp.mdp, outcome.reward[i, :L, :S, :A], outcome.constraints[i, :, :L, :S, :A]
            )
            assert bool(found.feasible[i]) == expected.feasible
            assert float(found.value[i]) == pytest.approx(expected.value, abs=EXACT)
            if not expected.feasible:
                assert np.isnan(found.multipliers[i]).all()
                continue
            priced = outcome.reward[i] - jnp.einsum(
                "m,mksa->ksa", found.multipliers[i], outcome.constraints[i]
            )
            bound = oracle_bound(both, i, priced)
            assert bound == pytest.approx(expected.value, abs=EXACT)
    assert not found.feasible.all()
    assert found.feasible.any()


def oracle_bound(both, i, priced):
    """The most that a policy earns at these prices."""
    mdp = jax.tree.map(lambda leaf: leaf[i], both.mdp)
    known = KnownTransitions(mdp.transition)
    return float(planning.best_response(mdp.layers, priced, known).value)


def test_one_cmdp_needs_no_stack():
    cmdp = make("random")
    found = planning.optimum(cmdp)
    expected = oracle.optimum(cmdp.mdp, *mean_outcome(cmdp))
    assert float(found.value) == pytest.approx(expected.value, abs=EXACT)
    np.testing.assert_allclose(found.multipliers, expected.multipliers, atol=1e-7)
    assert float(found.gap) < EXACT
