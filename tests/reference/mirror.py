"""Slow projections onto occupancies, in relative entropy and in the Euclidean norm.

Clarabel finds the potentials y (where it gives up, they are 0), Newton's method on the dual refines
them, and a certificate that shares no code with either decides. The dual is always to minimise

    f(y) = phi(v + F^T y) - y(x_0),

over y, where F q = b says that one leaves x_0 and that every other state lets out what comes in, v
is the target or its logarithm, and phi is the conjugate of the norm or divergence on the cone of
the allowed q. The gradient of phi is q, so that the gradient of f is the violated flow.
"""

import clarabel
import numpy as np
import scipy.sparse as sp

from tests.reference.entropic import flow_error, least_in_ball, optimality_error, solve_cones
from tests.reference.pdgd_ops import ROUNDING, VOID, pair_mask, triple_mask
from tests.reference.projection import quadratic_program

CONVERGED = 1e-12  # on the violated flow; near the rounding of exponentials of numbers up to 100
CERTIFIED = 1e-9  # on the certificate
STEPS = 200


def newton(F, b, target, conjugate, y, least_mass):
    """Minimises f by Newton's method; returns the best y found and q(y) as `conjugate` has it.

    Args:
        F: [states, n] the flow, +1 where mass leaves.
        b: [states] e_{x_0}.
        target: [n] v.
        conjugate: of theta [n], gives phi, q [n], its Hessian [n, n], and q or ln q.
        y: [states] where to start.
        least_mass: flow is violated relative to what a state lets out, or to this.
    """
    leaving = np.maximum(F, 0)
    smallest, best = np.inf, None
    value, q, hessian, answer = conjugate(target + F.T @ y)
    for _ in range(STEPS):
        excess = F @ q - b
        error = np.max(np.abs(excess) / np.maximum(leaving @ q, least_mass))
        if error < smallest:
            smallest, best = error, (y, answer)
        if error <= CONVERGED:
            break
        matrix = F @ hessian @ F.T
        # Masses range over many decades; after scaling the diagonal is 1.
        scale = np.sqrt(np.diag(matrix))
        scale = np.where(scale > 0, scale, 1)
        step = -np.linalg.lstsq(matrix / np.outer(scale, scale), excess / scale)[0] / scale
        length = min(1.0, 2 / max(np.abs(step).max(), 1e-300))
        dual = value - b @ y
        for _ in range(40):  # Armijo, up to rounding
            trial = y + length * step
            found = conjugate(target + F.T @ trial)
            allowed = 1e-4 * length * (excess @ step) + 1e-14 * (1 + abs(dual))
            if found[0] - b @ trial <= dual + allowed:
                break
            length /= 2
        y, (value, q, hessian, answer) = trial, found
    return best


def of_norm(theta):
    """The conjugate of 1/2 ||q||^2 on q >= 0."""
    q = np.maximum(theta, 0)
    return q @ q / 2, q, np.diag(1.0 * (theta > 0)), q


def of_entropy(theta):
    """The conjugate of sum q ln q - q on q >= 0."""
    q = np.exp(theta)
    return q.sum(), q, np.diag(q), theta


def of_ball(theta, p, h):
    """ln s, P and the Hessian of ln s less its rank one part: the cone of a pair.

    The smallest KL(P || e^theta) over the distributions with ||P - p||_1 <= 2h is -ln s. Entries
    above p are e^theta times one factor, those below p times another, and the rest equal p.
    """
    free = np.exp(theta - log_sum(theta))
    if np.maximum(free - p, 0).sum() <= h:
        return log_sum(theta), free, np.diag(free) - np.outer(free, free)
    # Row j: entry j is at its own breakpoint, where its ratio p/w is the level.
    with np.errstate(over="ignore", invalid="ignore"):
        level = np.where(p[:, None] > 0, p[:, None] * np.exp(theta - theta[:, None]), 0)
    raised = np.maximum(level - p, 0).sum(1) < h
    lowered = (np.maximum(p - level, 0).sum(1) < h) & ~raised
    P, log_s, J = p.copy(), 0.0, np.zeros((len(p), len(p)))
    for block, mass in ((raised, p[raised].sum() + h), (lowered, p[lowered].sum() - h)):
        if block.any():
            total = log_sum(theta[block])
            P[block] = mass * np.exp(theta[block] - total)
            log_s += mass * (total - np.log(mass))
            J[np.ix_(block, block)] = np.diag(P[block]) - np.outer(P[block], P[block]) / mass
    kept = ~raised & ~lowered & (p > 0)
    return log_s + p[kept] @ (theta[kept] - np.log(p[kept])), P, J


