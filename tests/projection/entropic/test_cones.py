"""The entropic projection onto one cone: closed forms, optimality, and its second derivative."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pdgd_jax.projection.entropic._cones import (
    Balls,
    Boxes,
    Points,
    _below,
    _level_sums,
    largest_entry,
    logarithm,
    shares_of,
)
from tests.reference.entropic import least_in_ball, least_in_box
from tests.reference.projection import RADII

LANES = 512
project = jax.jit(shares_of)


def balls(p, h):
    return Balls(jnp.asarray(p), logarithm(jnp.asarray(p)), jnp.minimum(jnp.asarray(h), 1.0))


def boxes(lower, upper):
    return Boxes(
        *map(jnp.asarray, (lower, upper)), *(logarithm(jnp.asarray(x)) for x in (lower, upper))
    )


def points(p):
    return Points(jnp.asarray(p), logarithm(jnp.asarray(p)))


def random_cones(seed, count, scales=(0.1, 3, 30, 600, 3000)):
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=(count, LANES)) * rng.choice(scales, LANES)
    theta[:, ::5] = np.round(theta[:, ::5])  # ties
    p = rng.dirichlet(np.ones(count) / 2, LANES).T
    p = np.where(p < 0.05, 0, p)
    p[:, ::7] = 1
    p[0] += p.sum(0) == 0
    p /= p.sum(0)
    h = rng.choice(RADII, LANES) / 2
    width = rng.uniform(0, 0.6, (2, count, LANES)) * rng.integers(0, 2, (2, count, LANES))
    return theta, p, h, np.maximum(p - width[0], 0), np.minimum(p + width[1], 1)


def check_least(theta, shares, least):
    """The mass is exp(-KL(P||w)), and P minimises P'.(ln P - theta) over the set."""
    for i in range(LANES):
        log_share = np.asarray(shares.log_share[:, i])
        P = np.exp(log_share)
        size = 1 + np.abs(theta[:, i]).max()
        assert abs(P.sum() - 1) < 1e-12 * size
        g = np.where(log_share > -1e29, log_share - theta[:, i], 1e9)
        mean = (P[P > 0] * g[P > 0]).sum()
        assert abs(mean + shares.log_mass[i]) < 1e-12 * size
        # Levels are found up to the rounding of sums of probabilities.
        assert mean - least(g, i) < 1e-12 * size


@pytest.mark.parametrize("count", [1, 2, 5])
def test_balls(count):
    theta, p, h, _, _ = random_cones(count, count)
    shares = project(theta, balls(p, h))
    P = np.exp(shares.log_share)
    size = 1 + np.abs(theta).max(0)  # the rounding of logarithms
    assert ((np.abs(P - p).sum(0) - 2 * np.minimum(h, 1)) / size).max() < 1e-14
    check_least(theta, shares, lambda g, i: least_in_ball(g, p[:, i], 2 * h[i]))
    up, down = (np.asarray(shares.block) == sign for sign in (1, -1))
    # All the pieces occur: open, tight with entries in the middle, and known.
    assert up.all(0).any()
    assert (~up & ~down).all(0).any()
    assert count < 3 or (up.any(0) & down.any(0) & (~up & ~down).any(0)).any()


@pytest.mark.parametrize("count", [1, 2, 5])
def test_boxes(count):
    theta, _, _, lower, upper = random_cones(10 + count, count)
    shares = project(theta, boxes(lower, upper))
    P = np.exp(shares.log_share)
    size = 1 + np.abs(theta).max(0)
    assert (np.maximum(lower - P, P - upper) / size).max() < 1e-14
    check_least(theta, shares, lambda g, i: least_in_box(g, lower[:, i], upper[:, i]))


def test_many_entries_are_a_loop_with_the_same_result(monkeypatch):
    theta, p, _, _, _ = random_cones(3, 5, scales=(3,))
    p, theta = jnp.asarray(p), jnp.asarray(theta)
    weights = jnp.exp(theta), jnp.exp(theta - 1)

    def sums():
        return [*_level_sums(p, *weights), _below(p, theta), largest_entry(theta)]

    plain = sums()
    for room in ("_entries", "entropic._cones"):
        monkeypatch.setattr(f"pdgd_jax.projection.{room}.WRITTEN_OUT", 2)
    for x, y in zip(plain, sums(), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-11, atol=1e-15)


