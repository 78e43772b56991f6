"""The projection onto occupancies of known support, by Clarabel: variables of possible triples."""

import clarabel
import numpy as np
import scipy.sparse as sp


def project_on_support(state_mask, action_mask, support, target, center, radius):
    """Minimise |q - v|^2 over q and deviations d, both on the support alone.

    Flow: mass leaves as it enters, and one leaves the root. Cone: |q - p s| <= d, sum d <= r s.
    """
    triples = np.argwhere(support & action_mask[..., None])
    n = len(triples)
    column = {tuple(t): i for i, t in enumerate(triples)}
    pairs = np.argwhere(action_mask)
    equal, right = [], []
    for k, x in np.argwhere(action_mask.any(-1)):
        row = np.zeros(2 * n)
        for (layer, state, _, following), i in column.items():
            if (layer, state) == (k, x):
                row[i] += 1
            if (layer + 1, following) == (k, x):
                row[i] -= 1
        equal.append(row)
        right.append(1.0 if k == 0 else 0.0)
    below = [np.r_[-row, np.zeros(n)] for row in np.eye(n)]  # q >= 0
    for k, x, a in pairs:
        own = [i for t, i in column.items() if t[:3] == (k, x, a)]
        mass = np.zeros(n)
        mass[own] = 1
        total = np.zeros(n)
        for i in own:
            y = triples[i][3]
            away = -center[k, x, a, y] * mass
            away[i] += 1
            deviation = np.zeros(n)
            deviation[i] = 1
            below += [np.r_[away, -deviation], np.r_[-away, -deviation]]
            total[i] = 1
        below.append(np.r_[-radius[k, x, a] * mass, total])
    objective = sp.csc_matrix(sp.diags(np.r_[np.ones(n), np.zeros(n)]))
    linear = np.r_[[-target[tuple(t)] for t in triples], np.zeros(n)]
    rows = sp.csc_matrix(np.vstack([*equal, *below]))
    bounds = np.r_[right, np.zeros(len(below))]
    cones = [clarabel.ZeroConeT(len(equal)), clarabel.NonnegativeConeT(len(below))]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-12
    solution = clarabel.DefaultSolver(objective, linear, rows, bounds, cones, settings).solve()
    q = np.zeros(support.shape)
    q[tuple(triples.T)] = np.array(solution.x)[:n]
    return q
