"""The projection onto occupancies of known support, by Clarabel: variables of possible triples."""

import itertools
from typing import NamedTuple

import clarabel
import numpy as np
import scipy.sparse as sp

TOLERANCES = (1e-12, 1e-11, 1e-10, 1e-9)
REGULARIZATIONS = (1e-8, 1e-10)  # Clarabel's own, and one with which the hardest problems go on


class Exact(NamedTuple):
    """The projection, and how far from it Clarabel's answer may be in the 2-norm."""

    occupancy: np.ndarray
    error: float


def project_on_support(action_mask, support, target, center, radius):
    """Minimise |q - v|^2 over q and deviations d, both on the support alone.

    Flow: mass leaves as it enters, and one leaves the root. Cone: |q - p s| <= d, sum d <= r s.
    The objective is divided by the size of the target, since Clarabel's tolerances suit numbers of
    size one. It is strongly convex: half the square of the distance is at most the duality gap.
    """
    layer, state, action, following = np.nonzero(support & action_mask[..., None])
    triple = layer, state, action, following
    n = len(layer)
    states = action_mask.any(-1)
    leaves = _incidence(states, n, (layer, state))
    # Nothing leaves the last state.
    inside = np.append(states, np.zeros_like(states[:1]), 0)[layer + 1, following]
    entered = layer[inside] + 1, following[inside]
    enters = _incidence(states, n, entered, np.flatnonzero(inside))
    pairs = _incidence(action_mask, n, (layer, state, action))
    one, none = sp.eye(n), sp.csc_matrix((n, n))
    away = one - sp.diags(center[triple]) @ (pairs.T @ pairs)  # q - p s
    flow = sp.hstack([leaves - enters, sp.csc_matrix(leaves.shape)])
    cone = sp.bmat(
        [
            [-one, none],
            [away, -one],
            [-away, -one],
            [-sp.diags(radius[action_mask]) @ pairs, pairs],
        ]
    )
    right = np.zeros(flow.shape[0] + cone.shape[0])
    right[0] = 1.0  # states are in order, the root is the first
    scale = max(1.0, np.abs(target[triple]).max())
    for tolerance, regularization in itertools.product(TOLERANCES, REGULARIZATIONS):
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.max_threads = 1
        # A radius of 1e-6 beside one of 2 asks for systems that are solved up to rounding.
        settings.iterative_refinement_reltol = settings.iterative_refinement_abstol = 1e-16
        settings.iterative_refinement_max_iter = 50
        settings.static_regularization_constant = regularization
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
        solution = clarabel.DefaultSolver(
            sp.csc_matrix(sp.diags(np.r_[np.ones(n), np.zeros(n)]) / scale),
            np.r_[-target[triple] / scale, np.zeros(n)],
            sp.csc_matrix(sp.vstack([flow, cone])),
            right,
            [clarabel.ZeroConeT(flow.shape[0]), clarabel.NonnegativeConeT(cone.shape[0])],
            settings,
        ).solve()
        if str(solution.status) == "Solved":
            q = np.zeros(support.shape)
            q[triple] = np.array(solution.x)[:n]
            gap = scale * abs(solution.obj_val - solution.obj_val_dual)
            return Exact(q, float(np.sqrt(2 * gap)))
    raise RuntimeError(f"Clarabel gives up: {solution.status}")


def _incidence(mask, n, place, triples=None):
    """One row for each true entry of the mask, with ones at the triples that belong to it."""
    number = np.full(mask.shape, -1)
    number[mask] = np.arange(mask.sum())
    rows, columns = number[place], np.arange(n) if triples is None else triples
    return sp.csc_matrix((np.ones(len(rows)), (rows, columns)), shape=(int(mask.sum()), n))
