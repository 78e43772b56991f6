r"""The quantities of the paper's theorems, one function each.

Theorems and lemmas are numbered as in the paper, which counts its two conditions as Theorems 1
and 2.

Functions take and return plain numbers, except the radii, which learners use, and `pace`, which a
run uses; `bernstein_radius` and `hoeffding_radius` are those of rivals with bandit feedback.
Symbols: $L$ `num_layers`, $|X|$ `num_states` (first and last included), $|A|$ `num_actions`, $U_2$
`dimension` (the number of triples, since we project there), $m$ `num_constraints`, $T$
`num_episodes`, $C$ and $\eta$ the `rates`.

The file is longer than others: it is read beside the paper, in its order, and each function is a
formula with its reference.
"""

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from pdgd_jax._internal.typing import Traced

__all__ = [
    "Bound",
    "Pace",
    "Problem",
    "alpha",
    "believed_violation",
    "bernstein_radius",
    "constraint_deviation",
    "dual_increment",
    "dual_interval_regret",
    "dual_utility",
    "episodes_for_margin",
    "estimation_error",
    "hoeffding_radius",
    "multiplier_bound",
    "multiplier_ceiling",
    "pace",
    "primal_descent_regret",
    "primal_interval_regret",
    "radius",
    "rates_allow_multiplier_bound",
    "regret_bound",
    "required_margin",
    "reward_deviation",
    "slater_condition_holds",
    "violation_bound",
]


class Problem(NamedTuple):
    r"""The numbers that every bound depends on.

    Attributes:
      num_layers: $L$.
      num_states: $|X|$.
      num_actions: $|A|$.
      dimension: $U_2$, the number of triples $(x, a, x')$.
      num_constraints: $m$.
      num_episodes: $T$.
      delta: $\delta$.
      primal: $C$ in the primal player's step $1 / (\bar\ell_t C \sqrt T)$.
      dual: $\eta$, the dual player's step.
      known: whether the transitions are known, so that there is no error of estimation, and
        $U_2$ counts pairs.
    """

    num_layers: int
    num_states: int
    num_actions: int
    dimension: int
    num_constraints: int
    num_episodes: int
    delta: float
    primal: float
    dual: float
    known: bool = False


class Bound(NamedTuple):
    r"""A bound and its probability.

    Attributes:
      value: the right-hand side.
      probability: the bound holds with at least this probability; 1 if it always holds.
      theorem: where the paper states it.
    """

    value: float
    probability: float
    theorem: str


def radius(
    visits: Int[Array, "*shape"] | int,
    next_layer_size: Int[Array, "*#shape"] | int,
    num_states: Int[Array, ""] | int,
    num_actions: Int[Array, ""] | int,
    num_episodes: Float[Array, ""] | float,
    delta: Float[Array, ""] | float,
) -> Float[Array, "*shape"]:
    r"""$\epsilon = \sqrt{2 |X_{k+1}| \ln(T|X||A|/\delta) / \max\{1, N\}}$; may be traced.

    Reference:
      Equation "Confidence set": with probability $1 - \delta$ it holds the true transitions in
      every epoch (Lemma 5). If it is known that only $K$ states can follow a pair, $K$ takes the
      place of $|X_{k+1}|$: by Weissman's inequality an estimate from $N$ visits is off by
      $\epsilon$ with probability at most $(2^K - 2) e^{-N \epsilon^2 / 2}$. With this radius that
      is at most $2^K (\delta / (T |X| |A|))^K$, which is below $\delta / (T |X| |A|)$ if $K > 1$
      and $T |X| |A| \ge 4 \delta$; and if $K = 1$ there is nothing to estimate.
    """
    logarithm = jnp.log(num_episodes * (num_states * num_actions / delta))
    return jnp.sqrt(2 * next_layer_size * logarithm / jnp.maximum(1, visits))


