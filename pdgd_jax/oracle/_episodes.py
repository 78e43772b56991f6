r"""Optima of single episodes, and of policies that satisfy the constraints in every window."""

import numpy as np
import scipy
from jaxtyping import ArrayLike, Float, Int

from pdgd_jax._internal.checks import whole_number
from pdgd_jax._internal.typing import NDArray
from pdgd_jax.models import CMDP
from pdgd_jax.oracle._programs import OPTIONS, Flow, Optimum, best_of
from pdgd_jax.oracle._timetables import UnforeseenError, timetable_of
from pdgd_jax.processes import CONSTRAINT_BOUNDS, REWARD_BOUNDS, Timetable

__all__ = ["UnforeseenError", "episode_optima", "k_benchmark"]

# So many programs are one for HiGHS: most of the time of a small one is that of its call.
_TOGETHER = 32


def episode_optima(
    cmdp: CMDP, num_episodes: int, *, most: int | None = None
) -> Float[NDArray, " episodes"]:
    r"""The optimum of each episode by itself, $\mathrm{OPT}_{\bar r_t, \bar G_t}$.

    The dynamic regret $\sum_t (\mathrm{OPT}_{\bar r_t, \bar G_t} - r_t^\top q_t)$ is against their
    sum. One linear program is solved for each kind of episode: two for two phases, one for each
    row of a table.

    Args:
      cmdp: one CMDP.
      num_episodes: $T$.
      most: the most linear programs to solve, each counted with its number of pairs; None for any
        number.

    Returns:
      The optima; NaN where no policy satisfies the constraints of the episode.

    Raises:
      UnforeseenError: if the means of the episodes are not known beforehand, or more programs than
        `most` are needed.

    Example:
      >>> from pdgd_jax import make_for, oracle
      >>> oracle.episode_optima(make_for("two-phase", 6), 6).round(3).tolist()
      [0.5, 0.5, 0.5, 0.2, 0.2, 0.2]
    """
    rewards, constraints = (
        timetable_of(cmdp, name, num_episodes) for name in ("rewards", "constraints")
    )
    flow = Flow(cmdp.mdp)
    both = rewards.which.astype(np.int64) * len(constraints.values) + constraints.which
    kinds, of = np.unique(both, return_inverse=True)
    if most is not None and len(kinds) * flow.num_pairs > most:
        raise UnforeseenError(
            f"it needs {len(kinds):,} linear programs, which only oracle.episode_optima solves"
        )
    first, second = np.divmod(kinds, len(constraints.values))
    optima = np.empty(len(kinds))
    for begin in range(0, len(kinds), _TOGETHER):
        part = slice(begin, begin + _TOGETHER)
        objectives = flow.pairs_of("rewards", rewards.values[first[part]], REWARD_BOUNDS)
        G = flow.pairs_of("constraints", constraints.values[second[part]], CONSTRAINT_BOUNDS)
        optima[part] = _optima(flow, objectives, G)
    return optima[of.reshape(-1)]


def _optima(
    flow: Flow, objectives: Float[NDArray, "n pairs"], G: Float[NDArray, "n m pairs"]
) -> Float[NDArray, " n"]:
    """The optima of several programs: as one if all are feasible and small, else one by one."""
    n = len(objectives)
    if flow.is_small and n > 1:
        solution = scipy.optimize.linprog(
            -objectives.reshape(-1),
            A_ub=scipy.sparse.block_diag([scipy.sparse.csr_matrix(g) for g in G], format="csr"),
            b_ub=np.zeros(n * G.shape[1]),
            A_eq=scipy.sparse.block_diag([flow.matrix] * n, format="csr"),
            b_eq=np.tile(flow.source, n),
            bounds=(0, None),
            method="highs",
            options=OPTIONS,
        )
        if solution.status == 0:
            return np.asarray((objectives * solution.x.reshape(n, -1)).sum(-1))
    found = [best_of(flow, *one) for one in zip(objectives, G, strict=True)]
    return np.array([best.value if best.feasible else np.nan for best in found])


