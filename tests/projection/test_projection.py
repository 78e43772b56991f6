"""The projection against independent optimality conditions, Clarabel and OSQP."""

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pdgd_jax import ConfidenceSet, Layers, cold_start, make, occupancy_of, project, project_batch
from pdgd_jax.projection import SOLVERS, ProjectionInfo, ProjectionResult, Solver
from pdgd_jax.projection._opening import opened
from pdgd_jax.projection._problem import Problem, conclude, entries_first, point_at, single_lane
from pdgd_jax.projection.newton import NewtonOptions, make_solver
from pdgd_jax.projection.newton._iteration import Guess, evaluate
from pdgd_jax.projection.newton._lanes import Lanes
from pdgd_jax.projection.newton._solver import prepare
from pdgd_jax.projection.newton._start import roughly
from tests.quick import QUICK
from tests.reference.projection import (
    infeasibility,
    largest_mean,
    optimality_error,
    project_clarabel,
    project_osqp,
    random_feasible,
    random_problem,
    valid_triples,
)
from tests.reference.starts import judge_starts

SHAPE = (4, 5, 3)  # L, S, A; all quick tests share one compiled program of this shape
LANES = 64


def lane_of(solver, tolerance=None):
    def one(state_mask, action_mask, target, center, radius, warm_start=None):
        layers, confidence = Layers(state_mask, action_mask), ConfidenceSet(center, radius)
        return project(
            layers, target, confidence, solver=solver, warm_start=warm_start, tolerance=tolerance
        )

    return one


compiled = jax.jit(jax.vmap(lane_of("newton")))


def newton_with(**options):
    """The Newton solver with some options that are not the usual ones."""
    return make_solver(NewtonOptions(**options))


SLOW_LOOP = newton_with(local_steps=0)
slowly = jax.jit(jax.vmap(lane_of(SLOW_LOOP)))


def many(*problems, warm_start=None, solve=compiled):
    """`project` on lanes of `SHAPE`, `LANES` at a time, with or without warm start: one program."""
    count = len(problems[0])
    if warm_start is None:
        layers = Layers(*(array[0] for array in problems[:2]))
        cold = cold_start(layers, dtype=problems[2].dtype)
        warm_start = jax.tree.map(lambda x: np.stack([x] * count), cold)
    parts = [
        solve(*jax.tree.map(lambda x, i=i: x[i : i + LANES], (*problems, warm_start)))
        for i in range(0, count, LANES)
    ]
    return jax.tree.map(lambda *x: np.concatenate(x), *parts)


def batch(seed, count=LANES, shape=SHAPE, **settings):
    rng = np.random.default_rng(seed)
    problems = [random_problem(rng, shape, **settings) for _ in range(count)]
    return [np.stack(arrays) for arrays in zip(*problems, strict=True)]


def check_exact(problems, result, lanes=None):
    """Flow, cones, masks and optimality, in NumPy, for every lane."""
    assert np.all(result.info.converged)
    assert np.max(result.info.residual) <= 1e-9
    for i in range(len(problems[0])) if lanes is None else lanes:
        masks, target, ball = problems[0][i], problems[2][i], (problems[3][i], problems[4][i])
        q = np.asarray(result.occupancy[i])
        # Sums of up to S A numbers with errors of 1e-9 each.
        assert infeasibility(masks, problems[1][i], q, *ball) < 5e-9
        error = optimality_error(
            masks, problems[1][i], target, *ball, q, np.asarray(result.warm_start.potential[i])
        )
        assert error < 5e-9 * (1 + np.abs(target).max())


def compare_with_clarabel(problems, result, lanes):
    """Agreement to 1e-7, or to what Clarabel's own duality gap allows; how many agreed to 1e-7."""
    close = []
    for i in lanes:
        reference = project_clarabel(*(array[i] for array in problems))
        if reference is None:
            continue
        # It stops at a gap of 1e-12 times the objective; strong convexity turns a gap g into a
        # distance of at most sqrt(2 g), which for far targets is well above 1e-7.
        objective = abs((reference**2).sum() / 2 - (reference * problems[2][i]).sum())
        distance = np.abs(np.asarray(result.occupancy[i]) - reference).max()
        assert distance < 1e-7 + np.sqrt(2e-12 * max(1, objective))
        close.append(distance < 1e-7)
    return close


