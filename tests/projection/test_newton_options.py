"""The options of the Newton solver: checked, hashable, and what a solver is remembered by."""

import dataclasses
import inspect
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pdgd_jax import ConfidenceSet, cold_start, make, occupancy_of, project
from pdgd_jax.projection import solver_of
from pdgd_jax.projection.newton import NewtonOptions, make_solver, solver


def test_the_default_solver_is_that_of_the_default_options():
    assert solver_of("newton") is solver
    assert make_solver() is solver
    assert make_solver(NewtonOptions()) is solver


def test_equal_options_give_the_same_solver_and_others_another():
    """By which `jit` knows what it has compiled."""
    patient = make_solver(NewtonOptions(local_steps=20))
    assert patient is make_solver(NewtonOptions(local_steps=20))
    assert patient is not solver
    assert hash(NewtonOptions(rounds=3)) == hash(NewtonOptions(rounds=3))


def test_a_solver_can_be_sent_to_another_process():
    patient = make_solver(NewtonOptions(local_steps=20))
    arrived = pickle.loads(pickle.dumps(patient))
    layers, target, confidence = problem()

    def shapes(method):
        return jax.eval_shape(lambda: project(layers, target, confidence, solver=method))

    assert shapes(arrived) == shapes(patient)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"local_steps": 2.5}, "local_steps must be a whole number; it is 2.5"),
        ({"rounds": -1}, "rounds must be a number of at least 0; it is -1"),
        ({"hand_over": float("nan")}, "hand_over must be a number of at least 0; it is nan"),
        ({"response": float("inf")}, "response must be a number of at least 0; it is inf"),
    ],
)
def test_what_cannot_be_is_refused(unchecked, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        NewtonOptions(**options)


def test_every_option_is_documented():
    for field in dataclasses.fields(NewtonOptions):
        assert f"\n  {field.name}: " in inspect.getdoc(NewtonOptions), field.name


def problem():
    mdp = make("random", sizes=(1, 3, 1), num_actions=2).mdp
    q = occupancy_of(mdp, mdp.layers.uniform_policy())
    return mdp.layers, q - 0.05, ConfidenceSet(mdp.transition, jnp.full(mdp.layers.shape, 0.1))


def lowered(**options):
    """The program of one projection, for comparison."""
    layers, target, confidence = problem()
    method = make_solver(NewtonOptions(**options))

    def one(target):
        return project(layers, target, confidence, solver=method)

    return jax.jit(one).lower(target).as_text()


# Each with a value that must be seen in the program of a single small lane, and what else it needs.
SEEN = {
    "local_steps": 17,
    "rough_variables": 0,
    "rough_residual": 2e-3,
    "rough_steps": 5,
    "global_steps": 23,
    "hand_over": 500.0,
    "rounds": 11,
    "rounding": 0.75,
    "negligible": 1 / 32,
    "opened": 0.02,
    "response": 0.7,
}


@pytest.mark.slow
def test_every_option_reaches_the_program():
    """Those of groups are seen with several lanes, below, and that of lists in `test_lists.py`."""
    elsewhere = {"variables_at_once_cpu", "variables_at_once", "dense_variables"}
    assert set(SEEN) | elsewhere == {field.name for field in dataclasses.fields(NewtonOptions)}
    plain, rough = lowered(), lowered(rough_variables=0)
    for name, value in SEEN.items():
        if name == "rough_variables":
            assert rough != plain
        elif name.startswith("rough_"):
            assert lowered(rough_variables=0, **{name: value}) != rough, name
        else:
            assert lowered(**{name: value}) != plain, name


def test_lanes_are_solved_in_groups_of_so_many_variables():
    layers, target, confidence = problem()
    targets = jnp.stack([target * (1 + i / 10) for i in range(5)])

    def loops(**options):
        method = make_solver(NewtonOptions(**options))
        start = cold_start(layers, method)

        def one(target):
            return project(layers, target, confidence, solver=method, warm_start=start).occupancy

        return str(jax.jit(jax.vmap(one)).lower(targets).as_text()).count("stablehlo.while")

    together = loops(variables_at_once_cpu=10**6)
    assert loops(variables_at_once_cpu=2 * target.size) == together + 1
    assert loops(variables_at_once_cpu=0) == together + 1


@pytest.mark.slow
def test_groups_change_nothing_but_the_time():
    layers, target, confidence = problem()
    targets = jnp.stack([target * (1 + i / 10) for i in range(5)])

    def occupancies(**options):
        method = make_solver(NewtonOptions(**options))

        def one(target):
            return project(layers, target, confidence, solver=method).occupancy

        return jax.jit(jax.vmap(one))(targets)

    expected = occupancies()
    for variables in (0, 2 * target.size):
        found = occupancies(variables_at_once_cpu=variables)
        np.testing.assert_allclose(found, expected, atol=1e-9)
