"""Many runs at once: the only `vmap` over runs."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from pdgd_jax.cmdp import CMDP
from pdgd_jax.learners.base import Learner
from pdgd_jax.metrics import Comparators, Metrics
from pdgd_jax.simulate import (
    Carry,
    History,
    advance,
    check_run,
    checkpoint_episodes,
    history_of,
    start,
)

__all__ = ["advance_lanes", "run_seeds", "start_lanes"]


def run_seeds(
    keys: Key[Array, " seeds"],
    cmdp: CMDP,
    learner: Learner,
    num_episodes: int,
    *,
    checkpoints: int | Sequence[int] = 200,
    comparators: Comparators | None = None,
    on_checkpoint: Callable[[int], None] | None = None,
) -> History:
    """`run` for several keys, stopping at every checkpoint to say how far it is.

    Args:
      keys: one for each seed.
      cmdp: as in `run`.
      learner: as in `run`.
      num_episodes: as in `run`.
      checkpoints: as in `run`.
      comparators: as in `run`.
      on_checkpoint: called on the host with the number of finished episodes, first with 0 when
        everything is compiled.

    Returns:
      The histories, with a leading axis: the same as those of `jax.vmap` of `run`.
    """
    check_run(cmdp, learner, num_episodes)
    episodes = checkpoint_episodes(num_episodes, checkpoints)
    comparators = Comparators.default(cmdp) if comparators is None else comparators
    learner = learner.as_pytree()
    what = cmdp, learner, comparators
    carry = start_lanes(keys, *what)
    carry = advance_lanes(carry, *what, jnp.int32(0))  # compiles, and plays nothing
    tell = on_checkpoint or (lambda done: None)
    tell(0)
    kept = []
    for until in episodes:
        carry = advance_lanes(carry, *what, jnp.int32(until))
        kept.append(jax.tree.map(np.asarray, carry.metrics))
        tell(until)
    metrics = jax.tree.map(lambda *leaves: jnp.stack(leaves, 1), *kept)
    return _histories(carry, metrics, jnp.asarray(episodes, jnp.int32), learner, comparators)


@jax.jit
def start_lanes(keys: Array, cmdp: CMDP, learner: Learner, comparators: Comparators) -> Carry:
    """Runs before their first episode, one for each key."""
    return jax.vmap(lambda key: start(key, cmdp, learner, comparators))(keys)


@jax.jit
def advance_lanes(
    carry: Carry,
    cmdp: CMDP,
    learner: Learner,
    comparators: Comparators,
    until: Int[Array, ""],
) -> Carry:
    """Play all lanes until so many episodes are done."""
    # Lanes are always at the same episode: one counter for all, or the loop would select lanes.
    episode = carry.episode[0]

    def lane(lane: Carry) -> Carry:
        return advance(lane._replace(episode=episode), cmdp, learner, until, comparators)

    return jax.vmap(lane, axis_size=len(carry.episode))(carry)


@jax.jit
def _histories(
    carry: Carry,
    metrics: Metrics,
    episodes: Array,
    learner: Learner,
    comparators: Comparators,
) -> History:
    def one(state: Any, metrics: Metrics) -> History:
        return history_of(metrics, episodes, learner.policy(state), learner, comparators)

    return jax.vmap(one)(carry.learner, metrics)