def bernstein_radius(
    transition: Float[Array, "*shape"],
    visits: Int[Array, "*#shape"] | int,
    logarithm: Float[Array, ""] | float,
    variant: Literal["jin", "efroni"] = "jin",
) -> Float[Array, "*shape"]:
    r"""How far an estimate may be from a probability, entry by entry; may be traced.

    With $\bar P$ estimated from $N$ visits and the logarithm $\iota$,

    $$2\sqrt{\frac{\bar P \iota}{n}} + \frac{14 \iota}{3 n}, \quad n = \max\{1, N - 1\},
    \qquad\text{or}\qquad
    2\sqrt{\frac{\bar P (1 - \bar P) \iota}{n}} + \frac{14 \iota}{3 n}, \quad n = \max\{1, N\}.$$

    Args:
      transition: $\bar P$.
      visits: $N$, of the pair of each entry.
      logarithm: $\iota$: $\ln(T |X| |A| / \delta)$ for Jin et al., and for Efroni et al.
        $\ln(6 |X| |A| T / \delta)$.
      variant: the first formula is that of Jin et al., the second that of Efroni et al.

    Reference:
      C. Jin et al., *Learning adversarial MDPs with bandit feedback and unknown transition*, ICML
      2020; Y. Efroni et al., *Exploration-exploitation in constrained MDPs*, 2020, with the factors
      of published code. Both go back to Theorem 4 of Maurer and Pontil (2009): with probability
      $1 - \delta'$ an estimate is too small by at most $\sqrt{2 V \ln(2/\delta') / N} +
      7 \ln(2/\delta') / (3 (N - 1))$, where $V = \bar P (1 - \bar P) N / (N - 1)$ is the sample
      variance. So the first radius is large enough if $2 \iota \ge \ln(2/\delta')$.
    """
    if variant not in ("jin", "efroni"):
        raise ValueError(f"the variant is 'jin' or 'efroni'; got {variant!r}.")
    jin = variant == "jin"
    count = jnp.maximum(1, visits - 1 if jin else visits)
    variance = transition if jin else transition * (1 - transition)
    return 2 * jnp.sqrt(variance * logarithm / count) + 14 / 3 * logarithm / count


def hoeffding_radius(
    visits: Int[Array, "*shape"] | int, logarithm: Float[Array, ""] | float
) -> Float[Array, "*shape"]:
    r"""How far a mean of numbers in [0, 1] may be from its expectation; may be traced.

    $\sqrt{2 \iota / \max\{1, N\}}$, with $\iota = \ln(6 |X| |A| T (m + 1) / \delta)$ for the loss
    and the costs of Efroni et al.; twice what Hoeffding's inequality asks for.

    Args:
      visits: $N$.
      logarithm: $\iota$.

    Reference:
      Y. Efroni, S. Mannor, M. Pirotta, *Exploration-exploitation in constrained MDPs*, 2020.
    """
    return jnp.sqrt(2 * logarithm / jnp.maximum(1, visits))


Root: TypeAlias = Callable[[Any], Any]  # of the host or of JAX


def estimation_error(problem: Problem) -> Bound:
    r"""$\mathcal E^q_\delta \ge \sum_t \|q_t - \hat q_t\|_1$.

    $4 L |X| \sqrt{2 T \ln(1/\delta)} + 6 L |X| \sqrt{2 T |A| \ln(T |X| |A| / \delta)}$.

    Reference:
      Lemma 2 and its event.
    """
    if problem.known:
        return Bound(0.0, 1.0, "transitions are known")
    value = _error(*_sizes(problem), math.sqrt, math.log)
    return Bound(value, 1 - 2 * problem.delta, "Lemma 2, estimation of transitions")


def _error(L: Traced, X: Traced, A: Traced, T: Traced, delta: Traced, sqrt: Root, log: Root) -> Any:
    first = 4 * L * X * sqrt(2 * T * log(1 / delta))
    return first + 6 * L * X * sqrt(2 * T * A * log(T * X * A / delta))


def reward_deviation(problem: Problem) -> Bound:
    r"""$\mathcal E^r_\delta = L \sqrt{T \ln(2/\delta) / 2}$.

    Reference:
      Lemma 3: bounds $|\sum_t (r_t - \bar r)^\top q^*|$.
    """
    L, _, _, T, delta = _sizes(problem)
    value = L / math.sqrt(2) * math.sqrt(T * math.log(2 / delta))
    return Bound(value, 1 - delta, "Lemma 3, deviation of rewards")


def constraint_deviation(problem: Problem, length: int | None = None) -> Bound:
    r"""$\mathcal E^G_{t_1,t_2,\delta} = 2 L \sqrt{2 (t_2 - t_1 + 1) \ln(T^2/\delta)}$.

    Args:
      problem: the problem.
      length: $t_2 - t_1 + 1$; the whole run by default.

    Reference:
      Lemma 4: times $\max_t \|\lambda_t\|_1$ it bounds
      $|\sum_t \lambda_t^\top (G_t - \bar G)^\top q|$, for every interval at once.
    """
    L, _, _, T, delta = _sizes(problem)
    length = T if length is None else length
    value = 2 * L * math.sqrt(2 * length * math.log(T**2 / delta))
    return Bound(value, 1 - delta, "Lemma 4, deviation of constraints")


