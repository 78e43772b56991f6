"""The projection on one cone: Moreau's conditions, Clarabel, and its generalised Jacobian."""

import jax
import numpy as np
import pytest

from pdgd_jax.projection._cone import ABSENT, classify, project_cone
from tests.reference.projection import RADII, project_clarabel

LANES = 512


def random_cones(seed, count):
    rng = np.random.default_rng(seed)
    u = rng.normal(size=(count, LANES)) * 10 ** rng.uniform(-3, 1.5, LANES) + rng.normal(size=LANES)
    u[:, : LANES // 4] = np.round(u[:, : LANES // 4])  # ties and zeros
    p = rng.dirichlet(np.ones(count) / 2, LANES).T
    p = np.where(p < 0.05, 0, p)  # exact zeros
    p[:, ::7] = 1
    p[0] += p.sum(0) == 0
    p /= p.sum(0)
    return u, p, rng.choice(RADII, LANES) / 2


project = jax.jit(project_cone)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_moreau(count):
    """q in K, u - q in the polar cone, and both orthogonal: that is the projection."""
    u, p, h = random_cones(count, count)
    pieces = project(u, p, h, np.zeros(LANES))
    q = np.asarray(pieces.occupancy)
    s, z, h = q.sum(0), u - q, np.minimum(h, 1)
    assert q.min() >= 0
    # Rounding of sums of a few numbers of the size of u.
    size = 1 + np.abs(u).max(0)
    assert ((np.abs(q - p * s).sum(0) - 2 * h * s) / size).max() < 1e-13
    assert (np.abs((z * q).sum(0)) / size**2).max() < 1e-13
    support = h * z.max(0) + np.min([(p * np.maximum(z, t)).sum(0) - h * t for t in z], axis=0)
    assert (support / size).max() < 1e-13
    # All the pieces occur: slack, tight and apex.
    assert (s == 0).any()
    assert count == 1 or (np.abs(q - np.maximum(u, 0)).max(0) < 1e-15).any()


def test_absent_entries_change_nothing():
    u, p, h = random_cones(9, 3)
    q = project(u, p, h, np.zeros(LANES)).occupancy
    wide_u = np.concatenate([u, np.full((2, LANES), ABSENT)])
    wide_p = np.concatenate([p, np.zeros((2, LANES))])
    wide = project(wide_u, wide_p, h, np.zeros(LANES)).occupancy
    np.testing.assert_allclose(wide[:3], q, atol=1e-13)
    assert not np.asarray(wide[3:]).any()


def test_the_guess_of_the_mass_does_not_matter():
    u, p, h = random_cones(3, 5)
    exact = project(u, p, h, np.zeros(LANES)).occupancy
    guess = 10 ** np.random.default_rng(0).uniform(-8, 3, LANES)
    np.testing.assert_allclose(project(u, p, h, guess).occupancy, exact, atol=1e-11)


@pytest.mark.parametrize("count", [2, 9])
def test_a_tiny_guess_of_the_mass_does_not_look_settled(count):
    """Below the rounding of u the pieces of a guess mean nothing, even if they lead back to it."""
    u, p, h = random_cones(11, count)
    exact = np.asarray(project(u, p, h, np.zeros(LANES)).occupancy)
    once = jax.jit(classify)
    for guess in (1e-12, 1e-16, 1e-20, 1e-30):
        pieces = once(u, p, h, np.full(LANES, guess))
        settled = np.abs(pieces.mass - pieces.mass_guess) <= 1e-9
        assert 0 < settled.sum() < LANES
        # A mass that is wrong by 1e-9 moves no entry by more.
        np.testing.assert_allclose(pieces.occupancy[:, settled], exact[:, settled], atol=1e-9)


def test_against_clarabel():
    """A cone is a projection with one decision, once the flow does not bind."""
    u, p, h = random_cones(5, 5)
    q = np.asarray(project(u, p, h, np.zeros(LANES)).occupancy)
    masks = np.ones((3, 5), bool), np.zeros((2, 5, 1), bool)
    masks[0][0, 1:] = masks[0][2, 1:] = False
    masks[1][0, 0] = masks[1][1] = True
    compared = 0
    for i in range(0, LANES, 16):
        s = q[:, i].sum()
        if s < 1e-3:
            continue
        # Scaled to unit mass, the projection of u/s + y is q/s for the potential that balances it;
        # the second layer is free, so that only the first cone decides.
        target = np.zeros((2, 5, 1, 5))
        target[0, 0, 0] = u[:, i] / s
        target[1, :, 0, 0] = q[:, i] / s
        center = np.zeros((2, 5, 1, 5))
        center[0, 0, 0], center[1, :, 0, 0] = p[:, i], 1
        radius = np.zeros((2, 5, 1))
        radius[0, 0, 0] = 2 * h[i]
        reference = project_clarabel(*masks, target, center, radius)
        if reference is None:
            continue
        np.testing.assert_allclose(reference[0, 0, 0], q[:, i] / s, atol=1e-6)
        compared += 1
    assert compared > 10


def test_the_jacobian_is_that_of_the_projection():
    u, p, h = random_cones(7, 4)
    pieces = project(u, p, h, np.zeros(LANES))
    weight, block, gain = (np.asarray(x) for x in (pieces.weight, pieces.block, pieces.gain))
    J = gain * weight[:, None] * weight[None] - np.maximum(block[:, None] * block[None], 0)
    J[np.arange(4), np.arange(4)] += block != 0
    step = 1e-7
    finite = np.stack(
        [
            (
                np.asarray(project(u + step * e[:, None], p, h, np.zeros(LANES)).occupancy)
                - np.asarray(project(u - step * e[:, None], p, h, np.zeros(LANES)).occupancy)
            )
            / (2 * step)
            for e in np.eye(4)
        ],
        axis=1,
    )
    # Except in the few lanes where a piece changes within the step (those with ties).
    generic = slice(LANES // 4, None)
    wrong = np.abs(J - finite).max((0, 1))[generic] > 1e-5 * (1 + np.abs(u).max(0)[generic])
    assert wrong.mean() < 0.02


def test_a_radius_below_the_rounding_of_the_point_counts():
    """In float32 a radius of 4e-6 moves less mass here than entries of size ten are rounded by.

    Whether it does, from the lowest entry to the largest, changes the mass by up to 1e-4.
    """
    rng = np.random.default_rng(13)
    u = (5 * rng.normal(size=(5, LANES))).astype(np.float32)
    p = rng.dirichlet(np.ones(5), LANES).T.astype(np.float32)
    u += np.float32(0.03) - (u * p).sum(0)  # little mass
    h = np.full(LANES, 2e-6, np.float32)
    exact = np.asarray(project(*(x.astype(float) for x in (u, p, h)), np.zeros(LANES)).mass)
    assert np.median(exact) < 0.2
    mass = jax.jit(classify)(u, p, h, exact.astype(np.float32)).mass
    # The rounding of a sum of numbers of the size of u, times the gain.
    bound = np.finfo(np.float32).eps * (1 + np.abs(u).max(0)) / (p**2).sum(0)
    assert (np.abs(mass - exact) <= bound).all()


def test_what_a_small_radius_lets_pass_is_not_rounded_away():
    """Here 4e-8 of the mass may go to an entry of size nine, whose rounding is ten times that."""
    u, p = np.array([[0.4], [9.0]], np.float32), np.array([[1.0], [0.0]], np.float32)
    h = np.array([1e-7], np.float32)
    pieces = project(u, p, h, np.zeros(1, np.float32))
    np.testing.assert_allclose(pieces.mass, 0.4, rtol=1e-5)
    np.testing.assert_allclose(pieces.value[1], h * pieces.mass, rtol=1e-5)
