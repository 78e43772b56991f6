"""What the episodes of a run have in store, where that is known before the first one."""

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from pdgd_jax.models import CMDP
from pdgd_jax.processes import Process, Timetable, foresight

__all__ = ["UnforeseenError", "timetable_of"]

# Beyond, a process that does not say what it will show is not drawn episode by episode: 512 MB.
_MOST_NUMBERS = 2**26


class UnforeseenError(ValueError):
    """The means of the episodes are not known beforehand: one sentence says why."""


def timetable_of(
    cmdp: CMDP, name: Literal["rewards", "constraints"], num_episodes: int
) -> Timetable:
    """The mean rewards `[n, L, S, A]` or constraints `[n, m, L, S, A]` of every episode.

    Args:
      cmdp: one CMDP.
      name: which of the two.
      num_episodes: T.

    Raises:
      UnforeseenError: if they depend on the policies, or on chance without a known mean.
    """
    cmdp.check_lasts(num_episodes)
    process: Process = getattr(cmdp, name)
    try:
        return process.timetable(num_episodes)
    except NotImplementedError as error:
        found = foresight(process, cmdp.layers.shape, cmdp.mdp.transition.dtype)
        if found.policy:
            raise UnforeseenError(f"the {name} depend on the policies") from None
        if found.chance:
            why = f"the {name} depend on chance, and their means are not known"
            raise UnforeseenError(why) from None
        size = jax.eval_shape(_draw_all(process, 1)).size
        if num_episodes * size > _MOST_NUMBERS:
            raise UnforeseenError(str(error).rstrip(".")) from None
    values = jax.jit(_draw_all(process, num_episodes))()
    return Timetable(np.asarray(values), np.arange(num_episodes))


def _draw_all(process: Process, num_episodes: int) -> Callable[[], Array]:
    """A function that draws the episodes of a process which depends on nothing else."""
    key = jax.random.key(0)

    def draw(state: PyTree, episode: Array) -> tuple[PyTree, Array]:
        values, state = process.draw(key, state, episode, None)
        return state, values

    return lambda: jax.lax.scan(draw, process.init(key), jnp.arange(num_episodes, dtype=jnp.int32))[
        1
    ]
