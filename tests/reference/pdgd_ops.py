"""A slow, plain NumPy twin of PDGD-OPS and of its primal player UC-O-GDPS.

Written from the paper alone ("A Best-of-Both-Worlds Algorithm for Constrained MDPs with Long-Term
Constraints"). Every episode solves its projection as a general quadratic programme with Clarabel,
re-solves it on the active set found, and checks the answer with a certificate that needs no solver.

The twin also plays with a known support, which the paper does not have: the next states that each
pair can have take the place of the next layer.

Names follow the paper. "Alg. PDGD-OPS", "Alg. UC-O-GDPS.UPDATE" and "Alg. UC-O-GDPS" are its
algorithm boxes, the last one being the complete box of the appendix.
"""

import itertools
import time
from dataclasses import dataclass

import clarabel
import numpy as np
import scipy.sparse as sp
from scipy.linalg import null_space
from scipy.optimize import nnls

VOID = 2.0  # no two distributions are further apart than this in the 1-norm

TOLERANCE = 1e-13  # on the certificate of a projection, near the rounding of double precision
ROUNDING = 1e-14  # occupancies below this are 0 but for rounding


@dataclass
class Episode:
    """What the learner observes in one episode.

    Attributes:
        states: [L] index of x_k within its layer, k = 0..L-1.
        actions: [L] action a_k.
        next_states: [L] index of x_{k+1} within layer k+1.
        rewards: [L, S, A] the whole reward vector r_t, 0 outside the instance.
        constraints: [m, L, S, A] the whole constraint matrix G_t, 0 outside the instance.
    """

    states: np.ndarray
    actions: np.ndarray
    next_states: np.ndarray
    rewards: np.ndarray
    constraints: np.ndarray


def pair_mask(sizes: tuple[int, ...], num_actions: int) -> np.ndarray:
    """Returns the [L, S, A] mask of the pairs (x, a) that exist."""
    S = max(sizes)
    mask = np.zeros((len(sizes) - 1, S, num_actions), bool)
    for k in range(len(sizes) - 1):
        mask[k, : sizes[k], :] = True
    return mask


def triple_mask(sizes: tuple[int, ...], num_actions: int) -> np.ndarray:
    """Returns the [L, S, A, S] mask of the triples (x, a, x') that exist."""
    S = max(sizes)
    mask = np.zeros((len(sizes) - 1, S, num_actions, S), bool)
    for k in range(len(sizes) - 1):
        mask[k, : sizes[k], :, : sizes[k + 1]] = True
    return mask


def step_constants(
    sizes: tuple[int, ...],
    num_actions: int,
    num_constraints: int,
    num_episodes: int,
    delta: float,
    rates: str | tuple[float, float],
    support: np.ndarray | None = None,
) -> tuple[float, float]:
    """Returns C of eta_t = 1/(lbar_t C sqrt(T)), and the dual step size eta.

    The paper's proof takes U_2 = |X||A|, the dimension in which it measures the losses. The
    algorithm projects occupancies over triples, so U_2 is the number of triples here.

    Args:
        sizes: |X_0|, ..., |X_L|.
        num_actions: |A|.
        num_constraints: m.
        num_episodes: T.
        delta: the confidence parameter.
        rates: "theory" for the end of the proof of the bound on the multipliers, C = 5 U_2/L and
            eta = 1/(50 m max(U_1 U_2/L, L) sqrt(T ln(T^2/delta))); "tuned" for the minimisers of
            the two regret bounds, L C + U_2/(2C) in C and 1/(2 eta) + eta m L^2 T/2 in eta;
            or the pair (C, eta) itself.
        support: as in `PrimalTwin`.
    """
    if not isinstance(rates, str):
        return rates
    m, T, L = num_constraints, num_episodes, len(sizes) - 1
    U_1 = 2 * L  # Lemma "PrimalBoundRegLemma"
    triples = triple_mask(sizes, num_actions) if support is None else support
    U_2 = int(triples.sum())
    if rates == "theory":
        K = 50 * m * max(U_1 * U_2 / L, L)
        return 5 * U_2 / L, 1 / (K * np.sqrt(T * np.log(T**2 / delta)))
    if rates == "tuned":
        return np.sqrt(U_2 / (2 * L)), 1 / (L * np.sqrt(m * T))
    raise ValueError(f"unknown rates: {rates!r}")


