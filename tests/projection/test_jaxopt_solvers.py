"""jaxopt's solvers: what they find, what the polish adds to it, and that they are practical."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pdgd_jax import (
    ConfidenceSet,
    Layers,
    cold_start,
    make,
    occupancy_of,
    pdgd_ops,
    project,
    registered,
    run,
    stack,
)
from pdgd_jax.instances import builder_of
from pdgd_jax.projection._problem import single_lane
from pdgd_jax.projection.jaxopt import _osqp as osqp
from pdgd_jax.projection.jaxopt import _polish as polish
from pdgd_jax.projection.jaxopt import _projected_gradient as projected_gradient
from tests.reference.projection import (
    infeasibility,
    project_clarabel,
    random_problem,
    valid_triples,
)

MODULES = {"osqp": osqp, "projected_gradient": projected_gradient}
SHAPE = (3, 3, 2)
LANES = 8


def lane_of(solver, **settings):
    def one(state_mask, action_mask, target, center, radius, warm_start=None):
        layers, confidence = Layers(state_mask, action_mask), ConfidenceSet(center, radius)
        settings["warm_start"] = warm_start
        return project(layers, target, confidence, solver=solver, **settings)

    return one


def batch(seed, count=LANES, shape=SHAPE, kind="medium"):
    rng = np.random.default_rng(seed)
    problems = [random_problem(rng, shape, kind) for _ in range(count)]
    return [np.stack(arrays) for arrays in zip(*problems, strict=True)]


@pytest.fixture(scope="module")
def problems():
    return batch(8)


@pytest.fixture(scope="module")
def exact(problems):
    """By Clarabel."""
    return np.stack([project_clarabel(*arrays) for arrays in zip(*problems, strict=True)])


@pytest.fixture(
    scope="module", params=[pytest.param("osqp", marks=pytest.mark.slow), "projected_gradient"]
)
def solved(request, problems):
    """A solver, its compiled lanes, and what they found from a cold start."""
    layers = Layers(*(array[0] for array in problems[:2]))
    cold = jax.tree.map(lambda x: jnp.stack([x] * LANES), cold_start(layers, request.param))
    solve = jax.jit(jax.vmap(lane_of(request.param)))
    return request.param, solve, solve(*problems, cold)


def test_the_polished_point_is_the_projection_and_the_info_has_both_residuals(solved, exact):
    _, _, result = solved
    assert np.all(result.info.converged)
    assert np.max(result.info.residual) <= 1e-6
    # A residual of 1e-6 in the flow, times the condition of the dual.
    np.testing.assert_allclose(result.occupancy, exact, atol=2e-5)
    before, after = (
        np.asarray(x) for x in (result.info.residual_before_polish, result.info.residual)
    )
    assert np.all(after <= before)
    assert np.sum(before > 1e-6) >= 3  # these would not have converged; some lanes are trivial


def test_a_warm_start_from_the_polished_point_is_the_solution(solved, problems):
    """Its multipliers belong to the same problem: one round keeps the point to rounding."""
    name, solve, result = solved
    again = solve(*problems, result.warm_start)
    assert np.all(again.info.converged)
    np.testing.assert_array_equal(again.info.iterations, MODULES[name].ITERATIONS)
    assert np.max(again.info.residual_before_polish) <= 1e-5  # ten times the tolerance of the first
    np.testing.assert_allclose(again.occupancy, result.occupancy, atol=2e-5)


@pytest.mark.slow
def test_lanes_are_solved_together_as_one_by_one(solved, problems):
    name, _, result = solved
    alone = jax.jit(lane_of(name))
    for i in range(3):
        one = alone(*(array[i] for array in problems))
        # Reductions in another order, times the condition of the dual.
        np.testing.assert_allclose(one.occupancy, result.occupancy[i], atol=1e-8)
        assert int(one.info.iterations) == int(result.info.iterations[i])


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_the_bare_solver_is_jaxopt_alone(name, problems, exact):
    result = jax.jit(jax.vmap(lane_of(f"{name}-bare")))(*problems)
    assert result.info.residual_before_polish is None
    done = np.asarray(result.info.converged)
    assert done.sum() > LANES / 2
    np.testing.assert_allclose(result.occupancy[done], exact[done], atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_a_bare_solver_with_too_small_a_budget_says_so_and_stays_feasible(
    name, problems, monkeypatch
):
    monkeypatch.setattr(MODULES[name], "MAX_ITERATIONS", 5)
    monkeypatch.setattr(MODULES[name], "ITERATIONS", 5)
    short = jax.jit(jax.vmap(lane_of(f"{name}-bare")))(*problems)
    assert short.info.residual_before_polish is None
    np.testing.assert_array_equal(short.info.iterations, 5)
    failed = np.flatnonzero(~np.asarray(short.info.converged))
    assert len(failed) >= 3  # some lanes are trivial
    assert np.all(np.asarray(short.info.residual)[failed] > 1e-6)
    for i in failed:
        one = [array[i] for array in problems]
        assert infeasibility(*one[:2], np.asarray(short.occupancy[i]), *one[3:]) < 1e-13


@pytest.mark.slow
def test_the_polish_alone_is_not_a_solver():
    """Its steps finish what jaxopt found; from nothing, unless tiny, they do not get there."""

    def alone(state_mask, action_mask, target, center, radius):
        lane = single_lane(Layers(state_mask, action_mask), target, ConfidenceSet(center, radius))
        nothing = jnp.zeros_like(lane.target), jnp.zeros_like(lane.conserved), jnp.ones(())
        return polish.polish(lane, polish.Point(*nothing)).residual

    residual = jax.jit(jax.vmap(alone))(*batch(9, 32, (10, 12, 8), "far"))
    assert np.mean(np.asarray(residual) > 1e-6) > 0.5


def test_the_linear_system_of_osqp_is_solved_exactly():
    """Against jaxopt's own product with the matrix, pairs and layers of all sizes among them."""
    rng = np.random.default_rng(0)

    @jax.jit
    def error(state_mask, action_mask, target, center, radius, right, step_size):
        layers, confidence = Layers(state_mask, action_mask), ConfidenceSet(center, radius)
        program = osqp.Program.of(single_lane(layers, target, confidence))
        right = tuple(map(program.only, right))
        found = osqp._Factor.of(program, step_size).solve(right)
        rows, transposed = jax.vjp(lambda x: osqp._rows(program, x), found)
        parts = zip(osqp._quadratic(None, found), found, *transposed(rows), right, strict=True)
        return [jnp.abs(q + osqp.RIDGE * x + step_size * y - b).max() for q, x, y, b in parts]

    for arrays in zip(*batch(10, 8, (4, 5, 3)), strict=True):
        right = tuple(rng.normal(size=arrays[2].shape) for _ in range(2))
        for step_size in (0.01, 10.0):
            # The largest step size, 900 times 10, times rounding.
            assert np.max(error(*arrays, right, step_size)) < 1e-10