def primal_descent_regret(
    problem: Problem,
    largest_loss: float,
    length: int | None = None,
    largest_loss_inside: float | None = None,
) -> Bound:
    r"""Bound on $\sum_{t_1}^{t_2} \ell_t^\top (\hat q_t - q)$, $q \in \cap_i \Delta(\mathcal P_i)$.

    $L \bar\ell_{t_2} C \sqrt T + U_2 \bar\ell_{t_1,t_2} (t_2 - t_1 + 1) / (2 C \sqrt T)$. It always
    holds, since it is the regret of projected gradient descent.

    Args:
      problem: the problem.
      largest_loss: $\bar\ell_{t_2}$, the largest loss up to $t_2$.
      length: $t_2 - t_1 + 1$; the whole run by default.
      largest_loss_inside: $\bar\ell_{t_1,t_2}$; `largest_loss` by default.

    Reference:
      Lemma 10.
    """
    length = problem.num_episodes if length is None else length
    inside = largest_loss if largest_loss_inside is None else largest_loss_inside
    pace = problem.primal * math.sqrt(problem.num_episodes)
    value = problem.num_layers * largest_loss * pace + problem.dimension * inside * length / (
        2 * pace
    )
    return Bound(value, 1.0, "Lemma 10, projected gradient descent")


def primal_interval_regret(
    problem: Problem,
    largest_loss: float,
    length: int | None = None,
    largest_loss_inside: float | None = None,
) -> Bound:
    r"""Bound on $R^P_{t_1,t_2}(q) = \sum_{t_1}^{t_2} \ell_t^\top (q_t - q)$.

    `primal_descent_regret` plus $\bar\ell_{t_1,t_2} \mathcal E^q_\delta$; it takes the same
    arguments.

    Reference:
      Theorem 3.
    """
    inside = largest_loss if largest_loss_inside is None else largest_loss_inside
    error = estimation_error(problem)
    descent = primal_descent_regret(problem, largest_loss, length, largest_loss_inside)
    return Bound(
        descent.value + inside * error.value,
        error.probability,
        "Theorem 3, interval regret of the primal player",
    )


def dual_interval_regret(problem: Problem, distance: float, length: int | None = None) -> Bound:
    r"""Bound on $R^D_{t_1,t_2}(\lambda) = \sum_t (\lambda - \lambda_t)^\top G_t^\top \hat q_t$.

    $\|\lambda_{t_1} - \lambda\|_2^2 / (2\eta) + \eta m L^2 (t_2 - t_1 + 1) / 2$.

    Args:
      problem: the problem.
      distance: $\|\lambda_{t_1} - \lambda\|_2$.
      length: $t_2 - t_1 + 1$; the whole run by default.

    Reference:
      Appendix, "Interval Regret of the dual".
    """
    length = problem.num_episodes if length is None else length
    drift = problem.dual * problem.num_constraints * problem.num_layers**2 * length / 2
    value = distance**2 / (2 * problem.dual) + drift
    return Bound(value, 1.0, "Section 5, interval regret of the dual player")


class Pace(NamedTuple):
    r"""The terms of the bounds on interval regrets, so that a run can check every interval.

    The regret of the dual player over an interval $[t_1, t_2]$ is at most
    `dual_start` $\|\lambda_{t_1} - \lambda\|_2^2$ plus `dual_step` for each of its episodes. The
    regret of the primal player is at most `primal_end` $\bar\ell_{t_2}$ plus `primal_step`
    $\|\ell_t\|_\infty^2 / \bar\ell_t$ for each of its episodes: the proof of Lemma 10 shows this
    before it bounds the sum by $\bar\ell_{t_1,t_2} (t_2 - t_1 + 1)$. For the occupancies that are
    played, not believed, add `error` $\bar\ell_{t_2}$.

    Attributes:
      primal_end: $L C \sqrt T$.
      primal_step: $U_2 / (2 C \sqrt T)$.
      error: $\mathcal E^q_\delta$.
      dual_start: $1 / (2 \eta)$.
      dual_step: $\eta m L^2 / 2$.
    """

    primal_end: Traced
    primal_step: Traced
    error: Traced
    dual_start: Traced
    dual_step: Traced


def pace(
    num_layers: Traced,
    num_states: Traced,
    num_actions: Traced,
    dimension: Traced,
    num_episodes: Traced,
    delta: Traced,
    primal: Traced,
    dual: Traced,
    *,
    num_constraints: int,
    known: bool = False,
) -> Pace:
    """The terms of the bounds on interval regrets; every number may be traced."""
    speed = primal * jnp.sqrt(num_episodes)
    sizes = num_layers, num_states, num_actions, num_episodes, delta
    return Pace(
        primal_end=num_layers * speed,
        primal_step=dimension / (2 * speed),
        error=0 if known else _error(*sizes, jnp.sqrt, jnp.log),
        dual_start=1 / (2 * dual),
        dual_step=dual * num_constraints * num_layers**2 / 2,
    )