class PrimalTwin:
    """UC-O-GDPS alone: online gradient descent over occupancies, unknown transitions.

    Attributes:
        occupancy: [L, S, A, S] the occupancy q_t that the next episode is to play.
        policy: [L, S, A] its policy.
        pair_counts: [L, S, A] visits N to each pair, up to now.
        triple_counts: [L, S, A, S] visits M to each triple, up to now.
        epoch: i, from 1.
        center: [L, S, A, S] empirical transitions at the start of the epoch.
        radius: [L, S, A] radius eps_i of the confidence set in the 1-norm.
        largest_loss: lbar_t.
        primal_step_size: eta_t of the last update, 0 before the first.
        gap: certified optimality gap of the last projection (see `certificate`).
        infeasibility: largest violation of a constraint by the last projection.
    """

    def __init__(
        self,
        sizes: tuple[int, ...],
        num_actions: int,
        num_episodes: int,
        *,
        delta: float = 0.05,
        rates: str | float = "tuned",
        confidence_scale: float = 1.0,
        support: np.ndarray | None = None,
    ) -> None:
        """`support`, [L, S, A, S], is true for the triples that can happen; None if all can."""
        self.sizes = tuple(sizes)
        self.num_actions = num_actions
        self.num_episodes = num_episodes
        self.delta = delta
        self.confidence_scale = confidence_scale
        self.step_constant = rates
        if isinstance(rates, str):  # C depends neither on m nor on delta
            self.step_constant, _ = step_constants(
                self.sizes, num_actions, 1, num_episodes, delta, rates, support
            )
        self.triples = triple_mask(self.sizes, num_actions) if support is None else support
        self.pairs = self.triples.any(-1)
        self.num_following = self.triples.sum(-1)
        self.programme = Programme(self.triples)
        # "Initialization": q_1(x,a,x') = 1/(|X_k||A||X_{k+1}|), all counters 0, i = 1, and P_1 is
        # the set of all transition functions.
        per_layer = self.triples.sum(axis=(1, 2, 3), keepdims=True)
        self.occupancy = self.triples / per_layer if support is None else self._uniform()
        self.pair_counts = np.zeros(self.pairs.shape, int)
        self.triple_counts = np.zeros(self.triples.shape, int)
        self.epoch = 1
        self.largest_loss = 0.0
        self.primal_step_size = 0.0
        self.gap = 0.0
        self.infeasibility = 0.0
        self._start_epoch()
        self._set_policy()

    def update(
        self, states: np.ndarray, actions: np.ndarray, next_states: np.ndarray, loss: np.ndarray
    ) -> None:
        """One call of UC-O-GDPS.UPDATE.

        Args:
            states: [L] as in `Episode`.
            actions: [L] as in `Episode`.
            next_states: [L] as in `Episode`.
            loss: [L, S, A] the loss l_t, 0 outside the instance.
        """
        # Alg. UC-O-GDPS.UPDATE, the loop over k: all counters first.
        self.pair_counts = self.pair_counts.copy()
        self.triple_counts = self.triple_counts.copy()
        layers = range(len(self.sizes) - 1)
        for k in layers:
            self.pair_counts[k, states[k], actions[k]] += 1
            self.triple_counts[k, states[k], actions[k], next_states[k]] += 1

        # Then the test for a new epoch. N_{i-1} is what the counters were when epoch i-1 ended,
        # that is, when epoch i began (N_i <- N_{i-1} on entry; N_0 = 0 in epoch 1).
        if any(
            self.pair_counts[k, states[k], actions[k]]
            >= max(1, 2 * self.initial_counts[k, states[k], actions[k]])
            for k in layers
        ):
            self.epoch += 1
            self._start_epoch()

        # Alg. PDGD-OPS, line of eta_t: lbar_t includes the loss of this episode.
        self.largest_loss = max(self.largest_loss, np.abs(loss[self.pairs]).max())
        self.primal_step_size = 0.0
        if self.largest_loss > 0:
            self.primal_step_size = 1 / (
                self.largest_loss * self.step_constant * np.sqrt(self.num_episodes)
            )

        # Last line of the box: the projection is on Delta(P_i) with i the epoch just begun, if one
        # was. l_t(x, a) is the gradient of l_t^T q in each q(x, a, x').
        target = self.occupancy - self.primal_step_size * loss[..., None] * self.triples
        self.occupancy, self.infeasibility, self.gap = self.programme.project(
            target, self.center, self.radius
        )
        self._set_policy()

    def _start_epoch(self) -> None:
        """Takes the snapshot of the counters and the confidence set P_i from it."""
        T, A = self.num_episodes, self.num_actions
        X = sum(self.sizes)  # Section 2: X is partitioned into X_0..X_L, so x_0 and x_L count
        self.initial_counts = self.pair_counts.copy()
        N = np.maximum(1, self.pair_counts)
        # |X_{k+1}|, or the next states that the pair can have; 0 where there is no pair.
        radius = np.sqrt(2 * self.num_following * np.log(T * X * A / self.delta) / N)
        center = self.triple_counts / N[..., None]
        # With N = 0 the paper's Pbar is 0 and its radius is that of N = 1, in effect no constraint
        # (P_1 is "all transition functions"). A uniform centre with a void radius says the same,
        # also when confidence_scale is small.
        unvisited = self.pair_counts == 0
        uniform = self.triples / np.maximum(1, self.num_following)[..., None]
        self.center = np.where(unvisited[..., None], uniform, center)
        self.radius = np.where(unvisited, VOID, self.confidence_scale * radius) * self.pairs

    def _set_policy(self) -> None:
        """Sets pi(a|x) = q(x,a)/q(x), uniform where q(x) = 0."""
        q_pair = self.occupancy.sum(axis=3)
        q_state = q_pair.sum(axis=2, keepdims=True)
        reached = q_state > 0
        policy = q_pair / np.where(reached, q_state, 1.0)
        uniform = self.pairs / np.maximum(1, self.pairs.sum(axis=2, keepdims=True))
        self.policy = np.where(reached, policy, uniform) * self.pairs

    def _uniform(self) -> np.ndarray:
        """The occupancy of uniform actions and uniform transitions, which conserves flow.

        With a support the q_1 of the paper does not.
        """
        q = np.zeros(self.triples.shape)
        for k, x in np.argwhere(self.pairs.any(-1)):
            mass = 1.0 if k == 0 else q[k - 1, :, :, x].sum()
            for a in np.flatnonzero(self.pairs[k, x]):
                here = self.triples[k, x, a]
                q[k, x, a] = mass / self.pairs[k, x].sum() * here / here.sum()
        return q


