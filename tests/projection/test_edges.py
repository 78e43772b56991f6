"""The matrix of a Newton step by edges, against the matrix written down triple by triple."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pdgd_jax import ConfidenceSet
from pdgd_jax.projection._xla import unfenced
from pdgd_jax.projection.newton import _edges
from pdgd_jax.projection.newton._iteration import Guess, evaluate
from pdgd_jax.projection.newton._lists import ListProblem
from pdgd_jax.projection.newton._options import DEFAULT
from pdgd_jax.projection.newton._system import solve
from tests.graphs import draw_family
from tests.projection.test_lists import problems

LANES = 3


@pytest.fixture(scope="module")
def evaluated():
    """Graphs with lanes last, their cones, and the pieces somewhere."""
    rng = np.random.default_rng(0)
    layers = draw_family(("unequal",), LANES, 0)["unequal"]
    target, *ball = problems(layers, rng, 1.0)
    balls = jax.vmap(ConfidenceSet)(*ball)

    def last(tree):
        return jax.tree.map(lambda x: jnp.moveaxis(jnp.asarray(x), 0, -1), tree)

    cones = ListProblem.of(*last((layers, target, balls))).cones()
    start = Guess(jnp.asarray(rng.normal(size=cones.free.shape)), jnp.zeros_like(cones.half_radius))
    found = jax.jit(lambda *given: evaluate(DEFAULT, *given, exact=True))(
        cones, start, jnp.zeros(LANES, jnp.int32)
    )
    return layers, cones, found


def written_down(layers, cones, iterate, damping, lane):
    """F J F^T + d I, one cone after the other, from what the docstring of `ConePieces` says."""
    free = np.asarray(cones.free)[..., lane]
    L, S = free.shape
    matrix = np.diag(np.where(free.reshape(-1) > 0, 0.0, 1.0))
    fixed = free.reshape(-1) == 0
    place = np.asarray(cones.places.state)
    sizes = [x.shape[1] for x in cones.target]
    begin = 0
    for g, size in enumerate(sizes):
        for i in range(lane, size, LANES):
            cone = begin + i
            own = place[cone] // LANES
            ahead = np.asarray(cones.places.ahead[g])[:, i] // LANES
            present = np.asarray(cones.target[g])[:, i] > -1e29
            w, e = (np.asarray(x[g])[:, i] for x in (iterate.pieces.weight, iterate.pieces.block))
            c = w * np.sqrt(np.asarray(iterate.pieces.gain)[cone])
            J = np.outer(c, c) - np.maximum(np.outer(e, e), 0) + np.diag((e != 0).astype(float))
            J *= np.outer(present, present)
            F = np.zeros((L * S, len(w)))
            for j in range(len(w)):
                if present[j] and not fixed[own]:
                    F[own, j] += 1
                if present[j] and ahead[j] < L * S and not fixed[ahead[j]]:
                    F[ahead[j], j] -= 1
            matrix += F @ J @ F.T
        begin += size
    return matrix + damping * np.eye(L * S)


@pytest.mark.parametrize("form", ["a matrix for each state", "factors for each action"])
def test_products_are_those_of_the_matrix_written_down(evaluated, form, monkeypatch):
    layers, cones, iterate = evaluated
    if form != "a matrix for each state":
        monkeypatch.setattr(_edges, "EDGES_PER_ACTION", 0)
    damping = jnp.asarray([1e-3, 0.1, 1e-6])
    with unfenced():  # a fence would keep what was traced before
        matrix = _edges.EdgeMatrix.of(cones, iterate.pieces, damping)
    kinds = {type(each).__name__ for each in matrix.jacobians}
    assert kinds == {"Narrow" if form == "a matrix for each state" else "Wide"}
    z = np.random.default_rng(1).normal(size=cones.free.shape)
    product, (diagonal, _) = matrix.times(jnp.asarray(z)), matrix.diagonal()
    for lane in range(LANES):
        expected = written_down(layers, cones, iterate, float(damping[lane]), lane)
        assert np.count_nonzero(expected) > 3 * len(expected)
        # Sums of a few dozen numbers of size one.
        np.testing.assert_allclose(
            np.asarray(product)[..., lane].reshape(-1),
            expected @ z[..., lane].reshape(-1),
            atol=1e-12,
        )
        np.testing.assert_allclose(
            np.asarray(diagonal)[..., lane].reshape(-1), np.diag(expected), atol=1e-12
        )


@pytest.mark.parametrize("guess", ["none", "wrong", "right"])
def test_iterations_end_at_the_solution_from_any_guess(evaluated, guess):
    layers, cones, iterate = evaluated
    damping = jnp.full(LANES, 1e-3)
    rng = np.random.default_rng(2)
    right = jnp.asarray(rng.normal(size=cones.free.shape)) * cones.free
    exact = np.stack(
        [
            np.linalg.solve(
                written_down(layers, cones, iterate, 1e-3, lane),
                np.asarray(right)[..., lane].reshape(-1),
            ).reshape(cones.free.shape[:2])
            for lane in range(LANES)
        ],
        -1,
    )
    begin = {"none": np.zeros_like(exact), "wrong": rng.normal(size=exact.shape), "right": exact}
    accuracy = jnp.full(LANES, 1e-9)
    found = jax.jit(solve)(
        cones,
        iterate.pieces,
        iterate.last,
        damping,
        right,
        jnp.asarray(begin[guess]) * cones.free,
        accuracy,
    )
    # The smallest eigenvalue is at least the damping.
    np.testing.assert_allclose(found, exact, atol=1e-9 / 1e-3 * exact[..., 0].size ** 0.5)
