"""Batches of entropic projections of one shape, solved by programs that the tests share."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from pdgd_jax import (
    BoxSet,
    ConfidenceSet,
    KnownTransitions,
    Layers,
    LinearConstraints,
    project_entropic,
)
from tests.reference.entropic import (
    flow_error,
    least_in_ball,
    least_in_box,
    optimality_error,
    random_entropic,
)

SHAPE = (4, 4, 2)  # L, S, A
LANES = 32


def lane(kind="ball", num_constraints=0):
    def one(state_mask, action_mask, target, *numbers):
        confidence = {
            "ball": ConfidenceSet,
            "box": BoxSet,
            "known": KnownTransitions,
        }[kind](*numbers[: 1 if kind == "known" else 2])
        extra = numbers[-2:] if num_constraints else None
        return project_entropic(
            Layers(state_mask, action_mask),
            jnp.asarray(target),
            confidence,
            constraints=LinearConstraints(*extra) if extra else None,
        )

    return one


@cache
def compiled(kind="ball", num_constraints=0):
    return jax.jit(jax.vmap(lane(kind, num_constraints)))


def many(*problems, kind="ball", num_constraints=0):
    """All problems, `LANES` at a time."""
    solve = compiled(kind, num_constraints)
    parts = [
        solve(*(x[i : i + LANES] for x in problems)) for i in range(0, len(problems[0]), LANES)
    ]
    return jax.tree.map(lambda *x: np.concatenate(x), *parts)


def batch(seed, count=LANES, shape=SHAPE, **settings):
    rng = np.random.default_rng(seed)
    problems = [random_entropic(rng, shape, **settings) for _ in range(count)]
    return [np.stack(arrays) for arrays in zip(*problems, strict=True)]


def boxed(problems, seed):
    """The same with boxes around the centers."""
    rng = np.random.default_rng(seed)
    masks, target, center = problems[:2], problems[2], problems[3]
    width = rng.uniform(0, 0.5, (2, *center.shape)) * rng.integers(0, 2, (2, *center.shape))
    valid = masks[1][..., None] & masks[0][:, 1:, None, None, :]
    upper = np.where(valid, np.minimum(center + width[1], 1), 0)
    return [*masks, target, np.maximum(center - width[0], 0), upper]


def check_exact(problems, result, kind="ball", lanes=None):
    """Flow and optimality in NumPy, for every lane that has a solution."""
    assert np.all(result.info.converged | result.info.infeasible)
    assert not np.any(result.info.converged & result.info.infeasible)
    for i in range(len(problems[0])) if lanes is None else lanes:
        if result.info.infeasible[i]:
            continue
        masks, log_q = (problems[0][i], problems[1][i]), np.asarray(result.log_occupancy[i])
        np.testing.assert_allclose(np.exp(log_q), result.occupancy[i], rtol=1e-12, atol=1e-300)
        assert flow_error(masks[1], log_q) < 1e-12

        def least(k, x, a, g, entries, i=i):
            first, second = (problems[j][i, k, x, a] for j in (3, 4))
            if kind == "ball":
                return least_in_ball(g, first[entries], second)
            return least_in_box(g, first[entries], second[entries])

        potential = np.asarray(result.warm_start.potential[i])
        error = optimality_error(masks, problems[2][i], log_q, potential, least)
        # The relative error of the flow, summed over a few layers.
        assert error < 1e-8