class Twin:
    """PDGD-OPS: UC-O-GDPS against online gradient descent on the multipliers.

    Has the attributes of `PrimalTwin`, and:

    Attributes:
        multipliers: [m] lambda_t.
        dual_step_size: eta.
    """

    def __init__(
        self,
        sizes: tuple[int, ...],
        num_actions: int,
        num_constraints: int,
        num_episodes: int,
        *,
        delta: float = 0.05,
        rates: str | tuple[float, float] = "tuned",
        confidence_scale: float = 1.0,
        support: np.ndarray | None = None,
    ) -> None:
        step_constant, self.dual_step_size = step_constants(
            tuple(sizes), num_actions, num_constraints, num_episodes, delta, rates, support
        )
        self.primal = PrimalTwin(
            sizes,
            num_actions,
            num_episodes,
            delta=delta,
            rates=float(step_constant),
            confidence_scale=confidence_scale,
            support=support,
        )
        self.largest_multiplier = num_episodes**0.25
        self.multipliers = np.zeros(num_constraints)  # OGD.INIT returns lambda_1 = 0

    def update(self, episode: Episode) -> None:
        """One turn of the loop of Alg. PDGD-OPS, after the episode has been played."""
        G = episode.constraints
        q_pair = self.primal.occupancy.sum(axis=3)  # q_t, before the primal player moves
        loss = np.einsum("mksa,m->ksa", G, self.multipliers) - episode.rewards
        self.primal.update(episode.states, episode.actions, episode.next_states, loss)
        # Last line of the loop: OGD receives -G_t^T q_t, with q_t and not q_{t+1}.
        violation = np.einsum("mksa,ksa->m", G, q_pair)
        self.multipliers = np.clip(
            self.multipliers + self.dual_step_size * violation, 0.0, self.largest_multiplier
        )

    @property
    def occupancy(self) -> np.ndarray:
        return self.primal.occupancy

    @property
    def policy(self) -> np.ndarray:
        return self.primal.policy

    @property
    def pair_counts(self) -> np.ndarray:
        return self.primal.pair_counts

    @property
    def triple_counts(self) -> np.ndarray:
        return self.primal.triple_counts

    @property
    def epoch(self) -> int:
        return self.primal.epoch

    @property
    def center(self) -> np.ndarray:
        return self.primal.center

    @property
    def radius(self) -> np.ndarray:
        return self.primal.radius

    @property
    def primal_step_size(self) -> float:
        return self.primal.primal_step_size

    @property
    def largest_loss(self) -> float:
        return self.primal.largest_loss

    @property
    def gap(self) -> float:
        return self.primal.gap

    @property
    def infeasibility(self) -> float:
        return self.primal.infeasibility