def k_benchmark(
    cmdp: CMDP,
    num_episodes: int,
    window: int,
    *,
    reward: Float[ArrayLike, "layers states actions"] | None = None,
) -> Optimum:
    r"""The best policy that satisfies the constraints over every window of $K$ episodes.

    $$q^K \in \arg\max_{q \in \Delta(M)} \sum_{t \le T} r_t^\top q \quad \text{s.t.} \quad
    \sum_{\tau=t}^{t+K-1} G_\tau^\top q \le 0 \text{ for all } t \le T - K + 1,$$

    with the means of what is drawn. For $K = T$ it is the optimum of the whole run, and for $K = 1$
    it satisfies the constraints in each episode. Its value is not monotone in $K$.

    Args:
      cmdp: one CMDP; this function solves linear programs on the host.
      num_episodes: $T$.
      window: $K$, at most $T$.
      reward: the average reward, where a run has shown it; by default the mean of the episodes.

    Returns:
      The optimum; its value is the average over the episodes. A multiplier is the sum over all
      windows of those of a constraint, each divided by $K$.

    Raises:
      UnforeseenError: if the means of the episodes are not known beforehand.

    Example:
      A budget that is not used in one phase may not be spent in another, unless a window sees both:

      >>> from pdgd_jax import make_for, oracle
      >>> cmdp = make_for("two-phase", 1000)
      >>> [round(oracle.k_benchmark(cmdp, 1000, K).value, 3) for K in (1, 600, 1000)]
      [0.2, 0.273, 0.385]

    Reference:
      Liakopoulos et al. (2019), Cautious Regret Minimization: Online Optimization with Long-Term
      Budget Constraints.
    """
    whole_number("window", window)
    if window > num_episodes:
        raise ValueError(f"a window of {window} episodes is longer than the run of {num_episodes}.")
    constraints = timetable_of(cmdp, "constraints", num_episodes)
    if reward is None:
        rewards = timetable_of(cmdp, "rewards", num_episodes)
        share = np.bincount(rewards.which, minlength=len(rewards.values)) / num_episodes
        reward = np.tensordot(share, rewards.values.astype(float), axes=1)
    return _best_of_windows(Flow(cmdp.mdp), np.asarray(reward), constraints, window)


def _best_of_windows(
    flow: Flow, reward: Float[NDArray, "layers states actions"], constraints: Timetable, window: int
) -> Optimum:
    r"""The best policy for a reward whose cost over every window of episodes is at most 0.

    The cost of a window is linear in its first episode, as long as neither end of the window meets
    a change: windows that begin or end at a change are enough. Those that the solution of a program
    violates most are added to it, until none is violated.
    """
    objective = flow.pairs_of("reward", np.clip(reward, *REWARD_BOUNDS), REWARD_BOUNDS)
    values = flow.pairs_of("constraints", constraints.values, CONSTRAINT_BOUNDS)  # [n, m, pairs]
    index, m = constraints.which, values.shape[1]
    starts = _starts(index, window)
    rows, of_row = np.zeros((0, flow.num_pairs)), np.zeros(0, int)
    chosen: set[tuple[int, int]] = set()
    while True:
        best = best_of(flow, objective, rows)
        if not best.feasible:
            return Optimum(best.value, best.occupancy, np.full(m, np.nan), "infeasible")
        pairs = flow.layers.rows_on_host(best.occupancy).sum(-1)[flow.mask]
        costs = np.concatenate([np.zeros((1, m)), np.cumsum((values @ pairs)[index], axis=0)])
        excess = (costs[starts + window] - costs[starts]) / window  # [starts, m]
        worst = [
            (int(starts[at]), i)
            for i in range(m)
            for at in _peaks(excess[:, i])
            if (int(starts[at]), i) not in chosen
        ]
        if not worst:
            return best._replace(multipliers=_by_constraint(best.multipliers, of_row, m))
        chosen |= set(worst)
        added = [_mean_of(values[:, i], index[begin : begin + window]) for begin, i in worst]
        rows = np.concatenate([rows, added])
        of_row = np.append(of_row, [i for _, i in worst])


def _starts(index: Int[NDArray, " t"], window: int) -> Int[NDArray, " n"]:
    """The first episodes of the windows that begin or end at a change, and of the last window."""
    last = len(index) - window
    changes = np.flatnonzero(np.diff(index)) + 1
    starts = np.concatenate([[0, last], changes, changes - window])
    return np.unique(starts[(starts >= 0) & (starts <= last)])


# A window that is violated by less per episode than this is satisfied.
_SATISFIED = 1e-9
# So many windows of a constraint are added at once: few rounds, each of a small program.
_PER_ROUND = 16


def _peaks(excess: Float[NDArray, " n"]) -> Int[NDArray, " k"]:
    """Violated windows, the worst of several stretches: neighbours are nearly equal."""
    parts = np.array_split(np.arange(len(excess)), min(_PER_ROUND, len(excess)))
    peaks = np.array([part[np.argmax(excess[part])] for part in parts])
    return peaks[excess[peaks] > _SATISFIED]


def _mean_of(
    values: Float[NDArray, "n pairs"], index: Int[NDArray, " k"]
) -> Float[NDArray, " pairs"]:
    """The mean of the values at these positions."""
    which, count = np.unique(index, return_counts=True)
    return np.asarray((count / len(index)) @ values[which])


def _by_constraint(
    multipliers: Float[NDArray, " rows"], of_row: Int[NDArray, " rows"], m: int
) -> Float[NDArray, " m"]:
    # Without rows, `bincount` returns integers.
    return np.bincount(of_row, weights=multipliers, minlength=m).astype(float)
