"""Wide layers, over whose states nothing is written out, against the narrow form and references."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pdgd_jax import Layers
from pdgd_jax.projection import _cone, _entries, _hessian, _layout
from pdgd_jax.projection._cone import CONES_AT_ONCE, WRITTEN_OUT, ConePieces, classify, project_cone
from pdgd_jax.projection._hessian import Hessian, hessian_of, solve_system
from pdgd_jax.projection._layout import NARROW, Cones, join
from pdgd_jax.projection._xla import unfenced
from tests.projection.test_cone import random_cones
from tests.projection.test_hessian import dense
from tests.projection.test_projection import batch, check_exact, compare_with_clarabel, lane_of

SHAPE = (4, NARROW + 1, 2, 2)  # L, S, A, lanes


def random_system(shape, seed, smallest):
    """Pieces, free potentials and a right-hand side; the damping is what keeps it regular."""
    L, S, A, B = shape
    rng = np.random.default_rng(seed)
    point = rng.normal(size=(S, L, S, A, B)) - 1  # cones at the apex, too
    center = rng.dirichlet(np.ones(S), size=(L, S, A, B)).transpose(4, 0, 1, 2, 3)
    radius, mass = rng.uniform(0, 0.6, (2, L, S, A, B))
    point[:, 1, 0] = -10  # a state without outflow
    pieces = ConePieces(*map(np.asarray, jax.jit(project_cone)(point, center, radius, mass)))
    free, last = np.ones((L, S, B)), rng.normal(size=(S, A, B))
    free[0, 1:] = free[2, 3:5] = 0
    right = rng.normal(size=(L, S, B)) * free
    return point, center, radius, pieces, free, last, np.full(B, smallest), right


def hessian_from(point, center, radius, pieces, free, last, damping, right):
    joined = (join(jnp.asarray(array)) for array in (point, center, radius))
    cones = Cones(*joined, *map(jnp.asarray, (last, free)))
    joined_pieces = ConePieces(*map(join, pieces))
    return hessian_of(cones, joined_pieces, jnp.asarray(last), jnp.asarray(damping))


def solved(*system):
    return solve_system(hessian_from(*system), jnp.asarray(system[-1]))


@pytest.mark.parametrize("damping", [0.05, 1e-9])
def test_the_wide_system_is_solved_as_the_dense_and_the_narrow_one(damping, monkeypatch):
    system = random_system(SHAPE, 2, damping)
    *_, pieces, free, last, _, right = system
    wide = np.asarray(jax.jit(solved)(*system))
    monkeypatch.setattr(_layout, "NARROW", SHAPE[1])
    with unfenced():  # a fence would keep what was traced before
        narrow = np.asarray(jax.jit(lambda *system: solved(*system))(*system))
    for lane in range(SHAPE[-1]):
        matrix = dense(SHAPE, free, pieces, last, np.full(SHAPE[-1], damping), lane)
        rest = right[..., lane].reshape(-1)
        expected = np.linalg.solve(matrix, rest)
        size = np.abs(expected).max()  # of the order of 1 / damping in the state without outflow
        for found in (wide, narrow):
            found = found[..., lane].reshape(-1)
            assert np.abs(matrix @ found - rest).max() < 1e-13 * (1 + size) * len(rest)
            np.testing.assert_allclose(found, expected, atol=1e-9 * (1 + size))


def test_any_block_tridiagonal_system_is_solved(monkeypatch):
    L, S, _, B = SHAPE
    rng = np.random.default_rng(3)
    factor = rng.normal(size=(L - 1, S, S, B))
    blocks = np.einsum("lijb,lkjb->likb", factor, factor) + 4 * S * np.eye(S)[..., None]
    own, root = rng.uniform(1, 2, (L, S, B)), rng.normal(size=(S, B))
    system = Hessian(*map(jnp.asarray, (own, blocks, root, rng.normal(size=(L - 2, S, S, B)))))
    right = jnp.asarray(rng.normal(size=(L, S, B))).at[0, 1:].set(0)
    wide = jax.jit(solve_system)(system, right)
    monkeypatch.setattr(_layout, "NARROW", S)
    narrow = jax.jit(lambda *given: solve_system(*given))(system, right)
    np.testing.assert_allclose(wide, narrow, atol=1e-13)


def test_cones_with_many_entries_satisfy_moreau_in_parts():
    """More cones than a part, and no multiple; some parts are slack as a whole."""
    count = WRITTEN_OUT + 3
    u, p, h = random_cones(1, count)
    u, p, h = (x[..., : 3 * CONES_AT_ONCE + 5] for x in (u, p, h))
    h[:CONES_AT_ONCE] = 1
    pieces = jax.jit(project_cone)(u, p, h, np.zeros(len(h)))
    q = np.asarray(pieces.occupancy)
    s, z, h, size = q.sum(0), u - q, np.minimum(h, 1), 1 + np.abs(u).max(0)
    assert ((np.abs(q - p * s).sum(0) - 2 * h * s) / size).max() < 1e-12
    assert (np.abs((z * q).sum(0)) / size**2).max() < 1e-12
    support = h * z.max(0) + np.min([(p * np.maximum(z, t)).sum(0) - h * t for t in z], axis=0)
    assert (support / size).max() < 1e-12
    slack = np.abs(q - np.maximum(u, 0)).max(0) < 1e-15
    assert slack[:CONES_AT_ONCE].all()
    assert not slack.all()
    assert (s == 0).any()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_pieces_in_parts_are_those_of_all_cones_at_once(dtype, monkeypatch):
    count = WRITTEN_OUT + 3
    u, p, h = (x.astype(dtype) for x in random_cones(6, count))
    h[:CONES_AT_ONCE] = 1.5
    mass = np.random.default_rng(0).exponential(size=len(h)).astype(dtype)
    parts = jax.jit(classify)(u, p, h, mass)
    for module in (_cone, _entries):
        monkeypatch.setattr(module, "WRITTEN_OUT", count)
    with unfenced():
        whole = jax.jit(lambda *cones: classify(*cones))(u, p, h, mass)
    eps = np.finfo(dtype).eps
    size = 1 + np.abs(u).max(0)
    # Of an entry that is at a breakpoint the piece may be either; the values agree.
    scale = size * np.asarray(1 + whole.gain)
    assert (np.abs(parts.mass - whole.mass) <= 64 * eps * scale).mean() > 0.99
    same = (np.asarray(parts.block != 0) == np.asarray(whole.block != 0)).all(0)
    assert same.mean() > 0.98
    np.testing.assert_array_less((np.abs(parts.value - whole.value).max(0) / scale)[same], 64 * eps)


@pytest.mark.parametrize("num_states", [NARROW + 1, WRITTEN_OUT + 1])
def test_a_projection_just_above_a_threshold_is_exact(num_states):
    rng = np.random.default_rng(num_states)
    problems = [x[:6] for x in batch(num_states, 6, (4, num_states, 2), num_layers=4)]
    for x in problems[3:4]:
        assert x.shape[-1] == num_states
    problems[4] = np.minimum(problems[4], rng.uniform(0, 2, (6, 1, 1, 1)))
    solve = jax.jit(lane_of("newton"))
    results = [solve(*(x[i] for x in problems)) for i in range(6)]
    result = jax.tree.map(lambda *x: np.stack(x), *results)
    check_exact(problems, result)
    assert len(compare_with_clarabel(problems, result, range(2))) > 0
    again = solve(*(x[0] for x in problems))
    assert np.asarray(again.occupancy).tobytes() == result.occupancy[0].tobytes()


def arguments(num_states):
    layers = Layers.from_sizes((1, num_states, num_states, 1), 2)
    L, S, A = layers.shape
    dense, pairs = jax.ShapeDtypeStruct((L, S, A, S), "float64"), jnp.ones((L, S, A))
    return layers.state_mask, layers.action_mask, dense, dense, pairs


def test_the_program_does_not_grow_with_the_states():
    """From a few entries at a time on: there, loops and matrix products take over."""

    def lines(num_states):
        lowered = jax.jit(lane_of("newton")).lower(*arguments(num_states))
        return len(lowered.as_text().splitlines()), len(lowered.as_text())

    (few, short), (many, long) = lines(WRITTEN_OUT + 4), lines(4 * WRITTEN_OUT + 4)
    assert many <= 1.01 * few
    assert long <= 1.05 * short  # shapes have more digits


def test_wide_layers_lower_for_every_platform():
    platforms = ["cpu", "cuda", "tpu"]
    exported = jax.export.export(jax.jit(lane_of("newton")), platforms=platforms)
    assert exported(*arguments(WRITTEN_OUT + 1)).platforms == ("cpu", "cuda", "tpu")


def test_the_thresholds_are_what_the_shapes_are_meant_for():
    assert _layout.is_wide(SHAPE[1])
    assert not _layout.is_wide(NARROW)
    assert _hessian.is_wide is _layout.is_wide