# The projection on Delta(P_i): minimise 1/2 ||q - v||^2 over q >= 0 with
#     sum_a,x' q(x_0, a, x') = 1,
#     sum_a,x' q(x, a, x') = sum_x',a q(x', a, x)                   every x in X_1..X_{L-1},
#     sum_x' |q(x,a,x') - Pbar(x'|x,a) q(x,a)| <= eps(x,a) q(x,a)    every (x,a),
# that is, the occupancies q with P^q in P_i (unit mass in every layer follows from the first two).


class Programme:
    """The quadratic programme in z = (q, d), q over the triples, d >= |q - Pbar q(x,a)|.

    d exists only for pairs whose constraint can bind: eps < 2, and more than one next state.
    """

    def __init__(self, triples: np.ndarray) -> None:
        """`triples`, [L, S, A, S], is true for the triples that have a variable."""
        self.triples = triples
        self.num_triples = n = int(triples.sum())
        self.index = np.full(triples.shape, -1)
        self.index[triples] = np.arange(n)

        # Flow: one row for each state of X_0..X_{L-1}.
        rows = []
        for k, x in np.argwhere(triples.any((2, 3))):
            row = np.zeros(n)
            row[self.index[k, x][triples[k, x]]] = 1.0
            if k > 0:
                row[self.index[k - 1, :, :, x][triples[k - 1, :, :, x]]] = -1.0
            rows.append(row)
        self.flow = np.array(rows)
        self.supply = np.zeros(len(rows))
        self.supply[0] = 1.0
        self.kernel = null_space(self.flow)

    def project(
        self, target: np.ndarray, center: np.ndarray, radius: np.ndarray
    ) -> tuple[np.ndarray, float, float]:
        """Projects a point on the occupancies of a confidence set.

        Args:
            target: [L, S, A, S] the point v.
            center: [L, S, A, S] Pbar, a distribution over the next states of every pair.
            radius: [L, S, A] eps.

        Returns:
            The projection [L, S, A, S], its infeasibility and its certified gap (`certificate`).

        Raises:
            RuntimeError: when no answer passes the certificate.
        """
        mask = self.triples
        # For each binding pair: its triples, q - Pbar q(x,a) as a matrix, and eps.
        self.blocks = []
        for k, x, a in np.argwhere(mask.any(-1)):
            here = mask[k, x, a]
            if radius[k, x, a] < VOID and here.sum() > 1:
                p = center[k, x, a][here]
                deviation = np.eye(len(p)) - np.outer(p, np.ones(len(p)))
                self.blocks.append((self.index[k, x, a][here], deviation, radius[k, x, a]))
        best = (np.zeros(mask.shape), np.inf, np.inf)
        for tolerance in (1e-12, 1e-11, 1e-10, 1e-9, 1e-8):
            near = self.solve(target[mask], tolerance)
            if near is None:
                continue
            for width in (1e-6, 1e-5, 1e-4, 1e-3):
                q = np.zeros(mask.shape)
                q[mask] = self.polish(target[mask], near, width)
                infeasibility, gap = certificate(mask, q, target, center, radius)
                if max(infeasibility, gap) < max(best[1:]):
                    best = (q, infeasibility, gap)
                if max(best[1:]) <= TOLERANCE * max(1.0, np.abs(target).max()):
                    return np.where(best[0] > ROUNDING, best[0], 0.0), best[1], best[2]
        raise RuntimeError(f"no projection: infeasibility {best[1]:.1e}, gap {best[2]:.1e}")

    def solve(self, target: np.ndarray, tolerance: float) -> np.ndarray | None:
        """Returns q as Clarabel finds it, or None when it fails at this tolerance."""
        n, n_d = self.num_triples, sum(len(columns) for columns, _, _ in self.blocks)
        inequalities = [np.hstack([-np.eye(n), np.zeros((n, n_d))])]
        start = n
        for columns, deviation, eps in self.blocks:
            size = len(columns)
            above = np.zeros((size, n + n_d))  # (q - Pbar s) - d <= 0
            above[:, columns] = deviation
            below = -above  # -(q - Pbar s) - d <= 0
            total = np.zeros((1, n + n_d))  # sum d - eps s <= 0
            total[0, columns] = -eps
            d = np.arange(start, start + size)
            above[np.arange(size), d] = -1.0
            below[np.arange(size), d] = -1.0
            total[0, d] = 1.0
            inequalities += [above, below, total]
            start += size
        equalities = np.hstack([self.flow, np.zeros((len(self.flow), n_d))])
        A = np.vstack([equalities, *inequalities])
        b = np.concatenate([self.supply, np.zeros(len(A) - len(self.supply))])
        P = sp.diags(np.concatenate([np.ones(n), np.zeros(n_d)]), format="csc")
        c = np.concatenate([-target, np.zeros(n_d)])
        cones = [
            clarabel.ZeroConeT(len(self.supply)),
            clarabel.NonnegativeConeT(len(b) - len(self.supply)),
        ]
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.max_threads = 1
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
        answer = clarabel.DefaultSolver(P, c, sp.csc_matrix(A), b, cones, settings).solve()
        if str(answer.status) not in ("Solved", "AlmostSolved"):
            return None
        return np.array(answer.x)[:n]

    def polish(self, target: np.ndarray, near: np.ndarray, width: float) -> np.ndarray:
        """Projects again, exactly, with only the inequalities that are tight or nearly so.

        Here d is gone: sum |e| <= eps s is sigma^T e <= eps s for every vector sigma of signs, 2^n
        inequalities for n next states. What is left is a least distance problem, which non-negative
        least squares solves in finitely many steps (Lawson and Hanson, chapter 23).

        Args:
            target: v.
            near: a point near the projection.
            width: inequalities with a slack below this at that point are kept.
        """
        n = self.num_triples
        rows = [-np.eye(n)]
        for columns, deviation, eps in self.blocks:
            signs = np.array(list(itertools.product((-1.0, 1.0), repeat=len(columns))))
            facets = np.zeros((len(signs), n))
            facets[:, columns] = signs @ deviation - eps
            rows.append(facets)
        N = np.vstack(rows)
        N = N[N @ near > -width]

        # The nearest point q_0 of the flow space, then min ||u|| for q = q_0 + Z u, N q <= 0.
        Z = self.kernel
        q_0 = target + np.linalg.lstsq(self.flow, self.supply - self.flow @ target)[0]
        excess = N @ q_0
        scale = np.abs(excess).max(initial=0.0)
        tight = np.zeros(len(N), bool)
        if (excess > 0).any():
            E = np.vstack([-(N @ Z).T, excess / scale])
            tight = nnls(E, np.eye(len(E))[-1])[0] > 0

        # The tight ones as equations, by least squares; a second pass removes the rounding.
        B = np.vstack([self.flow, N[tight]])
        c = np.concatenate([self.supply, np.zeros(tight.sum())])
        q = target
        for _ in range(2):
            q = q + np.linalg.lstsq(B, c - B @ q, rcond=1e-11)[0]
        return q


