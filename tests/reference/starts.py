"""Random projections from random starts, and a judge of what comes out, in float64 on the host.

A point is wrong if an entry is further than `WRONG` from the projection, or if flow or cones are
violated by more than `INFEASIBLE`. The projection itself is that of a solve in float64, which is
believed only with a certificate that shares no code with any solver: `gap`.
"""

from typing import Any, NamedTuple

import jax
import numpy as np

from pdgd_jax import ConfidenceSet, Layers, cold_start, project
from tests.reference.projection import random_problem, random_target, valid_triples

SHAPES = ((4, 5, 3), (10, 4, 2), (20, 3, 2), (10, 12, 8))  # L, S, A
STARTS = ("cold", "other target", "other layers", "random", "huge", "not finite")
BROKEN = (np.nan, np.inf, -np.inf, 3e38, -3e38)

# The root of the tolerance in float32, 1e-6. The solver allows half of it in states with inflow but
# no outflow; the other half covers rounding and violated flow. Points that are wrong for another
# reason are off by 0.1.
WRONG = 1e-3
# Ten times: sums of some entries with errors of 1e-6 each.
INFEASIBLE = 1e-5
# The square of the distance to the projection is at most the gap. In float64 every entry is exact
# to 1e-9, and the gap weighs them by the target.
CERTIFIED = 1e-7


@jax.jit
@jax.vmap
def solve(state_mask, action_mask, target, center, radius, warm_start):
    layers, confidence = Layers(state_mask, action_mask), ConfidenceSet(center, radius)
    return project(layers, target, confidence, warm_start=warm_start)


def draw_problems(rng, shape, count, largest=10.0, targets=8):
    """Problems in float32, as the tests draw them, with some targets for each of the layers drawn.

    Targets of more than `largest` are scaled down to it; if it is beyond ten, others up to it.
    """
    problems = []
    while len(problems) < count:
        state_mask, action_mask, _, center, radius = random_problem(rng, shape)
        for _ in range(min(targets, count - len(problems))):
            kind = rng.choice(["near", "far", "medium", "ties"])
            target = random_target(rng, kind, center, action_mask)
            target *= valid_triples(state_mask, action_mask)
            size = max(np.abs(target).max(), 1e-30)
            target *= largest / size if largest > 10 else min(1, largest / size)
            problems.append((state_mask, action_mask, target, center, radius))
    arrays = (np.stack(x) for x in zip(*problems, strict=True))
    return [x if x.dtype == bool else x.astype(np.float32) for x in arrays]


def cold_starts(problems):
    layers = Layers(problems[0][0], problems[1][0])
    cold = cold_start(layers, dtype=problems[2].dtype)
    return jax.tree.map(lambda x: np.repeat(np.asarray(x)[None], len(problems[0]), 0), cold)


def draw_starts(rng, kinds, cold, solved, targets=8):
    """A start of the given kind, an index of `STARTS`, for every lane."""
    lanes = len(kinds)
    size = 10.0 ** np.array([rng.uniform(-4, 4, lanes), rng.uniform(5, 37, lanes)])
    often = rng.choice([0.02, 0.3, 1], lanes)

    def each(zero, found):
        zero, found = np.asarray(zero), np.asarray(found)
        shape = (lanes, *[1] * (zero.ndim - 1))
        noise = rng.normal(size=zero.shape)
        broken = np.where(
            rng.random(zero.shape) < often.reshape(shape), rng.choice(BROKEN, zero.shape), found
        )
        among = [zero, np.roll(found, 1, 0), np.roll(found, targets + 5, 0)]
        among += [noise * x.reshape(shape) for x in size]
        of_kind = np.select([kinds.reshape(shape) == i for i in range(6)], [*among, broken])
        with np.errstate(over="ignore"):
            return of_kind.astype(zero.dtype)

    return jax.tree.map(each, cold, solved)


