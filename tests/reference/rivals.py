"""Slow, plain NumPy twins of the rivals of PDGD-OPS, written from their papers' updates.

Every learner has `policy()`, [L, S, A], `update(episode)` and `multipliers`, [m]; those with queues
have `queues`, which are the multipliers times V. The loss of an episode is G lambda - r, and a
policy is feasible if G^T q <= 0. Constants that a paper names can be set; the defaults are its own.

Over triples, for unknown transitions: UC-O-REPS (Rosenberg and Mansour 2019) and UCPD (Qiu et al.
2020). Over pairs, for known ones: O-REPS (Zimin and Neu 2013), the unifying framework (Castiglioni
et al. 2022), drift plus penalty (Wei, Yu and Neely 2018), COLD (Liakopoulos et al. 2019), and
PDGD-OPS as if it knew the transitions.
"""

import numpy as np

from tests.reference.mirror import Ball, KnownTransitions, onto_l1_ball
from tests.reference.pdgd_ops import VOID, pair_mask, step_constants, triple_mask


def lagrangian(episode, multipliers):
    """The loss G lambda - r, [L, S, A]."""
    return np.einsum("mksa,m->ksa", episode.constraints, multipliers) - episode.rewards


def violation(episode, occupancy):
    """G^T q, [m], for an occupancy over pairs."""
    return np.einsum("mksa,ksa->m", episode.constraints, occupancy)


def policy_of(log_occupancy, pairs):
    """pi(a|x) from ln q over pairs, uniform where q(x) = 0."""
    largest = np.max(log_occupancy, 2, where=pairs, initial=-np.inf, keepdims=True)
    weights = np.exp(log_occupancy - np.where(np.isfinite(largest), largest, 0)) * pairs
    total = weights.sum(2, keepdims=True)
    return np.where(total > 0, weights / np.where(total > 0, total, 1), uniform(pairs))


def uniform(pairs):
    """The uniform policy, 0 outside the instance."""
    return pairs / np.maximum(1, pairs.sum(2, keepdims=True))


def logarithm(values):
    with np.errstate(divide="ignore"):
        return np.log(values)


class Unknown:
    """Mirror descent with relative entropy over triples: what UC-O-REPS and UCPD share.

    Attributes:
        log_occupancy: [L, S, A, S] ln q of the occupancy that the next episode is to play.
        pair_counts: [L, S, A] visits N to each pair, up to now.
        triple_counts: [L, S, A, S] visits M to each triple, up to now.
        epoch: i, from 1.
        center: [L, S, A, S] empirical transitions at the start of the epoch.
        radius: [L, S, A] radius of the confidence set in the 1-norm.
    """

    def __init__(self, sizes, num_actions, num_constraints, confidence_log, confidence_scale):
        """`confidence_log` is the logarithm in the radius."""
        self.pairs = pair_mask(sizes, num_actions)
        self.triples = triple_mask(sizes, num_actions)
        self.ball = Ball(sizes, num_actions)
        self.confidence_log, self.confidence_scale = confidence_log, confidence_scale
        self.log_uniform = logarithm(self.triples / self.triples.sum((1, 2, 3), keepdims=True))
        self.log_occupancy = self.log_uniform
        self.multipliers = np.zeros(num_constraints)
        self.pair_counts = np.zeros(self.pairs.shape, int)
        self.triple_counts = np.zeros(self.triples.shape, int)
        self.epoch = 1
        self._start_epoch()

    @property
    def occupancy(self):
        return np.exp(self.log_occupancy)

    def policy(self):
        return policy_of(np.logaddexp.reduce(self.log_occupancy, 3), self.pairs)

    def count(self, episode):
        """Counts the visits, then begins an epoch if those of a visited pair have doubled."""
        layers = np.arange(len(self.pairs))
        visited = layers, episode.states, episode.actions
        self.pair_counts[visited] += 1
        self.triple_counts[(*visited, episode.next_states)] += 1
        if (self.pair_counts[visited] >= np.maximum(1, 2 * self.initial_counts[visited])).any():
            self.epoch += 1
            self._start_epoch()

    def descend(self, log_occupancy, step):
        """The projection, on the set of the present epoch, of q e^{-step}; `step` is [L, S, A]."""
        log_target = log_occupancy - step[..., None]
        self.log_occupancy = self.ball.entropic(log_target, self.center, self.radius)

    def _start_epoch(self):
        self.initial_counts = self.pair_counts.copy()
        N = np.maximum(1, self.pair_counts)
        following = self.triples.sum(3)
        radius = np.sqrt(2 * following * self.confidence_log / N)
        # A pair that was never visited allows any transition.
        unvisited = self.pair_counts == 0
        any_next = self.triples / np.maximum(1, following)[..., None]
        self.center = np.where(unvisited[..., None], any_next, self.triple_counts / N[..., None])
        self.radius = np.where(unvisited, VOID, self.confidence_scale * radius) * self.pairs


