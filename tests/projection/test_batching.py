"""Batches of projections, with a solver that only says what it is given."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pdgd_jax.models import Layers
from pdgd_jax.projection import ConfidenceSet
from pdgd_jax.projection._api import ProjectionInfo, ProjectionResult
from pdgd_jax.projection._batching import merging
from pdgd_jax.projection.newton._lanes import Lanes, result_types
from pdgd_jax.projection.newton._options import NewtonOptions
from pdgd_jax.projection.newton._start import init

LAYERS = Layers.from_sizes((1, 2, 1), num_actions=2)
VARIABLES = 2 * 2 * 2 * 2


@pytest.fixture
def widths():
    """The sizes of the batches that were traced."""
    return []


@pytest.fixture
def project(widths):
    """Twice the target, as one projection."""

    def solve(lanes):
        widths.append(len(lanes.target))
        info = ProjectionInfo(
            lanes.tolerance, jnp.full(len(lanes.target), 3, jnp.int32), lanes.tolerance > 0
        )
        return ProjectionResult(2 * lanes.target, lanes.warm_start, info)

    # Twelve lanes at once on a CPU.
    options = NewtonOptions(variables_at_once_cpu=12 * VARIABLES)
    batch = merging(solve, options, result_types)

    def one(target, tolerance):
        L, S, A = LAYERS.shape
        confidence = ConfidenceSet(jnp.zeros((L, S, A, S)), jnp.zeros((L, S, A)))
        lane = Lanes(LAYERS, target, confidence, init(LAYERS, target.dtype), tolerance)
        return jax.tree.map(lambda x: x[0], batch(jax.tree.map(lambda x: x[None], lane)))

    return one


def targets(*batch):
    L, S, A = LAYERS.shape
    return jnp.asarray(np.random.default_rng(0).normal(size=(*batch, L, S, A, S)))


def test_a_batch_is_traced_once_when_its_size_is_known(project, widths):
    two = jax.vmap(jax.vmap(project, in_axes=(0, None)), in_axes=(0, 0))
    result = jax.jit(two)(targets(2, 5), jnp.array([0.1, 0.2]))
    assert widths == [10]  # neither for one lane, nor for another platform
    np.testing.assert_array_equal(result.occupancy, 2 * targets(2, 5))
    np.testing.assert_array_equal(result.info.residual, np.repeat([[0.1], [0.2]], 5, axis=1))
    assert result.info.iterations.dtype == np.int32
    assert result.info.converged.all()


def test_large_batches_are_solved_in_equal_groups(project, widths):
    result = jax.jit(jax.vmap(project, in_axes=(0, None)))(targets(20), jnp.array(0.1))
    assert widths == [10]
    np.testing.assert_array_equal(result.occupancy, 2 * targets(20))


def test_the_lanes_may_be_any_axis(project):
    last = jnp.moveaxis(targets(3), 0, -1)
    result = jax.vmap(project, in_axes=(-1, None), out_axes=-1)(last, jnp.array(0.1))
    np.testing.assert_array_equal(result.occupancy, 2 * last)


def test_one_lane_outside_of_jit_and_without_jit(project, widths):
    once = project(targets(), jnp.array(0.1))
    np.testing.assert_array_equal(once.occupancy, 2 * targets())
    with jax.disable_jit():
        again = project(targets(), jnp.array(0.1))
    np.testing.assert_array_equal(again.occupancy, 2 * targets())
    assert set(widths) == {1}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_shapes_are_known_without_the_solver(project, widths, dtype):
    target = jax.ShapeDtypeStruct((4, *targets().shape), dtype)
    shapes = jax.eval_shape(jax.vmap(project), target, jax.ShapeDtypeStruct((4,), dtype))
    assert not widths
    assert {x.dtype for x in jax.tree.leaves(shapes)} == {
        np.dtype(t) for t in (dtype, np.int32, bool)
    }
    assert shapes.occupancy.shape == target.shape