def certificate(
    triples: np.ndarray,
    occupancy: np.ndarray,
    target: np.ndarray,
    center: np.ndarray,
    radius: np.ndarray,
) -> tuple[float, float]:
    """Measures how far an occupancy is from being the projection, without any solver.

    q is the projection of v exactly when (v - q)^T (z - q) <= 0 for all z in Delta(P_i). The
    largest value of that over z, the gap, is a linear problem that dynamic programming solves: from
    the last layer back, take the best action and the best transitions in the confidence ball. For a
    feasible q the distance to the projection is at most the square root of the gap.

    Returns:
        The largest violation of a constraint by q, and the gap.
    """
    direction = target - occupancy
    infeasibility = max(0.0, -occupancy.min(), np.abs(occupancy[~triples]).max(initial=0.0))
    inflow = np.eye(triples.shape[1])[0]
    for q, p, eps, here in zip(occupancy, center, radius, triples, strict=True):
        s = q.sum(axis=2)
        excess = np.abs(q - p * s[..., None]).sum(axis=2) - eps * s
        lost = np.abs(s.sum(axis=1) - inflow)[here.any((1, 2))]
        infeasibility = max(infeasibility, lost.max(), excess[here.any(2)].max())
        inflow = q.sum(axis=(0, 1))
    value = np.zeros(triples.shape[1])
    for k in reversed(range(len(triples))):
        payoff = direction[k] + value
        value = np.zeros(triples.shape[1])
        for x in np.flatnonzero(triples[k].any((1, 2))):
            value[x] = max(
                _best_mean(payoff[x, a][here], center[k, x, a][here], radius[k, x, a])
                for a, here in enumerate(triples[k, x])
                if here.any()
            )
    return infeasibility, max(0.0, value[0] - np.sum(direction * occupancy))