class UCOREPS(Unknown):
    """UC-O-REPS. It ignores constraints.

    q_{t+1} = argmin over Delta(P_i) of D(q || q_t e^{-eta l_t}), i being the epoch of episode t+1.
    """

    def __init__(
        self,
        sizes,
        num_actions,
        num_constraints,
        num_episodes,
        *,
        delta=0.05,
        confidence_scale=1.0,
        eta=None,
        confidence_log=None,
    ):
        L, X, A, T = len(sizes) - 1, sum(sizes), num_actions, num_episodes
        if confidence_log is None:
            confidence_log = np.log(T * X * A / delta)
        super().__init__(sizes, A, num_constraints, confidence_log, confidence_scale)
        self.eta = np.sqrt(np.log(X**2 * A / L**2) / T) if eta is None else eta

    def update(self, episode):
        self.count(episode)
        self.descend(self.log_occupancy, -self.eta * episode.rewards)


class UCPD(Unknown):
    """Upper confidence primal-dual.

    theta_{t+1} = argmin of <V f_t + sum_i Q_i(t) g_i, theta> + alpha D(theta || mixed theta_t),
    then Q_i(t+1) = [Q_i(t) + <g_i, theta_{t+1}>]_+: the old g with the new theta.
    """

    def __init__(
        self,
        sizes,
        num_actions,
        num_constraints,
        num_episodes,
        *,
        delta=0.05,
        confidence_scale=1.0,
        V=None,
        alpha=None,
        mixing=None,
        confidence_log=None,
    ):
        L, X, A, T = len(sizes) - 1, sum(sizes), num_actions, num_episodes
        if confidence_log is None:
            confidence_log = np.log((T + 1) * X * A / delta)
        super().__init__(sizes, A, num_constraints, confidence_log, confidence_scale)
        self.V = L * np.sqrt(T) if V is None else V
        self.alpha = L * T if alpha is None else alpha
        self.mixing = 1 / T if mixing is None else mixing
        self.queues = np.zeros(num_constraints)

    def update(self, episode):
        self.count(episode)
        mixed = np.logaddexp(
            logarithm(1 - self.mixing) + self.log_occupancy,
            logarithm(self.mixing) + self.log_uniform,
        )
        self.descend(mixed, self.V * lagrangian(episode, self.multipliers) / self.alpha)
        self.queues = np.maximum(self.queues + violation(episode, self.occupancy.sum(3)), 0)
        self.multipliers = self.queues / self.V


class Known:
    """What learners with known transitions share.

    Attributes:
        log_occupancy: [L, S, A] ln q of the occupancy that the next episode is to play.
        occupancy: [L, S, A] q.
    """

    def __init__(self, sizes, num_actions, num_constraints, transition, entropic):
        """`entropic` says how distances are measured: by relative entropy or Euclidean."""
        self.pairs = pair_mask(sizes, num_actions)
        self.polytope = KnownTransitions(sizes, num_actions, transition)
        self.multipliers = np.zeros(num_constraints)
        self.entropic = entropic
        if entropic:
            # The point of largest entropy: the uniform point on pairs need not be an occupancy.
            self._move_to_entropic(np.zeros(self.pairs.shape))
        else:
            self.occupancy = self.polytope.of_policy(uniform(self.pairs))
            self.log_occupancy = logarithm(self.occupancy)

    def policy(self):
        return policy_of(self.log_occupancy, self.pairs)

    def descend(self, step):
        """A step of mirror descent; `step` is the step size times the loss, [L, S, A]."""
        if self.entropic:
            self._move_to_entropic(self.log_occupancy - step)
        else:
            self.occupancy = self.polytope.euclidean(self.occupancy - step)
            self.log_occupancy = logarithm(self.occupancy)

    def _move_to_entropic(self, log_target):
        self.log_occupancy = self.polytope.entropic(log_target)
        self.occupancy = np.exp(self.log_occupancy)


class OREPS(Known):
    """O-REPS with full information. It ignores constraints.

    q_{t+1} = argmin over Delta(P) of D(q || q_t e^{-eta l_t}).
    """

    def __init__(self, sizes, num_actions, num_constraints, num_episodes, *, transition, eta=None):
        super().__init__(sizes, num_actions, num_constraints, transition, entropic=True)
        self.eta = entropic_step_size(sizes, num_actions, num_episodes) if eta is None else eta

    def update(self, episode):
        self.descend(-self.eta * episode.rewards)


