"""Calls that XLA's CPU backend keeps apart, or compiles as one piece."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pdgd_jax import ConfidenceSet, make, occupancy_of, project
from pdgd_jax.projection._hessian import _divide
from pdgd_jax.projection._xla import KNOWN, LARGEST, fence, one_kernel


def table(num_states, num_lanes, seed=0):
    """`[M, R]` for positive definite M, `[S, 2S + 1, B]`."""
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(num_lanes, num_states, num_states))
    left = factor @ factor.swapaxes(1, 2) + np.eye(num_states)
    right = rng.normal(size=(num_lanes, num_states, num_states + 1))
    return np.concatenate([left, right], 2), np.linalg.solve(left, right)


# The largest that are one kernel, where XLA must not split anything over threads, and larger ones.
@pytest.mark.parametrize(
    ("num_states", "num_lanes", "whole"), [(3, 35, True), (4, 20, True), (5, 20, False)]
)
def test_a_block_is_divided_by_in_one_kernel_if_it_is_small(num_states, num_lanes, whole):
    lanes_first, expected = table(num_states, num_lanes)
    argument = jnp.asarray(np.moveaxis(lanes_first, 0, -1))
    assert (argument.nbytes <= LARGEST) == whole
    compiled = jax.jit(lambda x: one_kernel(_divide, 2 * x)).lower(argument).compile()
    assert ("xla_cpu_small_call" in compiled.as_text()) == (whole and KNOWN)
    np.testing.assert_allclose(np.moveaxis(compiled(argument), -1, 0), expected, atol=1e-9)


def double(x):
    return 2 * x


def test_a_fence_stays_in_the_program_on_a_cpu_alone():
    def calls(platform):
        lowered = (
            jax.jit(lambda x: fence(double, x))
            .trace(jnp.ones(3))
            .lower(lowering_platforms=(platform,))
        )
        return "inlineable" in lowered.as_text()

    assert calls("cpu")
    assert not calls("cuda")


@pytest.mark.slow
def test_a_problem_that_is_a_constant_of_the_program():
    """XLA moves constants into calls, and fails where a kernel has an argument that is one."""
    mdp = make("random").mdp
    target = occupancy_of(mdp, mdp.layers.uniform_policy()) - 0.05
    confidence = ConfidenceSet(mdp.transition, jnp.full(mdp.layers.shape, 0.1))
    expected = project(mdp.layers, target, confidence).occupancy
    result = jax.jit(lambda: project(mdp.layers, target, confidence))()
    assert result.info.converged
    np.testing.assert_allclose(result.occupancy, expected, atol=1e-9)
