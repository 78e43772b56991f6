"""Slow references of the entropic projection, in NumPy and Clarabel; nothing of the package."""

import clarabel
import numpy as np
import scipy.sparse as sp

from tests.reference.projection import quadratic_program, random_problem, unpack, valid_triples

KINDS = ("mild", "medium", "wide", "huge", "zeros")
SCALES = {"mild": 0.1, "medium": 1.0, "wide": 10.0, "huge": 350.0, "zeros": 1.0}


def random_entropic(rng, shape, kind=None, num_layers=None):
    """A problem: state mask, action mask, logarithm of the target, center, radius.

    The same sets as for the Euclidean projection; targets are spread over 300 orders of magnitude
    if "huge", and have zeros if "zeros" (some such problems have no solution).
    """
    state_mask, action_mask, _, center, radius = random_problem(
        rng, shape, kind="near", num_layers=num_layers
    )
    kind = kind or rng.choice(KINDS)
    target = rng.normal(size=center.shape) * SCALES[kind]
    if kind == "zeros":
        target[rng.random(center.shape) < 0.1] = -np.inf
    valid = valid_triples(state_mask, action_mask)
    return state_mask, action_mask, np.where(valid, target, 0), center, radius


def log_sum(values, axes=None):
    """The logarithm of a sum of exponentials, also of none."""
    with np.errstate(divide="ignore"):
        largest = np.max(values, axis=axes, keepdims=True, initial=-np.inf)
        safe = np.where(np.isfinite(largest), largest, 0)
        total = np.log(np.sum(np.exp(values - safe), axis=axes, keepdims=True)) + safe
    return np.squeeze(total, axis=axes)


def flow_error(action_mask, log_q):
    """The largest difference between the logarithms of inflow and outflow of a state."""
    outflow, inflow = log_sum(log_q, (2, 3)), log_sum(log_q, (1, 2))
    worst = abs(outflow[0, 0])
    for k in range(1, len(log_q)):
        if action_mask[k].any():
            decides = action_mask[k].any(-1)
            out, into = outflow[k][decides], inflow[k - 1][decides]
            here = np.isfinite(out) | np.isfinite(into)
            worst = max(worst, np.abs(out[here] - into[here]).max(initial=0))
    return worst


def least_in_ball(g, p, radius):
    """The least g.P over the ball: h of the mass moves from the largest entries to the least."""
    h, order = min(radius / 2, 1), np.argsort(-g)
    taken = np.zeros(len(g))
    taken[order] = np.diff(np.minimum(np.cumsum(p[order]), h), prepend=0)
    rest = p - taken
    rest[np.argmin(g)] += taken.sum()
    there = rest > np.where(np.isfinite(g), 0, 1e-12)  # by rounding, not all of a dead entry goes
    return (rest[there] * g[there]).sum()


def least_in_box(g, lower, upper):
    """The least g.P over the box: what is left after the lower bounds fills the least entries."""
    order = np.argsort(g)
    room = 1 - lower.sum()
    fill = np.zeros(len(g))
    fill[order] = np.diff(np.minimum(np.cumsum((upper - lower)[order]), room), prepend=0)
    P = lower + fill
    return (P[P > 0] * g[P > 0]).sum()


def optimality_error(masks, log_target, log_q, potential, least, deepest=-1200.0):
    """By how much a point violates the conditions of Section A.2, pair by pair.

    With P and s from q and theta = ln u + F^T y: ln s = -KL(P || e^theta), and P minimises
    P'.(ln P - theta) over the allowed P'. `least(k, x, a, g, entries)` is that minimum.
    """
    valid = valid_triples(*masks)
    ahead = np.concatenate([potential[1:], np.zeros_like(potential[:1])])
    worst, zeros = 0.0, np.isinf(log_target[valid]).any()
    for k, x, a in zip(*np.nonzero(masks[1]), strict=True):
        entries = valid[k, x, a]
        flow = log_q[k, x, a][entries]
        log_mass = log_sum(flow)
        if not np.isfinite(log_mass) or log_sum(log_q[k, x]) < deepest:
            continue
        theta = (log_target[k, x, a] + potential[k, x] - ahead[k])[entries]
        log_share = flow - log_mass
        share = np.exp(log_share)
        assert np.all((share == 0) | np.isfinite(theta))
        g = np.where(np.isfinite(theta), log_share - np.where(np.isfinite(theta), theta, 0), np.inf)
        if zeros:  # they may leave no way on from a state, whose potential is then infinite
            g = np.where(np.isfinite(log_share), g, np.inf)
        size = 1 + np.abs(theta[np.isfinite(theta)]).max()
        mean = (share[share > 0] * g[share > 0]).sum()
        gap = mean - least(k, x, a, g, entries)
        worst = max(worst, abs(log_mass + mean) / size, gap / size)
    return worst


