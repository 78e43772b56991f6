"""Calls that XLA's CPU backend keeps apart, or compiles as one piece, and with which JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pdgd_jax import ConfidenceSet, make, occupancy_of, project
from pdgd_jax.projection import _xla
from pdgd_jax.projection._hessian import _divide
from pdgd_jax.projection._xla import LARGEST, LOOKED_AT, fence, known_decision, one_kernel
from pdgd_jax.projection.newton import NewtonOptions, make_solver


def look_at(version):
    """Fail if nobody has looked at a version of JAX."""
    decision = known_decision(version)
    minor = ".".join(version.split(".")[:2])
    assert decision is not None, (
        f"Nobody has looked at JAX {minor}, where the attribute xla_cpu_small_call is off. Run "
        "`python benchmarks/projection.py`, compare the rows with and without hints, decide, and "
        "extend LOOKED_AT in pdgd_jax/projection/_xla.py by the version and the reason."
    )


def test_somebody_has_looked_at_this_version_of_jax():
    look_at(jax.__version__)


@pytest.mark.parametrize("version", ["0.13.0", "1.0.0", "0.1.75", "0.100.0", "0.13.0.dev20261118"])
def test_a_version_that_nobody_has_looked_at_fails_and_says_what_to_do(version):
    with pytest.raises(AssertionError, match="Run `python benchmarks/projection.py`, compare"):
        look_at(version)


def test_what_was_decided_for_each_version():
    assert {each.version: each.hints for each in LOOKED_AT} == {
        "0.10": True,
        "0.11": False,
        "0.12": False,
    }
    assert all(each.reason for each in LOOKED_AT)


def test_a_version_that_nobody_has_looked_at_runs_without(monkeypatch):
    monkeypatch.setattr(_xla, "LOOKED_AT", ())
    assert not _xla.uses_hints()
    assert _xla.uses_hints(True)


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
    for hints, used in ((None, _xla.uses_hints()), (False, False)):

        def divide(x, hints=hints):
            return one_kernel(_divide, 2 * x, hints)

        compiled = jax.jit(divide).lower(argument).compile()
        assert ("xla_cpu_small_call" in compiled.as_text()) == (whole and used)
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


@pytest.mark.parametrize("hints", [True, False, None])
def test_a_solver_is_told_whether_to_use_hints(hints):
    mdp = make("random", sizes=(1, 3, 1), num_actions=2).mdp
    confidence = ConfidenceSet(mdp.transition, jnp.full(mdp.layers.shape, 0.1))
    solver = make_solver(NewtonOptions(xla_hints=hints))

    def one(target):
        return project(mdp.layers, target, confidence, solver=solver)

    text = jax.jit(one).lower(occupancy_of(mdp, mdp.layers.uniform_policy())).as_text()
    assert ("xla_cpu_small_call" in text) == _xla.uses_hints(hints)


def scaled(x, *, factor):
    return {"scaled": factor * x["plain"]}


def test_a_fence_takes_trees_and_static_arguments():
    for factor in (2, 3):
        result = jax.jit(lambda x, f=factor: fence(scaled, {"plain": x}, factor=f))(jnp.ones(3))
        np.testing.assert_array_equal(result["scaled"], np.full(3, factor))


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
