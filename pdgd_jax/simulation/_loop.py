r"""The interaction of a learner with a CMDP: the only episode loop.

`run` is one compiled program and a pure function of its key: `vmap` it over keys, over `stack`ed
instances and over learners. `start` and `advance` are its two halves, for callers that inspect a
run in between.
"""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, Key, PyTree

from pdgd_jax._internal.pytree import pytree
from pdgd_jax._internal.typing import NDArray
from pdgd_jax.learners import Learner, Setting, check_fits, check_setting
from pdgd_jax.models import CMDP, observed, rollout
from pdgd_jax.simulation import _metrics as measured
from pdgd_jax.simulation._metrics import Metrics
from pdgd_jax.simulation._reference import Comparators, reference

__all__ = [
    "Carry",
    "History",
    "advance",
    "check_run",
    "checkpoint_episodes",
    "history_of",
    "run",
    "start",
]


class Carry(NamedTuple):
    """A run between two episodes.

    Attributes:
      key: the key of the run; episode t uses `fold_in(key, t)`.
      episode: the number of episodes played.
      learner: the state of the learner.
      processes: the state of the CMDP's processes.
      metrics: the measurements so far.
    """

    key: Key[Array, ""]
    episode: Int[Array, ""]
    learner: PyTree
    processes: PyTree
    metrics: Metrics


@pytree
class History:
    r"""The measurements of a run at its checkpoints, each cumulative or the worst so far.

    Attributes:
      episode: `[K]`, the number of episodes played.
      reward: `[K]`, the exact $\sum_t r_t^\top q_t$.
      sampled_reward: `[K]`, the rewards along the trajectories.
      violation: `[K, m]`, $\sum_t G_t^\top q_t$.
      positive_violation: `[K, m]`, $\sum_t [\bar G^\top q_t]_+$ of stochastic constraints,
        $\sum_t [G_t^\top q_t]_+$ of adversarial ones: see `Metrics`.
      model_error: `[K]`, $\sum_t \|q_t - \hat q_t\|_1$.
      iterations: `[K]`, the iterations of all projections.
      metrics: all other measurements, see `Metrics`; leaves `[K, ...]`.
      policy: `[L, S, A]`, the policy that would be played next.
      setting: the problem the learner was built for.
      comparators: the comparators of the interval regrets.
    """

    episode: Int[Array, "*batch checkpoints"]
    reward: Float[Array, "*batch checkpoints"]
    sampled_reward: Float[Array, "*batch checkpoints"]
    violation: Float[Array, "*batch checkpoints m"]
    positive_violation: Float[Array, "*batch checkpoints m"]
    model_error: Float[Array, "*batch checkpoints"]
    iterations: Float[Array, "*batch checkpoints"]
    metrics: Metrics
    policy: Float[Array, "*batch layers states actions"]
    setting: Setting | None
    comparators: Comparators

    @property
    def multipliers(self) -> Float[Array, "*batch checkpoints m"]:
        r"""$\lambda$ after each checkpoint's episode."""
        return self.metrics.multipliers

    @property
    def all_converged(self) -> Any:
        """Whether every projection converged, for each run."""
        return self.metrics.unconverged[..., -1] == 0


