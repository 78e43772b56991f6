"""The entropic projection with linear constraints: Clarabel, slack ones, and infeasible ones."""

import numpy as np

from tests.projection.entropic.problems import LANES, SHAPE, batch, boxed, many
from tests.reference.entropic import flow_error, project_clarabel_box

NUM = 2


def constrained(seed, tight):
    rng = np.random.default_rng(seed)
    problems = boxed(batch(seed, kind="mild"), seed)
    costs = rng.uniform(-1, 1, (LANES, NUM, *SHAPE))
    free = many(*problems, kind="box")
    spent = np.einsum("bmlsa,blsat->bm", costs, free.occupancy)
    return problems, costs, spent - tight, free


def solve(problems, costs, bounds):
    return many(*problems, costs, bounds, kind="box", num_constraints=NUM)


def test_against_clarabel_and_complementary():
    problems, costs, bounds, _ = constrained(40, tight=np.array([0.05, -0.01]))
    result = solve(problems, costs, bounds)
    assert np.all(result.info.converged | result.info.infeasible)
    assert result.info.converged.sum() > LANES / 3
    slack = bounds - np.einsum("bmlsa,blsat->bm", costs, result.occupancy)
    multipliers = np.asarray(result.warm_start.multipliers)
    good = np.asarray(result.info.converged)
    assert multipliers.min() >= 0
    assert slack[good].min() > -1e-8
    assert np.abs(np.minimum(multipliers, slack))[good].max() < 1e-8
    assert (multipliers[good] > 1e-3).any()
    compared = 0
    for i in np.flatnonzero(good)[:8]:
        masks, rest = [x[i] for x in problems[:2]], [x[i] for x in problems[2:]]
        reference = project_clarabel_box(masks, *rest, costs[i], bounds[i])
        if reference is not None:
            np.testing.assert_allclose(result.occupancy[i], reference, atol=2e-5)
            compared += 1
    assert compared >= 2


def test_constraints_that_are_slack_change_nothing():
    problems, costs, bounds, free = constrained(41, tight=-0.1)
    result = solve(problems, costs, bounds)
    np.testing.assert_allclose(result.occupancy, free.occupancy, atol=1e-8)
    assert np.all(result.warm_start.multipliers == 0)
    assert np.all(result.info.converged)


def test_infeasible_constraints_are_named_and_the_point_lies_in_the_set():
    problems, costs, bounds, _ = constrained(42, tight=0.0)
    bounds[::2, 1] = -np.abs(costs[::2, 1]).max((2, 3)).sum(-1) - 0.1  # less than any occupancy
    result = solve(problems, costs, bounds)
    assert np.all(result.info.infeasible[::2])
    assert not np.any(result.info.converged[::2])
    assert np.all(result.info.converged[1::2])
    for i in range(LANES):
        assert flow_error(problems[1][i], np.asarray(result.log_occupancy[i])) < 1e-12
