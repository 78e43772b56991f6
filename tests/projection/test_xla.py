"""Calls that XLA keeps apart, and the versions of JAX with which they were measured."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pdgd_jax import ConfidenceSet, make, occupancy_of, project
from pdgd_jax.projection._xla import LOOKED_AT, fence, known_decision, unfenced


def look_at(version):
    """Fail if nobody has looked at a version of JAX."""
    minor = ".".join(version.split(".")[:2])
    assert known_decision(version) is not None, (
        f"Nobody has looked at JAX {minor}. Run `python benchmarks/projection.py`, compare the "
        "rows with and without fences, and extend LOOKED_AT in pdgd_jax/projection/_xla.py by the "
        "version and what was measured."
    )


def test_somebody_has_looked_at_this_version_of_jax():
    look_at(jax.__version__)


@pytest.mark.parametrize("version", ["0.13.0", "1.0.0", "0.1.75", "0.100.0", "0.13.0.dev20261118"])
def test_a_version_that_nobody_has_looked_at_fails_and_says_what_to_do(version):
    with pytest.raises(AssertionError, match="Run `python benchmarks/projection.py`, compare"):
        look_at(version)


def test_every_decision_has_its_reason():
    assert all("measured" in each.reason for each in LOOKED_AT)


def double(x):
    return 2 * x


def lowered(platform):
    program = jax.jit(lambda x: fence(double, x)).trace(jnp.ones(3))
    return program.lower(lowering_platforms=(platform,)).as_text()


def test_a_fence_stays_in_the_program_on_a_cpu_alone():
    assert "inlineable" in lowered("cpu")
    assert "inlineable" not in lowered("cuda")


def test_fences_can_be_left_out_to_measure_them():
    with unfenced():
        assert "inlineable" not in lowered("cpu")
    assert "inlineable" in lowered("cpu")


def scaled(x, *, factor):
    return {"scaled": factor * x["plain"]}


def test_a_fence_takes_trees_and_static_arguments():
    for factor in (2, 3):
        result = jax.jit(lambda x, f=factor: fence(scaled, {"plain": x}, factor=f))(jnp.ones(3))
        np.testing.assert_array_equal(result["scaled"], np.full(3, factor))


@pytest.mark.slow
def test_a_problem_that_is_a_constant_of_the_program():
    """XLA moves constants into calls."""
    mdp = make("random").mdp
    target = occupancy_of(mdp, mdp.layers.uniform_policy()) - 0.05
    confidence = ConfidenceSet(mdp.transition, jnp.full(mdp.layers.shape, 0.1))
    expected = project(mdp.layers, target, confidence).occupancy
    result = jax.jit(lambda: project(mdp.layers, target, confidence))()
    assert result.info.converged
    np.testing.assert_allclose(result.occupancy, expected, atol=1e-9)