def _best_mean(payoff: np.ndarray, p: np.ndarray, eps: float) -> float:
    """Returns the largest payoff^T P over distributions P with ||P - p||_1 <= eps."""
    P = p.copy()
    order = np.argsort(payoff)
    best = order[-1]
    moved = min(eps / 2, 1 - p[best])
    P[best] += moved
    for j in order[:-1]:  # take the mass from the worst first
        taken = min(P[j], moved)
        P[j] -= taken
        moved -= taken
    return float(payoff @ P)


def random_episode(
    rng: np.random.Generator,
    policy: np.ndarray,
    transition: np.ndarray,
    sizes: tuple[int, ...],
    num_constraints: int,
) -> Episode:
    """Plays a policy once, [L, S, A], against [L, S, A, S] transitions, and draws r_t and G_t."""
    L, _, A = policy.shape
    states, actions, next_states = np.zeros((3, L), int)
    for k in range(L):
        states[k] = next_states[k - 1] if k else 0
        actions[k] = rng.choice(A, p=policy[k, states[k]])
        next_states[k] = rng.choice(transition.shape[-1], p=transition[k, states[k], actions[k]])
    mask = pair_mask(sizes, A)
    rewards = rng.uniform(0, 1, mask.shape) * mask
    constraints = rng.uniform(-1, 1, (num_constraints, *mask.shape)) * mask
    return Episode(states, actions, next_states, rewards, constraints)


def random_transition(
    rng: np.random.Generator, sizes: tuple[int, ...], num_actions: int
) -> np.ndarray:
    """Draws [L, S, A, S] transitions, 0 outside the instance."""
    weights = rng.exponential(size=triple_mask(sizes, num_actions).shape)
    weights = weights * triple_mask(sizes, num_actions)
    return weights / np.maximum(weights.sum(axis=3, keepdims=True), 1e-300)


def self_check(
    sizes: tuple[int, ...], num_actions: int, num_constraints: int, confidence_scale: float
) -> None:
    """Runs 300 random episodes and prints the time of one and the worst certificate."""
    rng = np.random.default_rng(0)
    twin = Twin(sizes, num_actions, num_constraints, 300, confidence_scale=confidence_scale)
    transition = random_transition(rng, sizes, num_actions)
    gap, infeasibility, seconds = 0.0, 0.0, 0.0
    for _ in range(300):
        episode = random_episode(rng, twin.policy, transition, sizes, num_constraints)
        start = time.perf_counter()
        twin.update(episode)
        seconds += time.perf_counter() - start
        gap, infeasibility = max(gap, twin.gap), max(infeasibility, twin.infeasibility)
    print(
        f"{sizes} A={num_actions} m={num_constraints} scale={confidence_scale}: "
        f"{seconds / 300 * 1e3:.1f} ms per episode, {twin.epoch} epochs, "
        f"worst infeasibility {infeasibility:.1e}, worst gap {gap:.1e}"
    )


if __name__ == "__main__":
    for case in itertools.product([(1, 3, 3, 1), (1, 4, 4, 4, 1)], (2, 3), (1, 3), (1.0, 0.1)):
        self_check(*case)