def log_sum(theta):
    return theta.max() + np.log(np.exp(theta - theta.max()).sum())


class KnownTransitions:
    """The occupancies of known transitions, over pairs: [L, S, A].

    Pairs that no policy reaches have no variable.

    Attributes:
        pairs: [L, S, A] the pairs that can be reached.
    """

    def __init__(self, sizes, num_actions, transition):
        """`transition` is P(x'|x,a), [L, S, A, S]."""
        self.transition = transition
        self.pairs = np.zeros(transition.shape[:3], bool)
        reached = np.eye(transition.shape[1], dtype=bool)[0]
        for k, exist in enumerate(pair_mask(sizes, num_actions)):
            self.pairs[k] = exist & reached[:, None]
            reached = (transition[k][self.pairs[k]] > 0).any(0)
        self.states = self.pairs.any(2)
        row = np.full(self.states.shape, -1)
        row[self.states] = np.arange(self.states.sum())
        self.flow = np.zeros((self.states.sum(), self.pairs.sum()))
        for column, (k, x, a) in enumerate(np.argwhere(self.pairs)):
            self.flow[row[k, x], column] = 1
            if k + 1 < len(transition):
                ahead = np.flatnonzero(self.states[k + 1])
                self.flow[row[k + 1, ahead], column] = -transition[k, x, a, ahead]
        self.supply = np.eye(len(self.flow))[0]

    def euclidean(self, target):
        """The occupancy nearest to a point, both [L, S, A]."""
        v = target[self.pairs]
        near = self._programme(v)
        y, q = newton(self.flow, self.supply, v, of_norm, near, 1.0)
        answer = np.zeros(target.shape)
        answer[self.pairs] = np.where(q > ROUNDING, q, 0)
        lifted = target + self._differences(y)
        self._certify(answer, np.abs(answer - np.maximum(lifted, 0))[self.pairs].max(), 1.0)
        return answer

    def entropic(self, log_target):
        """The logarithm of the occupancy that is nearest in relative entropy."""
        log_target = normalised(log_target, self.pairs)
        v = log_target[self.pairs]
        nothing = sp.csc_matrix((0, len(v)))
        # They minimise q ln q without the -q, hence the 1.
        solution = solve_cones(
            sp.csc_matrix(self.flow),
            self.supply,
            nothing,
            np.zeros(0),
            1 + v,
            np.ones(len(v), bool),
        )
        y, log_q = newton(
            self.flow, self.supply, v, of_entropy, potentials(solution, self.supply), 1e-300
        )
        answer = np.full(log_target.shape, -np.inf)
        answer[self.pairs] = log_q
        lifted = log_target + self._differences(y)
        size = 1 + np.abs(lifted[self.pairs]).max()
        wrong = np.abs(answer[self.pairs] - lifted[self.pairs]).max() / size
        self._certify(np.exp(answer), wrong, 1e-300)
        return answer

    def of_policy(self, policy):
        """The occupancy of a policy, [L, S, A]."""
        q = np.zeros(policy.shape)
        mass = np.eye(policy.shape[1])[0]
        for k in range(len(q)):
            q[k] = mass[:, None] * policy[k]
            mass = np.einsum("xa,xay->y", q[k], self.transition[k])
        return q

    def _programme(self, v):
        """The potentials of the projection as Clarabel finds them."""
        n = len(v)
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
        solution = clarabel.DefaultSolver(
            sp.csc_matrix(np.eye(n)),
            -v,
            sp.csc_matrix(np.vstack([self.flow, -np.eye(n)])),
            np.r_[self.supply, np.zeros(n)],
            [clarabel.ZeroConeT(len(self.flow)), clarabel.NonnegativeConeT(n)],
            settings,
        ).solve()
        return potentials(solution, self.supply)

    def _differences(self, y):
        """y(x) - sum_x' P(x'|x,a) y(x'), [L, S, A]."""
        y_of = np.zeros((len(self.states) + 1, self.states.shape[1]))
        y_of[:-1][self.states] = y
        return y_of[:-1, :, None] - np.einsum("kxay,ky->kxa", self.transition, y_of[1:])

    def _certify(self, q, wrong, least_mass):
        """Flow holds, and q comes from potentials up to `wrong`: together they are sufficient."""
        leaves = q.sum(2)
        enters = np.zeros(leaves.shape)
        enters[0, 0] = 1
        enters[1:] = np.einsum("kxa,kxay->ky", q, self.transition)[:-1]
        lost = np.abs(leaves - enters) / np.maximum(enters, least_mass)
        worst = max(wrong, lost[self.states].max(), np.abs(q[~self.pairs]).max(initial=0), -q.min())
        assert worst <= CERTIFIED, f"not the projection: the certificate is {worst:.1e}"