def gap(state_mask, action_mask, target, center, radius, q):
    """The largest (v - q).(p - q) of all feasible p, for every lane, by dynamic programming.

    Not positive only at the projection; else it bounds the square of the distance to it.
    """
    valid = action_mask[..., None] & state_mask[:, 1:, None, None, :]
    slope = np.where(valid, target - q, 0)
    h = np.minimum(radius / 2, 1)[..., None]
    value = np.zeros(state_mask[:, 0].shape)
    for k in reversed(range(q.shape[1])):
        z = np.where(valid[:, k], slope[:, k] + value[:, None, None], 0)
        order = np.argsort(np.where(valid[:, k], z, np.inf), -1)
        sorted_z, p = (np.take_along_axis(x, order, -1) for x in (z, center[:, k]))
        taken = np.diff(np.minimum(np.cumsum(p, -1), h[:, k]), prepend=0)
        best = np.where(valid[:, k], z, -np.inf).max(-1)
        mean = (sorted_z * (p - taken)).sum(-1) + taken.sum(-1) * np.maximum(best, -1e300)
        has_action = action_mask[:, k].any(-1)
        mean = np.where(action_mask[:, k], mean, -np.inf).max(-1)
        value = np.where(has_action, mean, 0)
    return value[:, 0] - (slope * q).sum((1, 2, 3, 4))


def infeasibilities(state_mask, action_mask, center, radius, q):
    """The largest violation of flow, cones, masks and signs, for every lane."""
    valid = action_mask[..., None] & state_mask[:, 1:, None, None, :]
    outflow, inflow = q.sum((3, 4)), q.sum((2, 3))
    entered = np.concatenate([np.eye(q.shape[2])[None, :1].repeat(len(q), 0), inflow[:, :-1]], 1)
    flow = np.abs(np.where(action_mask.any(-1), outflow - entered, 0)).max((1, 2))
    mass = q.sum(-1)
    ball = (np.abs(q - center * mass[..., None]).sum(-1) - radius * mass).max((1, 2, 3))
    outside = np.abs(np.where(valid, np.minimum(q, 0), q)).max((1, 2, 3, 4))
    return np.maximum(np.maximum(flow, ball), outside)


class Verdict(NamedTuple):
    """Of a batch: one number for each lane."""

    start: np.ndarray  # index of `STARTS`
    steps: np.ndarray
    converged: np.ndarray
    distance: np.ndarray  # of the largest entry from the projection; NaN if that is not known
    wrong: np.ndarray


class Reference(NamedTuple):
    """The projections in float64."""

    point: np.ndarray
    known: np.ndarray  # certified
    warm_start: Any


def in_float64(problems):
    """The same problems, with centers that sum to one."""
    target, center, radius = (x.astype(np.float64) for x in problems[2:])
    center /= np.maximum(center.sum(-1, keepdims=True), 1e-300)
    return [*problems[:2], target, center, radius]


def exact(problems):
    """The projections of a batch, with a certificate."""
    problems = in_float64(problems)
    masks, target, ball = problems[:2], problems[2], problems[3:]
    result = solve(*problems, cold_starts(problems))
    point = np.asarray(result.occupancy)
    proof = np.maximum(gap(*problems, point), infeasibilities(*masks, *ball, point))
    certified = proof <= CERTIFIED * (1 + np.abs(target).max((1, 2, 3, 4)))
    known = np.asarray(result.info.converged) & certified
    return Reference(point, known, result.warm_start)


def judge(problems, result, reference, kinds):
    """What a batch of results, in any precision, is worth."""
    problems = in_float64(problems)
    q = np.asarray(result.occupancy, np.float64)
    distance = np.abs(q - reference.point).max((1, 2, 3, 4))
    distance = np.where(reference.known, distance, np.nan)
    infeasible = ~(infeasibilities(*problems[:2], *problems[3:], q) <= INFEASIBLE)
    return Verdict(
        start=kinds,
        steps=np.asarray(result.info.iterations),
        converged=np.asarray(result.info.converged),
        distance=distance,
        wrong=infeasible | (reference.known & ~(distance <= WRONG)),
    )


def judge_starts(rng, shape, count, largest=10.0, dtype=np.float32, lanes=2048):
    """Verdicts on `count` random problems, each from a start of a random kind."""
    verdicts = []
    for _ in range(-(-count // lanes)):
        problems = draw_problems(rng, shape, lanes, largest)
        problems = [*problems[:2], *(x.astype(dtype) for x in problems[2:])]
        reference = exact(problems)
        kinds = rng.integers(len(STARTS), size=lanes)
        starts = draw_starts(rng, kinds, cold_starts(problems), reference.warm_start)
        verdicts.append(judge(problems, solve(*problems, starts), reference, kinds))
    return Verdict(*(np.concatenate(x)[:count] for x in zip(*verdicts, strict=True)))