def project_clarabel(state_mask, action_mask, log_target, center, radius):
    """The projection with exponential cones; None if the interior point method gives up.

    Unknowns (q, d, t): t >= q ln q, and d as for the Euclidean projection.
    """
    A_eq, b, A_in, valid = quadratic_program(state_mask, action_mask, center, radius)
    return _occupancy(A_eq, b, A_in, np.zeros(A_in.shape[0]), log_target, valid)


def project_clarabel_box(masks, log_target, lower, upper, costs=(), bounds=()):
    """The same for bounds on the transitions, and with linear constraints."""
    _, action_mask = masks
    A_eq, b, _, valid = quadratic_program(*masks, lower, np.zeros(action_mask.shape))
    n = int(valid.sum())
    index = -np.ones(valid.shape, int)
    index[valid] = np.arange(n)
    rows, limits = [], []
    for k, x, a in zip(*np.nonzero(action_mask), strict=True):
        ids = index[k, x, a][valid[k, x, a]]
        for sign, bound in ((1, upper), (-1, lower)):
            for j, value in zip(ids, bound[k, x, a][valid[k, x, a]], strict=True):
                row = np.zeros(2 * n)
                row[ids] = -sign * value
                row[j] += sign
                rows.append(row)
                limits.append(0.0)
    for j in range(2 * n):
        rows.append(-np.eye(2 * n)[j])
        limits.append(0.0)
    for cost, bound in zip(costs, bounds, strict=True):
        row = np.zeros(2 * n)
        row[:n] = np.broadcast_to(cost[..., None], valid.shape)[valid]
        rows.append(row)
        limits.append(bound)
    A_in = sp.csc_matrix(np.array(rows))
    return _occupancy(A_eq, b, A_in, np.array(limits), log_target, valid)


def _occupancy(A_eq, b, A_in, limits, log_target, valid):
    solution = solve_cones(A_eq, b, A_in, limits, log_target, valid)
    return None if solution is None else unpack(solution.x, valid)


def solve_cones(A_eq, b, A_in, limits, log_target, valid):
    """Clarabel's own answer, multipliers included; None if it gives up.

    Minimises sum q (ln q - ln u) over A_eq (q, d) = b, A_in (q, d) <= limits.
    """
    n = int(valid.sum())
    width = A_eq.shape[1] + n  # then t
    start = A_eq.shape[1]

    def wide(matrix):
        return sp.hstack([matrix, sp.csc_matrix((matrix.shape[0], n))])

    # (-t, q, 1) in the exponential cone: q exp(-t / q) <= 1.
    cone = sp.lil_matrix((3 * n, width))
    ones = np.zeros(3 * n)
    for j in range(n):
        cone[3 * j, start + j] = 1
        cone[3 * j + 1, j] = -1
        ones[3 * j + 2] = 1
    linear = np.zeros(width)
    linear[:n] = -log_target[valid]
    linear[start:] = 1
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
    settings.max_iter = 200
    solution = clarabel.DefaultSolver(
        sp.csc_matrix((width, width)),
        linear,
        sp.vstack([wide(A_eq), wide(A_in), cone]).tocsc(),
        np.r_[b, limits, ones],
        [
            clarabel.ZeroConeT(A_eq.shape[0]),
            clarabel.NonnegativeConeT(A_in.shape[0]),
            *[clarabel.ExponentialConeT()] * n,
        ],
        settings,
    ).solve()
    return solution if str(solution.status) == "Solved" else None