class Ball:
    """The occupancies whose transitions lie in an L1 ball, over triples: [L, S, A, S]."""

    def __init__(self, sizes, num_actions):
        self.triples = triple_mask(sizes, num_actions)
        self.pairs = self.triples.any(3)
        self.states = self.pairs.any(2)
        self.state_mask = np.arange(max(sizes)) < np.array(sizes)[:, None]
        self.where = [tuple(place) for place in np.argwhere(self.pairs)]

    def entropic(self, log_target, center, radius):
        """The logarithm of the occupancy that is nearest in relative entropy."""
        log_target = normalised(log_target, self.triples)
        flow, supply, inequalities, _ = quadratic_program(
            self.state_mask, self.pairs, center, radius
        )
        v = log_target[self.triples]
        solution = solve_cones(
            flow,
            supply,
            inequalities,
            np.zeros(inequalities.shape[0]),
            1 + v,
            np.ones(len(v), bool),
        )
        balls = [
            (center[place][self.triples[place]], min(radius[place], VOID) / 2)
            for place in self.where
        ]

        def conjugate(theta):
            """The conjugate of sum q ln q - q on the cone: the sum over the pairs of s."""
            q, log_q = np.zeros(len(theta)), np.zeros(len(theta))
            hessian, start = np.zeros((len(theta), len(theta))), 0
            for p, h in balls:
                here = slice(start, start + len(p))
                log_s, P, J = of_ball(theta[here], p, h)
                with np.errstate(divide="ignore"):
                    log_q[here] = log_s + np.log(P)
                q[here] = np.exp(log_s) * P
                hessian[here, here] = np.exp(log_s) * (np.outer(P, P) + J)
                start += len(p)
            return q.sum(), q, hessian, log_q

        F = flow.toarray()[:, : len(v)]
        y, log_q = newton(F, supply, v, conjugate, potentials(solution, supply), 1e-300)
        answer = np.full(log_target.shape, -np.inf)
        answer[self.triples] = log_q
        self._certify(log_target, answer, y, center, radius)
        return answer

    def _certify(self, log_target, log_q, y, center, radius):
        potential = np.zeros(self.states.shape)
        potential[self.states] = y

        def least(k, x, a, slope, entries):
            return least_in_ball(slope, center[k, x, a][entries], radius[k, x, a])

        masks = self.state_mask, self.pairs
        q = np.exp(log_q)
        mass = q.sum(3)
        outside = np.abs(q - center * mass[..., None]).sum(3) - radius * mass
        wrong = (
            flow_error(self.pairs, log_q),
            optimality_error(masks, log_target, log_q, potential, least),
            (outside / np.where(mass > 0, mass, 1))[self.pairs].max(),
        )
        assert max(wrong) <= CERTIFIED, f"not the projection: the certificate is {wrong}"


def potentials(solution, supply):
    """The potentials in an answer of Clarabel's; zeros if it has none."""
    return np.zeros(len(supply)) if solution is None else -np.array(solution.z)[: len(supply)]


def normalised(log_target, mask):
    """The same projection: a factor for each layer changes only the potentials."""
    answer = np.full(log_target.shape, -np.inf)
    for k, here in enumerate(mask):
        answer[k][here] = log_target[k][here] - log_sum(log_target[k][here])
    return answer


def onto_l1_ball(point, radius):
    """The nearest point of {z >= 0, sum z <= radius}."""
    positive = np.maximum(point, 0)
    if positive.sum() <= radius:
        return positive
    # Otherwise z = [point - shift]_+ sums to the radius; try every number of positive entries.
    ordered = np.sort(point)[::-1]
    shifts = (np.cumsum(ordered) - radius) / np.arange(1, len(point) + 1)
    count = np.flatnonzero(ordered > shifts)[-1]
    return np.maximum(point - shifts[count], 0)
