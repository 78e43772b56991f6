"""The layout of the cones and the Hessian of the dual, against loops over pairs and dense matrices.

The shapes: several lanes; several blocks of layers; as many blocks as there may be; so many pairs
that their sum is taken in parts; so many that it is taken by matrix products.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pdgd_jax.projection._cone import ConePieces, project_cone
from pdgd_jax.projection._hessian import MOST_LOOPS, PAIRS_AT_ONCE, hessian_of, solve_system
from pdgd_jax.projection._layout import (
    LAYERS_AT_ONCE,
    MOST_BLOCKS,
    Cones,
    _blocks,
    around,
    assemble,
    join,
    over_pairs,
    per_state,
)
from pdgd_jax.projection._problem import Problem

SHAPES = [(5, 3, 2, 2), (12, 3, 2, 1), (40, 2, 1, 1), (4, 8, 7, 1), (3, 6, 17, 2)]  # L, S, A, lanes


def pairs_of(num_layers, num_states, num_actions):
    """Layer, state and action of every cone, the last layer's among them."""
    for layer in range(num_layers):
        for state in range(num_states if layer else 1):
            for action in range(num_actions):
                yield layer, state, action


def random_arrays(shape, seed=0):
    """An array over all triples and one over all pairs, zero where the first layer has no state."""
    L, S, A, B = shape
    rng = np.random.default_rng(seed)
    triples, pairs = rng.normal(size=(S, L, S, A, B)), rng.normal(size=(L, S, A, B))
    triples[:, 0, 1:] = pairs[0, 1:] = 0
    return triples, pairs


def test_the_shapes_are_what_they_are_meant_to_be():
    counts = [len(_blocks(shape[0])) - 1 for shape in SHAPES]
    assert counts == [1, 2, MOST_BLOCKS, 1, 1]
    assert SHAPES[2][0] > MOST_BLOCKS * LAYERS_AT_ONCE
    loops = [-(-shape[1] * shape[2] // PAIRS_AT_ONCE) for shape in SHAPES]
    assert loops == [1, 1, 1, MOST_LOOPS, MOST_LOOPS + 1]


@pytest.mark.parametrize("shape", SHAPES)
def test_sums_and_lookups_are_those_of_loops_over_pairs(shape):
    L, S, A, B = shape
    triples, pairs = random_arrays(shape)
    joined, lookup = jax.jit(join), jax.jit(around, static_argnums=1)
    flat = joined(triples)
    last = pairs[-1]
    entered = np.zeros((L - 1, S, B))
    left = np.zeros((L, S, B))
    for layer, state, action in pairs_of(L, S, A):
        left[layer, state] += pairs[layer, state, action]
        if layer < L - 1:
            entered[layer] += triples[:, layer, state, action]
    np.testing.assert_allclose(jax.jit(over_pairs)(flat, last), entered, atol=1e-13)
    np.testing.assert_allclose(jax.jit(per_state)(joined(pairs), last), left, atol=1e-13)
    potential = np.random.default_rng(1).normal(size=(L, S, B))
    here, ahead = np.zeros_like(pairs), np.zeros_like(triples)
    for layer, state, action in pairs_of(L - 1, S, A):
        here[layer, state, action] = potential[layer, state]
        ahead[:, layer, state, action] = potential[layer + 1]
    found = lookup(potential, A)
    np.testing.assert_array_equal(found[0], joined(here))
    np.testing.assert_array_equal(found[1], joined(ahead))


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_joined_is_assembled_again(shape):
    L, S, A, B = shape
    triples = np.abs(random_arrays(shape)[0])
    triples[1:, -1] = 0  # the last layer leads to one state
    state_mask, action_mask = np.ones((L + 1, S, B), bool), np.ones((L, S, A, B), bool)
    state_mask[0, 1:] = state_mask[-1, 1:] = action_mask[0, 1:] = False
    target = np.moveaxis(triples, 0, 3)

    given = state_mask, action_mask, target, np.full_like(target, 1 / S), target[..., 0, :]

    @jax.jit
    def there_and_back(triples):
        problem = Problem.of(*map(jnp.asarray, given))
        problem = problem._replace(target=jnp.where(triples > 0, triples, -1e30))
        return assemble(problem, join(triples), triples[0, -1])

    np.testing.assert_array_equal(there_and_back(triples), triples)


def dense(shape, free, pieces, last, damping, lane):
    """The Hessian of a lane, cone by cone, by its definition."""
    L, S, A, _ = shape
    total = np.zeros((L, S, L, S))
    for layer, state, action in pairs_of(L, S, A):
        where = (layer, state, action, lane)
        if layer == L - 1:
            total[layer, state, layer, state] += last[state, action, lane] > 0
            continue
        weight, block = pieces.weight[:, *where], pieces.block[:, *where]
        jacobian = pieces.gain[where] * np.outer(weight, weight)
        jacobian -= np.maximum(np.outer(block, block), 0) - np.diag(block != 0)
        rise = np.zeros((S, L, S))  # of v + F'y, by potential
        rise[:, layer, state] = 1
        rise[:, layer + 1] -= np.eye(S)
        total += np.einsum("ils,ij,jmt->lsmt", rise, jacobian, rise)
    mask = free[..., lane].reshape(-1)
    total = total.reshape(L * S, L * S) * mask * mask[:, None]
    return total + np.diag(1 - mask + damping[lane])


@pytest.mark.parametrize("shape", SHAPES)
def test_the_system_is_solved_as_the_dense_one(shape):
    L, S, A, B = shape
    rng = np.random.default_rng(2)
    point = rng.normal(size=(S, L, S, A, B))
    center = rng.dirichlet(np.ones(S), size=(L, S, A, B)).transpose(4, 0, 1, 2, 3)
    radius, mass = rng.uniform(0, 0.6, (2, L, S, A, B))
    pieces = ConePieces(*map(np.asarray, jax.jit(project_cone)(point, center, radius, mass)))
    free, last = np.ones((L, S, B)), rng.normal(size=(S, A, B))
    free[0, 1:] = 0
    damping = rng.uniform(0.01, 0.1, B)
    right = rng.normal(size=(L, S, B)) * free

    @jax.jit
    def solve(pieces):
        joined = (join(jnp.asarray(array)) for array in (point, center, radius))
        cones = Cones(*joined, *map(jnp.asarray, (last, free)))
        pieces = ConePieces(*map(join, pieces))
        hessian = hessian_of(cones, pieces, jnp.asarray(last), jnp.asarray(damping))
        return solve_system(hessian, jnp.asarray(right))

    found = np.asarray(solve(pieces))
    for lane in range(B):
        matrix = dense(shape, free, pieces, last, damping, lane)
        expected = np.linalg.solve(matrix, right[..., lane].reshape(-1))
        np.testing.assert_allclose(found[..., lane].reshape(-1), expected, atol=1e-9)
