"""Annotations are executed while the tests run (see `conftest`): shapes are no decoration."""

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from pdgd_jax import (
    Comparators,
    ConfidenceSet,
    learners,
    make,
    oracle,
    planning,
    plots,
    project,
    run,
    theory,
    value_of,
)
from pdgd_jax.results import band_of

CMDP = make("random")
MDP, LAYERS = CMDP.mdp, CMDP.layers
L, S, A = LAYERS.shape
KEY = jax.random.key(0)
CONFIDENCE = ConfidenceSet(MDP.transition, jnp.zeros((L, S, A)))

# Of every room with shapes, a public function with a wrong one; results have none, but a choice.
WRONG = {
    "processes": ("key", lambda: CMDP.rewards.init(jax.random.split(KEY))),
    "models": ("occupancy", lambda: value_of(jnp.zeros((L, S, A)), jnp.zeros((L + 1, S, A, S)))),
    "theory": (
        "next_layer_size",
        lambda: theory.radius(jnp.ones(3, int), jnp.ones(2, int), 1, 1, 9.0, 0.1),
    ),
    "oracle": ("reward", lambda: oracle.optimum(MDP, np.zeros((S, A)))),
    "projection": ("target", lambda: project(LAYERS, jnp.zeros(L), CONFIDENCE)),
    "planning": (
        "reward",
        lambda: planning.best_response(LAYERS, jnp.zeros((S, A)), CONFIDENCE),
    ),
    "learners": ("policy", lambda: learners.fixed_policy(LAYERS, np.zeros((S, A)))),
    "simulation": ("key", lambda: run(jax.random.split(KEY), CMDP, learners.uniform(LAYERS), 9)),
    "results": ("statistic", lambda: band_of(None, None, statistic="mode")),
    "plots": ("policy", lambda: plots.policy(MDP, np.zeros((S, A)))),
}


@pytest.mark.parametrize("room", WRONG)
def test_a_wrong_shape_is_refused_by_its_annotation(room):
    parameter, call = WRONG[room]
    place = rf"parameters of pdgd_jax\.{room}\..*\n.*parameter '{parameter}'"
    with pytest.raises(jaxtyping.TypeCheckError, match=place):
        call()


def test_a_wrong_shape_is_refused_while_a_program_is_traced():
    values = jnp.zeros((2, L, S, A))
    occupancies = jnp.zeros((2, L, S + 1, A, S))
    with pytest.raises(jaxtyping.TypeCheckError, match="parameter 'occupancy'"):
        jax.jit(jax.vmap(value_of))(values, occupancies)


def test_a_wrong_shape_is_refused_by_a_pytree_that_converts_nothing():
    with pytest.raises(jaxtyping.TypeCheckError, match="parameter 'occupancies'"):
        Comparators(jnp.zeros((L, S, A, S)), jnp.zeros((2, 1)))
