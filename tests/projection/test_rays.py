"""The projection with known transitions, in the distance over pairs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pdgd_jax import ConfidenceSet, KnownTransitions, Layers, cold_start, project, project_batch
from pdgd_jax.projection.newton import NewtonOptions, make_solver
from tests.graphs import draw_family
from tests.reference import mirror
from tests.reference.pdgd_ops import pair_mask, random_transition

SIZES, A = (1, 3, 4, 2, 1), 3
LAYERS = Layers.from_sizes(SIZES, A)
LISTS = make_solver(NewtonOptions(dense_variables=0))


def solve(solver="newton"):
    def one(layers, target, transition):
        return project(layers, target, KnownTransitions(transition), solver=solver)

    return jax.jit(jax.vmap(one, in_axes=(None, 0, 0)))


SOLVE = solve()


def transitions(rng, count):
    """Dense ones, some with zeros, some with states that nothing reaches, some deterministic."""
    P = np.stack([random_transition(rng, SIZES, A) for _ in range(count)])
    valid = P > 0
    kind = rng.integers(4, size=count)
    for p, v, k in zip(P, valid, kind, strict=True):
        if k == 1:
            p *= rng.random(p.shape) < 0.5
        elif k == 2 and rng.random() < 0.9:
            p[:, :, :, 0] = v[:, :, :, 0]
            p[:, :, :, 1:] *= rng.random(p[:, :, :, 1:].shape) < 0.1
        elif k == 3:
            p[:] = (p == p.max(3, keepdims=True)) * v
        lost = (p.sum(3) == 0) & v.any(3)
        p[lost] = v[lost] / v[lost].sum(-1, keepdims=True)
        total = p.sum(3, keepdims=True)
        p /= np.where(total > 0, total, 1)
    return P


def from_potentials(P, target, occupancy):
    """How far an occupancy over the pairs is from the flow of P, and from optimal: no solver.

    No occupancy is nearer, iff none has a larger product with the outward direction. The best of
    all is found by dynamic programming.
    """
    outward, mask = target - occupancy, pair_mask(SIZES, A)
    value = np.zeros(mask.shape[1])
    for k in reversed(range(len(P))):
        q = outward[k] + P[k] @ value
        value = np.where(mask[k].any(1), np.where(mask[k], q, -np.inf).max(1), 0)
    gap = value[0] - np.sum(outward * occupancy)
    enters = np.zeros(mask.shape[:2])
    enters[0, 0] = 1
    enters[1:] = np.einsum("kxa,kxay->ky", occupancy, P)[:-1]
    return np.abs(occupancy.sum(2) - enters)[mask.any(2)].max(), gap


@pytest.mark.parametrize("size", [0.1, 3.0, pytest.param(1000.0, marks=pytest.mark.slow)])
def test_it_is_the_nearest_occupancy(size):
    """The gap bounds half the squared distance, and the flow is within the tolerance."""
    rng = np.random.default_rng(0)
    P = transitions(rng, 64)
    target = size * rng.normal(size=(64, *LAYERS.shape))
    result = SOLVE(LAYERS, target, P)
    assert result.info.converged.all()
    assert float(result.info.residual.max()) <= 1e-9
    pairs = np.asarray(result.occupancy.sum(4))
    for p, v, q, triples in zip(P, target, pairs, result.occupancy, strict=True):
        flow, gap = from_potentials(p, v, q)
        assert flow <= 5e-9  # a few residuals
        assert gap <= 1e-8 * max(1, size)  # residuals times potentials of the size of the target
        np.testing.assert_allclose(triples, q[..., None] * p, atol=1e-12)


@pytest.mark.slow
def test_it_is_what_a_quadratic_program_gives():
    """Thousands of problems: Clarabel and Newton's method of the reference, certified."""
    rng = np.random.default_rng(1)
    for size in (0.05, 0.5, 5.0):
        P = transitions(rng, 700)
        target = size * rng.normal(size=(700, *LAYERS.shape))
        result = SOLVE(LAYERS, target, P)
        assert result.info.converged.all()
        for p, v, q in zip(P, target, result.occupancy, strict=True):
            expected = mirror.KnownTransitions(SIZES, A, p).euclidean(v)
            np.testing.assert_allclose(q.sum(3), expected, atol=2e-5)  # the root of the residual


def test_it_is_not_the_projection_over_triples():
    """With the distribution (1, 0) a pair weighs 1 there, with (1/2, 1/2) only 1/2."""
    layers = Layers.from_sizes((1, 2, 1), 2)
    P = np.zeros((2, 2, 2, 2))
    P[0, 0] = [[1, 0], [0.5, 0.5]]
    P[1, :, :, 0] = 1
    target = np.zeros(layers.shape)
    target[0, 0] = [0.9, 0.7]
    target = jnp.asarray(target)
    q = project(layers, target, KnownTransitions(P)).occupancy.sum(3)
    # The later layer would rather have equal masses: minimise (s - 0.9)^2 + (0.3 - s)^2
    # + ((1 + s) / 2)^2 / 2 + ((1 - s) / 2)^2 / 2 over s.
    np.testing.assert_allclose(q[0, 0, 0], 2.4 / 4.5, atol=1e-9)
    triples = jnp.broadcast_to(layers.to_triples(target), layers.triple_shape)
    other = project(layers, triples, ConfidenceSet(P, np.zeros(layers.shape)))
    assert abs(float(other.occupancy.sum(3)[0, 0, 0]) - 2.4 / 4.5) > 0.01


