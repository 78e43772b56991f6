r"""The quantities of the rivals' theorems, one function each.

Bounds that always hold come first; what chance decides has its probability. $\eta$ is the step of
the primal player. Players with queues $Q = V \lambda$ have the step $V / \alpha$ if entropic and
$V / (2 \alpha)$ if Euclidean, and $1 / V$ for the dual player. Losses $\ell_t = -r_t$ of learners
without constraints lie in $[-1, 0]$, which is as good as $[0, 1]$: every occupancy has mass 1 in
each layer.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

from pdgd_jax.theory._paper import Bound, Problem

__all__ = [
    "Descent",
    "descent_regret",
    "dual_regret",
    "entropy_to_start",
    "estimation_loss",
    "lagrangian_regret",
    "o_reps_regret",
    "queue_bound",
    "queue_regret",
    "uc_o_reps_regret",
    "window_drift",
]


class Descent(NamedTuple):
    r"""The constants of a player that descends in a mirror map with a constant step.

    Attributes:
      step: $\eta$.
      reach: $\max_q B(q, \hat q_1)$. Half of $\|q - q'\|_2^2 \le 2 L$ over pairs, or
        `entropy_to_start`.
      curvature: $\kappa$: a step with the loss $\ell$ gains at most $\eta \kappa \|\ell\|_\infty^2
        / 2$. The number of pairs if Euclidean. If entropic, $L c^2 / 4$ by Hoeffding's lemma in
        each layer, where $c \|\ell\|_\infty$ is the range of the losses.
      spread: $c$: 1 for losses of one sign, 2 otherwise.
      mixing: $\gamma$, the share of the uniform occupancy.
    """

    step: float
    reach: float
    curvature: float
    spread: float = 2.0
    mixing: float = 0.0


def entropy_to_start(sizes: Iterable[int]) -> float:
    r"""$\sum_k \ln n_k \ge D(q \| \hat q_1)$ for every occupancy $q$ of the set.

    $n_k$ is the number of triples of layer $k$ if $\hat q_1$ is uniform over them, and the number
    of pairs if $\hat q_1$ has the largest entropy over the pairs of known transitions: then
    $D(q \| \hat q_1) \le H(\hat q_1) - H(q)$.

    Reference:
      Rosenberg and Mansour (2019); Zimin and Neu (2013), where it is $L \ln(|X| |A| / L)$, which is
      not smaller.
    """
    return sum(math.log(size) for size in sizes)


def descent_regret(
    player: Descent, num_layers: int, num_episodes: int, squared_losses: float
) -> Bound:
    r"""Bound on $\sum_t \ell_t^\top (\hat q_t - q)$ for every $q$ in all sets.

    $$\frac{1}{\eta} \Big(B(q, \hat q_1) + T L \ln \frac{1}{1 - \gamma}\Big)
    + \frac{\eta \kappa}{2} S + \gamma c L \sqrt{T S}, \qquad S = \sum_t \|\ell_t\|_\infty^2.$$

    It always holds: it is the regret of mirror descent, and mixing costs the other two terms, since
    $D(q \| \tilde q_t) \le D(q \| \hat q_t) + L \ln(1 / (1 - \gamma))$.

    Args:
      player: the player.
      num_layers: $L$.
      num_episodes: $T$, or how many were played.
      squared_losses: $S$.

    Reference:
      For losses in [0, 1], $\eta L T + \sum_k \ln(|X_k| |A| |X_{k+1}|) / \eta$ in Rosenberg and
      Mansour (2019). Hoeffding's lemma makes the first term eight times smaller.
    """
    lost = -num_episodes * num_layers * math.log1p(-player.mixing)
    value = (
        player.reach + lost
    ) / player.step + player.step * player.curvature / 2 * squared_losses
    moved = player.mixing * player.spread * num_layers * math.sqrt(num_episodes * squared_losses)
    return Bound(value + moved, 1.0, "regret of mirror descent")


def estimation_loss(problem: Problem) -> Bound:
    r"""Bound on $\sum_t \ell_t^\top (q_t - \hat q_t)$ for losses in an interval of length 1.

    $3 L |X| (2 \sqrt{T \ln(L / \delta)} + 3 \sqrt{T |A| \ln(T |X| |A| / \delta)})$.

    Reference:
      Rosenberg and Mansour (2019), the second part of the regret of UC-O-REPS.
    """
    L, X, A = problem.num_layers, problem.num_states, problem.num_actions
    T, delta = problem.num_episodes, problem.delta
    visits = 3 * math.sqrt(T * A * math.log(T * X * A / delta))
    value = 3 * L * X * (2 * math.sqrt(T * math.log(L / delta)) + visits)
    return Bound(value, 1 - 2 * delta, "Rosenberg and Mansour, estimation of transitions")


def uc_o_reps_regret(problem: Problem) -> Bound:
    r"""$15 L |X| \sqrt{T |A| \ln(T |X| |A| / \delta)}$, for the paper's step.

    Reference:
      Rosenberg and Mansour (2019), the regret of UC-O-REPS with $F = 1$.
    """
    L, X, A = problem.num_layers, problem.num_states, problem.num_actions
    T, delta = problem.num_episodes, problem.delta
    value = 15 * L * X * math.sqrt(T * A * math.log(T * X * A / delta))
    return Bound(value, 1 - 2 * delta, "Rosenberg and Mansour, regret")


def o_reps_regret(problem: Problem) -> Bound:
    r"""$2 L \sqrt{T \ln(|X| |A| / L)}$, for the step that attains it.

    Reference:
      Zimin and Neu (2013), full information.
    """
    L, X, A, T = (
        problem.num_layers,
        problem.num_states,
        problem.num_actions,
        problem.num_episodes,
    )
    return Bound(2 * L * math.sqrt(T * math.log(X * A / L)), 1.0, "Zimin and Neu, full information")


def dual_regret(problem: Problem, size: float, length: int) -> Bound:
    r"""Bound on $\sum_t (\lambda - \lambda_t)^\top G_t^\top \hat q_t$, $\|\lambda\|_2$ = `size`.

    $\|\lambda\|_2^2 / (2 \eta_D) + \eta_D m L^2 T / 2$ for a dual player that begins at 0 and
    projects on a set with $\lambda$.

    Reference:
      The regret of projected gradient descent, which the framework of Castiglioni et al. (2022)
      asks of its dual player.
    """
    drift = problem.dual * problem.num_constraints * problem.num_layers**2 * length / 2
    return Bound(size**2 / (2 * problem.dual) + drift, 1.0, "regret of the dual player")


def lagrangian_regret(primal: Bound, dual: Bound, share: float, earnings: float) -> Bound:
    r"""Bound on $R_T$ from the regrets of both players against an adversary.

    $R^P_T + R^D_T(0) + (1 - \alpha) T \, \mathrm{OPT}$. With
    $\tilde q = \frac{\rho q^* + L q^\circ}{L + \rho}$ no multiplier ever gains on $\tilde q$, and
    $r^\top \tilde q \ge \alpha r^\top q^*$.

    Args:
      primal: the regret of the primal player.
      dual: that of the dual player against 0.
      share: $\alpha = \rho / (L + \rho)$; 1 where costs are no worse than their means at $q^*$.
      earnings: $T \, \mathrm{OPT}$.

    Reference:
      Castiglioni et al. (2022), whose competitive ratio is $\alpha$.
    """
    value = primal.value + dual.value + (1 - share) * earnings
    return Bound(value, 1.0, "Castiglioni et al., regret of both players")


def queue_regret(
    problem: Problem, pairs: int, weight: float, distance: float, drift: float = 0.0
) -> Bound:
    r"""Bound on $\sum_t r_t^\top (q - q_t)$ for Euclidean players with queues.

    $$\frac{V U T}{4 \alpha} + \frac{2 L \alpha}{V} + \frac{m L^2 T}{2 V} + E, \qquad
    E \ge \sum_t \lambda_t^\top G_t^\top q.$$

    Args:
      problem: the problem.
      pairs: $U$, so that $\|r_t\|_2^2 \le U$.
      weight: $V$.
      distance: $\alpha$, the weight of $\|q - q_t\|_2^2$.
      drift: $E$.

    Reference:
      The drift plus penalty of Yu, Neely and Wei (2017), Wei, Yu and Neely (2018), and Liakopoulos
      et al. (2019), Proposition 1, with the constants of an occupancy: costs are at most $L$, and
      squared distances $2 L$.
    """
    L, m, T = problem.num_layers, problem.num_constraints, problem.num_episodes
    value = weight * pairs * T / (4 * distance) + 2 * L * distance / weight
    value += m * L**2 * T / (2 * weight)
    return Bound(value + drift, 1.0, "drift plus penalty, regret")


def queue_bound(
    problem: Problem, pairs: int, weight: float, distance: float, drift: float = 0.0
) -> Bound:
    r"""Bound on $\|\lambda_{T+1}\|_2 = \|Q(T+1)\|_2 / V$ for Euclidean players with queues.

    $\frac12 \|Q\|_2^2 \le V (L T + B)$ with $B$ the bound of `queue_regret` against a policy $q$
    with $E \ge \sum_t \lambda_t^\top G_t^\top q$: no policy earns more than $L$ in an episode.

    Reference:
      As `queue_regret`; this gives the residual $O(\sqrt{V T})$ of Liakopoulos et al. (2019).
    """
    regret = queue_regret(problem, pairs, weight, distance, drift).value
    most = problem.num_layers * problem.num_episodes + regret
    return Bound(math.sqrt(2 * most / weight), 1.0, "drift plus penalty, queues")


def window_drift(problem: Problem, window: int, weight: float, largest: float) -> float:
    r"""$E \ge \sum_t \lambda_t^\top G_t^\top q$ for a policy that satisfies every window of $K$.

    $$\frac{m L^2}{V} \Big(\frac{T (K - 1)}{2} + \frac{K^2}{6}\Big)
    + \frac{L (K - 1)}{2} \max_t \|\lambda_t\|_1.$$

    Within a window a queue moves by at most $L$ in an episode. The second and the third term are
    for the episodes at both ends, which lie in fewer windows.

    Reference:
      Liakopoulos et al. (2019), Proposition 1, with both ends; it needs $T \ge 2 K$.
    """
    L, m, T = problem.num_layers, problem.num_constraints, problem.num_episodes
    inside = m * L**2 / weight * (T * (window - 1) / 2 + (window**2 / 6 if window > 1 else 0))
    return inside + L * (window - 1) / 2 * largest
