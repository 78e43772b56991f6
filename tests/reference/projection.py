"""Slow references of the projection, in NumPy, Clarabel and OSQP; no code shared with the package.

The quadratic program has unknowns (q, d) with d >= |q - p s|, one row for each inequality.
"""

import clarabel
import numpy as np
import osqp
import scipy.sparse as sp

RADII = (0.0, 1e-12, 1e-6, 1e-3, 0.05, 0.3, 1.0, 1.7, 2.0, 3.0)


def random_problem(rng, shape, kind=None, num_layers=None):
    """One problem, padded to `shape` = (L, S, A): state mask, action mask, target, center, radius.

    Widths, action sets, horizons, centers (one-hot, uniform, ties, zeros), radii (0 to above 2),
    unreachable states and targets (near, far, with ties) are all drawn.
    """
    PL, S, A = shape
    L = num_layers or int(rng.integers(1, PL + 1))
    sizes = [1, *rng.integers(1, S + 1, L - 1), 1]
    actions = int(rng.integers(1, A + 1))
    state_mask = np.zeros((PL + 1, S), bool)
    action_mask = np.zeros((PL, S, A), bool)
    for k, size in enumerate(sizes):
        state_mask[k, :size] = True
    state_mask[L + 1 :, 0] = True
    for k in range(L):
        for x in range(sizes[k]):
            count = int(rng.integers(1, actions + 1)) if rng.random() < 0.5 else actions
            action_mask[k, x, rng.permutation(actions)[:count]] = True
    style = rng.choice(["dirichlet", "sparse", "onehot", "uniform", "mixed"])
    center = np.zeros((PL, S, A, S))
    for k, x, a in zip(*np.nonzero(action_mask), strict=True):
        center[k, x, a, : sizes[k + 1]] = random_center(rng, sizes[k + 1], style)
    radius = (
        np.full(action_mask.shape, rng.choice(RADII)),
        rng.choice(RADII, size=action_mask.shape),
        10 ** rng.uniform(-6, 0.31, size=action_mask.shape),
        rng.uniform(0, 2.5, size=action_mask.shape),
    )[int(rng.integers(4))]
    if L > 1 and rng.random() < 0.25:
        make_unreachable(rng, sizes, action_mask, center, radius)
    valid = valid_triples(state_mask, action_mask)
    target = random_target(
        rng, kind or rng.choice(["near", "far", "medium", "ties"]), center, action_mask
    )
    return state_mask, action_mask, np.where(valid, target, 0), center, radius * action_mask


def random_center(rng, n, style):
    if style == "mixed":
        style = rng.choice(["dirichlet", "sparse", "onehot", "uniform"])
    if style == "uniform":
        return np.ones(n) / n
    if style == "onehot":
        return np.eye(n)[rng.integers(n)]
    p = rng.dirichlet(np.ones(n) * rng.choice([0.3, 1, 5]))
    if style == "sparse":  # exact zeros and ties
        p = np.round(p * 4) + (np.arange(n) == rng.integers(n))
    return p / p.sum()


def make_unreachable(rng, sizes, action_mask, center, radius):
    """No pair leads to some state of some layer, and the radius allows none to."""
    k = int(rng.integers(1, len(sizes) - 1))
    if sizes[k] < 2:
        return
    dead = int(rng.integers(sizes[k]))
    center[k - 1, ..., dead] = 0
    total = center[k - 1].sum(-1)
    center[k - 1][action_mask[k - 1] & (total == 0), (dead + 1) % sizes[k]] = 1
    total = center[k - 1].sum(-1, keepdims=True)
    center[k - 1] /= np.where(total > 0, total, 1)
    radius[k - 1] = 0


def random_target(rng, kind, center, action_mask):
    if kind == "near":  # a feasible point, moved by 1e-3
        policy = action_mask * rng.uniform(size=action_mask.shape)
        policy /= np.maximum(policy.sum(-1, keepdims=True), 1e-300)
        return forward(policy, center) + 1e-3 * rng.normal(size=center.shape)
    scale = {"far": 30, "medium": 10 ** rng.uniform(-2, 1), "ties": 1}[kind]
    target = rng.normal(size=center.shape) * scale
    return np.round(target) if kind == "ties" else target


def forward(policy, transition):
    """The occupancy of a policy, by the forward recursion."""
    q = np.zeros(transition.shape)
    mass = np.eye(transition.shape[1])[0]
    for k in range(len(q)):
        q[k] = mass[:, None, None] * policy[k][..., None] * transition[k]
        mass = q[k].sum((0, 1))
    return q


def random_feasible(rng, state_mask, action_mask, center, radius):
    """A random point of the feasible set: a random policy and transitions inside the ball."""
    policy = action_mask * rng.exponential(size=action_mask.shape) ** 2
    policy /= np.maximum(policy.sum(-1, keepdims=True), 1e-300)
    valid = valid_triples(state_mask, action_mask)
    other = valid * rng.exponential(size=valid.shape) ** 2
    other /= np.maximum(other.sum(-1, keepdims=True), 1e-300)
    distance = np.abs(other - center).sum(-1)
    share = np.minimum(1, radius / np.maximum(distance, 1e-300)) * rng.uniform(0.5, 1)
    return forward(policy, center + share[..., None] * (other - center))


def valid_triples(state_mask, action_mask):
    return action_mask[..., None] & state_mask[1:, None, None, :]