def test_lists_alone_and_dense_arrays_give_the_same():
    rng = np.random.default_rng(2)
    graphs = draw_family(("unequal",), 16, 0)["unequal"]
    present = np.asarray(graphs.successors.present)
    weights = rng.exponential(size=present.shape) * present
    totals = jax.vmap(lambda layers, x: layers.to_triples(layers.to_pairs(x)))(graphs, weights)
    P = weights / np.maximum(totals, 1e-9)
    target = rng.normal(size=(16, *graphs.action_mask.shape[1:]))

    def one(solver):
        return jax.jit(
            jax.vmap(lambda layers, v, p: project(layers, v, KnownTransitions(p), solver=solver))
        )

    alone, dense = one(LISTS)(graphs, target, P), one("newton")(graphs, target, P)
    assert alone.info.converged.all()
    assert dense.info.converged.all()
    np.testing.assert_allclose(alone.occupancy, dense.occupancy, atol=2e-5)


def test_a_warm_start_saves_steps_and_changes_nothing():
    rng = np.random.default_rng(3)
    known = KnownTransitions(random_transition(rng, SIZES, A))
    target, start = jnp.asarray(rng.normal(size=LAYERS.shape)), cold_start(LAYERS)

    @jax.jit
    def find(target, start):
        return project(LAYERS, target, known, warm_start=start)

    cold = find(target, start)
    again = find(target, cold.warm_start)
    assert int(again.info.iterations) < int(cold.info.iterations)
    np.testing.assert_allclose(again.occupancy, cold.occupancy, atol=1e-9)


@pytest.mark.slow
def test_batches_and_single_precision():
    rng = np.random.default_rng(4)
    P = random_transition(rng, SIZES, A)
    target = rng.normal(size=(40, *LAYERS.shape))
    whole = project_batch(LAYERS, jnp.asarray(target), KnownTransitions(P))
    parts = project_batch(LAYERS, jnp.asarray(target), KnownTransitions(P), max_bytes=10**5)
    each = project_batch(
        LAYERS, jnp.asarray(target), jax.vmap(KnownTransitions)(jnp.stack([P] * 40))
    )
    for other in (parts, each):
        np.testing.assert_allclose(other.occupancy, whole.occupancy, atol=2e-9)
    with jax.enable_x64(False):
        found = project_batch(
            LAYERS, jnp.asarray(target, jnp.float32), KnownTransitions(P.astype(np.float32))
        )
        assert found.info.converged.all()
        assert found.occupancy.dtype == jnp.float32
        np.testing.assert_allclose(found.occupancy, whole.occupancy, atol=1e-3)


@pytest.mark.slow
def test_it_lowers_for_every_platform():
    shapes = [jax.ShapeDtypeStruct((2, *s), float) for s in (LAYERS.shape, LAYERS.triple_shape)]
    exported = jax.export.export(solve(), platforms=["cpu", "cuda", "tpu"])(LAYERS, *shapes)
    assert exported.platforms == ("cpu", "cuda", "tpu")


def test_nonsense_is_refused_on_the_host_and_is_nan_in_programs(unchecked):
    rng = np.random.default_rng(5)
    P = random_transition(rng, SIZES, A)
    target = rng.normal(size=LAYERS.shape)
    with pytest.raises(ValueError, match=r"the target must have the shape \(4, 4, 3\)"):
        project(LAYERS, LAYERS.to_triples(jnp.asarray(target)), KnownTransitions(P))
    wrong = target.copy()
    wrong[1, 2, 0] = np.nan
    with pytest.raises(ValueError, match=r"the target of layer 1, state 2, action 0 is nan"):
        project(LAYERS, wrong, KnownTransitions(P))
    with pytest.raises(ValueError, match=r"the transition .* layer 0, state 0, action 0"):
        project(LAYERS, target, KnownTransitions(0.9 * P))
    with pytest.raises(ValueError, match="'osqp' does not take known transitions"):
        project(LAYERS, target, KnownTransitions(P), solver="osqp")
    found = SOLVE(LAYERS, np.stack([wrong, target]), np.stack([P, P]))
    assert np.isnan(found.occupancy[0]).all()
    assert np.isnan(found.info.residual[0])
    assert found.info.converged.tolist() == [False, True]
    assert np.isfinite(found.occupancy[1]).all()