def checkpoint_episodes(
    num_episodes: int, checkpoints: int | Sequence[int] | NDArray
) -> tuple[int, ...]:
    """The episodes after which to measure: a number of them, evenly spaced, or those given.

    The last one is always the end of the run.

    Example:
      >>> checkpoint_episodes(10, 4), checkpoint_episodes(10, [1, 3])
      ((2, 5, 7, 10), (1, 3, 10))
    """
    if isinstance(checkpoints, int | np.integer):
        if checkpoints < 1:
            raise ValueError(f"checkpoints must be at least 1; got {checkpoints}.")
        number = min(int(checkpoints), num_episodes)
        return tuple((i + 1) * num_episodes // number for i in range(number))
    chosen = tuple(int(episode) for episode in checkpoints)
    increasing = all(a < b for a, b in itertools.pairwise(chosen))
    if not chosen or not increasing or chosen[0] < 1 or chosen[-1] > num_episodes:
        raise ValueError(
            f"checkpoints are a number, or increasing episodes between 1 and {num_episodes}; "
            f"got {checkpoints!r}."
        )
    return chosen if chosen[-1] == num_episodes else (*chosen, num_episodes)


def start(
    key: Key[Array, ""], cmdp: CMDP, learner: Learner, comparators: Comparators | None = None
) -> Carry:
    """A run before its first episode."""
    run_key, process_key, learner_key = jax.random.split(key, 3)
    comparators = Comparators.default(cmdp) if comparators is None else comparators
    return Carry(
        key=run_key,
        episode=jnp.zeros((), jnp.int32),
        learner=learner.init(learner_key),
        processes=cmdp.init(process_key),
        metrics=measured.init(cmdp, comparators),
    )


def advance(
    carry: Carry,
    cmdp: CMDP,
    learner: Learner,
    until: Int[Array, ""] | int,
    comparators: Comparators | None = None,
) -> Carry:
    """Play until `until` episodes are done; the number may be traced."""
    comparators = Comparators.default(cmdp) if comparators is None else comparators
    against = reference(cmdp, comparators, learner.setting)

    def episode(_: Array, carry: Carry) -> Carry:
        t = carry.episode
        draw_key, play_key = jax.random.split(jax.random.fold_in(carry.key, t))
        policy = learner.policy(carry.learner)
        outcome, processes = cmdp.draw(draw_key, carry.processes, t, policy)
        trajectory = rollout(play_key, cmdp.mdp, policy)
        shown = outcome
        if learner.setting is not None and learner.setting.feedback == "bandit":
            shown = observed(cmdp.layers, trajectory, outcome)
        state, info = learner.update(carry.learner, trajectory, shown)
        metrics = measured.update(
            carry.metrics, cmdp, against, t, policy, trajectory, outcome, info
        )
        return Carry(carry.key, t + 1, state, processes, metrics)

    return lax.fori_loop(carry.episode, jnp.asarray(until, jnp.int32), episode, carry)


def history_of(
    checkpoints: Metrics,
    episodes: Int[Array, "*batch checkpoints"],
    policy: Float[Array, "*batch layers states actions"],
    learner: Learner,
    comparators: Comparators,
) -> History:
    """The history of a run from its metrics `[..., K, ...]` after these episodes."""
    sums = measured.sums_of(checkpoints)
    return History(
        episode=episodes,
        reward=sums["reward"].value,
        sampled_reward=sums["sampled_reward"].value,
        violation=sums["violation"].value,
        positive_violation=sums["positive_violation"].value,
        model_error=sums["model_error"].value,
        iterations=sums["iterations"].value,
        metrics=checkpoints,
        policy=policy,
        setting=learner.setting,
        comparators=comparators,
    )


def run(
    key: Key[Array, ""],
    cmdp: CMDP,
    learner: Learner,
    num_episodes: int,
    *,
    checkpoints: int | Sequence[int] | NDArray = 200,
    comparators: Comparators | None = None,
) -> History:
    r"""Let a learner play a CMDP: the paper's learner-environment interaction.

    A run is one compiled program, a `lax.scan` over checkpoints with everything in its carry.
    Memory does not depend on `num_episodes`, and another horizon with the same number of
    checkpoints does not compile again. The same key in the same batch gives the same bits.

    Args:
      key: determines rewards, constraints and trajectories.
      cmdp: the CMDP to play.
      learner: the learner, such as `pdgd_ops(cmdp.layers, cmdp.num_constraints, num_episodes)`.
      num_episodes: $T$.
      checkpoints: the number of measurements, evenly spaced, or the episodes after which to
        measure.
      comparators: comparators for interval regrets; see `comparators_of`.

    Returns:
      The measurements at the checkpoints.

    Raises:
      ValueError: before anything compiles, if the learner was built for another problem, or a table
        of rewards or constraints is shorter than the run.

    Example:
      Four seeds at once:

      >>> import jax
      >>> from pdgd_jax import make, pdgd_ops, run
      >>> cmdp = make("two-phase", num_episodes=100)
      >>> learner = pdgd_ops(cmdp.layers, cmdp.num_constraints, num_episodes=100)
      >>> keys = jax.random.split(jax.random.key(0), 4)
      >>> histories = jax.vmap(lambda key: run(key, cmdp, learner, 100, checkpoints=10))(keys)
      >>> histories.reward.shape
      (4, 10)

    Reference:
      The paper's Algorithm "Learner-Environment Interaction".
    """
    check_run(cmdp, learner, num_episodes)
    episodes = checkpoint_episodes(num_episodes, checkpoints)
    comparators = Comparators.default(cmdp) if comparators is None else comparators
    ends = jnp.asarray(episodes, jnp.int32)
    return _run(key, cmdp, learner.as_pytree(), comparators, ends)


@jax.jit
def _run(
    key: Array, cmdp: CMDP, learner: Learner, comparators: Comparators, ends: Array
) -> History:
    def to_checkpoint(carry: Carry, until: Array) -> tuple[Carry, Metrics]:
        carry = advance(carry, cmdp, learner, until, comparators)
        return carry, carry.metrics

    first = start(key, cmdp, learner, comparators)
    last, metrics = lax.scan(to_checkpoint, first, ends)
    return history_of(metrics, ends, learner.policy(last.learner), learner, comparators)


def check_run(cmdp: CMDP, learner: Learner, num_episodes: int) -> None:
    """Raise if a run cannot be played to its end."""
    check_setting(num_episodes)
    cmdp.check_episodes(num_episodes)
    cmdp.check_lasts(num_episodes)
    check_fits(learner, cmdp, num_episodes)
