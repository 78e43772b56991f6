"""The Newton solver on successor lists: alone, on dense arrays with a mask, and Clarabel."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pdgd_jax import ConfidenceSet, cold_start, project
from pdgd_jax.projection._cone import WRITTEN_OUT, project_cone
from pdgd_jax.projection.newton import NewtonOptions, make_solver
from tests.graphs import FAMILIES, draw_family
from tests.reference.projection import infeasibility
from tests.reference.support import project_on_support

LISTS = make_solver(NewtonOptions(dense_variables=0))
DENSE = make_solver(NewtonOptions(dense_variables=10**6))


@jax.jit
@jax.vmap
def totals(layers, triples):
    """The sum over each pair, at its triples."""
    return layers.to_triples(layers.to_pairs(triples))


def problems(layers, rng, size):
    """Targets, centers and radii, one for each lane."""
    present = np.asarray(layers.successors.present)
    weights = rng.exponential(size=present.shape) * (rng.random(present.shape) < 0.7) * present
    weights = np.where(np.asarray(totals(layers, weights)) > 0, weights, present)
    center = weights / np.maximum(totals(layers, weights), 1e-9)
    radius = rng.choice([0.0, 1e-6, 0.05, 0.5, 2.5], layers.action_mask.shape)
    target = rng.normal(size=present.shape)
    ties = rng.random((len(present), 1, 1)) < 0.25
    target = size * np.where(ties, np.round(target), target)
    return target, np.asarray(center), radius


def solve(solver):
    """Solve a batch, each lane from a cold start."""

    def one(layers, target, center, radius):
        return project(layers, target, ConfidenceSet(center, radius), solver=solver)

    return jax.jit(jax.vmap(one))


# The program of a family, compiled once.
SOLVE = {"lists alone": solve(LISTS), "dense with a mask": solve(DENSE)}
TO_DENSE = jax.jit(jax.vmap(lambda layers, array: layers.to_dense(array)))
ROOM = jax.jit(jax.vmap(lambda layers: layers.to_dense(layers.triple_mask)))

SIZES = (0.1, 1.0, 30.0, 1000.0)  # of the targets; the occupancies are of size one


@pytest.fixture(scope="module")
def unequal():
    """16 graphs, a lane for each."""
    return draw_family(("unequal",), 16, 0)["unequal"]


def test_lists_alone_give_what_dense_arrays_with_a_mask_give(unequal):
    rng = np.random.default_rng(3)
    for size in SIZES:
        batch = problems(unequal, rng, size)
        found, expected = (SOLVE[path](unequal, *batch) for path in SOLVE)
        assert found.info.converged.all()
        assert expected.info.converged.all()
        # Both are within the root of their residual where a state has no outflow.
        np.testing.assert_allclose(found.occupancy, expected.occupancy, atol=2e-5)
        assert float(jnp.median(jnp.abs(found.occupancy - expected.occupancy).max((1, 2)))) < 1e-8


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "kind"),
    [pytest.param(family, kind, id=kind) for family in FAMILIES for kind in family],
)
def test_both_ways_give_what_an_independent_solver_gives(family, kind):
    """400 problems of each kind: 25 graphs, 4 sizes of targets, 4 problems each."""
    rng = np.random.default_rng(5)
    layers = jax.tree.map(lambda leaf: np.repeat(leaf, 4, 0), draw_family(family, 25, 0)[kind])
    support = np.asarray(ROOM(layers))
    masks = np.asarray(layers.state_mask), np.asarray(layers.action_mask)
    for size in SIZES:
        batch = problems(layers, rng, size)
        results = {path: SOLVE[path](layers, *batch) for path in SOLVE}
        target, center = (np.asarray(TO_DENSE(layers, array)) for array in batch[:2])
        ball = center, batch[2]
        exact = [
            project_on_support(*one) for one in zip(masks[1], support, target, *ball, strict=True)
        ]
        errors = np.array([each.error for each in exact])
        # What a gap of 1e-9 leaves open, the tolerance for the hardest; 1e-12 for nearly all.
        assert errors.max() < 1e-4 * max(1, size) ** 0.5
        assert np.median(errors) < 3e-6 * max(1, size) ** 0.5
        for result in results.values():
            assert result.info.converged.all()
            assert float(result.info.residual.max()) <= 1e-9
            points = np.asarray(TO_DENSE(layers, result.occupancy))
            assert not points[~support].any()
            distances = np.array(
                [np.abs(q - each.occupancy).max() for q, each in zip(points, exact, strict=True)]
            )
            # Ours is the root of the residual where a state has no outflow, half of 3e-5.
            np.testing.assert_array_less(distances, errors + 2e-5)
            # Nearly everywhere both are far better.
            assert np.median(distances) < 1e-8
            for one in zip(*masks, points, *ball, strict=True):
                assert infeasibility(*one) < 5e-9  # a few residuals
        first, second = (np.asarray(result.occupancy) for result in results.values())
        np.testing.assert_allclose(first, second, atol=4e-5)


def test_a_warm_start_is_that_of_the_same_layout(unequal):
    layers = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), unequal)
    rows = layers.successors.groups.num_rows
    assert cold_start(layers, LISTS).mass.shape == (layers.shape[0] * rows,)
    dense = cold_start(layers.without_lists(), DENSE)
    assert jax.tree.map(jnp.shape, cold_start(layers, DENSE)) == jax.tree.map(jnp.shape, dense)


@pytest.mark.slow
def test_invalid_lanes_are_nan_and_others_are_not(unequal):
    rng = np.random.default_rng(1)
    target, center, radius = problems(unequal, rng, 1.0)
    target[2, 0, np.argmax(unequal.successors.present[2, 0])] = np.nan
    center[5] *= 0.5
    found = SOLVE["lists alone"](unequal, target, center, radius)
    wrong = np.isin(np.arange(16), [2, 5])
    np.testing.assert_array_equal(np.isnan(np.asarray(found.occupancy)).any((1, 2)), wrong)
    np.testing.assert_array_equal(np.asarray(found.info.converged), ~wrong)


@pytest.mark.slow
def test_lists_work_in_single_precision_and_for_accelerators(unequal):
    rng = np.random.default_rng(2)
    batch = [x.astype(np.float32) for x in problems(unequal, rng, 1.0)]
    found, expected = (SOLVE[path](unequal, *batch) for path in SOLVE)
    assert found.occupancy.dtype == jnp.float32
    assert found.info.converged.all()
    np.testing.assert_allclose(found.occupancy, expected.occupancy, atol=1e-3)
    platforms = ["cpu", "cuda", "tpu"]
    exported = jax.export.export(SOLVE["lists alone"], platforms=platforms)(unequal, *batch)
    assert exported.platforms == tuple(platforms)


def test_cones_with_many_entries_are_those_with_few():
    """Entries that do not exist change nothing, but the program then loops over entries."""
    rng = np.random.default_rng(4)
    few, n = 6, 50
    point, half_radius = rng.normal(size=(few, n)), rng.uniform(0, 0.6, n)
    center = rng.dirichlet(np.ones(few), n).T
    more = [(0, WRITTEN_OUT), (0, 0)]
    wide = np.pad(point, more, constant_values=-1e30), np.pad(center, more)
    none = jnp.zeros(n)
    written = project_cone(*map(jnp.asarray, (point, center, half_radius)), none).occupancy
    looped = project_cone(*map(jnp.asarray, (*wide, half_radius)), none).occupancy
    np.testing.assert_allclose(looped[:few], written, atol=1e-13)
    assert not np.asarray(looped[few:]).any()