def test_the_metric_of_projected_gradient_bounds_the_hessian():
    """It is that of F F^T: y^T F F^T y adds the squared differences over all variables."""
    problems = batch(11, 4, (4, 5, 3))

    def metric_of(state_mask, action_mask, target, center, radius):
        layers, confidence = Layers(state_mask, action_mask), ConfidenceSet(center, radius)
        return projected_gradient._metric(single_lane(layers, target, confidence))

    metrics = np.asarray(jax.jit(jax.vmap(metric_of))(*problems))
    rng = np.random.default_rng(0)
    for metric, state_mask, action_mask in zip(metrics, *problems[:2], strict=True):
        free = action_mask.any(-1).reshape(-1)
        hessian = np.linalg.inv(metric)[free][:, free]
        potential = rng.normal(size=action_mask.shape[:2]) * action_mask.any(-1)
        ahead = np.concatenate([potential[1:], np.zeros_like(potential[:1])])
        difference = potential[:, :, None, None] - ahead[:, None, None, :]
        expected = (difference**2 * valid_triples(state_mask, action_mask)).sum()
        y = potential.reshape(-1)[free]
        assert y @ hessian @ y == pytest.approx(expected, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_single_precision_while_double_is_the_default(name):
    mdp = make("random", sizes=(1, 2, 1), num_actions=2).mdp
    layers = mdp.layers
    q = occupancy_of(mdp, layers.uniform_policy()).astype(jnp.float32)
    confidence = ConfidenceSet(mdp.transition, jnp.full(layers.shape, 0.2))
    solve = jax.jit(lambda target: project(layers, target, confidence, solver=name))
    result = solve(q - 0.1 * (q > 0))
    assert result.occupancy.dtype == jnp.float32
    assert result.info.converged
    leaves = jax.tree.leaves(result.warm_start)
    assert {x.dtype for x in leaves} == {jnp.dtype("float32")}


# Those that can be lanes of one program; gymnasium is not built in, but asks for the games.
GROUPS = (
    ("bidding", "no-slater", "random", "riverswim", "streaming"),
    ("inventory", "inventory-lead-time", "queueing", "recommender"),  # two constraints
    ("two-phase",),  # other processes
    ("grid",),
)

# Lanes are padded to the largest instance of their group, and jaxopt takes its time: these are made
# as small as their group.
SMALLER = {
    "inventory-lead-time": {"lead_time": 1, "most_ordered": 1, "horizon": 5},
    "queueing": {"buffers": (1, 1), "horizon": 5},
}


def test_no_instance_is_left_out():
    ours = {n for n in registered() if builder_of(n).__module__.startswith("pdgd_jax.")}
    assert sorted(sum(GROUPS, ())) == sorted(ours - {"gymnasium"})


@pytest.mark.slow
@pytest.mark.optimised
@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("instances", GROUPS, ids=lambda names: names[0])
def test_every_projection_of_a_run_converges(instances, name):
    """500 episodes; before the polish `osqp` never converged on `grid`."""
    cmdps = [make(instance, **SMALLER.get(instance, {})) for instance in instances]
    m = cmdps[0].num_constraints

    def play(cmdp, key):
        learner = pdgd_ops(cmdp.layers, m, 500, solver=name)
        return run(key, cmdp, learner, 500, checkpoints=1).metrics

    lanes = stack(cmdps), jax.random.split(jax.random.key(14), len(cmdps))
    last = jax.tree.map(lambda x: np.asarray(x[:, -1]), jax.jit(jax.vmap(play))(*lanes))
    assert np.all(last.unconverged == 0)
    assert np.all(last.residual <= 1e-6)
    # Ten rounds; none took more than two. Without opened states a polish fails for a hundred.
    assert np.max(last.most_iterations) <= 250
