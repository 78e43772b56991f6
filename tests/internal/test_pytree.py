"""Arrays that the host makes without JAX."""

import logging

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pdgd_jax import make, make_learner
from pdgd_jax._internal.pytree import as_array, numpy_for
from pdgd_jax.simulation import Comparators
from pdgd_jax.sweeps import cost_of_run


@pytest.mark.parametrize("values", [3, 2.5, True, np.arange(3), np.float32(0.1)])
@pytest.mark.parametrize("dtype", [None, float, np.int32])
def test_as_array_gives_what_asarray_gives(values, dtype):
    found, expected = as_array(values, dtype), jnp.asarray(values, dtype)
    assert isinstance(found, jax.Array)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_numpy_computes_what_is_known_and_jax_what_is_traced():
    modules = []

    @jax.jit
    def look(x):
        modules.extend([numpy_for(x), numpy_for(np.ones(2)), numpy_for(np.ones(2), x)])
        return as_array(x, float)

    assert look(jnp.ones(2)).shape == (2,)
    assert modules == [jnp, np, jnp]


def test_an_instance_and_its_learner_are_built_without_programs(caplog):
    """Each takes 10 ms to load, compiled or not: a run would wait half a second."""
    jax.random.key(0)  # the only one
    caplog.set_level(logging.DEBUG, "jax")
    with jax.log_compiles():
        cmdp = make("random", sizes=(1, 6, 5, 7, 1), num_actions=2)  # nobody else's shapes
        learner = make_learner("pdgd-ops", cmdp, 1234)
        Comparators.default(cmdp)
        cost_of_run(cmdp, learner, 1234, 3, name="pdgd-ops", solver="newton", devices=1)
        cmdp.pad_to((5, 8, 3))
        assert int(cmdp.layers.num_actions) == 2
    assert not [record.message for record in caplog.records if "Compiling" in record.message]