def test_random_problems_against_optimality_and_clarabel():
    problems = batch(0)
    result = many(*problems)
    check_exact(problems, result)
    close = compare_with_clarabel(problems, result, range(0, LANES, 2))
    assert np.mean(close) > 0.9
    assert len(close) > 20


@hypothesis.given(
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(["near", "far", "medium", "ties"]),
    num_layers=st.integers(1, SHAPE[0]),
)
@hypothesis.settings(max_examples=60, deadline=None, derandomize=True)
def test_any_problem_is_solved(seed, kind, num_layers):
    one = batch(seed, 1, kind=kind, num_layers=num_layers)
    # The same problem in every lane: hypothesis can shrink it, and nothing compiles again.
    problems = [np.repeat(array, LANES, axis=0) for array in one]
    check_exact(problems, many(*problems), lanes=[0])


@pytest.mark.slow
@pytest.mark.optimised
@pytest.mark.parametrize(
    ("shape", "count", "compared"),
    [
        ((4, 5, 3), 1024, 1024),
        ((10, 4, 2), 832, 200),
        ((3, 12, 8), 640, 60),
        ((10, 12, 8), 448, 20),
    ],
)
def test_thousands_of_problems_of_every_size(shape, count, compared):
    problems = batch(1000, count, shape)
    result = many(*problems)
    check_exact(problems, result)
    assert np.max(result.info.iterations) <= 60  # at most 39 in 84 times as many
    close = compare_with_clarabel(problems, result, range(0, count, count // compared))
    assert len(close) > compared // 2
    assert np.mean(close) > 0.9


@pytest.mark.slow
def test_against_osqp_polished():
    problems = batch(2, 256, kind="near")
    result = many(*problems)
    compared = 0
    for i in range(256):
        reference = project_osqp(*(array[i] for array in problems))
        if reference is None:
            continue
        if (
            infeasibility(*(a[i] for a in problems[:2]), reference, *(a[i] for a in problems[3:]))
            > 1e-9
        ):
            continue  # polishing did not succeed: no reference at this precision
        np.testing.assert_allclose(result.occupancy[i], reference, atol=1e-7)
        compared += 1
    assert compared > 64


def test_a_projection_is_idempotent_and_does_not_expand():
    problems = batch(3)
    first = many(*problems)
    again = many(*problems[:2], first.occupancy, *problems[3:])
    np.testing.assert_allclose(again.occupancy, first.occupancy, atol=1e-8)
    valid = np.stack([valid_triples(a, b) for a, b in zip(*problems[:2], strict=True)])
    moved = problems[2] + np.random.default_rng(0).normal(size=valid.shape) * valid
    other = many(*problems[:2], moved, *problems[3:])

    def distance(a, b):
        return np.sqrt(((np.asarray(a) - np.asarray(b)) ** 2).sum((1, 2, 3, 4)))

    gap = distance(other.occupancy, first.occupancy)
    assert (gap <= distance(moved, problems[2]) + 1e-8).all()


def test_the_variational_inequality():
    """(v - q).(p - q) <= 0 for every feasible p."""
    problems = batch(4)
    result = many(*problems)
    rng = np.random.default_rng(0)
    for i in range(LANES):
        state_mask, action_mask, target, center, radius = (array[i] for array in problems)
        q = np.asarray(result.occupancy[i])
        for _ in range(5):
            other = random_feasible(rng, state_mask, action_mask, center, radius)
            assert infeasibility(state_mask, action_mask, other, center, radius) < 1e-12
            product = ((target - q) * (other - q) * valid_triples(state_mask, action_mask)).sum()
            assert product <= 1e-7 * (1 + np.abs(target).max())


def test_a_warm_start_changes_the_time_and_not_the_answer():
    problems = batch(5)
    cold = many(*problems)
    warm = many(*problems, warm_start=cold.warm_start)
    np.testing.assert_allclose(warm.occupancy, cold.occupancy, atol=1e-8)
    assert np.max(warm.info.iterations) <= 1
    # Foolish ones, of any size or not even finite, and those of other layers, are survived.
    rng = np.random.default_rng(0)
    starts = [jax.tree.map(lambda x: np.roll(x, 1, 0), cold.warm_start)]
    for nonsense in (1e3, 1e9, 1e30, 1e200, np.inf, np.nan):
        scale = np.where(np.arange(LANES) % 2, nonsense, -1)  # every other lane
        starts.append(
            jax.tree.map(lambda x, n=scale: (n * rng.normal(size=x.shape).T).T, cold.warm_start)
        )
    for start in starts:
        result = many(*problems, warm_start=start)
        check_exact(problems, result, lanes=range(8))
        np.testing.assert_allclose(result.occupancy, cold.occupancy, atol=1e-8)


def too_low(tolerance, deepest):
    """Problems whose projection is known, and starts with a potential that is too low.

    Of two actions the second is worth its mass and the first exactly nothing. A little of what the
    first would move, h, may go to a third state, which nothing leaves and no other action enters.
    If its potential is low by D, the first action seems worth h D. It gets the mass h D / 4, of
    which half the tolerance goes to the third state: h^2 D / 4.
    """
    layers = Layers.from_sizes((1, 3, 1), num_actions=2).pad_to(SHAPE)
    state_mask, action_mask = np.array(layers.state_mask), np.array(layers.action_mask)
    action_mask[1, :, 1] = False
    target, center = np.zeros((2, *SHAPE, SHAPE[1]))
    target[0, 0, 0] = -2
    center[0, 0, 0, 0] = center[0, 0, 1, 1] = 1
    center[1, :3, 0, 0] = 1
    shared = (state_mask, action_mask, target, center)
    depth = np.geomspace(3, deepest, LANES)
    radius = np.zeros((LANES, *SHAPE))
    radius[:, 0, 0, 0] = 2 * np.sqrt(2 * tolerance / depth)
    potential = np.zeros((LANES, *SHAPE[:2]))
    potential[:, 0, 0], potential[:, 1, 1], potential[:, 1, 2] = 2, 1, -depth
    cold = jax.tree.map(lambda x: np.stack([x] * LANES), cold_start(layers))
    problems = [*(np.stack([x] * LANES) for x in shared), radius]
    projection = np.zeros_like(target)
    projection[0, 0, 1, 1] = projection[1, 1, 0, 0] = 1
    return problems, cold._replace(potential=potential), projection


def test_a_potential_that_is_too_low_is_noticed_although_hardly_anything_enters():
    """The distance was up to 0.01, with a residual below 1e-9."""
    problems, start, projection = too_low(1e-9, deepest=1e6)
    result = many(*problems, warm_start=start)
    check_exact(problems, result, lanes=range(8))
    assert np.abs(np.asarray(result.occupancy) - projection).max() < np.sqrt(1e-9) / 2


@pytest.mark.slow
def test_a_potential_that_is_too_low_is_noticed_in_float32():
    problems, start, projection = too_low(1e-6, deepest=12)  # more is left to the slow loop anyway
    result = many(*in_float32(problems), warm_start=jax.tree.map(np.float32, start))
    assert np.all(result.info.converged)
    assert np.abs(np.asarray(result.occupancy) - projection).max() < np.sqrt(1e-6) / 2


def test_the_start_follows_the_target():
    """Without the gains of the last solution, which predict how masses move, steps are more."""
    problems = batch(6, kind="near")
    before = many(*problems)
    noise = np.random.default_rng(6).normal(size=(LANES, *SHAPE, 1))
    problems[2] = np.asarray(before.occupancy) + 1e-4 * noise
    unaware = before.warm_start._replace(gain=0 * before.warm_start.gain)
    starts = before.warm_start, unaware
    told, untold = (many(*problems, warm_start=start).info.iterations.mean() for start in starts)
    assert told < untold - 0.2


@pytest.mark.slow
def test_vmap_equals_a_loop_and_nests():
    problems = batch(6)
    together = many(*problems).occupancy
    alone = jax.jit(lane_of("newton"))
    for i in range(5):
        one = alone(*(array[i] for array in problems))
        np.testing.assert_allclose(one.occupancy, together[i], atol=1e-8)
    nested = jax.jit(jax.vmap(jax.vmap(lane_of("newton"))))
    folded = nested(*(array.reshape(4, LANES // 4, *array.shape[1:]) for array in problems))
    np.testing.assert_allclose(folded.occupancy.reshape(together.shape), together, atol=1e-8)


def test_a_scan_carries_the_warm_start():
    cmdp = make("random", sizes=(1, 3, 1), num_actions=2)
    layers, L = cmdp.layers, cmdp.layers.shape
    q = occupancy_of(cmdp.mdp, layers.uniform_policy())
    confidence = ConfidenceSet(cmdp.mdp.transition, jnp.full(L, 0.2))

    @jax.jit
    def run(q):
        def step(carry, t):
            q, warm = carry
            loss = jnp.sin(1.0 * t + jnp.arange(q[..., 0].size).reshape(L))[..., None]
            result = project(layers, q - 0.1 * loss, confidence, warm_start=warm)
            return (result.occupancy, result.warm_start), result.info

        return jax.lax.scan(step, (q, cold_start(layers)), jnp.arange(30))

    (final, _), info = run(q)
    assert info.converged.all()
    assert np.asarray(info.iterations)[5:].mean() <= 6
    assert (
        infeasibility(
            layers.state_mask,
            np.asarray(layers.action_mask),
            np.asarray(final),
            *map(np.asarray, (confidence.center, confidence.radius)),
        )
        < 1e-8
    )


@pytest.mark.slow
@pytest.mark.parametrize("default_too", [True, False])
def test_float32(default_too):
    """Whether float32 is what JAX computes with by default, or float64."""
    problems = batch(7, 32, (3, 3, 2))
    exact = jax.jit(jax.vmap(lane_of("newton")))(*problems).occupancy
    with jax.enable_x64(not default_too):
        result = jax.jit(jax.vmap(lane_of("newton")))(*in_float32(problems))
        assert result.occupancy.dtype == jnp.float32
        assert np.all(result.info.converged)
        assert np.max(result.info.residual) <= 1e-6
    # The root of the residual, as `newton.solver` says.
    np.testing.assert_allclose(result.occupancy, exact, atol=1e-3)


def in_float32(arrays):
    return [x.astype(np.float32) if x.dtype == np.float64 else x for x in arrays]


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(4, 5, 3), (8, 7, 1)])
def test_the_slow_loop_converges_alone_and_not_slowly(shape):
    """With a single action most states are closed at first; each of them took steps by the score.

    Eleven seeds took at most 16 and 23 steps; with closed states, hundreds, or never converged.
    """
    problems = batch(16, 256, shape)
    result = many(*problems, solve=slowly)
    check_exact(problems, result)
    assert np.max(result.info.iterations) <= 40


@pytest.mark.slow
def test_many_pairs_in_states_that_nothing_enters():
    """What leaves a state that was opened is little in all, however many pairs it has."""
    layers = Layers.from_sizes((1, 5, 5, 1), num_actions=200)
    rng = np.random.default_rng(19)
    shape = (*layers.shape, 5)
    target = rng.normal(size=(4, *shape)) * np.asarray(layers.triple_mask)
    target[:, 1] = target[:, 2] = 0  # ties, so that all pairs open together
    center = np.zeros(shape)
    center[0, 0, :, :4] = 1 / 4  # the last state is not reached
    center[1], center[2, ..., 0] = 1 / 5, 1
    radius = np.zeros(layers.shape)
    radius[1] = 2
    confidence = ConfidenceSet(center, radius)

    def one(target):
        return project(layers, target, confidence, solver=SLOW_LOOP)

    result = jax.jit(jax.vmap(one))(target)
    assert np.all(result.info.converged)
    assert np.max(result.info.iterations) <= 40


@pytest.mark.slow
def test_a_warm_start_of_another_precision_and_a_traced_tolerance():
    layers, q, center, radius = simple_problem()
    confidence = ConfidenceSet(center, radius)
    single = jnp.asarray(q - 0.1, jnp.float32)
    result = project(layers, single, confidence, warm_start=cold_start(layers, dtype=float))
    assert result.info.converged
    assert {x.dtype for x in jax.tree.leaves(result.warm_start)} == {jnp.dtype("float32")}
    target = jnp.asarray(q - 0.1)
    solve = jax.jit(lambda tolerance: project(layers, target, confidence, tolerance=tolerance))
    assert solve(1e-9).info.residual <= 1e-9
    assert solve(np.inf).info.residual <= 1  # a point was found nevertheless


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["near", "ties", "medium"])
def test_the_slow_loop_converges_in_float32_too(kind):
    """Near the solution no descent of the dual can be seen: it is smaller than its rounding."""
    problems = in_float32(batch(13, 512, kind=kind))
    result = many(*problems, solve=slowly)
    assert np.all(result.info.converged)
    assert np.max(result.info.residual) <= 1e-6


@pytest.mark.slow
@pytest.mark.optimised
@pytest.mark.parametrize(
    ("shape", "count"), [((4, 5, 3), 32_768), ((10, 4, 2), 4096), ((20, 3, 2), 2048)]
)
def test_float32_from_any_start_within_the_range(shape, count):
    """More of them: `python benchmarks/starts.py --problems 1000000`."""
    verdict = judge_starts(np.random.default_rng(20), shape, count)
    assert np.isfinite(verdict.distance).all()  # every reference was certified
    assert verdict.converged.all()
    assert not verdict.wrong.any()
    assert np.max(verdict.steps) <= 60  # as in double precision


@pytest.mark.slow
@pytest.mark.optimised
@pytest.mark.parametrize("largest", [30, 300, 3e3, 1e4])
def test_float32_beyond_the_range_never_converges_to_what_is_wrong(largest):
    verdict = judge_starts(np.random.default_rng(21), (4, 5, 3), 2048, largest)
    assert not (verdict.converged & verdict.wrong).any()
    assert np.mean(verdict.converged) > (0.9 if largest < 100 else 0.1)  # some are still checked


@pytest.mark.slow
def test_a_target_plus_potentials_is_rounded_once():
    """Potentials grow with the layers; what is left of them in float32 is as exact as its size."""
    problems = [jnp.asarray(np.moveaxis(x, 0, -1)) for x in batch(22, 4)]
    potential = 1e4 + np.random.default_rng(22).normal(size=(*SHAPE[:2], 4))
    potential = jnp.asarray((potential * problems[1].any(2)).astype(np.float32))
    target = problems[2].astype(np.float32)
    single = Problem.of(*problems[:2], target, *problems[3:])
    point = jax.jit(point_at)(single, potential)
    exact = point_at(single._replace(target=single.target.astype(float)), potential.astype(float))
    assert point.dtype == jnp.float32
    present = np.asarray(single.present)
    inner = present & (np.abs(exact) < 1e3)
    assert inner.sum() > 50
    np.testing.assert_allclose(point[inner], exact[inner], rtol=2**-24)


@pytest.mark.slow
def test_closed_states_are_opened_and_others_stay():
    """Open: some policy and transitions in the ball lead on at a positive value of the target."""
    problems = batch(17, 16)
    valid = [valid_triples(a, b) for a, b in zip(*problems[:2], strict=True)]
    potential = np.random.default_rng(17).normal(size=(16, *SHAPE[:2]))
    potential *= problems[1].any(-1)
    lanes_last = [jnp.asarray(np.moveaxis(x, 0, -1)) for x in (*problems, potential)]
    raised = opened(Problem.of(*lanes_last[:5]), lanes_last[5], jnp.full(16, 1e-3))
    raised = np.moveaxis(np.asarray(raised), -1, 0)
    changed = kept = 0
    for i, k, x in zip(*np.nonzero(problems[1].any(-1)), strict=True):
        ahead = raised[i, k + 1] if k + 1 < SHAPE[0] else np.zeros(SHAPE[1])
        best = max(
            largest_mean(*(z[valid[i][k, x, a]] for z in (u - ahead, p)), h)
            for a, (u, p, h) in enumerate(zip(*(z[i, k, x] for z in problems[2:]), strict=True))
            if problems[1][i, k, x, a]
        )
        if potential[i, k, x] + best >= 1e-3:
            assert raised[i, k, x] == potential[i, k, x]
            kept += 1
        else:
            # Rounding of the target's and the potential's size.
            assert raised[i, k, x] + best == pytest.approx(1e-3, abs=1e-13 * (1 + abs(best)))
            changed += 1
    assert changed > 10
    assert kept > 10


@pytest.mark.parametrize("rounded", [True, False])
def test_a_center_is_scaled_to_a_distribution(rounded):
    """Estimates in single precision sum to one only to 1e-7, and up to 1e-3 is not refused."""
    problems = batch(18, kind="near")
    center = problems[3]
    problems[3] = center.astype(np.float32) if rounded else center * (1 - 5e-4)
    problems[3] = problems[3].astype(float)
    result = many(*problems)
    total = problems[3].sum(-1, keepdims=True)
    problems[3] = problems[3] / np.where(total > 0, total, 1)
    check_exact(problems, result)


def lanes_last(problems, warm_start):
    """A batch as the loops of the Newton solver take it."""
    layers = jax.vmap(Layers)(*problems[:2])
    confidence = jax.vmap(ConfidenceSet)(*problems[3:])
    tolerance = np.full(len(problems[0]), 1e-9)
    lanes = Lanes(layers, problems[2], confidence, warm_start, tolerance)
    return jax.tree.map(lambda x: np.moveaxis(np.asarray(x), 0, -1), lanes)


@pytest.mark.slow
def test_rough_steps_lead_close_and_are_forgotten_where_they_overflow():
    options = NewtonOptions(rough_variables=0)
    problems = batch(14, 16, kind="near")
    cold = cold_start(Layers(*(x[0] for x in problems[:2])))
    start = jax.tree.map(lambda x: np.repeat(np.asarray(x)[None], 16, 0), cold)
    start.potential[3] = 1e300  # of lane 3, and beyond what single precision holds
    start.potential[5] = np.nan

    @jax.jit
    def rough(lanes):
        _, cones, before, _ = prepare(lanes)
        begin = Guess(before.potential, before.mass)
        guess, steps = roughly(options, cones, begin)
        return begin, guess, evaluate(options, cones, guess, steps).residual, steps

    begin, guess, residual, steps = rough(lanes_last(problems, start))
    for lane in (3, 5):
        np.testing.assert_array_equal(guess.potential[..., lane], begin.potential[..., lane])
    others = np.delete(np.arange(16), [3, 5])
    assert np.all((steps[others] >= 1) & (steps[others] <= options.rough_steps))
    moved = [np.any(guess.potential[..., i] != begin.potential[..., i]) for i in others]
    assert np.sum(moved) > len(others) / 2
    assert np.median(residual[others]) < options.rough_residual / 10


@pytest.mark.slow
def test_rough_steps_leave_the_answer_exact():
    problems = batch(15, 256)
    solve = jax.jit(jax.vmap(lane_of(newton_with(rough_variables=0))))
    check_exact(problems, many(*problems, solve=solve))


@pytest.mark.slow
def test_when_all_fails_the_point_is_still_feasible():
    hopeless = newton_with(local_steps=1, global_steps=1)
    problems = batch(9, 16)
    result = jax.jit(jax.vmap(lane_of(hopeless)))(*problems)
    failed = np.flatnonzero(~np.asarray(result.info.converged))
    assert len(failed) > 4
    for i in failed:
        one = [array[i] for array in problems]
        assert (
            infeasibility(one[0], one[1], np.asarray(result.occupancy[i]), one[3], one[4]) < 1e-13
        )


@pytest.mark.slow
def test_padding_changes_nothing():
    problems = batch(10)
    plain = many(*problems)
    grow = {2: [(0, 1), (0, 2)], 3: [(0, 1), (0, 2), (0, 1)], 4: [(0, 1), (0, 2), (0, 1), (0, 2)]}
    wide = [np.pad(array, [(0, 0), *grow[array.ndim - 1]]) for array in problems]
    wide[0][:, -1, 0] = True
    result = jax.jit(jax.vmap(lane_of("newton")))(*wide)
    np.testing.assert_allclose(result.occupancy[:, :4, :5, :3, :5], plain.occupancy, atol=1e-8)
    assert float(jnp.abs(result.occupancy).sum()) == pytest.approx(
        float(jnp.abs(plain.occupancy).sum()), abs=1e-6
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [(2, np.nan), (2, np.inf), (2, -1e30), (3, -0.5), (3, np.nan), (4, -1.0), (4, np.nan)],
)
def test_inside_jit_nonsense_is_nan_and_only_in_its_lane(field, value):
    problems = [array.copy() for array in batch(11)]
    index = tuple(np.argwhere(valid_triples(problems[0][0], problems[1][0]))[0])
    problems[field][0][index[: problems[field][0].ndim]] = value
    result = many(*problems)
    assert not result.info.converged[0]
    assert np.isnan(result.occupancy[0]).all()
    assert np.isnan(result.info.residual[0])
    assert int(result.info.iterations[0]) == 0
    assert np.all(result.info.converged[1:])
    assert np.isfinite(result.occupancy[1:]).all()


def simple_problem():
    cmdp = make("random", sizes=(1, 2, 1), num_actions=2)
    q = occupancy_of(cmdp.mdp, cmdp.layers.uniform_policy())
    return cmdp.layers, np.array(q), np.array(cmdp.mdp.transition), np.full(cmdp.layers.shape, 0.1)


@pytest.mark.parametrize(
    ("field", "index", "value", "sentence"),
    [
        (
            1,
            (0, 0, 1, 1),
            np.nan,
            "target of layer 0, state 0, action 1 to state 1 is nan; it must",
        ),
        (1, (0, 0, 1, 1), -1e30, "state 1 is -1e\\+30; it must be a number of size below 1e\\+20"),
        (2, (0, 0, 1, 1), 5.0, "center of layer 0, state 0, action 1 sums to"),
        (2, (0, 0, 1, 1), -0.5, "center of layer 0, state 0, action 1 is -0.5; .* a probability"),
        (3, (1, 1, 0), -1.0, "radius of layer 1, state 1, action 0 is -1; it must be at least 0"),
        (3, (1, 1, 0), np.nan, "radius of layer 1, state 1, action 0 is nan"),
    ],
)
def test_outside_jit_nonsense_is_a_sentence(field, index, value, sentence):
    arrays = list(simple_problem())
    arrays[field][index] = value
    with pytest.raises(ValueError, match=sentence):
        project(arrays[0], jnp.asarray(arrays[1]), ConfidenceSet(arrays[2], arrays[3]))


def test_shapes_and_names_are_checked_first(unchecked):
    layers, q, center, radius = simple_problem()
    confidence = ConfidenceSet(center, radius)
    with pytest.raises(
        ValueError, match=r"target must have the shape \(2, 2, 2, 2\); got \(2, 2, 2\)"
    ):
        project(layers, jnp.asarray(q[..., 0]), confidence)
    with pytest.raises(ValueError, match="unknown solver 'simplex'; the solvers are newton, osqp"):
        project(layers, jnp.asarray(q), confidence, solver="simplex")
    with pytest.raises(ValueError, match=r"center \[L, S, A, S\] and a radius \[L, S, A\]"):
        ConfidenceSet(center, radius[..., 0])
    with pytest.raises(ValueError, match="must be floating point"):
        project(layers, jnp.ones(q.shape, int), confidence)
    for tolerance in (0.0, -1e-9, np.nan, np.inf):
        with pytest.raises(ValueError, match=f"must be positive and finite; it is {tolerance}"):
            project(layers, jnp.asarray(q), confidence, tolerance=tolerance)
    for start in (cold_start(layers, "osqp"), cold_start(make("random").layers), 0.0):
        with pytest.raises(ValueError, match="warm start does not fit"):
            project(layers, jnp.asarray(q), confidence, warm_start=start)


def test_a_derivative_is_refused_in_words():
    layers, q, center, radius = simple_problem()
    confidence = ConfidenceSet(center, radius)

    def loss(target):
        return project(layers, target, confidence).occupancy.sum()

    for derivative in (jax.grad(loss), jax.jacfwd(loss)):
        with pytest.raises(NotImplementedError, match="project has no derivative"):
            derivative(jnp.asarray(q))


@pytest.mark.slow
def test_float32_lowers_for_every_platform_where_double_is_not_enabled():
    """Although its slow loop computes in double precision."""
    problems = in_float32([array[0] for array in batch(12, 1, (2, 2, 2))])
    with jax.enable_x64(False):
        exported = jax.export.export(jax.jit(lane_of("newton")), platforms=["cpu", "cuda", "tpu"])
        found = exported(*problems)
        assert "f64" in found.mlir_module()
        assert {x.dtype for x in found.out_avals} == set(map(jnp.dtype, ("float32", "int32", bool)))


@pytest.mark.parametrize(
    "solver",
    [
        pytest.param(newton_with(rough_variables=0), id="newton"),
        *(pytest.param(name, marks=pytest.mark.slow) for name in SOLVERS if name != "newton"),
    ],
)
def test_it_lowers_for_every_platform(solver):
    problems = [array[0] for array in batch(12, 1, (2, 2, 2))]
    platforms = ["cpu", "cuda", "tpu"]
    exported = jax.export.export(jax.jit(lane_of(solver)), platforms=platforms)(*problems)
    assert exported.platforms == ("cpu", "cuda", "tpu")
    lanes = [jnp.stack([array] * 3) for array in problems]
    exported = jax.export.export(jax.jit(jax.vmap(lane_of(solver))), platforms=platforms)(*lanes)
    assert exported.platforms == ("cpu", "cuda", "tpu")


@pytest.mark.slow
def test_it_traces_under_shard_map():
    """A loop must begin with what differs between devices, if it ends with that."""
    rough = newton_with(rough_variables=0)
    layers = Layers.from_sizes((1, 3, 2, 1), num_actions=2)
    shape = (2, *layers.shape, layers.shape[1])

    def lane(target, center, radius):
        return project(layers, target, ConfidenceSet(center, radius), solver=rough).occupancy

    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("lanes",))
    each = jax.sharding.PartitionSpec("lanes")
    lanes = jax.shard_map(jax.vmap(lane), mesh=mesh, in_specs=each, out_specs=each)
    arrays = (jax.ShapeDtypeStruct(x, float) for x in (shape, shape, shape[:-1]))
    assert jax.eval_shape(lanes, *arrays).shape == shape


def test_a_batch_is_cut_to_fit_memory():
    cmdp = make("random", sizes=(1, 3, 1), num_actions=2)
    q = occupancy_of(cmdp.mdp, cmdp.layers.uniform_policy())
    rng = np.random.default_rng(0)
    targets = jnp.asarray(np.asarray(q) + 0.1 * rng.normal(size=(10, *q.shape)))
    confidence = ConfidenceSet(cmdp.mdp.transition, jnp.full(cmdp.layers.shape, 0.2))
    whole = project_batch(cmdp.layers, targets, confidence, solver=QUICK)
    pieces = project_batch(cmdp.layers, targets, confidence, solver=QUICK, max_bytes=40_000)
    np.testing.assert_allclose(pieces.occupancy, whole.occupancy, atol=1e-12)
    assert pieces.info.converged.shape == (10,)
    stacked = jax.tree.map(lambda x: jnp.stack([x] * 10), (cmdp.layers, confidence))
    start = whole.warm_start
    each = project_batch(stacked[0], targets, stacked[1], solver=QUICK, warm_start=start)
    np.testing.assert_allclose(each.occupancy, whole.occupancy, atol=1e-12)


def test_the_warm_start_of_a_batch_may_hold_an_array_without_entries():
    mdp = make("random", sizes=(1, 3, 1), num_actions=2).mdp
    layers, confidence = mdp.layers, ConfidenceSet(mdp.transition, jnp.zeros(mdp.layers.shape))
    empty = Solver(
        lambda layers, dtype: jnp.zeros((0, 2), dtype),
        lambda layers, target, confidence, start, tolerance: ProjectionResult(
            2 * target, start, ProjectionInfo(jnp.zeros(()), jnp.zeros((), int), jnp.array(True))
        ),
        (1e-6, 1e-9),
    )
    targets = jnp.asarray(np.random.default_rng(0).normal(size=(10, *layers.triple_shape)))
    pieces = project_batch(layers, targets, confidence, solver=empty, max_bytes=20_000)
    np.testing.assert_array_equal(pieces.occupancy, 2 * targets)
    assert pieces.warm_start.shape == (10, 0, 2)
    again = project_batch(
        layers, targets, confidence, solver=empty, warm_start=pieces.warm_start, max_bytes=20_000
    )
    assert again.info.converged.shape == (10,)


@pytest.mark.slow
def test_working_memory_follows_the_limit_and_not_the_number_of_lanes():
    layers, q, center, radius = simple_problem()
    confidence = ConfidenceSet(center, radius)

    def peak(count, limit):
        lanes = jnp.zeros((count, *q.shape))
        function = jax.jit(lambda t: project_batch(layers, t, confidence, max_bytes=limit))
        return function.lower(lanes).compile().memory_analysis().temp_size_in_bytes

    extra = peak(2000, 10**6) - peak(200, 10**6)
    assert extra < 1800 * q.nbytes * 12


@pytest.mark.slow
def test_a_feasible_point_that_is_not_the_nearest_has_a_residual():
    layers, q, center, radius = simple_problem()
    confidence = ConfidenceSet(center, radius)
    target = jnp.asarray(q + 0.3 * np.random.default_rng(0).normal(size=q.shape))
    lane = single_lane(layers, target, confidence)
    nearest = project(layers, target, confidence)
    potential = nearest.warm_start.potential[..., None]
    for point, right in ((nearest.occupancy, True), (jnp.asarray(q), False)):
        result = conclude(lane, entries_first(point[..., None]), potential, None, 0, 1e-6)
        assert bool(result.info.converged) == right
        distance = float(jnp.abs(point - nearest.occupancy).max())
        assert float(result.info.residual) == pytest.approx(distance, abs=1e-8)
