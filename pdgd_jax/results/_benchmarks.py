r"""Regret against other benchmarks than the optimum of the whole run.

Against the optimum of each episode (dynamic regret), and against the best policy that satisfies the
constraints over every window of $K$ episodes.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from pdgd_jax import oracle
from pdgd_jax._internal.checks import whole_number
from pdgd_jax._internal.sums import Compensated
from pdgd_jax._internal.typing import NDArray
from pdgd_jax.models import CMDP
from pdgd_jax.processes import StochasticProcess
from pdgd_jax.simulation import History

__all__ = ["Dynamic", "average_of", "dynamic_optimum", "opt_of_prefix", "opt_of_windows"]

# The most linear programs, each counted with its number of pairs, that an evaluation solves for the
# dynamic regret without being asked: about a second.
_MOST = 50_000
# The longest run whose episodes are put side by side for it: 2 GB.
_LONGEST = 2**26


class Dynamic(NamedTuple):
    """The sum of the optima of the episodes up to each checkpoint, or why it is not known."""

    total: Float[NDArray, " checkpoints"]
    reason: str


def dynamic_optimum(cmdp: CMDP, episode: Int[NDArray, " checkpoints"]) -> Dynamic:
    """What the best policy of each episode would have earned up to each checkpoint.

    Args:
      cmdp: the CMDP that was played.
      episode: the checkpoints.
    """
    nothing, means = np.full(len(episode), np.nan), [_mean(cmdp.rewards), _mean(cmdp.constraints)]
    if means[0] is not None and means[1] is not None:  # all episodes are alike
        best = oracle.optimum(cmdp.mdp, means[0], means[1])
        if best.feasible:
            return Dynamic(episode * best.value, "")
        return Dynamic(nothing, "no policy satisfies the constraints")
    if episode[-1] > _LONGEST:
        return Dynamic(nothing, f"the run is longer than {_LONGEST:,} episodes")
    try:
        optima = oracle.episode_optima(cmdp, int(episode[-1]), most=_MOST)
    except oracle.UnforeseenError as error:
        return Dynamic(nothing, str(error))
    infeasible = np.flatnonzero(np.isnan(optima))
    total = np.cumsum(optima)[episode - 1]
    if not len(infeasible):
        return Dynamic(total, "")
    return Dynamic(total, f"no policy satisfies the constraints of episode {infeasible[0] + 1}")


def opt_of_windows(cmdp: CMDP, window: int) -> Callable[[History, int], float]:
    """The optimum over windows of the episodes of a run up to a checkpoint.

    Before the first window is complete, the window is what was played, and this is OPT.
    """
    whole_number("k", window)
    reward_of, opt_of = _rewards_of(cmdp), opt_of_prefix(cmdp)
    known: dict[tuple[int, bytes], float] = {}

    def opt(run: History, k: int) -> float:
        played, reward = int(run.episode[k]), reward_of(run, k)
        if window >= played:
            return opt_of(run, k)
        if not np.isfinite(reward).all():
            return float("nan")
        address = played, reward.tobytes()
        if address not in known:
            best = oracle.k_benchmark(cmdp, played, window, reward=reward)
            known[address] = best.value if best.feasible else float("nan")
        return known[address]

    return opt


def opt_of_prefix(cmdp: CMDP) -> Callable[[History, int], float]:
    """OPT of the episodes of a run up to a checkpoint; many runs share the results."""
    reward_of = _rewards_of(cmdp)
    mean = _mean(cmdp.constraints)
    known: dict[bytes, float] = {}

    def opt(run: History, k: int) -> float:
        reward, constraints = reward_of(run, k), mean
        if constraints is None:
            constraints = np.clip(average_of(run.metrics.constraint_sum, run, k), -1, 1)
        if not (np.isfinite(reward).all() and np.isfinite(constraints).all()):
            return float("nan")
        address = reward.tobytes() + constraints.tobytes()
        if address not in known:
            best = oracle.optimum(cmdp.mdp, reward, constraints)
            known[address] = best.value if best.feasible else float("nan")
        return known[address]

    return opt


def average_of(total: Compensated | None, run: History, k: int) -> NDArray:
    """The average over the episodes up to a checkpoint; NaN if another CMDP was played."""
    if total is None:
        return np.asarray(np.nan)
    return np.asarray(Compensated(*(part[k] for part in total)).total() / run.episode[k])


def _rewards_of(cmdp: CMDP) -> Callable[[History, int], NDArray]:
    """The mean rewards, or the average of those that were shown up to a checkpoint."""
    mean = _mean(cmdp.rewards)

    def rewards(run: History, k: int) -> NDArray:
        return np.clip(average_of(run.metrics.reward_sum, run, k), 0, 1) if mean is None else mean

    return rewards


def _mean(process: object) -> NDArray | None:
    return np.asarray(process.mean()) if isinstance(process, StochasticProcess) else None
