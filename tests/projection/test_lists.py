"""The Newton solver on successor lists alone, against itself on dense arrays with a mask."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pdgd_jax import ConfidenceSet, Layers, cold_start, project
from pdgd_jax.projection._cone import WRITTEN_OUT, project_cone
from pdgd_jax.projection.newton import NewtonOptions, make_solver
from tests.reference.projection import infeasibility
from tests.reference.support import project_on_support

LISTS = make_solver(NewtonOptions(dense_variables=0))
DENSE = make_solver()


def graph(kind, rng):
    """Random layers of one kind."""
    sizes, A = (1, 4, 5, 4, 1), 2
    lists = []
    for size, following in itertools.pairwise(sizes):
        rows = np.full((size, A, following), -1)
        for x, a in np.ndindex(size, A):
            if kind == "one successor":
                count = 1
            elif kind == "all":
                count = following
            elif kind == "unequal":
                count = following if x == a == 0 else 1 + (x + a) % 2
            else:
                count = rng.integers(1, following + 1)
            reach = following if kind != "unreachable" else max(1, following - 2)
            count = min(count, reach)
            rows[x, a, :count] = np.sort(rng.permutation(reach)[:count])
        lists.append(rows)
    return Layers.from_successors(sizes, lists)


def problems(layers, rng, count, size):
    """Targets, centers and radii, with a leading axis."""
    shape = (count, *layers.triple_shape)
    weights = rng.exponential(size=shape) * (rng.random(shape) < 0.8) + 1e-3
    weights = jnp.asarray(weights) * layers.triple_mask[None]
    total = jax.vmap(lambda x: layers.to_triples(layers.to_pairs(x)))(weights)
    center = weights / jnp.maximum(total, 1e-9)
    radius = rng.choice([0.0, 0.05, 0.5, 2.5], (count, *layers.shape))
    return jnp.asarray(size * rng.normal(size=shape)), center, jnp.asarray(radius)


def solve(layers, solver):
    """Solve a batch, each lane from a cold start."""

    def one(target, center, radius):
        return project(layers, target, ConfidenceSet(center, radius), solver=solver)

    return jax.jit(jax.vmap(one))


KINDS = ["one successor", "all", "unequal", "unreachable", "random"]


@pytest.mark.parametrize(
    "kind", [pytest.param(x, marks=[] if x == "unequal" else pytest.mark.slow) for x in KINDS]
)
def test_lists_alone_give_what_dense_arrays_with_a_mask_give(kind):
    rng = np.random.default_rng(3)
    layers = graph(kind, rng)
    alone, dense = solve(layers, LISTS), solve(layers, DENSE)
    for size in (0.1, 1.0, 30.0):
        batch = problems(layers, rng, 16, size)
        found, expected = alone(*batch), dense(*batch)
        assert found.info.converged.all()
        assert expected.info.converged.all()
        # Both are within the root of their residual where a state has no outflow.
        np.testing.assert_allclose(found.occupancy, expected.occupancy, atol=2e-5)
        assert float(jnp.median(jnp.abs(found.occupancy - expected.occupancy).max((1, 2)))) < 1e-8


def test_a_warm_start_is_that_of_the_same_layout():
    layers = graph("unequal", np.random.default_rng(0))
    rows = layers.successors.groups.num_rows
    assert cold_start(layers, LISTS).mass.shape == (layers.shape[0] * rows,)
    dense = cold_start(layers.without_lists(), DENSE)
    assert jax.tree.map(jnp.shape, cold_start(layers, DENSE)) == jax.tree.map(jnp.shape, dense)


@pytest.mark.slow
def test_invalid_lanes_are_nan_and_others_are_not():
    rng = np.random.default_rng(1)
    layers = graph("unequal", rng)
    target, center, radius = problems(layers, rng, 16, 1.0)
    bad = target.at[2, 0, int(np.argmax(np.asarray(layers.triple_mask)[0]))].set(jnp.nan)
    found = solve(layers, LISTS)(bad, center.at[5].multiply(0.5), radius)
    wrong = np.isin(np.arange(16), [2, 5])
    np.testing.assert_array_equal(np.isnan(np.asarray(found.occupancy)).any((1, 2)), wrong)
    np.testing.assert_array_equal(np.asarray(found.info.converged), ~wrong)


@pytest.mark.slow
def test_lists_work_in_single_precision_and_for_accelerators():
    rng = np.random.default_rng(2)
    layers = graph("unequal", rng)
    batch = [x.astype(jnp.float32) for x in problems(layers, rng, 16, 1.0)]
    found, expected = solve(layers, LISTS)(*batch), solve(layers, DENSE)(*batch)
    assert found.occupancy.dtype == jnp.float32
    assert found.info.converged.all()
    np.testing.assert_allclose(found.occupancy, expected.occupancy, atol=1e-3)
    platforms = ["cpu", "cuda", "tpu"]
    exported = jax.export.export(solve(layers, LISTS), platforms=platforms)(*batch)
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


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_lists_alone_give_what_an_independent_solver_gives(kind):
    rng = np.random.default_rng(5)
    for _ in range(4):  # graphs
        layers = graph(kind, rng)
        masks = [np.asarray(x) for x in (layers.state_mask, layers.action_mask)]
        support = np.asarray(layers.to_dense(layers.triple_mask))
        dense = jax.vmap(layers.to_dense)
        alone = solve(layers, LISTS)
        for size in (0.1, 1.0, 30.0):
            batch = problems(layers, rng, 16, size)
            found = alone(*batch)
            assert found.info.converged.all()
            assert float(found.info.residual.max()) <= 1e-9
            arrays = [np.asarray(dense(x)) for x in (found.occupancy, *batch[:2])]
            for q, target, center, radius in zip(*arrays, np.asarray(batch[2]), strict=True):
                assert infeasibility(*masks, q, center, radius) < 5e-9
                exact = project_on_support(*masks, support, target, center, radius)
                # Clarabel stops at a gap of 1e-12 times the objective; the root of it is a
                # distance. Ours is the root of the residual where a state has no outflow.
                np.testing.assert_allclose(q, exact, atol=2e-5 + 1e-6 * size)