def dual_utility(problem: Problem, multipliers: float, error: float) -> Bound:
    r"""Bound on $-\sum_t \lambda_t^\top G_t^\top q_t$.

    $\Lambda \sum_t \|q_t - \hat q_t\|_1 + R^D_T(0)$.

    Args:
      problem: the problem.
      multipliers: $\Lambda \ge \|\lambda_t\|_1$.
      error: $\sum_t \|q_t - \hat q_t\|_1$, as measured.

    Reference:
      Lemma 13, before it bounds the error, so that it always holds.
    """
    value = multipliers * error + dual_interval_regret(problem, 0.0).value
    return Bound(value, 1.0, "Lemma 13, utility of the dual player")


def believed_violation(problem: Problem, stochastic_constraints: bool = True) -> Bound:
    r"""Bound on $\hat V_{T,i} = \sum_t [G_t^\top \hat q_t]_i$: $(2 + 2L) T^{1/4} / \eta$.

    Reference:
      Lemma 16, which needs no condition on $\rho$ other than $\rho \ge 0$, and the proof's rates.
    """
    value = (2 + 2 * problem.num_layers) * problem.num_episodes**0.25 / problem.dual
    probability = 1 - (2 if stochastic_constraints else 1) * problem.delta
    return Bound(value, probability, "Lemma 16, violation of what is believed")


def dual_increment(problem: Problem) -> Bound:
    r"""$\|\lambda_{t+1}\|_1 - \|\lambda_t\|_1 \le m \eta L$.

    Reference:
      Lemma 11.
    """
    value = problem.num_constraints * problem.dual * problem.num_layers
    return Bound(value, 1.0, "Lemma 11, one step of the dual player")


def multiplier_ceiling(num_episodes: Traced) -> Any:
    r"""$T^{1/4}$, the upper end of the dual player's box."""
    return num_episodes**0.25


def multiplier_bound(problem: Problem, rho: float, stochastic_constraints: bool = True) -> Bound:
    r"""$\zeta = 20 m L^2 / \rho^2 \ge \|\lambda_t\|_1$, if the condition on $\rho$ holds.

    Reference:
      Theorem 4, for rates that `rates_allow_multiplier_bound`.
    """
    zeta = math.inf
    if rho > 0:
        zeta = 20 * problem.num_constraints * problem.num_layers**2 / rho**2
    probability = 1 - (2 if stochastic_constraints else 1) * problem.delta
    return Bound(zeta, probability, "Theorem 4, the multipliers stay bounded")


def rates_allow_multiplier_bound(problem: Problem) -> bool:
    r"""Whether $C$ and $\eta$ meet the conditions in the proof of the bound on the multipliers.

    $C \ge 5 U_2 / L$ and $\eta \le \min\{L / (5 D_2), 1 / (10 m U_1 C \sqrt T),
    1 / (10 m U_3 l_1 \sqrt T)\}$ with $D_2 = m L^2 / 2$, $U_1 = 2L$, $U_3 = 2 \sqrt 2 L$ and
    $l_1 = \sqrt{\ln(T^2/\delta)}$; and $\eta \le 1/(mL)$.

    Reference:
      The boxed conditions in the proof of Theorem 4.
    """
    L, _, _, T, delta = _sizes(problem)
    m, C, eta = problem.num_constraints, problem.primal, problem.dual
    logarithm = math.sqrt(math.log(T**2 / delta))
    # The step sizes are often those of the proof, rounded to float32.
    slack = 1 + 1e-5
    steps = (
        2 / (5 * m * L),
        1 / (m * L),
        1 / (20 * m * L * C * math.sqrt(T)),
        1 / (20 * math.sqrt(2) * m * L * logarithm * math.sqrt(T)),
    )
    return C * slack >= 5 * problem.dimension / L and eta <= min(steps) * slack


def alpha(rho: float, num_layers: int) -> float:
    r"""$\alpha = \rho / (L + \rho)$, the share of OPT that is guaranteed against an adversary."""
    return max(rho, 0.0) / (num_layers + max(rho, 0.0))