def test_two_entries_a_ball_is_a_box():
    theta, p, h, _, _ = random_cones(4, 2)
    h = np.minimum(h, 1)
    ball = project(theta, balls(p, h))
    box = project(theta, boxes(np.maximum(p - h, 0), np.minimum(p + h, 1)))
    np.testing.assert_allclose(ball.log_mass, box.log_mass, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(np.exp(ball.log_share), np.exp(box.log_share), atol=1e-13)


def test_a_point_is_a_ball_of_radius_0():
    theta, p, h, _, _ = random_cones(5, 5)
    point, ball = project(theta, points(p)), project(theta, balls(p, 0 * h))
    np.testing.assert_array_equal(point.log_mass, ball.log_mass)
    np.testing.assert_array_equal(point.log_share, ball.log_share)


@pytest.mark.parametrize(
    ("theta", "p", "h", "P", "log_mass"),
    [
        # By hand: the light entry keeps all but h, whatever its weight.
        ((-921.034, 0.0), (1.0, 0.0), 0.1, (0.9, 0.1), -828.6),
        # The lightest of two light entries gives the mass that the heavy one takes.
        ((0.0, -800.0, -2000.0), (0.9, 0.05, 0.05), 0.03, (0.93, 0.05, 0.02), -79.7),
        ((0.0, -800.0, -2000.0), (0.9, 0.05, 0.05), 0.06, (0.96, 0.04, 0.0), -31.8),
        ((0.0, -800.0, -2000.0), (0.9, 0.05, 0.05), 0.05, (0.95, 0.05, 0.0), -39.8),
    ],
)
def test_weights_far_apart(theta, p, h, P, log_mass):
    column = np.array(theta)[:, None]
    shares = project(column, balls(np.array(p)[:, None], np.array([h])))
    np.testing.assert_allclose(np.exp(shares.log_share[:, 0]), P, atol=1e-12)
    assert float(shares.log_mass[0]) == pytest.approx(log_mass, abs=0.1)


def jacobian(shares, i):
    """s (P P^T + J) / s of one cone, from the blocks."""
    P, block = np.exp(shares.log_share[:, i]), np.asarray(shares.block[:, i])
    total = np.outer(P, P)
    for sign, mass in zip((1, -1), shares.block_mass, strict=True):
        part = P * (block == sign)
        total += np.diag(part) - np.outer(part, part) / mass[i]
    return total


@pytest.mark.parametrize("kind", ["ball", "box", "point"])
def test_derivatives(kind):
    """The gradient of s is q, and the Hessian that of the docstring: by finite differences."""
    theta, p, h, lower, upper = random_cones(6, 4, scales=(0.3, 3))
    theta += 1e-3 * np.random.default_rng(0).normal(size=theta.shape)  # no ties
    given = {"ball": balls(p, h), "box": boxes(lower, upper), "point": points(p)}[kind]
    shares = project(theta, given)

    def q(theta):
        found = project(theta, given)
        return np.exp(found.log_mass), np.exp(found.log_mass[None] + found.log_share)

    step = 1e-6
    pairs = [(q(theta + step * e[:, None]), q(theta - step * e[:, None])) for e in np.eye(4)]
    gradient = np.stack([(plus[0] - minus[0]) / (2 * step) for plus, minus in pairs])
    hessian = np.stack([(plus[1] - minus[1]) / (2 * step) for plus, minus in pairs])
    mass = np.exp(shares.log_mass)
    np.testing.assert_allclose(gradient / mass, np.exp(shares.log_share), atol=1e-6)
    wrong = [
        i
        for i in range(LANES)
        if np.abs(hessian[:, :, i] / mass[i] - jacobian(shares, i)).max() > 1e-5
    ]
    assert len(wrong) <= LANES // 100  # where a piece changes within the step