def entropic_step_size(sizes, num_actions, num_episodes):
    """sqrt(ln(|X||A|/L)/T), for losses in [0, 1]."""
    return np.sqrt(np.log(sum(sizes) * num_actions / (len(sizes) - 1)) / num_episodes)


class Unifying(Known):
    """The unifying framework: regret minimisers on Delta(P) and {lambda >= 0, |lambda|_1 <= R}.

    Both see episode t at (q_t, lambda_t).
    """

    def __init__(
        self,
        sizes,
        num_actions,
        num_constraints,
        num_episodes,
        *,
        transition,
        rho,
        entropic=True,
        eta=None,
        dual_eta=None,
    ):
        L, m, T = len(sizes) - 1, num_constraints, num_episodes
        super().__init__(sizes, num_actions, m, transition, entropic)
        self.dual_radius = min(L / rho, T**0.25) if rho > 0 else T**0.25
        largest_loss = 1 + self.dual_radius  # B
        if eta is None:
            eta = entropic_step_size(sizes, num_actions, T)
            if not entropic:  # the diameter of Delta(P) over the Lipschitz constant
                eta = np.sqrt(2 * L / (self.pairs.sum() * T))
            eta = eta / largest_loss
        self.eta = eta
        self.dual_eta = self.dual_radius / (L * np.sqrt(m * T)) if dual_eta is None else dual_eta

    def update(self, episode):
        gradient = violation(episode, self.occupancy)  # at q_t
        self.descend(self.eta * lagrangian(episode, self.multipliers))
        self.multipliers = onto_l1_ball(
            self.multipliers + self.dual_eta * gradient, self.dual_radius
        )


class WeiYuNeely(Known):
    """Drift plus penalty.

    theta_{t+1} = argmin of <V f_t + sum_i Q_i(t) g_i, theta> + alpha ||theta - theta_t||^2, then
    Q_i(t+1) = [Q_i(t) + <g_i, theta_{t+1}>]_+: the old g with the new theta.
    """

    def __init__(
        self,
        sizes,
        num_actions,
        num_constraints,
        num_episodes,
        *,
        transition,
        V=None,
        alpha=None,
    ):
        super().__init__(sizes, num_actions, num_constraints, transition, entropic=False)
        self.V = np.sqrt(num_episodes) if V is None else V
        self.alpha = num_episodes if alpha is None else alpha
        self.queues = np.zeros(num_constraints)

    def update(self, episode):
        self.descend(self.V * lagrangian(episode, self.multipliers) / (2 * self.alpha))
        self.queues = np.maximum(self.queues + violation(episode, self.occupancy), 0)
        self.multipliers = self.queues / self.V


class COLD(WeiYuNeely):
    """The same update for adversarial constraints, with the constants for K = T^(1 - eps)."""

    def __init__(self, sizes, num_actions, num_constraints, num_episodes, *, transition, eps=0.5):
        T = num_episodes
        V = T ** (1 - eps / 2)
        super().__init__(
            sizes,
            num_actions,
            num_constraints,
            T,
            transition=transition,
            V=V,
            alpha=V * np.sqrt(T),
        )


class KnownPDGDOPS(Known):
    """PDGD-OPS on Delta(P): its steps, and losses measured in as many dimensions as pairs.

    eta_t = 1/(lbar_t C sqrt(T)), lbar_t the largest loss up to t; lambda in [0, T^(1/4)]^m moves by
    eta G_t^T q_t, with q_t and not q_{t+1}.
    """

    def __init__(
        self,
        sizes,
        num_actions,
        num_constraints,
        num_episodes,
        *,
        transition,
        delta=0.05,
        rates="tuned",
    ):
        super().__init__(sizes, num_actions, num_constraints, transition, entropic=False)
        self.num_episodes = num_episodes
        self.step_constant, self.dual_eta = step_constants(
            tuple(sizes), num_actions, num_constraints, num_episodes, delta, rates, self.pairs
        )
        self.largest_loss = 0.0
        self.largest_multiplier = num_episodes**0.25

    def update(self, episode):
        gradient = violation(episode, self.occupancy)
        loss = lagrangian(episode, self.multipliers)
        self.largest_loss = max(self.largest_loss, np.abs(loss[self.pairs]).max())
        if self.largest_loss > 0:
            eta = 1 / (self.largest_loss * self.step_constant * np.sqrt(self.num_episodes))
            self.descend(eta * loss)
        self.multipliers = np.clip(
            self.multipliers + self.dual_eta * gradient, 0, self.largest_multiplier
        )