def regret_bound(
    problem: Problem,
    multipliers: float,
    *,
    stochastic_rewards: bool,
    stochastic_constraints: bool,
    rho: float = 0.0,
    opt: float = 0.0,
    error: float | None = None,
    theorem: str | None = None,
) -> Bound:
    r"""The right-hand side of the bounds on $R_T$.

    $$\mathcal E^r_\delta + \Lambda (\mathcal E^G_\delta + \mathcal E^q_\delta) + R^D_T(0)
    + R^P_T(q^*)$$

    for stochastic constraints, and for adversarial ones
    $\frac{L}{L+\rho} T \, \mathrm{OPT} + \mathcal E^r_\delta + \Lambda \mathcal E^q_\delta
    + R^D_T(0) + R^P_T(\tilde q)$; without $\mathcal E^r_\delta$ if rewards are adversarial.
    $\Lambda$ bounds $\|\lambda_t\|_1$: $\zeta$ in Theorems 5 and 7, $m T^{1/4}$ in Theorem 6, or
    what was measured.

    Args:
      problem: the problem.
      multipliers: $\Lambda$.
      stochastic_rewards: whether rewards are stochastic.
      stochastic_constraints: whether constraints are stochastic.
      rho: $\rho$, for adversarial constraints.
      opt: $\mathrm{OPT}_{\bar r, \bar G}$, for adversarial constraints.
      error: $\sum_t \|q_t - \hat q_t\|_1$, if measured; its bound $\mathcal E^q_\delta$ by default.
      theorem: the name of the theorem; by default it follows from the kind of constraints.
    """
    # The proof needs coverage of the true transitions and, unless it is measured, a bounded error.
    failures = 0 if problem.known else 2 if error is None else 1
    error = estimation_error(problem).value if error is None else error
    value = multipliers * error
    if stochastic_constraints:
        value += multipliers * constraint_deviation(problem).value
        failures += 2
    else:
        value += (1 - alpha(rho, problem.num_layers)) * problem.num_episodes * opt
    if stochastic_rewards:
        value += reward_deviation(problem).value
        failures += 1
    value += dual_interval_regret(problem, 0.0).value
    value += primal_descent_regret(problem, 1 + multipliers).value + (1 + multipliers) * error
    name = "Theorem 5" if stochastic_constraints else "Theorem 7"
    return Bound(value, max(0.0, 1 - failures * problem.delta), f"{theorem or name}, regret")


def violation_bound(
    problem: Problem,
    multipliers: float,
    *,
    stochastic_rewards: bool,
    stochastic_constraints: bool,
    theorem: str | None = None,
) -> Bound:
    r"""The right-hand side of the bounds on $V_T$: $\Lambda / \eta + \mathcal E^q_\delta$.

    $\Lambda$ is $\zeta$ in Theorems 5 and 7, $(2 + 2L) T^{1/4}$ in Theorem 6, or the last
    multiplier of a run in which none touched the ceiling $T^{1/4}$.
    """
    error = estimation_error(problem)
    failures = 2 + 2 * stochastic_constraints + stochastic_rewards
    name = "Theorem 5" if stochastic_constraints else "Theorem 7"
    return Bound(
        multipliers / problem.dual + error.value,
        max(0.0, 1 - failures * problem.delta),
        f"{theorem or name}, violation",
    )


def required_margin(num_layers: int, num_constraints: int, num_episodes: float) -> float:
    r"""The smallest margin for which the $\sqrt T$ guarantees hold, $T^{-1/8} L \sqrt{20 m}$.

    Since $\rho \le L$, no instance meets it before $T = (20 m)^4$ episodes: 160,000 for m = 1.

    Args:
      num_layers: $L$.
      num_constraints: $m$.
      num_episodes: $T$.

    Reference:
      The paper's condition on $\rho$ (Section 2.5, "Feasibility Parameter").
    """
    return num_layers * math.sqrt(20 * num_constraints) * num_episodes ** (-1 / 8)


def slater_condition_holds(
    rho: float, num_layers: int, num_constraints: int, num_episodes: int
) -> bool:
    r"""Whether $\rho \ge T^{-1/8} L \sqrt{20 m}$."""
    return rho >= required_margin(num_layers, num_constraints, num_episodes)


def episodes_for_margin(rho: float, num_layers: int, num_constraints: int) -> float | None:
    r"""The horizon from which the condition holds, $(L \sqrt{20 m} / \rho)^8$; None if never."""
    if rho <= 0:
        return None
    return (num_layers * math.sqrt(20 * num_constraints) / rho) ** 8


def _sizes(problem: Problem) -> tuple[int, int, int, int, float]:
    L, X, A = problem.num_layers, problem.num_states, problem.num_actions
    return L, X, A, problem.num_episodes, problem.delta