def infeasibility(state_mask, action_mask, q, center, radius):
    """The largest violation of conservation, of the cones, and of the masks."""
    valid = valid_triples(state_mask, action_mask)
    outflow, inflow = q.sum((2, 3)), q.sum((1, 2))
    flow = abs(outflow[0, 0] - 1)
    for k in range(1, len(q)):
        flow = max(
            flow, np.abs((outflow[k] - inflow[k - 1])[action_mask[k].any(-1)]).max(initial=0)
        )
    mass = q.sum(-1)
    ball = np.abs(q - center * mass[..., None]).sum(-1) - radius * mass
    return max(flow, ball.max(), -q.min(), np.abs(q[~valid]).max(initial=0))


def optimality_error(state_mask, action_mask, target, center, radius, q, potential):
    """Moreau's conditions of q = Pi_K(v + F^T y), cone by cone.

    z = v + F^T y - q must lie in the polar cone (its support function on the ball is not positive)
    and be orthogonal to q. With the flow they certify the projection.
    """
    valid = valid_triples(state_mask, action_mask)
    ahead = np.concatenate([potential[1:], np.zeros_like(potential[:1])])
    z = target + potential[:, :, None, None] - ahead[:, None, None, :] - q
    worst = 0.0
    for k, x, a in zip(*np.nonzero(action_mask), strict=True):
        entries = valid[k, x, a]
        zs, ps = z[k, x, a][entries], center[k, x, a][entries]
        support = largest_mean(zs, ps, radius[k, x, a])
        worst = max(worst, support, abs(zs @ q[k, x, a][entries]))
    return worst


def largest_mean(z, p, radius):
    """The largest z.P over the ball: move half the radius from the smallest entries to the largest.

    At most all of it can be moved.
    """
    h = min(radius / 2, 1)
    order = np.argsort(z)
    taken = np.diff(np.minimum(np.cumsum(p[order]), h), prepend=0)
    return z.max() if h > p.sum() else z @ p + h * z.max() - z[order] @ taken


def quadratic_program(state_mask, action_mask, center, radius):
    """Sparse (A_eq, b_eq, A_in, valid) over (q, d): A_eq x = b_eq, A_in x <= 0."""
    valid = valid_triples(state_mask, action_mask)
    n = int(valid.sum())
    index = -np.ones(valid.shape, int)
    index[valid] = np.arange(n)
    equalities, b, inequalities = [], [], []
    for k, x in zip(*np.nonzero(action_mask.any(-1)), strict=True):
        row = {int(i): 1.0 for i in index[k, x][valid[k, x]]}
        if k:
            row |= {int(i): -1.0 for i in index[k - 1, :, :, x][valid[k - 1, :, :, x]]}
        equalities.append(row)
        b.append(float(k == 0))
    for k, x, a in zip(*np.nonzero(action_mask), strict=True):
        entries = np.flatnonzero(valid[k, x, a])
        ids, p = index[k, x, a][entries], center[k, x, a][entries]
        for sign in (1.0, -1.0):
            for i, p_i in zip(ids, p, strict=True):  # sign (q_i - p_i s) - d_i <= 0
                row = {int(j): -sign * p_i for j in ids}
                row[int(i)] += sign
                inequalities.append(row | {n + int(i): -1.0})
        budget = {n + int(i): 1.0 for i in ids} | {int(i): -radius[k, x, a] for i in ids}
        inequalities.append(budget)
    inequalities += [{i: -1.0} for i in range(n)]
    return sparse(equalities, 2 * n), np.array(b), sparse(inequalities, 2 * n), valid


def sparse(rows, width):
    entries = [(i, j, v) for i, row in enumerate(rows) for j, v in row.items()]
    i, j, v = zip(*entries, strict=True)
    return sp.csc_matrix((v, (i, j)), shape=(len(rows), width))


def objective_of(target, valid):
    n = int(valid.sum())
    P = sp.diags(np.r_[np.ones(n), np.zeros(n)]).tocsc()
    return P, np.r_[-target[valid], np.zeros(n)]


def unpack(x, valid):
    q = np.zeros(valid.shape)
    q[valid] = np.asarray(x)[: int(valid.sum())]
    return q


def project_clarabel(state_mask, action_mask, target, center, radius, tolerance=1e-12):
    """The projection by an interior point method at its tightest; None if it gives up."""
    A_eq, b, A_in, valid = quadratic_program(state_mask, action_mask, center, radius)
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
    settings.max_iter = 200
    solver = clarabel.DefaultSolver(
        *objective_of(target, valid),
        sp.vstack([A_eq, A_in]).tocsc(),
        np.r_[b, np.zeros(A_in.shape[0])],
        [clarabel.ZeroConeT(A_eq.shape[0]), clarabel.NonnegativeConeT(A_in.shape[0])],
        settings,
    )
    solution = solver.solve()
    return unpack(solution.x, valid) if str(solution.status) == "Solved" else None


def project_osqp(state_mask, action_mask, target, center, radius):
    """The projection by OSQP, polished; None unless it was solved."""
    A_eq, b, A_in, valid = quadratic_program(state_mask, action_mask, center, radius)
    P, linear = objective_of(target, valid)
    solver = osqp.OSQP()
    solver.setup(
        P,
        linear,
        sp.vstack([A_eq, A_in]).tocsc(),
        np.r_[b, np.full(A_in.shape[0], -np.inf)],
        np.r_[b, np.zeros(A_in.shape[0])],
        eps_abs=1e-9,
        eps_rel=1e-9,
        max_iter=200_000,
        polishing=True,
        verbose=False,
    )
    answer = solver.solve(raise_error=False)
    return unpack(answer.x, valid) if answer.info.status == "solved" else None
